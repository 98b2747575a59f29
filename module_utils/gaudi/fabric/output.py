"""Parse the output of hccl_demo into figures, or into a sentence that says why there are none.

Pure: text in, frozen values out. Known are the headlines of three generations, bandwidth in GB/s (and the MB/s of
2022), latency, the summary of a range of sizes, and the ways in which run_hccl_demo.py, hccl_demo.cpp, HCL and the
affinity script end (HabanaAI/hccl_demo f623d69 of 2025-10-09). The recorded samples are in tests/unit/fabric/recorded.
A bandwidth alone proves nothing: hccl_demo prints one before it reports wrong sums.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..base.printable import printable
from ..catalogue.fabric import FACTORS
from ..faults.causes import explain, quote
from ..faults.facts import Facts
from ..faults.hccl import FAULTS
from ..faults.words import fault, fill, groups

# hccl_demo prints six decimals; this is the tolerance for NW = Algo x factor.
_TOLERANCE = 0.005
# Some languages write a comma before the decimals.
_NUMBER = r"([0-9]{1,15}(?:[.,][0-9]{1,12})?)"
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_HEADLINE = re.compile(r"\[BENCHMARK\]\s+hccl(?P<name>[A-Za-z0-9_]{2,40})\s*\((?P<facts>[^()]{0,400})\)")
_FACT = re.compile(r"(?P<key>[A-Za-z_]{2,20})\s*=\s*(?P<value>[A-Za-z0-9_]{1,20})")
_BANDWIDTH = re.compile(rf"\[BENCHMARK\]\s+(?P<kind>NW |Algo )?Bandwidth\s*:\s*{_NUMBER}\s*(?P<unit>[GM]B/s)")
_LATENCY = re.compile(rf"\[BENCHMARK\]\s+(?P<kind>Host|Device) Latency\s*:\s*{_NUMBER}\s*(?P<unit>ms|us|s)\b")
_SUMMARY = re.compile(r"\[(?:BANDWIDTH |LATENCY )?SUMMARY REPORT\]")
_ABOUT = re.compile(r"collective=(?P<name>[a-z0-9_]{2,40}), iterations=(?P<loop>[0-9]{1,12})")
# Behind what mpirun or a log puts before each line.
_ROW = re.compile(
    r"(?<![0-9])(?P<size>[0-9]{1,15})\s+(?P<count>[0-9]{1,15})\s+(?P<dtype>[a-z][a-z0-9]{1,15})\s+(?P<rest>.+)"
)
_CELL = re.compile(rf"{_NUMBER}(?:\s*(ms|GB/s|MB/s))?")
_NAMES = {
    "allreduce": "all_reduce",
    "reducescatter": "reduce_scatter",
    "allgather": "all_gather",
    "alltoall": "all2all",
    "all2all": "all2all",
    "broadcast": "broadcast",
    "reduce": "reduce",
}
_PER_GB = {"GB/s": 1.0, "MB/s": 1e3}
_MILLISECONDS = {"s": 1e3, "ms": 1.0, "us": 1e-3}


@dataclass(frozen=True)
class Figure:
    """One measurement as printed. size in bytes, bandwidth in GB/s (10^9 bytes), latency in ms; None: not printed."""

    collective: str | None = None
    size: int | None = None
    loop: int | None = None
    nw_gb_s: float | None = None
    algo_gb_s: float | None = None
    host_ms: float | None = None
    device_ms: float | None = None


@dataclass(frozen=True)
class RunFailure:
    """Why a run does not count: an id for programs, cause and remedy for people, and the rank that it names, if any."""

    id: str
    cause: str
    remedy: str = ""
    rank: int | None = None

    @property
    def sentence(self) -> str:
        """Cause and remedy."""
        return f"{self.cause} {self.remedy}" if self.remedy else self.cause

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data, for a module's result."""
        return {"id": self.id, "sentence": self.sentence, "rank": self.rank}


@dataclass(frozen=True)
class RunOutput:
    """The result of a run: its figures by size, and why they do not count (failure None: they do)."""

    figures: tuple[Figure, ...]
    failure: RunFailure | None

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data, for a module's result."""
        return {
            "figures": [asdict(figure) for figure in self.figures],
            "failure": None if self.failure is None else self.failure.as_dict(),
        }


def parse_output(
    text: str,
    *,
    ranks: int,
    status: int | None,
    limit: int | None = None,
    host_nics: bool = False,
    no_memory: bool = False,
    silent: bool = False,
    facts: Facts | None = None,
) -> RunOutput:
    """Parse the stdout and stderr of a run over ``ranks`` ranks.

    status: exit status, None if the run was stopped after ``limit`` seconds. host_nics: the run should use host NICs,
    so a fallback is a failure even if a bandwidth was printed. no_memory: the kernel killed it for lack of memory.
    silent: rank 0 runs on another node, which prints the figures. facts: what is known of the node. Never raises:
    unreadable output is a failure with a sentence.
    """
    lines = _COLOUR.sub("", text).splitlines()
    figures = tuple(sorted({*_benchmarks(lines), *_summaries(lines)}, key=_by_size))
    text = "\n".join(line[:4096] for line in lines)
    ended = _ended(text, status, limit, no_memory=no_memory)
    if silent and not figures and ended is None:
        return RunOutput((), None)
    return RunOutput(figures, _failure(text, figures, ranks, ended, host_nics=host_nics, facts=facts or Facts()))


def _by_size(figure: Figure) -> tuple[int, str]:
    return (figure.size or 0, repr(figure))


def _benchmarks(lines: Iterable[str]) -> list[Figure]:
    """Return the figures below [BENCHMARK] headlines; a figure without a headline is kept too."""
    found: list[Figure] = []
    current = Figure()
    for line in lines:
        if headline := _HEADLINE.search(line):
            found.append(current)
            facts = {match["key"].lower(): match["value"] for match in _FACT.finditer(headline["facts"])}
            current = Figure(
                collective=_NAMES.get(headline["name"].lower()),
                size=_size(facts),
                loop=_whole(facts.get("iterations")),
            )
        elif bandwidth := _BANDWIDTH.search(line):
            value = _gb_s(bandwidth[2], bandwidth["unit"])
            # In 2022 there was one unnamed bandwidth; it includes the factor, as NW Bandwidth does (d775e56).
            algo = bandwidth["kind"] == "Algo "
            current = replace(current, algo_gb_s=value) if algo else replace(current, nw_gb_s=value)
        elif latency := _LATENCY.search(line):
            value = _number(latency[2]) * _MILLISECONDS[latency["unit"]]
            host = latency["kind"] == "Host"
            current = replace(current, host_ms=value) if host else replace(current, device_ms=value)
    found.append(current)
    return [figure for figure in found if _says_something(figure)]


def _gb_s(number: str, unit: str) -> float:
    """Return a bandwidth in GB/s, to the six digits that hccl_demo prints."""
    return round(_number(number) / _PER_GB[unit], 6)


def _number(text: str) -> float:
    return float(text.replace(",", "."))


def _size(facts: dict[str, str]) -> int | None:
    """Return a headline's size in bytes: under one of two names, or counted in elements in the oldest generation."""
    said = _whole(facts.get("datasize") or facts.get("data_size"))
    width = {"bfloat16": 2, "bf16": 2, "float": 4, "fp32": 4}.get(facts.get("dtype", ""))
    count = _whole(facts.get("count"))
    return said if said is not None else count * width if count is not None and width else None


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) <= 15 else None


def _says_something(figure: Figure) -> bool:
    return any(value is not None for value in (figure.nw_gb_s, figure.algo_gb_s, figure.host_ms, figure.device_ms))


def _summaries(lines: list[str]) -> list[Figure]:
    """Return the rows of a range of sizes; a cell's unit tells its column, as the header has no units."""
    found: list[Figure] = []
    about: re.Match[str] | None = None
    inside = False
    for line in lines:
        if _SUMMARY.search(line):
            inside, about = True, None
        elif inside and (said := _ABOUT.search(line)):
            about = said
        elif inside and (row := _ROW.search(line)):
            figure = _row(row, about)
            found += [figure] if figure else []
    return found


def _row(row: re.Match[str], about: re.Match[str] | None) -> Figure | None:
    cells = _CELL.findall(row["rest"])
    times = [_number(number) for number, unit in cells if unit == "ms"]
    rates = [_gb_s(number, unit) for number, unit in cells if unit in _PER_GB]
    figure = Figure(
        collective=about["name"] if about else None, size=int(row["size"]), loop=int(about["loop"]) if about else None
    )
    if len(rates) == 2 and len(times) <= 1:
        return replace(figure, algo_gb_s=rates[0], nw_gb_s=rates[1], host_ms=times[0] if times else None)
    if len(times) == 2 and not rates:
        return replace(figure, host_ms=times[0], device_ms=times[1])
    return None


# After this one come the faults that a server has as well.
_BEFORE_CAUSES = "hccl-affinity"
_SIGNS = tuple((known, re.compile(known.signs)) for known in FAULTS if known.signs)
_RANK_ENDED = re.compile(r"HCCL_RANK=(?P<rank>[0-9]{1,5}) [^\n]{0,2000}? ended with exit code (?P<status>[0-9]{1,6})")
_ERROR = re.compile(r"HCCL demo (?:error|exception): ([^\n]{1,300})")
_EXIT = re.compile(r"Exiting HCCL demo with code: ([0-9]{1,3})")


# Messages that make a run worthless although it ended with status 0: always, and if it should use host NICs. Any other
# message on the way, such as a card that was busy at the first attempt, was resolved by the program itself.
_ALWAYS = frozenset(("hccl-wrong-result",))
_FALLBACKS = frozenset(("hccl-gaudi-direct", "hccl-no-provider", "hccl-no-wrapper"))


def _failure(
    text: str, figures: tuple[Figure, ...], ranks: int, ended: RunFailure | None, *, host_nics: bool, facts: Facts
) -> RunFailure | None:
    """Return why a run does not count, the most specific reason first; ended: how it ended, None for success."""
    well = ended is None and bool(figures)
    telling = _ALWAYS | (_FALLBACKS if host_nics else frozenset())
    for known, pattern in _SIGNS:
        found = pattern.search(text) if not well or known.id in telling else None
        if found:
            said = printable(groups(found) or found.group().strip().rstrip("."))
            return RunFailure(known.id, *fill(known, it=said), _rank(text))
        if not well and known.id == _BEFORE_CAUSES and (cause := _cause(text, facts)) is not None:
            return cause
    return ended or _unusable(figures, ranks)


def _cause(text: str, facts: Facts) -> RunFailure | None:
    """Return the fault that a server would end with as well: faults/known.py has it."""
    cause = explain(text.splitlines(), facts)
    if not cause.id:
        return None
    return RunFailure(cause.id, printable(f"{quote(cause.lines[-1])} {cause.cause}"), cause.remedy, _rank(text))


def failed(identifier: str, at: int | None = None, /, **facts: object) -> RunFailure:
    """Return an ending that no line shows, in the words of the list of faults; at: the rank that it names."""
    return RunFailure(identifier, *fill(fault(identifier), **facts), at)


# Status of a container whose first process was killed by signal 9.
KILLED = 137
# Ids of failures that say nothing about cards and links.
NOT_OF_CARDS = frozenset(("hccl-killed", "hccl-no-memory"))
# Ids of failures that any set of cards would have, or that name the cards, so no faulty card is searched.
OF_ALL_CARDS = frozenset(
    (
        *("hccl-affinity", "hccl-arguments", "hccl-demo-not-built"),
        *("no-verbs", "verbs-not-passed", "card-not-passed", "other-release"),
    )
)


def _ended(text: str, status: int | None, limit: int | None, *, no_memory: bool) -> RunFailure | None:
    """Return how a run ended without a known reason; None if it succeeded."""
    if status is None:
        return failed("hccl-hangs", _rank(text), after=f" after {limit} s" if limit else "")
    if no_memory:
        return failed("hccl-no-memory")
    if status == KILLED:
        return failed("hccl-killed")
    if ended := _RANK_ENDED.search(text):
        rank = int(ended["rank"])
        return failed("hccl-rank-ended", rank, rank=rank, how=_ending(int(ended["status"])))
    if said := _ERROR.search(text):
        return failed("hccl-demo-error", said=printable(said[1].strip()))
    left = _EXIT.search(text)
    if status != 0 or (left and left[1] != "0"):
        return failed("hccl-ended", status=status or left[1] if left else status)
    return None


def _ending(status: int) -> str:
    """Describe a status of os.system(): a signal in its low bits, else status x 256."""
    signal = status & 0x7F
    return f"was ended by signal {signal}" if signal else f"ended with status {status >> 8}"


def _rank(text: str) -> int | None:
    """Return the one rank that reported an end or wrong sums; None for none or several."""
    named = {int(found[1]) for found in re.finditer(r"rank=([0-9]{1,5}) size=[^\n]{0,4000}? which is bad\.", text)}
    named |= {int(found["rank"]) for found in _RANK_ENDED.finditer(text)}
    return named.pop() if len(named) == 1 else None


def _unusable(figures: tuple[Figure, ...], ranks: int) -> RunFailure | None:
    """Return why the figures of a successful run cannot be used; None if they can."""
    if not figures:
        return failed("hccl-no-figure", what="no bandwidth that can be read")
    for figure in figures:
        if not _positive(figure):
            return failed("hccl-no-figure", what="a bandwidth or a time of zero")
        wrong = inconsistency(figure, ranks)
        if wrong:
            return failed("hccl-inconsistent", what=wrong)
    return None


def _positive(figure: Figure) -> bool:
    values = (figure.nw_gb_s, figure.algo_gb_s, figure.host_ms, figure.device_ms)
    return all(value is None or (value > 0 and math.isfinite(value)) for value in values)


def inconsistency(figure: Figure, ranks: int) -> str | None:
    """Say where NW Bandwidth is not Algo Bandwidth times the factor; None if it is, or if one of them is missing."""
    if figure.collective is None or figure.collective not in FACTORS:
        return None
    if figure.nw_gb_s is None or figure.algo_gb_s is None:
        return None
    expected = figure.algo_gb_s * FACTORS[figure.collective](ranks)
    if math.isclose(expected, figure.nw_gb_s, rel_tol=_TOLERANCE, abs_tol=2e-6):
        return None
    return (
        f"for {figure.collective} over {ranks} ranks an Algo Bandwidth of "
        f"{figure.algo_gb_s:g} GB/s is an NW Bandwidth of {expected:.1f} GB/s, but {figure.nw_gb_s:g} was printed"
    )
