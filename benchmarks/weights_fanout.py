"""A model on eight simulated nodes against the same model on one: outside traffic and whole time.

    python -m benchmarks.weights_fanout [--nodes N]

A hub on this machine sends 20 MB/s at most, all its answers together; what a node sends is held to 100 MB/s by the
kernel (tc, tbf, on the node's own interface). Both runs are playbooks/fetch_weights.yml as a user types it, on nodes
that have the downloader and rsync already, from the command to its end. Nodes share the disk and the processors of
this machine, which eight real ones do not.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from docker import DockerClient

from benchmarks import weights
from simulator import engine, nodes, supply, world
from simulator.settings import ROOT, Scope

NODES, HUB_RATE, LINK_RATE = 8, 20_000_000, 100_000_000  # bytes per second
SCOPE = Scope("bench-fanout")
# Required, from the project's own aims.
TRAFFIC_LIMIT, TIME_LIMIT = 1.0, 2.5
FOLDER = "/data/models/Measured"


def limited(address: str) -> tuple[str, ...]:
    """Options of a hub that the nodes reach and that sends no faster than it may."""
    return ("--address", "0.0.0.0", "--name", address, "--rate", str(HUB_RATE))  # noqa: S104 - for the nodes


def sent(log: Path) -> int:
    """Bytes of content the hub has sent."""
    return sum(int(line.split()[0]) for line in log.read_text().splitlines() if " bytes of " in line)


def on_nodes(client: DockerClient, names: Sequence[str], *command: str) -> None:
    """Run a command as root on nodes."""
    for container in nodes.containers(client, SCOPE):
        if str(container.name).removeprefix(f"{SCOPE.prefix}-") in names:
            result = container.exec_run(list(command))
            if result.exit_code:
                raise SystemExit(f"{command} on {container.name}: {result.output!r}")


def fetch(names: Sequence[str], endpoint: str, commit: str) -> float:
    """Seconds of one run, from the command to its end."""
    wish = {
        "repository": weights.MODEL,
        "revision": commit,
        "model_weights_sources": [{"name": "limited", "endpoint": endpoint}],
        "model_weights_reserve": 1_000_000,
    }
    command = [
        *(str(Path(sys.executable).parent / "ansible-playbook"), "-i", "inventories/simulated"),
        *("playbooks/fetch_weights.yml", "--limit", ",".join(names), "-e", json.dumps(wish)),
    ]
    environment = {**os.environ, "GAUDI_SIMULATOR_SCOPE": SCOPE.name, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
    begun = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stdout[-4000:] + done.stderr[-2000:])
    return time.monotonic() - begun


def main() -> int:
    """Measure one node, then all, and print one table; 1 when a limit is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.weights_fanout")
    parser.add_argument("--nodes", type=int, default=NODES)
    options = parser.parse_args()
    names = [f"fan-{number}" for number in range(1, options.nodes + 1)]
    client = engine.ensure()
    try:
        world.up(client, SCOPE, names, "gaudi2-oam8", print, [])
        supply.start(client, SCOPE, print)
        return compare(client, names)
    finally:
        world.down(client, SCOPE)


def compare(client: DockerClient, names: Sequence[str]) -> int:
    """Both runs; 1 when a limit is missed."""
    address = client.networks.get(SCOPE.prefix).attrs["IPAM"]["Config"][0]["Gateway"]
    with tempfile.TemporaryDirectory(dir=ROOT / ".cache", prefix="gaudi-fanout-") as name:
        log, model, warm = Path(name, "hub.log"), Path(name, "hub"), Path(name, "warm")
        size = weights.generate(model)
        # What is installed on first use is installed before the clock runs: a small folder is spread in the same way.
        warm.mkdir()
        (warm / "config.json").write_text("{}")
        with weights.hub(warm, log, *limited(address)) as (endpoint, commit):
            fetch(names, endpoint, commit)
        on_nodes(client, names, "rm", "-rf", FOLDER)
        rate = [f"{LINK_RATE * 8 // 1_000_000}mbit", "burst", "4mb", "latency", "200ms"]
        on_nodes(client, names, "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", *rate)
        with weights.hub(model, log, *limited(address)) as (endpoint, commit):
            alone = fetch(names[:1], endpoint, commit)
            on_nodes(client, names, "rm", "-rf", FOLDER)
            before = sent(log)
            together = fetch(names, endpoint, commit)
            traffic = (sent(log) - before) / size
        on_nodes(client, names, "test", "-f", f"{FOLDER}/.gaudi-serving/manifest.json")
    print(f"{size / 1e9:.2f} GB, hub {HUB_RATE / 1e6:.0f} MB/s, links {LINK_RATE / 1e6:.0f} MB/s")
    print(f"  {'one node':44} {alone:7.1f} s")
    print(f"  {f'{len(names)} nodes':44} {together:7.1f} s")
    kept = [
        weights.ratio("outside traffic, of the model", traffic, TRAFFIC_LIMIT, at_most=True),
        weights.ratio("time, of one node's", together / alone, TIME_LIMIT, at_most=True),
    ]
    return int(not all(kept))


if __name__ == "__main__":
    sys.exit(main())
