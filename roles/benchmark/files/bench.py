#!/usr/bin/env python3
"""Measure a running instance with the benchmark client of its release: the work of gaudi-job@bench.NAME.

    bench.py DESCRIPTION

DESCRIPTION is a JSON document of the module benchmark_plan. The client runs in the serving image of the instance, in a
container of its own without a card, and asks the instance where it listens. What came of it is a document below
/var/lib/gaudi-serving/benchmarks/NAME, called by the plan that served and by when it began. It has figures only.

A guarded instance is asked with the token of its supervisor, which the container reads from a file. That nobody else
listens there was seen by benchmark_plan.

Python 3.9, its standard library, and the library gaudi beside this program. Exit status: 0 measured, 1 refused, failed,
or requests failed (one sentence as the last line), 2 wrong usage, 130 stopped.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from gaudi.base import paths
from gaudi.base.documents import Damaged
from gaudi.base.printable import printable
from gaudi.base.refusal import Refusal
from gaudi.benchmark import asked as benchmark
from gaudi.benchmark import figures
from gaudi.faults.causes import Cause, explain, quote
from gaudi.faults.facts import Facts
from gaudi.node import documents, long_work
from gaudi.node.files import write_json
from gaudi.node.long_work import lines_of
from gaudi.serving.plan import NO_ENTRY_POINT, mount, resource_limits, tmpfs, ulimits

CLIENT = f"{paths.PROGRAMS}/bench_client.py"
LABEL = "gaudi-serving.benchmark"
# A bar of the client: " 12%|#2        | 3/24 [00:01<00:07, ...".
BAR = re.compile(r"\|\s*(\d{1,9})/(\d{1,9})(?!\d)\s*\[")
MARK = "RESULT "
ASKED = "asked.json"
TAIL = 40
# Bytes of a line: the figures of a step are one.
LONGEST_LINE = 1 << 20
# The form of a description.
FORM = {
    **dict.fromkeys(("instance", "plan", "release", "model", "image", "url", "program"), str),
    **dict.fromkeys(("schema", "input_tokens", "output_tokens"), int),
    **dict.fromkeys(("guarded", "own_prompts"), bool),
    "steps": [{"concurrency": int, "requests": int, "results": str, "arguments": [str]}],
    "container": {"name": str, "network": str, "tmpfs": list, "mounts": list, "environment": {str: str}},
}


class BenchmarkInterrupt(Exception):
    """Asked to end."""


def read_description(path: Path) -> dict[str, Any]:
    """What is to be measured. Raises Refusal."""
    try:
        content: dict[str, Any] | None = documents.read_json(path, FORM)
    except Damaged as damaged:
        raise Refusal("record_damaged", f"{damaged}; run playbooks/bench.yml, which writes it") from damaged
    if content is None:
        raise Refusal("not_there", f"{path} is not there; run playbooks/bench.yml, which writes it")
    return content


def stage(document: dict[str, Any], folder: Path, seed: int) -> None:
    """Write what the container reads."""
    asked = {
        "program": document["program"],
        "steps": document["steps"],
        "seed": seed,
        "input_tokens": document["input_tokens"],
        "prompts": benchmark.PROMPTS if document["own_prompts"] else "",
    }
    write_json(folder / ASKED, asked, mode=0o600)


def command(document: dict[str, Any], folder: Path) -> list[str]:
    """The docker run vector; nothing in it is read by a shell, and no key is in it."""
    box = document["container"]
    words = ["docker", "run", "--rm", "--pull", "never", "--name", box["name"]]
    words += ["--label", f"{LABEL}={document['instance']}"]
    # The engine's own runtime: the vendor's would look for cards.
    words += [
        "--runtime",
        "runc",
        "--network",
        box["network"],
        "--ipc",
        "private",
        *resource_limits(box),
        "--cap-drop",
        "ALL",
    ]
    words += ["--security-opt", "no-new-privileges", "--read-only", "--log-driver", "none", *ulimits(box)]
    for entry in box["tmpfs"]:
        words += ["--tmpfs", tmpfs(entry)]
    token = [(f"{paths.INSTANCE_STATES}/{document['instance']}/{paths.PROBE}", "token")] if document["guarded"] else []
    for source, name in [(CLIENT, "bench_client.py"), (str(folder / ASKED), ASKED), *token]:
        words += ["--mount", mount(source, f"{benchmark.DIRECTORY}/{name}", True)]
    for item in box["mounts"]:
        words += ["--mount", mount(item["source"], item["target"], True)]
    for name, value in sorted(box["environment"].items()):
        words += ["--env", f"{name}={value}"]
    words += ["--workdir", box["working_directory"], *NO_ENTRY_POINT, document["image"]]
    return [*words, "python3", "-B", f"{benchmark.DIRECTORY}/bench_client.py", benchmark.DIRECTORY]


class BenchmarkProgress:
    """How far the client is, for the follower."""

    def __init__(self, steps: list[dict[str, Any]]) -> None:
        self.path = long_work.progress_file()
        self.steps = steps
        self.before = 0
        self.total = sum(step["requests"] for step in steps)
        self.started = time.monotonic()
        self.say("start the client", 0)

    def say(self, phase: str, done: int) -> None:
        """Write it."""
        rate = done / max(time.monotonic() - self.started, 1e-6)
        state = {
            "phase": phase,
            "done": done,
            "total": self.total,
            "unit": "requests",
            "rate": round(rate, 3),
            "eta": round((self.total - done) / rate, 1) if done else None,
        }
        long_work.tell_progress(self.path, state)

    def read(self, line: str, step: int) -> None:
        """Take a line of the client's; other bars than those of its requests have other totals."""
        bars = BAR.findall(line)
        if bars and step < len(self.steps) and int(bars[-1][1]) == self.steps[step]["requests"]:
            self.say(f"{self.steps[step]['concurrency']} at a time", self.before + int(bars[-1][0]))

    def end(self, step: int) -> None:
        """A concurrency is measured."""
        self.before += int(self.steps[step]["requests"])


def take(line: str, step: dict[str, Any]) -> dict[str, Any]:
    """The figures in a line of the container's. Raises Refusal where there are none."""
    try:
        raw = json.loads(line[len(MARK) :])
    except (ValueError, RecursionError):
        raw = {}
    return figures.step_of(raw if isinstance(raw, dict) else {}, step["concurrency"], step["requests"])


def run_client(document: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    """Run the client's container to its end; Refusal with its last words when it fails."""
    steps: list[dict[str, Any]] = document["steps"]
    found: list[dict[str, Any]] = []
    progress, tail = BenchmarkProgress(steps), deque[str](maxlen=TAIL)
    work = subprocess.Popen(
        command(document, folder), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        for line in map(printable, filter(str.strip, lines_of(work.stdout, LONGEST_LINE))):
            if line.startswith(MARK) and len(found) < len(steps):
                progress.end(len(found))
                found.append(take(line, steps[len(found)]))
                continue
            print(line, flush=True)
            tail.append(line)
            progress.read(line, len(found))
        status = work.wait()
    except BaseException:
        subprocess.run(
            ["docker", "stop", "--time", "5", document["container"]["name"]], capture_output=True, check=False
        )
        work.wait()
        raise
    if status or len(found) < len(steps):
        raise _refusal(explain(tail, Facts(status=status, command=(CLIENT,))), tail, status)
    return found


def _refusal(cause: Cause, tail: Sequence[str], status: int) -> Refusal:
    """Why the client failed, with the line that says so."""
    last = next((line.strip() for line in reversed(tail) if line.strip()), "it printed nothing")
    shown = cause.lines[-1] if cause.lines else last
    ended = f"The client ended with status {status}: {quote(shown, 200)}"
    if cause.id:
        return Refusal(cause.id, f"{ended} {cause.cause}", cause.remedy)
    return Refusal("client_failed", ended, "Its last words are above.")


def remove_left(document: dict[str, Any]) -> None:
    """Take away the container that a killed run has left: by our label, since anybody may call his own the same."""
    of_ours = ["--filter", f"label={LABEL}={document['instance']}"]
    listed = subprocess.run(
        ["docker", "container", "ls", "--all", "--quiet", *of_ours], capture_output=True, check=False, text=True
    )
    left = re.findall(r"^[0-9a-f]{12,64}$", listed.stdout, re.MULTILINE)
    if left:
        subprocess.run(["docker", "rm", "--force", "--volumes", *left], capture_output=True, check=False)


def measure(document: dict[str, Any]) -> dict[str, Any]:
    """Measure, and keep what came of it."""
    folder = Path(paths.BENCHMARKS) / document["instance"]
    folder.mkdir(mode=0o700, exist_ok=True)
    started = datetime.now(timezone.utc)
    remove_left(document)
    stage(document, folder, int(started.timestamp()))
    try:
        steps = run_client(document, folder)
    finally:
        (folder / ASKED).unlink()
    name = f"{document['plan'][:12]}-{started.strftime('%Y%m%dT%H%M%SZ')}"
    run = {
        "schema": benchmark.SCHEMA,
        "run": name,
        **{key: document[key] for key in ("instance", "plan", "release", "model", "image", "program")},
        "started": started.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "ended": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        **{key: document[key] for key in ("input_tokens", "output_tokens")},
        "steps": steps,
    }
    write_json(folder / f"{name}.json", run, mode=0o600)
    return run


def _stop(signum: int, _frame: Any) -> None:
    raise BenchmarkInterrupt(signum)


def main(arguments: list[str]) -> int:
    """Entry point; returns the exit status."""
    if len(arguments) != 1:
        print("usage: bench.py DESCRIPTION", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    try:
        run = measure(read_description(Path(arguments[0])))
        # If requests failed, the playbook shows the figures first and then fails.
        long_work.tell_result({"run": run["run"], "failed": figures.failed(run)})
    except Refusal as refusal:
        print(f"bench: {refusal}", file=sys.stderr)
        long_work.tell_refusal(refusal)
        return 1
    except OSError as error:
        print(f"bench: {error.filename or 'the file system'}: {error.strerror or error}", file=sys.stderr)
        return 1
    except BenchmarkInterrupt:
        print("bench: stopped; nothing was kept of this run. Run it again", file=sys.stderr)
        return 130
    print("\n".join(figures.table(run)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
