"""The class of a measured bandwidth: good, slow, broken, or unpublished if there is no published figure.

Slow is below 90 % of what healthy cards reach, or below the site's own floor. Broken is a failed run, or one below a
published pass limit; that limit is valid only for its ranks and size, and is almost exactly half of the published
samples. Without a published figure, a run is compared with the other groups of the node and with the node's own record.
Below 90 % of either it is slow; otherwise it stays unpublished, because cards that are all equally slow would pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..base.checks import Reader, sequence
from ..catalogue.fabric import FACTORS, MOST_RANKS, Fabric, size_bytes, size_text
from ..faults.words import with_id
from .output import Figure, RunOutput, failed
from .runs import DemoRun, over

# Share of healthy cards' bandwidth. The vendor allows a loss of 10 % over more boxes and spines (docs.habana.ai,
# Collectives Performance); that less is slow within one box too is our rule.
SLOW_BELOW = 0.9
GOOD, SLOW, BROKEN, UNPUBLISHED = "good", "slow", "broken", "unpublished"
PASSING = (GOOD, UNPUBLISHED)
CLASSES = (*PASSING, SLOW, BROKEN)


@dataclass(frozen=True)
class Floor:
    """A site's own floor for NW Bandwidth in GB/s. size in bytes; ranks and size None: any."""

    collective: str
    nw_gb_s: float
    ranks: int | None = None
    size: int | None = None

    def fits(self, run: DemoRun) -> bool:
        """Tell whether the floor is for this run."""
        return self.collective == run.collective and self.ranks in (None, run.ranks) and self.size in (None, run.size)

    @property
    def exactness(self) -> int:
        """The number of optional fields that it sets; if two floors match, the more exact one counts."""
        return (self.ranks is not None) + (self.size is not None)


@dataclass(frozen=True)
class RecordedFigure:
    """A passing figure from the node's own record: the same measurement of the same cards."""

    run: DemoRun
    nw_gb_s: float


@dataclass(frozen=True)
class ClassifiedRun:
    """A run and its class.

    floor_gb_s: the NW Bandwidth that it needed. basis: the source of that floor: site, published, groups (the best
    other group of this run), record (the node's own), limit (a published pass limit) or none. sentence: the result for
    people. failure: the id of the failure, "" for a run that did not fail.
    """

    run: DemoRun
    word: str
    nw_gb_s: float | None
    algo_gb_s: float | None
    floor_gb_s: float | None
    basis: str
    sentence: str
    failure: str = ""

    @property
    def passed(self) -> bool:
        """Whether the class does not keep an instance from starting."""
        return self.word in PASSING

    def as_dict(self) -> dict[str, Any]:
        """Return it as the verdict has it: the run's keys beside its own, the class as ``class``."""
        own = {key: value for key, value in asdict(self).items() if key not in ("run", "word")}
        return {**self.run.as_dict(), "class": self.word, **own}


def read_floors(value: object) -> tuple[Floor, ...]:
    """Read fabric_check_floors, a list of ``{collective, nw_gb_s, ranks, size}``; ranks and size are optional.

    Raises Refusal for a wrong number, collective or size.
    """
    floors = []
    for entry in sequence(value, "fabric_check_floors") if value else ():
        where = "fabric_check_floors"
        reader = Reader(entry, where, ("collective", "nw_gb_s", "ranks", "size"))
        floors.append(
            Floor(
                collective=reader.choice("collective", FACTORS),
                nw_gb_s=float(reader.number("nw_gb_s", 0.001, 1e6)),
                ranks=reader.integer("ranks", 2, MOST_RANKS) if reader.has("ranks") else None,
                size=size_bytes(reader.raw("size"), f"{where}: key size") if reader.has("size") else None,
            )
        )
    return tuple(floors)


def judge(
    runs: Sequence[tuple[DemoRun, RunOutput]], fabric: Fabric, floors: Sequence[Floor], record: Sequence[RecordedFigure]
) -> tuple[ClassifiedRun, ...]:
    """Return the class of each run of a node, in order; runs of the same measurement are compared with each other."""
    return tuple(_judge(run, output, runs, fabric, floors, record) for run, output in runs)


def _judge(
    run: DemoRun,
    output: RunOutput,
    runs: Sequence[tuple[DemoRun, RunOutput]],
    fabric: Fabric,
    floors: Sequence[Floor],
    record: Sequence[RecordedFigure],
) -> ClassifiedRun:
    figure = _figure(run, output)
    nw = figure.nw_gb_s if figure else None
    result = ClassifiedRun(run, BROKEN, nw, figure.algo_gb_s if figure else None, None, "none", "")
    if output.failure is not None:
        said = with_id(f"{_name(run)}: {output.failure.sentence}", output.failure.id)
        return replace(result, sentence=said, failure=output.failure.id)
    if nw is None:
        missing = failed("hccl-no-figure", what="no NW Bandwidth for this size")
        said = with_id(f"{_name(run)}: {missing.sentence}", missing.id)
        return replace(result, sentence=said, failure=missing.id)
    # No figure over host NICs is published: it follows the NICs.
    limit = None if run.over_host_nics else fabric.pass_limit(run.collective, run.ranks, run.size)
    if limit is not None and nw <= limit.nw_gb_s:
        said = f"{_name(run)}: {nw:.1f} GB/s, not above the published pass limit of {limit.nw_gb_s:g} GB/s."
        return replace(result, floor_gb_s=limit.nw_gb_s, basis="limit", sentence=said)
    floor, basis, why = _floor(run, runs, fabric, floors, record)
    unpublished = basis not in ("site", "published")
    if floor is not None and nw < floor:
        note = " No figure is published for it." if unpublished else ""
        said = f"{_name(run)}: {nw:.1f} GB/s, below {floor:.1f} ({why}).{note}"
        return replace(result, word=SLOW, floor_gb_s=floor, basis=basis, sentence=said)
    said = f"{_name(run)}: {nw:.1f} GB/s"
    said += f", {floor:.1f} or more needed ({why})." if floor is not None else "."
    if unpublished:
        said += " No figure is published for it; it becomes the node's own record."
    return replace(result, word=UNPUBLISHED if unpublished else GOOD, floor_gb_s=floor, basis=basis, sentence=said)


def _figure(run: DemoRun, output: RunOutput) -> Figure | None:
    """Return the figure of the requested size; a headline without a size also counts."""
    return next((each for each in output.figures if each.size in (None, run.size)), None)


def _floor(
    run: DemoRun,
    runs: Sequence[tuple[DemoRun, RunOutput]],
    fabric: Fabric,
    floors: Sequence[Floor],
    record: Sequence[RecordedFigure],
) -> tuple[float | None, str, str]:
    """Return a run's floor in GB/s, its basis, and the same in words; None if there is nothing to compare with."""
    own = max((floor for floor in floors if floor.fits(run)), key=lambda floor: floor.exactness, default=None)
    if own is not None:
        return own.nw_gb_s, "site", "the site's own floor"
    sample = None if run.over_host_nics else fabric.sample(run.collective, run.ranks, run.size)
    if sample is not None:
        why = f"90 % of {sample.nw_gb_s:.1f}, which is published for healthy cards"
        return SLOW_BELOW * sample.nw_gb_s, "published", why
    best = [
        (_best(_others(run, runs)), "groups", "90 % of the node's best other group"),
        (_best(_earlier(run, record)), "record", "90 % of the node's own record"),
    ]
    known = [(SLOW_BELOW * value, basis, why) for value, basis, why in best if value is not None]
    return max(known, default=(None, "none", ""), key=lambda each: each[0] or 0.0)


def _best(values: Iterable[float]) -> float | None:
    return max(values, default=None)


def _others(run: DemoRun, runs: Sequence[tuple[DemoRun, RunOutput]]) -> list[float]:
    """Return the NW Bandwidths of other groups in the same measurement over as many cards."""
    found = []
    for other, output in runs:
        figure = _figure(other, output)
        same = replace(other, modules=()) == replace(run, modules=()) and other.ranks == run.ranks
        if same and other.modules != run.modules and output.failure is None and figure and figure.nw_gb_s:
            found.append(figure.nw_gb_s)
    return found


def _earlier(run: DemoRun, record: Sequence[RecordedFigure]) -> list[float]:
    """Return the record's figures of the same measurement; loop may differ, it only sets how long the mean is taken."""
    return [earlier.nw_gb_s for earlier in record if replace(earlier.run, loop=run.loop) == run]


def _name(run: DemoRun) -> str:
    """Return a run in words: ``all_reduce of 32m over modules 0-7``."""
    path = over(run.as_dict())
    return f"{run.collective} of {size_text(run.size)} over modules {modules_text(run.modules)}{path and ', '}{path}"


def modules_are(modules: Sequence[int], verb: str = "are") -> str:
    """Return the beginning of a sentence on modules: ``Module 3 is``, ``Modules 0-3, 6 are``; verb: are, or were."""
    if len(modules) == 1:
        return f"Module {modules[0]} {'is' if verb == 'are' else 'was'}"
    return f"Modules {modules_text(modules)} {verb}"


def modules_text(modules: Sequence[int]) -> str:
    """Return module ids as people write them: ``0-3, 6``."""
    parts: list[list[int]] = []
    for module in sorted(modules):
        if parts and module == parts[-1][-1] + 1:
            parts[-1].append(module)
        else:
            parts.append([module])
    return ", ".join(f"{part[0]}-{part[-1]}" if len(part) > 2 else ", ".join(map(str, part)) for part in parts)
