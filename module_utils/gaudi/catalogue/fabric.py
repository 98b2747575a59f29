"""The links between cards as ``catalog/cards.yml`` has them: groups of joined cards, and published bandwidths.

Bandwidth is in GB/s of 10^9 bytes, as hccl_demo prints it; sizes are in bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from ..base.checks import Reader, integer, matching, sequence
from ..base.refusal import Refusal

# The tests of hccl_demo that print a bandwidth over a communicator of all ranks (run_hccl_demo.py f623d69, test_list),
# each with NW Bandwidth over Algo Bandwidth for n ranks (hccl_demo.cpp f623d69, lines 829 to 859).
FACTORS: Mapping[str, Callable[[int], float]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all2all": lambda n: (n - 1) / n,
    "all_gather": lambda n: float(n - 1),
    "broadcast": lambda _n: 1.0,
    "reduce": lambda _n: 1.0,
}
CONFIDENCES = ("published", "inferred")
# What joins groups of cards without host NICs: PCIe and the links between the host's sockets (UPI), or nothing.
HOST, NOTHING = "host", "nothing"

# Where a built image has libfabric (the default of hccl_ofi_wrapper's Makefile).
LIBFABRIC = "/opt/libfabric"
# What a container whose cards talk over host NICs is given. The loader's path is that of the vendor's base images with
# libfabric before it (HabanaAI/Setup_and_Install 00595be, dockerfiles/base/Dockerfile.ubuntu24.04, and the README of
# hccl_ofi_wrapper); the others are those of docs.habana.ai, Scale-out via Host NIC, for both providers, each of which
# reads its own.
HOST_NICS_VARIABLES: Mapping[str, str] = {
    "LIBFABRIC_ROOT": LIBFABRIC,
    "LD_LIBRARY_PATH": f"{LIBFABRIC}/lib:/opt/amazon/openmpi/lib:/usr/lib/habanalabs",
    "RDMAV_FORK_SAFE": "1",
    "FI_EFA_USE_DEVICE_RDMA": "1",
    "MLX5_SCATTER_TO_CQE": "0",
}
# Memory that a NIC reads and writes stays where it is: manual v1.22 §3.1.1, with memlock without a limit.
HOST_NICS_CAPABILITY = "IPC_LOCK"

# hccl_demo takes G, M, K, B or nothing, in any case (parse_size of run_hccl_demo.py f623d69); 1k is 1024 there.
_SIZE = re.compile(r"([1-9][0-9]{0,11})([kmgbKMGB]?)\Z", re.ASCII)
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
# Upper bound of a size; it keeps a mistyped number from filling a card's memory.
LARGEST_SIZE = 4 << 30
MOST_RANKS = 1024
MOST_LOOPS = 1_000_000
_LAST_MODULE, _LAST_PORT = 255, 63


def size_bytes(value: object, what: str) -> int:
    """Return the bytes of a size as hccl_demo's ``--size`` takes it, such as ``32m``; a number is bytes.

    Raises Refusal for anything else, and above 4 GiB.
    """
    text = matching(str(value), what, _SIZE, "a size such as 32m, 1g or 4096 (powers of 1024)", longest=16)
    number, unit = text.rstrip("kmgbKMGB"), text[len(text.rstrip("kmgbKMGB")) :].lower()
    size = int(number) * _UNITS[unit]
    if size > LARGEST_SIZE:
        raise Refusal(
            "size_too_large", f"{what} is {text}, the limit is {size_text(LARGEST_SIZE)}. Choose a smaller one."
        )
    return size


def size_text(size: int) -> str:
    """Return a size as people and hccl_demo write it: ``32m`` for 33554432."""
    for unit in ("g", "m", "k"):
        if size and size % _UNITS[unit] == 0:
            return f"{size // _UNITS[unit]}{unit}"
    return str(size)


@dataclass(frozen=True)
class Bandwidth:
    """A published bandwidth: a sample from healthy cards, or a limit that a run must exceed.

    size in bytes; nw_gb_s and algo_gb_s are NW and Algo Bandwidth. The number of loops is not part of it, since both
    are means over the loops.
    """

    collective: str
    ranks: int
    size: int
    nw_gb_s: float
    algo_gb_s: float
    confidence: str
    source: str

    KEYS = ("collective", "ranks", "size", "nw_gb_s", "algo_gb_s", "confidence", "source")

    @classmethod
    def from_mapping(cls, value: object, where: str) -> Bandwidth:
        """Read one entry."""
        reader = Reader(value, where, cls.KEYS)
        return cls(
            collective=reader.choice("collective", FACTORS),
            ranks=reader.integer("ranks", 2, MOST_RANKS),
            size=size_bytes(reader.raw("size"), f"{where}: key size"),
            nw_gb_s=float(reader.number("nw_gb_s", 0.001, 1e6)),
            algo_gb_s=float(reader.number("algo_gb_s", 0.001, 1e6)),
            confidence=reader.choice("confidence", CONFIDENCES),
            source=reader.text("source"),
        )


@dataclass(frozen=True)
class Measurement:
    """A default test of a card type. size in bytes, loop counts repetitions."""

    collective: str
    size: int
    loop: int

    @classmethod
    def from_mapping(cls, value: object, where: str) -> Measurement:
        """Read one entry."""
        reader = Reader(value, where, ("collective", "size", "loop"))
        return cls(
            collective=reader.choice("collective", FACTORS),
            size=size_bytes(reader.raw("size"), f"{where}: key size"),
            loop=reader.integer("loop", 1, MOST_LOOPS),
        )


@dataclass(frozen=True)
class Fabric:
    """The links of a card type.

    groups: module ids joined by the cards' own links; each group is measured alone. groups_confidence: ``inferred`` if
    nobody published which modules these are. between_groups: what joins them without host NICs. external_ports: port
    numbers by module id; hl-smi's own answer (``hl-smi -n ports``) takes precedence. tests: the default tests; the
    first one always runs. samples: figures of healthy cards. pass_limits: published limits, valid only for their sizes.
    """

    groups: tuple[tuple[int, ...], ...]
    groups_confidence: str
    between_groups: str
    external_ports: Mapping[int, tuple[int, ...]]
    tests: tuple[Measurement, ...]
    samples: tuple[Bandwidth, ...]
    pass_limits: tuple[Bandwidth, ...]

    KEYS = ("groups", "groups_confidence", "between_groups", "external_ports", "tests", "samples", "pass_limits")

    @classmethod
    def from_mapping(cls, value: object, where: str) -> Fabric:
        """Read the ``fabric`` mapping of a card type; ``where`` names it for messages."""
        reader = Reader(value, where, cls.KEYS)
        groups = tuple(
            _numbers(group, f"{where}: groups", _LAST_MODULE) for group in sequence(reader.raw("groups"), where)
        )
        members = [module for group in groups for module in group]
        if not groups or len(set(members)) != len(members):
            raise Refusal("module_in_two_groups", f"{where}: each module id must be in one group of key groups.")

        def bandwidths(key: str) -> tuple[Bandwidth, ...]:
            return tuple(
                Bandwidth.from_mapping(entry, f"{where}: {key}")
                for entry in sequence(reader.raw(key), f"{where}: {key}")
            )

        external: dict[int, tuple[int, ...]] = {}
        for entry in sequence(reader.raw("external_ports"), f"{where}: external_ports"):
            row = Reader(entry, f"{where}: external_ports", ("modules", "ports"))
            ports = _numbers(row.raw("ports"), f"{where}: ports", _LAST_PORT)
            external.update(dict.fromkeys(_numbers(row.raw("modules"), f"{where}: modules", _LAST_MODULE), ports))
        tests = tuple(
            Measurement.from_mapping(entry, f"{where}: tests")
            for entry in sequence(reader.raw("tests"), f"{where}: tests")
        )
        if not tests:
            raise Refusal("no_fabric_test", f"{where}: key tests is empty. Name what hccl_demo measures.")
        return cls(
            groups=groups,
            groups_confidence=reader.choice("groups_confidence", CONFIDENCES),
            between_groups=reader.choice("between_groups", (HOST, NOTHING), NOTHING),
            external_ports=external,
            tests=tests,
            samples=bandwidths("samples"),
            pass_limits=bandwidths("pass_limits"),
        )

    def sample(self, collective: str, ranks: int, size: int) -> Bandwidth | None:
        """Return the published figure of exactly this measurement, or None."""
        return _of(self.samples, collective, ranks, size)

    def pass_limit(self, collective: str, ranks: int, size: int) -> Bandwidth | None:
        """Return the published limit of exactly this measurement, or None."""
        return _of(self.pass_limits, collective, ranks, size)

    def grouped(self, modules: Iterable[int]) -> tuple[tuple[int, ...], ...]:
        """Return the groups of a node's cards, by their module ids: cards of one group are joined by their own links.

        Cards of a type that has one group are all joined. Of other types, a card that is in no known group is alone in
        its own. The cards of an instance, the runs that prove links, and so the verdict go by these groups.
        """
        present = sorted(set(modules))
        if len(self.groups) == 1:
            return (tuple(present),) if present else ()
        known = [tuple(module for module in group if module in present) for group in self.groups]
        alone = [(module,) for module in present if not any(module in group for group in self.groups)]
        return tuple(group for group in (*known, *alone) if group)

    def over_host(self) -> Bandwidth | None:
        """Return the published figure of cards of several groups without host NICs, None if there is none."""
        most = max(map(len, self.groups))
        return next((each for each in self.samples if self.between_groups == HOST and each.ranks > most), None)


def _of(table: tuple[Bandwidth, ...], collective: str, ranks: int, size: int) -> Bandwidth | None:
    wanted = (collective, ranks, size)
    return next((each for each in table if (each.collective, each.ranks, each.size) == wanted), None)


def _numbers(value: object, what: str, highest: int) -> tuple[int, ...]:
    return tuple(integer(each, what, 0, highest) for each in sequence(value, what))
