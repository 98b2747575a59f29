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
QUESTION = {"messages": [{"role": "user", "content": "Tell me a long story."}], "ignore_eos": True}
KEY = os.environ.get("STREAMS_KEY", "")


def ask(port: int, method: str, path: str, body: dict[str, Any] | None = None) -> http.client.HTTPResponse:
    """Send a request and give what is answered, to be read."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {KEY}"} if KEY else {})}
    connection.request(method, path, json.dumps(body) if body else None, headers)
    return connection.getresponse()


def read_whole(port: int, model: str, tokens: int, begun: threading.Event) -> float | None:
    """Read an answer to its end and give when that was (Unix time); None where the server lets nobody in any more."""
    body = {
        "model": model,
        **QUESTION,
        "max_tokens": tokens,
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
    return time.time()


def lengths(port: int, model: str) -> list[int]:
    """How many tokens each reader asks for: what the server gives in LENGTHS, and no more than a request has room for.

    16 tokens for each reader, at once, say how fast it goes now and how long the question is.
    """

    def tell(_reader: int) -> int:
        answer = ask(port, "POST", "/v1/chat/completions", {"model": model, **QUESTION, "max_tokens": 16})
        said = answer.read()
        assert answer.status == http.client.OK, (answer.status, said)
        return int(json.loads(said)["usage"]["prompt_tokens"])

    before = time.monotonic()
    with ThreadPoolExecutor(len(LENGTHS)) as people:
        asked = max(people.map(tell, range(len(LENGTHS))))
    rate = 16 / (time.monotonic() - before)
    room = int(json.loads(ask(port, "GET", "/v1/models").read())["data"][0]["max_model_len"]) - asked
    return [min(max(16, round(seconds * rate)), room) for seconds in LENGTHS]


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
        tokens = lengths(here, instance)
        readers = [people.submit(read, here, instance, *each, over) for each in zip(tokens, begun, strict=True)]
        try:
            for reader, event in zip(readers, begun, strict=True):
                while not event.wait(1):
                    if reader.done():
                        reader.result()  # Raises what ended it.
            ending = subprocess.Popen([*ssh, *command]) if command else None
            # The file says when the door closed: a fast server ends answers before ssh has told that it is there. Node
            # and controller have one clock, because a node here is a container.
            looking = f"until sudo stat --format=%.9Y {closed} 2> /dev/null; do sleep 0.1; done"
            seen = subprocess.run([*ssh, looking], check=True, timeout=4 * PATIENCE, stdout=subprocess.PIPE, text=True)
            closed_at = float(seen.stdout)
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
