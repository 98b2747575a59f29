"""One run of hccl_demo: its valid parameters, its command line, and its duration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..base.checks import choice, integer, sequence
from ..base.refusal import Refusal
from ..catalogue.fabric import (
    FACTORS,
    HOST,
    HOST_NICS_VARIABLES,
    MOST_LOOPS,
    Fabric,
    Measurement,
    size_bytes,
    size_text,
)

# Bytes of a float; if data is split among ranks, hccl_demo needs one float for each rank (validate_size of
# run_hccl_demo.py).
_ELEMENT = 4
_SPLIT = ("reduce_scatter", "all2all")
PATHS: Mapping[str, str] = {"over_host_nics": "over host NICs", "over_host": "over PCIe and UPI"}
"""What carries traffic between groups: the key in a run's data, and its name."""
# Seconds to start all ranks and their communicator, and to check the result: a guess, no run on hardware was timed.
START_SECONDS = 60
# Expected bandwidth without a published figure: a tenth of the slowest published sample.
_SLOWEST_GB_S = 25.0


@dataclass(frozen=True)
class DemoRun:
    """One run of hccl_demo: module ids, collective, size in bytes, and loop (repetitions).

    The cards of several groups have no links of their own to each other: host NICs carry the traffic between them
    (over_host_nics), or PCIe and the links between the host's sockets do (over_host).
    """

    modules: tuple[int, ...]
    collective: str
    size: int
    loop: int
    over_host_nics: bool = False
    over_host: bool = False

    @property
    def ranks(self) -> int:
        """The number of ranks: one a card."""
        return len(self.modules)

    def over(self, modules: Sequence[int]) -> DemoRun:
        """Return the same measurement over other cards."""
        return replace(self, modules=tuple(modules))

    @property
    def between_groups(self) -> bool:
        """Whether something else than the cards' own links carries traffic."""
        return self.over_host_nics or self.over_host

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data, for a module's result."""
        return {**asdict(self), "modules": list(self.modules), "ranks": self.ranks}


def same_path(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two runs, as plain data, go over the same kind of link. Earlier verdicts have no over_host."""
    return all(bool(one.get(key)) == bool(other.get(key)) for key in PATHS)


def over(measured: Mapping[str, Any]) -> str:
    """Return what carries the traffic of a run between groups, in words, "" for the cards' own links."""
    return next((words for key, words in PATHS.items() if measured.get(key)), "")


def check_tests(entries: object) -> None:
    """Refuse sizes that hccl_demo accepts on no node, before the node's cards are known."""
    for requested in _checked_tests(entries):
        if "size" in requested:
            check_size(DemoRun((0, 1), requested["collective"], requested["size"], 1))


def requested_tests(entries: object, fabric: Fabric) -> tuple[Measurement, ...]:
    """Return the tests to measure: the site's, or the card type's first test if the site names none.

    entries: a list of ``{collective, size, loop}``. A missing size or loop is taken from the card type's test of that
    collective, else from its first test. Raises Refusal for tests that hccl_demo does not accept.
    """
    chosen = []
    for requested in _checked_tests(entries):
        usual = next((test for test in fabric.tests if test.collective == requested["collective"]), fabric.tests[0])
        size, loop = requested.get("size", usual.size), requested.get("loop", usual.loop)
        chosen.append(Measurement(requested["collective"], size, loop))
    return tuple(chosen) or fabric.tests[:1]


def _checked_tests(entries: object) -> Iterator[dict[str, Any]]:
    """Yield each requested test with the keys that it sets: collective, size in bytes, loop."""
    for entry in sequence(entries, "fabric_check_tests", 16) if entries else ():
        requested = entry if isinstance(entry, Mapping) else {"collective": entry}
        unknown = sorted(set(requested) - {"collective", "size", "loop"}, key=str)
        if unknown:
            raise Refusal(
                "fabric_test_unknown_key", f"fabric_check_tests has {unknown[0]!r}. It knows collective, size and loop."
            )
        collective = choice(requested.get("collective"), "The collective of fabric_check_tests", FACTORS)
        made: dict[str, Any] = {"collective": collective}
        if "size" in requested:
            made["size"] = size_bytes(requested["size"], f"The size of {collective}")
        if "loop" in requested:
            made["loop"] = integer(requested["loop"], f"The loop of {collective}", 1, MOST_LOOPS)
        yield made


def runs_for(
    fabric: Fabric, modules: Sequence[int], tests: Sequence[Measurement], *, host_nics: bool, ranks: int | None = None
) -> tuple[DemoRun, ...]:
    """Return the runs that prove a node's cards: each group alone, and all cards together if anything joins the groups.

    modules: those of the node's cards. ranks: how many cards of a group take part, None for all. Missing cards are left
    out here; the static checks report them. A single card of a group is not measured, as it has no partner. Raises
    Refusal for more ranks than a group has cards.
    """
    groups = list(fabric.grouped(modules))
    several = len(groups) > 1
    most = max((len(group) for group in groups), default=0)
    if ranks is not None and not 2 <= ranks <= most:
        raise Refusal(
            "more_ranks_than_cards",
            f"{ranks} ranks are asked for, but {most} cards are joined by their own links here, and two are the least. "
            f"Ask for 2 to {most}.",
        )
    groups = [group[:ranks] for group in groups if len(group) > 1]
    runs = [DemoRun(group, test.collective, test.size, test.loop) for test in tests for group in groups]
    together = tuple(sorted(modules))
    if several and ranks is None and (host_nics or fabric.between_groups == HOST):
        runs += [
            DemoRun(together, test.collective, test.size, test.loop, over_host_nics=host_nics, over_host=not host_nics)
            for test in tests
        ]
    for run in runs:
        check_size(run)
    return tuple(runs)


def check_size(run: DemoRun) -> None:
    """Refuse a size that gives a rank less than one element."""
    least = _ELEMENT * (run.ranks if run.collective in _SPLIT else 1)
    if run.size < least:
        raise Refusal(
            "size_too_small",
            f"{run.collective} over {run.ranks} ranks needs {least} bytes at least, not {run.size}: one element a "
            "rank. Choose a larger size.",
        )


def command(
    run: DemoRun,
    *,
    port: int,
    address: str = "127.0.0.1",
    directory: str = "/opt/hccl_demo",
    node: int = 0,
    nodes: int = 1,
    direct: bool = False,
) -> dict[str, Any]:
    """Return the argument vector, the working directory and the environment of a run.

    address and port: where rank 0 listens. node of nodes: which part of the ranks runs here. direct: for a run over
    host NICs (see host_nics_environment). hccl_demo takes the card whose module id is the rank, or any free one
    (initDevice of hccl_demo.cpp f623d69), so the container must only be given these cards. Whether HCL joins modules
    other than 0 to n-1 was never seen on hardware.
    """
    return {
        "argv": [
            *("python3", "run_hccl_demo.py", "--test", run.collective, "--nranks", str(run.ranks * nodes)),
            *("--ranks_per_node", str(run.ranks), "--node_id", str(node), "--size", size_text(run.size)),
            *("--loop", str(run.loop), "--no_color"),
        ],
        "chdir": directory,
        "environment": {
            "HCCL_COMM_ID": f"{address}:{port}",
            "HABANA_VISIBLE_MODULES": ",".join(map(str, run.modules)),
            **(host_nics_environment(direct=direct) if run.over_host_nics else {}),
        },
    }


def host_nics_environment(*, direct: bool) -> dict[str, str]:
    """Return the variables of a process that uses host NICs: those of an instance's plan, and the choice of path.

    direct asks for Gaudi Direct, and HCL then fails instead of falling back. Without it HCCL_OVER_OFI=1 selects the
    path through the host's memory and ends HCL's own search (docs.habana.ai, Scale-out via Host NIC). A plan sets
    neither, so that HCL takes the better path that it finds.
    """
    return {"HCCL_GAUDI_DIRECT" if direct else "HCCL_OVER_OFI": "1", **HOST_NICS_VARIABLES}


def seconds(run: DemoRun, fabric: Fabric) -> int:
    """Return the expected duration of a run in whole seconds: its data at the expected rate, plus its start.

    The rate is that of the published sample of this measurement, else a tenth of the slowest card type's.
    """
    sample = None if run.over_host_nics else fabric.sample(run.collective, run.ranks, run.size)
    rate = sample.algo_gb_s if sample else _SLOWEST_GB_S / FACTORS[run.collective](run.ranks)
    return START_SECONDS + round(run.size * run.loop / (rate * 1e9))


def limit_seconds(run: DemoRun, fabric: Fabric) -> int:
    """Return after how many seconds a run counts as hanging: ten times its expected duration, at least two minutes."""
    return max(120, 10 * seconds(run, fabric))
