#!/usr/bin/env python3
"""Simulated: measures nothing. Prints what hccl_demo prints at the commit that the releases pin, with made-up figures.

Bandwidth and faults are those of the node's description, which the simulated container runtime shows to containers. It
takes the real runner's options, prints the real lines (hccl_demo.cpp and run_hccl_demo.py at f623d69), and acquires the
cards that the container has. Over two nodes each side tells the other one what its node is like, at HCCL_COMM_ID.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

NODE_DOCUMENT = Path("/etc/gaudi-simulator/node.json")
DEV = Path("/dev/accel")
UNITS = {"G": 1 << 30, "M": 1 << 20, "K": 1 << 10, "B": 1}
ELEMENT = 4  # bytes of a float
TRIALS = 120  # of a second each, as HCL makes them to reach rank 0
# What a collective over several nodes says where one of them ended.
LOST = (
    "In function initDevice(): hcclCommInitRank(&resources.comm, envData.nranks, uniqueID, resources.commRank) failed: "
    "hcclInternalError"
)
# What HCL says of a kernel without ib_umem_dmabuf_get where Gaudi Direct is asked for by name (hl_ofi.cpp, 1.21.0).
NO_DIRECT = "Gaudi-direct not supported due to missing symbols in kernel version {}"
GARBAGE = "[BENCHMARK]     NW Band\x1b[0m\x00width : nan G"

# What each test is called, and network traffic as a multiple of the data, for n ranks (hccl_demo.cpp 829-859).
TESTS: dict[str, tuple[str, Callable[[int], float]]] = {
    "broadcast": ("hcclBroadcast", lambda n: 1.0),
    "all_reduce": ("hcclAllReduce", lambda n: 2 * (n - 1) / n),
    "reduce_scatter": ("hcclReduceScatter", lambda n: (n - 1) / n),
    "all_gather": ("hcclAllGather", lambda n: n - 1.0),
    "all2all": ("hcclAlltoAll", lambda n: (n - 1) / n),
    "reduce": ("hcclReduce", lambda n: 1.0),
}


class Failed(Exception):
    """A process of a rank ends with this error."""


@dataclass(frozen=True)
class Run:
    """One run: the described cards that take part, and what hccl_demo was asked for. size in bytes."""

    node: dict[str, Any]
    cards: list[dict[str, Any]]
    test: str
    size: int
    loop: int
    measure: str

    @property
    def modules(self) -> list[int]:
        """The module ids of the cards that take part."""
        return [int(card["module_id"]) for card in self.cards]

    def faulty(self, fault: str) -> list[int]:
        """The ranks whose card is described with a fault."""
        return [rank for rank, module in enumerate(self.modules) if module in self.node["fabric"][fault]]

    def network(self) -> float:
        """The "NW Bandwidth" of the run in 10^9 bytes a second: the slowest card holds up all others.

        Within a group each card has as many links to each of the others. Raises Failed where nothing joins the cards.
        """
        fabric = self.node["fabric"]
        groups = {module // fabric["group"] for module in self.modules}
        if len(groups) > 1:
            asks = "1" in (os.environ.get("HCCL_OVER_OFI"), os.environ.get("HCCL_GAUDI_DIRECT"))
            between = fabric["host_nics"]["bandwidth"] if fabric["host_nics"] else fabric["over_host"]
            if between is None or (asks and not fabric["host_nics"]):
                raise Failed(LOST)
            self.check_direct()
            full = float(between)
        else:
            full = fabric["bandwidth"] * (len(self.cards) - 1) / (fabric["group"] - 1)
        return float(full * self.share())

    @property
    def misses_direct(self) -> bool:
        """Whether Gaudi Direct is asked for by name, and the node's host NICs do not have it."""
        host_nics = self.node["fabric"]["host_nics"]
        return os.environ.get("HCCL_GAUDI_DIRECT") == "1" and host_nics is not None and not host_nics["gaudi_direct"]

    def share(self) -> float:
        """What the slowest card or link of this node leaves of its bandwidth."""
        fabric, share = self.node["fabric"], 1.0
        for card in self.cards:
            internal = card["ports"]["internal"]
            up = len(set(internal) - set(card["ports"]["down"])) / len(internal)
            share = min(share, up * fabric["slow"].get(str(card["module_id"]), 1.0))
        for link in fabric["slow_links"]:
            if set(link["modules"]) <= set(self.modules):
                share = min(share, link["share"])
        return float(share)

    def check_direct(self) -> None:
        """Raise Failed where Gaudi Direct is missed. Without its name HCL goes on over the host's memory."""
        if self.misses_direct:
            print(NO_DIRECT.format(os.uname().release), flush=True)
            raise Failed(LOST)

    def report(self, network: float, ranks: int) -> str:
        """The lines between two rows of #, which one rank prints; network in 10^9 bytes a second."""
        name, factor = TESTS[self.test]
        algorithm = network / factor(ranks)
        head = f"{name}(dataSize={self.size}, count={self.size // ELEMENT}, dtype=float, iterations={self.loop})"
        rule = "#" * (len(head) + len("[BENCHMARK]") + 1)
        milliseconds = self.size / algorithm / 1e6
        values = (
            [f"    Host Latency   : {milliseconds:f} ms", f"    Device Latency : {milliseconds * 0.95:f} ms"]
            if self.measure == "latency"
            else [f"    NW Bandwidth   : {network:f} GB/s", f"    Algo Bandwidth : {algorithm:f} GB/s"]
        )
        return "\n".join([rule, *(f"[BENCHMARK] {line}" for line in [head, *values]), rule])

    def checked(self) -> str:
        """What each rank says of its result: fine, or bad."""
        wrong = self.faulty("wrong")
        return "\n".join(
            f"rank={rank} size={self.size} <float> Input Buffer [{rank} {rank + 1} ...] Output Buffer "
            f"[28 36 ...] which is {'bad.' if rank in wrong else 'fine.'}"
            for rank in range(len(self.cards))
        )


def size_of(text: str) -> int:
    """Bytes of 32m, 4G or 1024; ValueError for anything else."""
    match = re.fullmatch(r"([0-9.]+)([GMKBgmkb]?)", text)
    if match is None:
        raise ValueError(f"could not convert string to float: {text!r}")
    return int(float(match[1]) * UNITS[match[2].upper() or "B"])


def acquire(node: dict[str, Any], count: int, ranks_per_node: int, dev: Path = DEV) -> list[dict[str, Any]]:
    """Give each rank a card and hold it: the module of its number, or any other that is there (initDevice).

    Raises Failed as a rank that gets none does.
    """
    there = [card for card in node["cards"] if (dev / f"accel{card['index']}").exists()]
    taken: list[dict[str, Any]] = []
    for rank in range(count):
        wanted = [card for card in there if card["module_id"] == rank % ranks_per_node]
        card = next((card for card in [*wanted, *there] if card not in taken and _locked(dev, card)), None)
        if card is None:
            raise Failed(
                "In function initDevice(): synDeviceAcquire(&resources.deviceHandle, nullptr) failed with synapse "
                "error: 20"
            )
        taken.append(card)
    return sorted(taken, key=lambda card: int(card["module_id"]))


def _locked(dev: Path, card: dict[str, Any]) -> bool:
    """Hold a card for as long as this process lives; False where somebody else does."""
    descriptor = os.open(dev / f"accel{card['index']}", os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return False
    return True


def meet(run: Run, node_id: int) -> dict[str, Any]:
    """Tell the other node what this one is like, and return what it said of itself.

    Raises Failed where it does not come, or says something else.
    """
    fabric = run.node["fabric"]
    own = {
        "name": socket.gethostname(),
        "across": fabric["across"] * run.share(),
        "ways": fabric["ways"],
        **{fault: bool(run.faulty(fault)) for fault in ("crash", "hang", "wrong")},
        "misses_direct": run.misses_direct,
    }
    address, _, port = os.environ["HCCL_COMM_ID"].partition(":")
    try:
        with _reach(address, int(port), listens=node_id == 0) as other:
            other.sendall(json.dumps(own).encode() + b"\n")
            with other.makefile() as said:
                return dict(json.loads(said.readline()))
    except (OSError, ValueError) as error:
        raise Failed(LOST) from error


def _reach(address: str, port: int, *, listens: bool) -> socket.socket:
    """A connection to the other node. Raises OSError where there is none in time."""
    if listens:
        with socket.create_server((address, port)) as server:
            server.settimeout(TRIALS)
            return server.accept()[0]
    for _ in range(TRIALS - 1):
        try:
            return socket.create_connection((address, port), timeout=TRIALS)
        except ConnectionRefusedError:
            time.sleep(1)
    return socket.create_connection((address, port), timeout=TRIALS)


def across(run: Run, other: dict[str, Any]) -> float:
    """The "NW Bandwidth" over two nodes: the slower one holds the other up, and so does a bad way between them."""
    own = run.node["fabric"]
    names = (socket.gethostname(), other["name"])
    ways = [way["share"] for way in own["ways"] if way["node"] == names[1]]
    ways += [way["share"] for way in other["ways"] if way["node"] == names[0]]
    return float(min(own["across"] * run.share(), other["across"]) * min(ways, default=1.0))


def perform(run: Run, nodes: int = 1, node_id: int = 0) -> None:
    """Print what the ranks print. Raises Failed where one ends with an error; does not return where one hangs."""
    other = meet(run, node_id) if nodes > 1 else {}
    if run.faulty("crash"):
        raise Failed(
            f"In function collectiveTestDriver(): synStreamSynchronize(resources.collectiveStream) failed with synapse "
            f"error: 26 (rank {run.faulty('crash')[0]})"
        )
    if other:
        run.check_direct()
    if other.get("crash") or other.get("misses_direct"):
        raise Failed(LOST)
    if run.faulty("hang") or other.get("hang"):
        while True:
            signal.pause()
    if node_id == 0:
        network = across(run, other) if other else run.network()
        garbage = run.node["fabric"]["garbage"]
        report = GARBAGE if garbage else run.report(network, nodes * len(run.cards))
        print(run.checked(), report, sep="\n", flush=True)
    else:
        print(run.checked(), flush=True)
    if run.faulty("wrong"):
        raise Failed("Collective operation has failed on correctness.")


def leave(error: str) -> NoReturn:
    """End as exit_demo does with an error."""
    print(f"HCCL demo error: HCCL demo error: {error}")
    print("\nExiting HCCL demo with code: 1")
    sys.exit(1)


def parse(arguments: list[str]) -> argparse.Namespace:
    """Read the command line as the real runner does."""
    parser = argparse.ArgumentParser(description="Run HCCL demo test (simulated)", allow_abbrev=False)
    for name in ("nranks", "node_id"):
        parser.add_argument(f"--{name}", type=int, default=-1)
    for name in ("ranks_per_node", "scaleup_group_size"):
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--timeout", type=int, default=0)
    parser.add_argument("--test", default="broadcast")
    parser.add_argument("--measure", default="bw")
    parser.add_argument("--size", default="33554432")
    parser.add_argument("--loop", type=int, default=1000)
    parser.add_argument("--no_color", "-no_color", action="store_true")
    return parser.parse_args(arguments)


def main() -> None:
    """Check the command line, acquire the cards, print, end as the real one does."""
    given = parse(sys.argv[1:])
    print("Welcome to HCCL demo\n\nSetting HCCL demo attributes:")
    for name, value in vars(given).items():
        print(f"{name.ljust(20)} = {value}")
    if given.node_id < 0 or given.nranks < 1:
        name = "node_id" if given.node_id < 0 else "nranks"
        leave(f"[validate_arguments] Argument {name} was set to: {getattr(given, name)}")
    if given.test not in TESTS:
        leave(f"[validate_arguments] Chosen test: {given.test} is not part of the tests list")
    if given.loop < 1:
        leave(f"[validate_arguments] Argument loop was set to: {given.loop}, it must be positive")
    size = size_of(given.size)
    least = ELEMENT * (given.nranks if given.test in ("reduce_scatter", "all2all") else 1)
    if size < least:
        leave(f"[validate_size] Requested size: {size}B was less than supported minimum size: {least}B")
    if not re.fullmatch(r"[0-9.]+:[0-9]+", os.environ.get("HCCL_COMM_ID", "")):
        leave("[__main__] HCCL_COMM_ID is not set")
    print("HCCL demo runs in pure mode\nAffinity: Creating affinity files...\nAffinity: Running in pure mode.")
    print("Running HCCL Demo :: A simple program demonstrating HCCL usage from C++", flush=True)
    node = json.loads(NODE_DOCUMENT.read_text(encoding="utf-8"))
    try:
        here = given.ranks_per_node or given.nranks
        cards = acquire(node, min(here, given.nranks), here)
        run = Run(node, cards, given.test, size, given.loop, given.measure)
        perform(run, max(1, given.nranks // here), given.node_id)
    except Failed as failed:
        print(f"HCCL demo error: {failed}", flush=True)
        leave("[run_test] Unexpected error for command, terminating hccl demo, e=Subprocess failed, res=65280")


if __name__ == "__main__":
    main()
