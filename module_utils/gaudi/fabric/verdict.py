"""The verdict on a node (acceptance.json): its content, when it is stale, and which instances it lets start.

The document is plain data, see new_verdict. Times are ISO 8601 in UTC, given by the caller. A verdict covers each group
of cards separately: an instance is judged by measurements that include its cards, not by others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..base.documents import misfit, parse
from ..base.printable import printable
from ..faults.words import with_id
from . import compute
from .classes import CLASSES, PASSING, ClassifiedRun, RecordedFigure, modules_text
from .locating import FaultyPart
from .nics import DIRECT, HostNics
from .runs import PATHS, DemoRun, over, same_path
from .static import StaticFault

SCHEMA = 1
ACCEPTED, FAILED, NOT_MEASURED = "accepted", "failed", "not_measured"
# Earlier verdicts that a document keeps; one a month makes a year and a half.
MOST_HISTORY = 20
# Above those of any node: its cards, of which a page joins any two with a line, measurements at a time, faulty parts.
MOST_CARDS, MOST_MEASUREMENTS, MOST_LOCATED = 32, 128, 512

_NONE = type(None)
_NUMBER = (int, float)
_MEASUREMENT = {
    "modules": [int],
    "collective": str,
    "size": int,
    "loop": int,
    "over_host_nics": bool,
    # Verdicts of earlier releases have none.
    "over_host?": bool,
    "class": str,
    "nw_gb_s": (*_NUMBER, _NONE),
}
_FORM = {
    "schema": int,
    "node": str,
    "time": str,
    "state": str,
    "override": str,
    "made_of": {
        "serials": {str: str},
        **dict.fromkeys(("driver", "firmware", "base_image", "libfabric", "wrapper", "hccl_demo"), (str, _NONE)),
    },
    "faults": [{"id": str, "sentence": str, "modules": [int], "fatal": bool}],
    "host_nics": (dict, _NONE),
    "measurements": [
        {
            **_MEASUREMENT,
            **{"floor_gb_s": (*_NUMBER, _NONE), "algo_gb_s": (*_NUMBER, _NONE), "basis": str, "sentence": str},
            # Only in a measurement that was kept from an earlier verdict.
            "time?": str,
        }
    ],
    "located": [{"kind": str, "modules": [int], "sentence": str}],
    "not_measured": str,
    "burn_in": (dict, _NONE),
    # Verdicts of earlier releases have none, and hold.
    "compute_check?": dict,
    "record": [
        {
            **{"modules": [int], "collective": str, "size": int, "loop": int},
            **{"over_host_nics": bool, "over_host?": bool, "nw_gb_s": _NUMBER},
        }
    ],
    "history": [{"time": str, "state": str, "measurements": [_MEASUREMENT]}],
}
_HOST_NICS = {
    **dict.fromkeys(("libfabric", "provider", "wrapper"), (str, _NONE)),
    "gaudi_direct": (bool, _NONE),
    "faults": _FORM["faults"],
}
_BURN_IN = {"passed": (bool, _NONE), "tests": [[str]], "sentence": str}


@dataclass(frozen=True)
class VerdictSubject:
    """The hardware and software that a verdict is about; if one of them changes, it is stale.

    serials: by module id as text. driver and firmware are releases. The rest is of the image: digest of its base,
    version of libfabric, commits of wrapper and hccl_demo. None: not present.
    """

    serials: Mapping[str, str]
    driver: str | None
    firmware: str | None
    base_image: str | None
    libfabric: str | None
    wrapper: str | None
    hccl_demo: str | None


@dataclass(frozen=True)
class Needs:
    """What an instance needs of the verdict: its module ids (a single card needs only the static checks) and host NICs.

    image: the instance's image if it is not the measuring one, else "".
    """

    instance: str
    modules: tuple[int, ...]
    host_nics: bool
    image: str = ""

    @property
    def alone(self) -> bool:
        """Whether the instance uses one card and no host NICs."""
        return len(self.modules) <= 1 and not self.host_nics


@dataclass(frozen=True)
class Policy:
    """The site's policy: required false lets every instance start; override is a reason, "" without one."""

    required: bool = True
    override: str = ""


@dataclass(frozen=True)
class Permission:
    """Whether an action is allowed: id and sentence give the reason, or a warning."""

    allowed: bool
    id: str
    sentence: str
    warning: bool = False


@dataclass(frozen=True)
class RetainedResults:
    """The part of the last verdict that stays valid beside new figures; each measurement keeps its own time."""

    measurements: Sequence[Mapping[str, Any]] = ()
    located: Sequence[Mapping[str, Any]] = ()
    host_nics: Mapping[str, Any] | None = None


def keep(verdict: Mapping[str, Any], runs: Sequence[DemoRun]) -> RetainedResults:
    """Return the part of a valid verdict that these runs do not replace: measurements of other cards."""

    def again(each: Mapping[str, Any]) -> bool:
        return any(same_path(run.as_dict(), each) and set(each["modules"]) <= set(run.modules) for run in runs)

    # What was located is of the cards' own links.
    return RetainedResults(
        measurements=[{"time": verdict["time"], **each} for each in verdict["measurements"] if not again(each)],
        located=[each for each in verdict["located"] if not again(each)],
        host_nics=verdict["host_nics"],
    )


def new_verdict(
    *,
    node: str,
    time: str,
    made_of: VerdictSubject,
    faults: Sequence[StaticFault],
    nics: HostNics | None,
    results: Sequence[ClassifiedRun],
    located: Sequence[FaultyPart],
    not_measured: str = "",
    burn_in: Mapping[str, Any] | None = None,
    compute_check: Mapping[str, Any] | None = None,
    before: Mapping[str, Any] | None = None,
    kept: RetainedResults | None = None,
    override: str = "",
) -> dict[str, Any]:
    """Return a new document.

    before: the last verdict; its figures become history, and its record continues for the same cards. kept: what of it
    stays valid beside the new figures. not_measured: why nothing was run, "" if something was. Keys: schema, node,
    time, state (accepted, failed, not_measured), override, made_of, faults, host_nics, measurements, located,
    not_measured, burn_in, compute_check, record, history.
    """
    kept = kept or RetainedResults()
    measurements = [*kept.measurements, *(result.as_dict() for result in results)]
    host_nics = nics.as_dict() if nics else kept.host_nics
    document = {
        "schema": SCHEMA,
        "node": node,
        "time": time,
        "state": NOT_MEASURED,
        "override": override,
        "made_of": asdict(made_of),
        "faults": [fault.as_dict() for fault in faults],
        "host_nics": host_nics,
        "measurements": measurements,
        "located": [*kept.located, *({**asdict(each), "modules": list(each.modules)} for each in located)],
        "not_measured": not_measured,
        "burn_in": dict(burn_in) if burn_in else None,
        **({"compute_check": dict(compute_check)} if compute_check else {}),
        "record": _record(results, before, made_of),
        "history": _history(before),
    }
    return {key: _shown(value) for key, value in {**document, "state": _state(document)}.items()}


def _state(document: Mapping[str, Any]) -> str:
    """Return the state of a verdict: what failed in any of its parts, else whether the links were measured."""
    faults = [*document["faults"], *(document["host_nics"] or {}).get("faults", ())]
    bad = any(fault["fatal"] for fault in faults) or (document["burn_in"] or {}).get("passed") is False
    bad = bad or any(each["class"] not in PASSING for each in document["measurements"])
    bad = bad or any(row["outcome"] == compute.FAILED for row in rows(document))
    return FAILED if bad else ACCEPTED if document["measurements"] else NOT_MEASURED


def rows(verdict: Mapping[str, Any] | None) -> Sequence[Mapping[str, Any]]:
    """Return what the compute check found, by card and group; nothing for a verdict without it."""
    found: Sequence[Mapping[str, Any]] = ((verdict or {}).get("compute_check") or {}).get("rows", ())
    return found


def computed(verdict: Mapping[str, Any], compute_check: Mapping[str, Any]) -> dict[str, Any]:
    """Return a valid verdict with a new compute check; its other parts stay."""
    document = {**verdict, "compute_check": _shown(compute_check)}
    return {**document, "state": _state(document)}


def _shown(value: Any) -> Any:
    """Return the data with all text made printable; serials and commits come from outside as well."""
    if isinstance(value, Mapping):
        return {printable(str(key)): _shown(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_shown(each) for each in value]
    return printable(value) if isinstance(value, str) else value


def _record(
    results: Sequence[ClassifiedRun], before: Mapping[str, Any] | None, made_of: VerdictSubject
) -> list[dict[str, Any]]:
    """Return the best passing figure of each measurement of the same cards, with whatever software."""
    best: dict[DemoRun, float] = {}
    earlier = [(each.run, each.nw_gb_s) for each in record(before, made_of)]
    for run, nw in (*earlier, *((each.run, each.nw_gb_s) for each in results if each.passed)):
        if nw is not None:
            best[run] = max(nw, best.get(run, nw))
    return [{**run.as_dict(), "nw_gb_s": nw} for run, nw in best.items()]


def _history(before: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Return the verdicts before this one, newest first, each with its figures."""
    if before is None:
        return []
    keys = [key.rstrip("?") for key in _MEASUREMENT]
    figures = [{key: each[key] for key in keys if key in each} for each in before["measurements"]]
    last = {"time": before["time"], "state": before["state"], "measurements": figures}
    return [last, *before["history"]][:MOST_HISTORY]


def read_verdict(text: str) -> dict[str, Any]:
    """Parse a verdict file. Raises ValueError, with a clause that begins with "it", for anything else."""
    document = parse(text, _FORM, SCHEMA)
    # Pages have a word for each of these, and for no other.
    if any(each["state"] not in (ACCEPTED, FAILED, NOT_MEASURED) for each in (document, *document["history"])):
        raise ValueError("it has no known state")
    if any(each["class"] not in CLASSES for each in document["measurements"]):
        raise ValueError("it has a measurement of no known class")
    _check_bounds(document)
    for key, form in (("host_nics", _HOST_NICS), ("burn_in", _BURN_IN)):
        if document[key] is not None and misfit(document[key], form):
            raise ValueError(f"it has no {key}, or of another type")
    if "compute_check" in document:
        compute.read(document["compute_check"])
    return document


def _check_bounds(document: Mapping[str, Any]) -> None:
    """Check what a page draws; the time for it grows faster than these numbers. Raises ValueError."""
    measured = [document["measurements"], *(each["measurements"] for each in document["history"])]
    if len(document["history"]) > MOST_HISTORY or any(len(each) > MOST_MEASUREMENTS for each in measured):
        raise ValueError("it has more measurements than any node")
    if any(len(run["modules"]) > MOST_CARDS for each in measured for run in each):
        raise ValueError("it has a measurement of more cards than any node")
    parts = document["located"]
    if len(parts) > MOST_LOCATED:
        raise ValueError("it has more faulty parts than any node")
    if len(document["made_of"]["serials"]) > MOST_CARDS or any(len(each["modules"]) > MOST_CARDS for each in parts):
        raise ValueError("it has more cards than any node")
    if any(each["kind"] == "link" and len(each["modules"]) != 2 for each in parts):
        raise ValueError("it has a link that does not join two cards")


def record(verdict: Mapping[str, Any] | None, now: VerdictSubject) -> tuple[RecordedFigure, ...]:
    """Return the node's own record: the best passing figure of each measurement of the cards that are present now."""
    then = verdict["made_of"]["serials"] if verdict else {}
    found = []
    for row in verdict["record"] if verdict else ():
        paths = {key: bool(row.get(key)) for key in PATHS}
        run = DemoRun(tuple(row["modules"]), row["collective"], row["size"], row["loop"], **paths)
        if all(then.get(str(module)) == now.serials.get(str(module)) for module in run.modules):
            found.append(RecordedFigure(run, row["nw_gb_s"]))
    return tuple(found)


def burnt(verdict: Mapping[str, Any] | None, now: VerdictSubject) -> dict[str, Any] | None:
    """Return the last burn-in if it was of the cards that are present now; else None."""
    same = verdict is not None and verdict["made_of"]["serials"] == dict(now.serials)
    return verdict["burn_in"] if verdict is not None and same else None


def overridden(verdict: Mapping[str, Any], reason: str) -> dict[str, Any]:
    """Return the verdict with the reason for an override, "" for none; every status shows it."""
    return {**verdict, "override": printable(reason)}


_NAMES = {
    "driver": "the driver",
    "firmware": "the firmware",
    "base_image": "the base image",
    "libfabric": "libfabric",
    "wrapper": "hccl_ofi_wrapper",
    "hccl_demo": "hccl_demo",
}
# What a single card depends on; nothing of the image.
_OF_CARDS = ("driver", "firmware")


def changes(verdict: Mapping[str, Any], now: VerdictSubject, modules: Sequence[int] | None = None) -> tuple[str, ...]:
    """Return what makes a verdict stale, one clause each; nothing if it is valid.

    These changes count: another card, driver, firmware, base image, libfabric, wrapper or hccl_demo. Other changes of
    an image do not. modules: only these cards count; for a single card only what it depends on.
    """
    then = verdict["made_of"]
    known = {**then["serials"], **now.serials}
    wanted = sorted(known, key=lambda text: (len(text), text))
    said = []
    for module in wanted:
        old, new = then["serials"].get(module), now.serials.get(module)
        if old != new and (modules is None or module in {str(each) for each in modules}):
            said.append(f"module {module} was the card {old or '(none)'} and is {new or '(none)'}")
    for key in _OF_CARDS if modules is not None and len(modules) == 1 else _NAMES:
        old, new = then[key], getattr(now, key)
        if old != new:
            said.append(f"{_NAMES[key]} was {old or 'not there'} and is {new or 'not there'}")
    return tuple(map(printable, said))


def may_start(
    verdict: Mapping[str, Any] | None, now: VerdictSubject, needs: Needs, policy: Policy, *, running: bool = False
) -> Permission:
    """Return whether an instance may start.

    running: it runs already, and goes on with a warning, also if this run restarts it.
    """
    answer = _judged(verdict, now, needs)
    if answer.allowed:
        return answer
    said = f"{needs.instance}: {answer.sentence}"
    if not policy.required:
        return Permission(
            True, "fabric_not_required", f"Let through, fabric_check_required is false. {said}", warning=True
        )
    if policy.override:
        reason = printable(policy.override)
        return Permission(
            True, "fabric_overridden", f"Let through by fabric_check_override ({reason}). {said}", warning=True
        )
    if running:
        goes_on = "It is running and goes on, also where this run restarts it; once stopped it would not start."
        return Permission(True, answer.id, f"{said} {goes_on}", warning=True)
    return Permission(False, answer.id, said)


# Faults of other cards, or of the links to other nodes, which do not concern an instance on one card. The verdict of an
# earlier release has underscores.
_OF_OTHERS = frozenset(
    (
        *("card-count", "cards-differ", "lost-card"),
        *("gaudinet-unreadable", "gaudinet-entry", "gaudinet-stale", "gaudinet-incomplete"),
        *("external-port-down", "interface-missing", "interface-wrong"),
    )
)
_AGAIN = "Measure the node, which needs its cards free."
_ONE_BASE = (
    "Give all instances on several cards images of one base with the same libfabric, hccl_ofi_wrapper and hccl_demo. "
)


def _judged(verdict: Mapping[str, Any] | None, now: VerdictSubject, needs: Needs) -> Permission:
    """Return what a verdict says about an instance, before the site's policy is applied."""
    if verdict is None:
        return Permission(
            False, "fabric_not_measured", f"Nobody has measured this node's cards and links yet. {_AGAIN}"
        )
    faults = _faults(verdict, needs)
    if faults:
        return Permission(
            False, "fabric_static_fault", f"The static checks of {verdict['time']} failed. {' '.join(faults)}"
        )
    stale = changes(verdict, now, needs.modules)
    if stale:
        of = f" for its image {printable(needs.image)}, which is not the one that measures" if needs.image else ""
        said = f"The verdict of {verdict['time']} is stale{of}: {'; '.join(stale)}."
        return Permission(False, "fabric_stale", f"{said} {_ONE_BASE if needs.image else ''}{_AGAIN}")
    if (verdict["burn_in"] or {}).get("passed") is False:
        return Permission(False, "fabric_failed", f"The burn-in failed. {verdict['burn_in']['sentence']} {_AGAIN}")
    wrong = compute.failed(verdict.get("compute_check"), needs.modules, alone=needs.alone)
    if wrong:
        said = f"{' '.join(wrong)} {compute.advice(verdict['compute_check'])}"
        return Permission(False, "fabric_wrong_numbers", said)
    if needs.alone:
        return Permission(
            True, "fabric_one_card", f"The static checks of {verdict['time']} passed; one card asks for no more."
        )
    return _measured(verdict, needs)


def _faults(verdict: Mapping[str, Any], needs: Needs) -> list[str]:
    """Return fatal faults of these cards and of the whole node, and of host NICs if the instance needs them.

    For an instance on one card, faults in the number or types of cards do not count.
    """
    of_others = _OF_OTHERS if needs.alone else ()
    found = [
        with_id(fault["sentence"], fault["id"])
        for fault in verdict["faults"]
        if fault["fatal"]
        and fault["id"].replace("_", "-") not in of_others
        and (not fault["modules"] or set(fault["modules"]) & set(needs.modules))
    ]
    nics = verdict["host_nics"] if needs.host_nics else None
    return found + [with_id(each["sentence"], each["id"]) for each in (nics["faults"] if nics else ()) if each["fatal"]]


def _measured(verdict: Mapping[str, Any], needs: Needs) -> Permission:
    """Return what the measurements say about an instance on several cards."""
    if needs.host_nics and verdict["host_nics"] is None:
        said = "It needs host NICs, and those of this node were not looked at. Set fabric_check_host_nics: true."
        return Permission(False, "fabric_no_host_nics", f"{said} {_AGAIN}")
    if not verdict["measurements"]:
        return Permission(False, "fabric_not_measured", f"Nothing was measured. {verdict['not_measured']}".strip())
    covering = _covering(verdict["measurements"], needs)
    missing = set(needs.modules).difference(*(each["modules"] for each in verdict["measurements"]))
    if missing:
        said = f"Modules {modules_text(tuple(missing))} were not measured. {verdict['not_measured']}".strip()
        return Permission(False, "fabric_not_measured", f"{said} {_AGAIN}")
    if not covering:
        said = f"Modules {modules_text(needs.modules)} were not measured together: they are of several groups."
        return Permission(
            False,
            "fabric_across_groups",
            f"{said} Choose cards of one group, or measure all cards together, which needs them free; where host NICs "
            "are to join the groups, with fabric_check_host_nics: true.",
        )
    # Cards of one group use their own links, so the smallest measurement that covers them counts.
    least = min(len(each["modules"]) for each in covering)
    bad = [each for each in covering if len(each["modules"]) == least and each["class"] not in PASSING]
    if bad:
        why = [each["sentence"] for each in (*bad, *verdict["located"])]
        at = bad[0].get("time", verdict["time"])
        return Permission(False, "fabric_failed", f"The node failed at {at}. {' '.join(why)} {_AGAIN}")
    best = covering[0]
    return Permission(True, "fabric_accepted", f"Measured at {best.get('time', verdict['time'])}: {best['sentence']}")


def _covering(measurements: Sequence[Mapping[str, Any]], needs: Needs) -> list[Mapping[str, Any]]:
    """Return the measurements of an instance's cards together: those of their own links, else of the path it uses."""
    found = [each for each in measurements if set(needs.modules) <= set(each["modules"])]
    linked = [each for each in found if not over(each)]
    return linked or [each for each in found if each["over_host_nics"] == needs.host_nics]


def to_measure(verdict: Mapping[str, Any] | None, now: VerdictSubject, busy: Sequence[int]) -> Permission:
    """Return whether to measure a node now: its verdict is missing or stale, and its cards are free.

    busy: module ids in use. A failed verdict that is still valid stays; only a person repeats the same measurement.
    """
    stale = changes(verdict, now) if verdict else ("the node had no verdict",)
    if verdict and not stale:
        words = {ACCEPTED: "It was accepted", FAILED: "It failed", NOT_MEASURED: "Its static checks passed"}
        return Permission(
            False, f"fabric_{verdict['state']}", f"{words[verdict['state']]} at {verdict['time']}, which holds."
        )
    why = f"{'; '.join(stale)}."
    if busy:
        said = f"Modules {modules_text(busy)} are in use, so that nothing is measured now: {why}"
        return Permission(False, "fabric_busy", said, warning=True)
    return Permission(True, "fabric_to_measure", f"{why[0].upper()}{why[1:]}")


def describe(verdict: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the verdict in a few lines for a status: the state, its basis, and an override."""
    time = verdict["time"]
    lines = [
        {
            ACCEPTED: f"accepted at {time}",
            FAILED: f"FAILED at {time}",
            NOT_MEASURED: f"cards checked at {time}, links not measured",
        }[verdict["state"]]
    ]
    lines += [with_id(fault["sentence"], fault["id"]) for fault in verdict["faults"] if fault["fatal"]]
    lines += _of_host_nics(verdict["host_nics"])
    lines += [each["sentence"] for each in (*verdict["measurements"], *verdict["located"])]
    lines += [f"burn-in: {verdict['burn_in']['sentence']}"] if verdict["burn_in"] else []
    lines += compute.lines(verdict.get("compute_check"))
    lines += [verdict["not_measured"]] if verdict["not_measured"] else []
    lines += [f"let through by fabric_check_override: {verdict['override']}"] if verdict["override"] else []
    return tuple(lines)


def _of_host_nics(nics: Mapping[str, Any] | None) -> list[str]:
    """Return how traffic over host NICs is carried, and its faults; nothing without host NICs."""
    if nics is None:
        return []
    libfabric = f"libfabric {nics['libfabric']}" if nics["libfabric"] else "no libfabric"
    found = f"{nics['provider'] or 'no provider'}, {libfabric}, Gaudi Direct {DIRECT[nics['gaudi_direct']]}"
    return [f"host NICs: {found}", *(with_id(each["sentence"], each["id"]) for each in nics["faults"])]
