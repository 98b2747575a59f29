"""Read long answers of a served model while somebody ends its server: every answer that began ends whole.

    streams.py SSH_CONFIG NODE PORT INSTANCE [COMMAND ...]

Two people read one answer after the other, and a third waits for the door of INSTANCE on NODE to close. COMMAND is run
on NODE once both have begun; without it somebody else ends the server. With a key, in STREAMS_KEY, the server has a
guard, and both read until they are told to come again later; without one they begin nothing new once the door has
closed. Status 0 when all that began ended whole, and one of them after the door had closed.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from openai_client import PATIENCE, way

# Seconds that each reader's answers take as the server goes now: different ones, so that they do not end at once. The
# supervisor waits two minutes for those who read; on a busy machine many tokens would take longer.
LENGTHS = (10, 7)
LONGEST = 700  # tokens that the model's length has room for
KEY = os.environ.get("STREAMS_KEY", "")


def ask(port: int, method: str, path: str, body: dict[str, Any] | None = None) -> http.client.HTTPResponse:
    """Send a request and give what is answered, to be read."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {KEY}"} if KEY else {})}
    connection.request(method, path, json.dumps(body) if body else None, headers)
    return connection.getresponse()


def read_whole(port: int, model: str, tokens: int, begun: threading.Event) -> float | None:
    """Read an answer to its end and give when that was; None where the server lets nobody in any more."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": "Tell me a long story."}],
        "max_tokens": tokens,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    answer = ask(port, "POST", "/v1/chat/completions", body)
    if answer.status == http.client.SERVICE_UNAVAILABLE:
        return None
    assert answer.status == http.client.OK, (answer.status, answer.read())
    said = []
    for line in answer:
        if line.startswith(b"data: "):
            said.append(line.removeprefix(b"data: ").strip())
            begun.set()
    assert said[-1] == b"[DONE]", said[-1]
    *chunks, last = map(json.loads, said[:-1])
    finished = [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"] if choice["finish_reason"]]
    assert finished == ["length"], finished
    assert last["usage"]["completion_tokens"] == tokens, last
    return time.monotonic()


def rate(port: int, model: str) -> float:
    """How many tokens a second the server gives now to each of those who read."""

    def tell(_reader: int) -> None:
        body = {"model": model, "prompt": "A", "max_tokens": 16, "ignore_eos": True}
        answer = ask(port, "POST", "/v1/completions", body)
        said = answer.read()
        assert answer.status == http.client.OK, (answer.status, said)

    before = time.monotonic()
    with ThreadPoolExecutor(len(LENGTHS)) as people:
        list(people.map(tell, range(len(LENGTHS))))
    return 16 / (time.monotonic() - before)


def read(port: int, model: str, tokens: int, begun: threading.Event, over: threading.Event) -> list[float]:
    """Read one answer after the other, until it is over or nobody is let in; give when each ended."""
    ended: list[float] = []
    while not over.is_set():
        end = read_whole(port, model, tokens, begun)
        if end is None:
            break
        ended.append(end)
    begun.set()
    return ended


def main(config: str, node: str, port: str, instance: str, *command: str) -> int:
    """Read until the server has ended."""
    ssh = ["ssh", "-F", config, node]
    closed = f"/var/lib/gaudi-serving/instances/{instance}/door/closed"
    begun, over = [threading.Event() for _ in LENGTHS], threading.Event()
    with way(config, node, int(port)) as here, ThreadPoolExecutor(len(LENGTHS)) as people:
        now = rate(here, instance)
        tokens = [min(max(16, round(seconds * now)), LONGEST) for seconds in LENGTHS]
        readers = [people.submit(read, here, instance, *each, over) for each in zip(tokens, begun, strict=True)]
        try:
            for reader, event in zip(readers, begun, strict=True):
                while not event.wait(1):
                    if reader.done():
                        reader.result()  # Raises what ended it.
            ending = subprocess.Popen([*ssh, *command]) if command else None
            subprocess.run([*ssh, f"until sudo test -e {closed}; do sleep 0.1; done"], check=True, timeout=4 * PATIENCE)
            closed_at = time.monotonic()
            if not KEY:
                over.set()
            # Those who read hold the server up for this one.
            late = ask(here, "GET", "/v1/models").status if KEY else None
            ended = [end for reader in readers for end in reader.result()]
        finally:
            over.set()
        if ending:
            assert ending.wait(PATIENCE) == 0
    after = sum(end > closed_at for end in ended)
    print(f"{len(ended)} answers ended whole, {after} of them after the door had closed; a late one got {late}")
    return int(not after or late not in (None, http.client.SERVICE_UNAVAILABLE))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
