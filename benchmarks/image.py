"""What building through the node's job adds to docker build of the same Dockerfile.

    python -m benchmarks.image                    on a simulated node that is started here
    python -m benchmarks.image --scope NAME       on the node of a scope that is up with --buildable, which stays

The small image of Molecule's scenario: stand-in repositories, no PyTorch, no vLLM. The program of the job and docker
build take turns as whole processes on the node; before each, the image and Docker's build cache are removed. What the
program has to do beside (asking the registry for the base, room, the context's files) is what it may add; checks of the
finished image are not part of either.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from simulator import host
from simulator.settings import ROOT, Scope

RUNS = 3
SCOPE = "bench-image"
SITE = "molecule/images/vars/site.yml"
# What the program may add: a share of docker build's time, or seconds.
SHARE_LIMIT, SECONDS_LIMIT = 0.05, 10.0

# Runs on the node: one build each way from nothing, its seconds as JSON.
ON_NODE = r"""
import json, os, pathlib, subprocess, sys, tempfile, time
library = "/usr/local/lib/gaudi-serving"
sys.path[:0] = [library]
from gaudi_image import build, request as requests

(path,) = pathlib.Path("/etc/gaudi-serving/image").glob("*.json")
request = requests.load(path)

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

ours = from_nothing(sys.executable, "-m", "gaudi_image", "build", str(path), env={**os.environ, "PYTHONPATH": library})
with tempfile.TemporaryDirectory() as folder:
    context = build.write_context(request, pathlib.Path(folder))
    secrets = [word for name, file in request.secrets.items() for word in ("--secret", f"id={name},src={file}")]
    hosts = [f"--add-host={name}:{address}" for name, address in build.known_hosts(request.hosts).items()]
    plain = from_nothing(
        "docker", "build", f"--network={request.network}", f"--tag={request.reference}",
        f"--build-arg=BASE={request.base}", f"--file={pathlib.Path(folder, build.DOCKERFILE)}",
        *hosts, *secrets, str(context), env={**os.environ, "DOCKER_BUILDKIT": "1"},
    )
print(json.dumps([ours, plain]))
"""


@contextmanager
def node(scope: str | None) -> Iterator[Scope]:
    """A node that images can be built on: one that is up, or one that is started here and taken away."""
    if scope:
        yield Scope(scope)
        return
    simulator = [sys.executable, "-m", "simulator"]
    host.run([*simulator, "up", "--own-settings", "--buildable", "--scope", SCOPE])
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


def both(scope: Scope) -> tuple[float, float]:
    """Seconds of the job's program, and of docker build."""
    machine = json.loads((scope.directory / "inventory.json").read_text(encoding="utf-8"))
    (name, *_) = machine["_meta"]["hostvars"]
    done = subprocess.run(
        ["ssh", "-F", str(scope.directory / "ssh_config"), name, "sudo", "python3", "-"],
        input=ON_NODE,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    ours, plain = json.loads(done.stdout)
    return float(ours), float(plain)


def main() -> int:
    """Measure, print; 1 where the limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scope", help="simulated node that is up; it stays")
    parser.add_argument("--runs", type=int, default=RUNS, help=f"runs of each (default {RUNS})")
    chosen = parser.parse_args()
    with node(chosen.scope) as scope:
        prepare(scope)
        runs = [both(scope) for _ in range(chosen.runs)]
    ours, plain = (statistics.median(seconds) for seconds in zip(*runs, strict=True))
    print("| way | seconds |\n| --- | ---: |")
    print(f"| the program of the job | {ours:.1f} |\n| docker build | {plain:.1f} |")
    print(f"load of this machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()}")
    return int(ours - plain > max(SHARE_LIMIT * plain, SECONDS_LIMIT))


if __name__ == "__main__":
    sys.exit(main())
