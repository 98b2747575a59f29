"""What building through the node's job adds to docker build of the same Dockerfile.

    python -m benchmarks.image                    on a simulated node that is started here
    python -m benchmarks.image --scope NAME       on the node of a scope that is up with --buildable, which stays

The small image of Molecule's scenario: stand-in repositories, no PyTorch, no vLLM. The program of the job and docker
build take turns as whole processes on the node; before each, the image and Docker's build cache are removed, and every
second turn begins with docker build. What the program does beside is what it may add: it asks the registry for the
base, looks for room, writes the context's files, and adds the labels with versions, for which it looks into the whole
image. Its look into the base image is a check, and is taken off. Checks of the finished image and its bill of materials
come after the program, and are not part of either.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from simulator import host
from simulator.settings import ROOT, Scope

RUNS = 3
SCOPE = "bench-image"
SITE = "molecule/images/vars/site.yml"
# What the program may add: a share of docker build's time, or seconds.
SHARE_LIMIT, SECONDS_LIMIT = 0.05, 10.0
# What is measured, in the words of the table.
WHOLE, BASE_LOOK, LABELS, PLAIN = (
    "the program of the job",
    "of it: the look into the base image (a check)",
    "of it: the labels with versions",
    "docker build",
)

# The program of the job, which also says how long two of its functions took.
PROGRAM = r"""
import json, pathlib, sys, time
from gaudi_image import __main__ as program, build

spent = {}

def timed(name):
    does = getattr(build, name)
    def timing(*given):
        begun = time.monotonic()
        try:
            return does(*given)
        finally:
            spent[name] = time.monotonic() - begun
    setattr(build, name, timing)

for name in ("check_release", "label"):
    timed(name)
status = program.main(["build", sys.argv[1]])
pathlib.Path(sys.argv[2]).write_text(json.dumps(spent))
sys.exit(status)
"""

# Runs on the node, after PROGRAM: one build each way from nothing, the seconds as JSON. Its arguments: where the
# library of the build lies, where the request, and whether docker build comes first.
ON_NODE = r"""
import json, os, pathlib, subprocess, sys, tempfile, time
library, folder, plain_first = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3] == "plain"
sys.path[:0] = library.split(os.pathsep)
from gaudi_image import build, request as requests

found = sorted(folder.glob("*.json"))
if len(found) != 1:
    sys.exit(f"{folder} has {len(found)} requests, and one is wanted: take a scope of its own")
request = requests.load(found[0])

def quietly(*argv, **more):
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
    if done.returncode:
        sys.exit(f"{argv[:3]}: {done.stdout[-2000:]}")

def from_nothing(*argv, **more):
    quietly("docker", "image", "rm", "--force", request.reference)
    quietly("docker", "builder", "prune", "--all", "--force")
    begun = time.monotonic()
    quietly(*argv, **more)
    return time.monotonic() - begun

def ours():
    with tempfile.TemporaryDirectory() as scratch:
        spent = pathlib.Path(scratch, "spent.json")
        environment = {**os.environ, "PYTHONPATH": library}
        whole = from_nothing(sys.executable, "-c", PROGRAM, str(found[0]), str(spent), env=environment)
        return {"whole": whole, **json.loads(spent.read_text())}

def plain():
    with tempfile.TemporaryDirectory() as scratch:
        context = build.write_context(request, pathlib.Path(scratch))
        secrets = [word for name, file in request.secrets.items() for word in ("--secret", f"id={name},src={file}")]
        proxies = [word for name in request.proxies for word in ("--build-arg", name)]
        hosts = [f"--add-host={name}:{address}" for name, address in build.known_hosts(list(request.hosts)).items()]
        return from_nothing(
            "docker", "build", f"--network={request.network}", f"--tag={request.reference}",
            f"--build-arg=BASE={request.base}", f"--file={pathlib.Path(scratch, build.DOCKERFILE)}",
            *hosts, *secrets, *proxies, str(context), env={**os.environ, **request.proxies, "DOCKER_BUILDKIT": "1"},
        )

first = plain() if plain_first else None
seconds = ours()
seconds["plain"] = plain() if first is None else first
print(json.dumps(seconds))
"""
# On a node: roles/serving_image/vars/main.yml.
LIBRARY, REQUESTS = "/usr/local/lib/gaudi-serving", "/etc/gaudi-serving/image"


def on_node(library: str, requests: str, turn: int) -> tuple[str, list[str]]:
    """What Python runs on a node for one turn, and its arguments."""
    return f"PROGRAM = {PROGRAM!r}\n{ON_NODE}", [library, requests, "plain" if turn % 2 else "ours"]


@contextmanager
def node(scope: str | None) -> Iterator[Scope]:
    """A node that images can be built on: one that is up, or one that is started here and taken away."""
    if scope:
        yield Scope(scope)
        return
    simulator = [sys.executable, "-m", "simulator"]
    host.run([*simulator, "up", "--buildable", "--scope", SCOPE])
    try:
        yield Scope(SCOPE)
    finally:
        host.run([*simulator, "down", "--scope", SCOPE])


def prepare(scope: Scope) -> None:
    """Have the node build its image once: engine, program, request and base image are there then."""
    subprocess.run(
        ["ansible-playbook", "-i", "inventories/simulated", f"--extra-vars=@{SITE}", "playbooks/build_image.yml"],
        cwd=ROOT,
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "GAUDI_SIMULATOR_SCOPE": scope.name},
        stdout=subprocess.DEVNULL,
        check=True,
    )


def both(scope: Scope, turn: int) -> dict[str, float]:
    """Seconds of the job's program, of two parts of it, and of docker build."""
    machine = json.loads((scope.directory / "inventory.json").read_text(encoding="utf-8"))
    (name, *_) = machine["_meta"]["hostvars"]
    program, arguments = on_node(LIBRARY, REQUESTS, turn)
    done = subprocess.run(
        ["ssh", "-F", str(scope.directory / "ssh_config"), name, "sudo", "python3", "-", *arguments],
        input=program,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return rows(json.loads(done.stdout))


def rows(seconds: Mapping[str, float]) -> dict[str, float]:
    """What a node said, in the words of the table."""
    names = {WHOLE: "whole", BASE_LOOK: "check_release", LABELS: "label", PLAIN: "plain"}
    return {row: float(seconds[name]) for row, name in names.items()}


def table(turns: Sequence[Mapping[str, float]]) -> tuple[list[str], bool]:
    """Medians, what the program adds, and whether that is more than it may."""
    median = {row: statistics.median(turn[row] for turn in turns) for row in turns[0]}
    added = median[WHOLE] - median[BASE_LOOK] - median[PLAIN]
    lines = ["| way | seconds |", "| --- | ---: |", *(f"| {row} | {seconds:.1f} |" for row, seconds in median.items())]
    lines += [f"| added, without the check | {added:.1f} |"]
    return lines, added > max(SHARE_LIMIT * median[PLAIN], SECONDS_LIMIT)


def main() -> int:
    """Measure, print; 1 where the limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scope", help="simulated node that is up; it stays")
    parser.add_argument("--runs", type=int, default=RUNS, help=f"runs of each (default {RUNS})")
    chosen = parser.parse_args()
    with node(chosen.scope) as scope:
        prepare(scope)
        turns = [both(scope, turn) for turn in range(chosen.runs)]
    lines, missed = table(turns)
    print("\n".join(lines))
    print(f"load of this machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
