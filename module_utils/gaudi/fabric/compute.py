"""The compute check: what the cards of a node are asked to compute, and what their answers mean.

roles/fabric_check/files/compute_check.py computes on the cards and prints lines of JSON; this module makes its request
and judges the lines. Exact checks (copies, gathered rows, sums of integers) fail a card. A product in bfloat16 has a
tolerance, and only warns: nobody has run this on hardware. What could not be checked proves nothing about a card.

Pure: the output of a program in, rows of the verdict out. A row is about one card, or about a group that was summed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..base.documents import misfit
from ..base.printable import printable
from ..catalogue.compute import ComputeBounds
from ..faults.words import fault, remedy
from .classes import modules_are, modules_text

MARK = "gaudi-compute "
FULL, SHORT = "full", "short"
PASSED, FAILED, DIFFERS, UNKNOWN, SKIPPED = "passed", "failed", "differs", "unknown", "skipped"
OUTCOMES = (PASSED, FAILED, DIFFERS, UNKNOWN, SKIPPED)
OF_A_CARD, OF_A_GROUP = ("copy", "gather", "matmul"), ("all_reduce",)
MIB = 1 << 20
# Sizes follow from the MiB that each card copies.
# The short form copies an eighth, and does everything once.
SHORT_SHARE = 8
ROUNDS = {FULL: 2, SHORT: 1}
_CHUNK = 256 * MIB
_SIDE = 64
# Seconds: of a start, as for a run of hccl_demo, and of a card's checks for each GiB. A guess, as none was timed.
_START_SECONDS, _SECONDS_PER_GIB = 60, 15
LEAST_LIMIT = 120
# Limits of a text of the program (characters), of its lines, and of its numbers.
_LONGEST = 300
_MOST_LINES = 10000
# Parsed JSON takes up to a hundred times as much memory as its text. The program's own lines have a few hundred.
_LONGEST_LINE = 4096
# What is kept of one card or group; the program tells one of each check.
_MOST_FINDINGS = 16
_LARGEST = 1 << 50
_NAMES = {
    "copy": "a copy to the card and back",
    "gather": "rows gathered from a large table",
    "matmul": "a long matrix product",
    "all_reduce": "the sum over the group",
}

ROW = {
    "modules": [int],
    "time": str,
    "boot": str,
    "form": str,
    "outcome": str,
    "sentence": str,
    "findings": [
        {
            "module": int,
            "check": str,
            "exact": bool,
            "expected": str,
            "got": str,
            "at": int,
            "wrong": int,
            "of": int,
            "sentence": str,
        }
    ],
}
FORM = {"rows": [ROW], "copy_mib": int, "not_checked": str}


@dataclass(frozen=True)
class ComputePlan:
    """What is computed: module ids of single cards, groups that are summed, and the form.

    copy_mib: MiB that each card copies in the full form. repeats: a card that failed is checked again, so that the last
    verdict does not tell whether an instance may start. why_not: why nothing is checked, as a sentence, "" if
    something is, or nothing is due.
    """

    cards: tuple[int, ...] = ()
    groups: tuple[tuple[int, ...], ...] = ()
    form: str = FULL
    copy_mib: int = 0
    repeats: bool = False
    why_not: str = ""

    @property
    def due(self) -> bool:
        """Whether anything is checked."""
        return bool(self.cards)

    @property
    def modules(self) -> tuple[int, ...]:
        """The module ids of all cards that are used."""
        return tuple(sorted({*self.cards, *(module for group in self.groups for module in group)}))

    @property
    def copied_mib(self) -> int:
        """MiB that each card copies."""
        return self.copy_mib if self.form == FULL else max(1, self.copy_mib // SHORT_SHARE)


@dataclass(frozen=True)
class ComputeExit:
    """How the program's container ended. status: None if it was stopped after ``limit`` seconds. interrupted: it was
    ended from outside, or for lack of memory, which proves nothing about cards."""

    text: str
    status: int | None
    limit: int
    interrupted: bool = False


def plan(
    rows: Sequence[Mapping[str, Any]],
    modules: Sequence[int],
    groups: Sequence[Sequence[int]],
    busy: Collection[int],
    boot: str,
    copy_mib: int,
) -> ComputePlan:
    """Return what is due: cards and groups without a row of this boot whose cards are free.

    rows: those of the last verdict that hold. boot: the id of the node's boot. After a reboot, cards that passed are
    checked in the short form. A row that failed stays for this boot: only a person repeats it.
    """
    known = {tuple(row["modules"]): row for row in rows}
    single = [(module,) for module in modules]
    joined = [tuple(module for module in group if module in modules) for group in groups]
    every = [*single, *(group for group in joined if len(group) > 1)]
    current = [row for row in rows if row["outcome"] == FAILED and row["boot"] == boot]
    wrong = {module for row in current if len(row["modules"]) == 1 for module in row["modules"]}
    out = {*busy, *wrong}
    due = [part for part in every if not set(part) & out and known.get(part, {}).get("boot") != boot]
    if not due:
        return ComputePlan(copy_mib=copy_mib)
    again = [known[part]["outcome"] for part in due if part in known]
    proved = len(again) == len(due) and all(outcome in (PASSED, DIFFERS) for outcome in again)
    summed = tuple(part for part in due if len(part) > 1)
    # A sum is of cards that were checked before it.
    alone = {module for part in due for module in part}
    return ComputePlan(
        cards=tuple(sorted(alone)),
        groups=summed,
        form=SHORT if proved else FULL,
        copy_mib=copy_mib,
        repeats=FAILED in again,
    )


def request(planned: ComputePlan) -> dict[str, Any]:
    """Return what the program is asked for."""
    copied = planned.copied_mib * MIB
    chunk = min(_CHUNK, copied)
    return {
        "device": "hpu",
        "cards": list(planned.cards),
        "groups": [list(group) for group in planned.groups],
        "rounds": ROUNDS[planned.form],
        "copy_bytes": copied // chunk * chunk,
        "chunk_bytes": chunk,
        # A table of 512 MiB, an inner side of 131072 and a sum of 16 Mi floats for copies of 4 GiB, in both forms:
        # short ones were exact where long ones were not.
        "table_bytes": max(MIB // 8, planned.copy_mib * MIB // 8),
        "inner": max(32, planned.copy_mib * 32),
        "side": _SIDE,
        "sum_elements": max(4096, planned.copy_mib * MIB // 256),
    }


def seconds(planned: ComputePlan) -> int:
    """Return how long this takes, in whole seconds: a guess."""
    if not planned.due:
        return 0
    gib = planned.copied_mib * ROUNDS[planned.form] / 1024
    return (1 + bool(planned.groups)) * _START_SECONDS + round(gib * _SECONDS_PER_GIB)


def limit_seconds(planned: ComputePlan) -> int:
    """Return after how many seconds the check counts as hanging: five times what it should take."""
    return max(LEAST_LIMIT, 5 * seconds(planned))


def text(planned: ComputePlan) -> str:
    """Describe what is computed, for a sentence; "" if nothing is."""
    if not planned.due:
        return ""
    summed = "".join(f", and one sum over modules {modules_text(group)}" for group in planned.groups)
    form = "" if planned.form == FULL else " in the short form"
    return (
        f"the numbers of modules {modules_text(planned.cards)}{form} (copies of {planned.copied_mib} MiB, gathers, "
        f"matrix products{summed}; about {seconds(planned)} seconds)"
    )


@dataclass
class _Answers:
    """The lines about one part (a card, or a group), by module."""

    passed: dict[int, set[str]] = field(default_factory=dict)
    findings: list[dict[str, Any]] = field(default_factory=list)
    failed: dict[int, str] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)


def judge(
    planned: ComputePlan, ended: ComputeExit, indexes: Mapping[int, int], bounds: ComputeBounds, time: str, boot: str
) -> tuple[list[dict[str, Any]], str]:
    """Return the rows of a verdict, and why cards have none, as a sentence ("" if all have one).

    indexes: the device index of each module, by which a card is known that another process took than was asked. Never
    raises: the program runs in an image that is not trusted, and may print anything.
    """
    parts: dict[tuple[int, ...], _Answers] = {(module,): _Answers() for module in planned.cards}
    parts.update({group: _Answers() for group in planned.groups})
    took: dict[int, int] = {}
    modules = {index: module for module, index in indexes.items()}
    for line in _lines(ended.text):
        _read(line, parts, took, modules, bounds)
    rows: list[dict[str, Any]] = []
    bad: set[int] = set()
    for part, answers in parts.items():
        outcome, sentence = _outcome(part, answers, ended, bad)
        if outcome is None:
            continue
        bad |= set(part) if outcome in (FAILED, UNKNOWN) else set()
        rows.append(
            {
                "modules": list(part),
                "time": time,
                "boot": boot,
                "form": planned.form,
                "outcome": outcome,
                "sentence": sentence,
                "findings": answers.findings,
            }
        )
    left = sorted({module for part in parts for module in part} - {m for row in rows for m in row["modules"]})
    why = f"{modules_are(tuple(left), 'were')} not checked: the run was ended from outside, or for lack of memory."
    return rows, why if left else ""


def _outcome(
    part: tuple[int, ...], answers: _Answers, ended: ComputeExit, bad: Collection[int]
) -> tuple[str | None, str]:
    """Return the outcome of a card or a group, None if it says nothing of it, and a sentence.

    bad: modules whose own checks failed, so that nothing was summed with them.
    """
    name = _name(part)
    checks = OF_A_CARD if len(part) == 1 else OF_A_GROUP
    wrong = [each for each in answers.findings if each["exact"]]
    if wrong:
        facts = {"name": name, "verb": "computes" if len(part) == 1 else "add up to", "what": wrong[0]["sentence"]}
        return FAILED, fault("wrong-numbers").sentence.format(**facts)
    if all(set(checks) <= answers.passed.get(module, set()) for module in part):
        if answers.findings:
            return DIFFERS, f"{name}: {answers.findings[0]['sentence']}"
        return PASSED, ""
    if len(part) > 1 and set(part) & set(bad):
        which = _name(tuple(set(part) & set(bad))).lower()
        return SKIPPED, f"{name} were not added up, because of what was found on {which}."
    if ended.interrupted:
        return None, ""
    why = next((answers.failed[module] for module in part if module in answers.failed), "")
    if not why:
        why = (
            f"no answer within {ended.limit} seconds"
            if ended.status is None
            else f"the check ended with status {ended.status} and without an answer{_last(ended.text)}"
        )
    silent = tuple(module for module in part if module not in answers.done)
    which = f"{_name(silent).lower()}: " if len(part) > 1 and silent else ""
    return UNKNOWN, f"The numbers of {name.lower()} could not be checked ({which}{why})."


def _name(part: Sequence[int]) -> str:
    return f"Module{'s' if len(part) > 1 else ''} {modules_text(part)}"


def _last(text_: str) -> str:
    """Return the last line that is none of the program's."""
    lines = [line for line in text_.splitlines() if line.strip() and not line.startswith(MARK)]
    return f": {printable(lines[-1].strip()[:_LONGEST_LINE])[:_LONGEST]}" if lines else ""


def _lines(text_: str) -> Iterator[dict[str, Any]]:
    """Yield the program's lines; others are the libraries'."""
    marked = [line for line in text_.splitlines() if line.startswith(MARK) and len(line) <= _LONGEST_LINE]
    for line in marked[:_MOST_LINES]:
        try:
            said = json.loads(line[len(MARK) :])
        except (ValueError, RecursionError):
            continue
        if isinstance(said, dict) and misfit(said, {"module": int, "group": [int]}) is None:
            yield said


def _read(
    line: Mapping[str, Any],
    parts: Mapping[tuple[int, ...], _Answers],
    took: dict[int, int],
    modules: Mapping[int, int],
    bounds: ComputeBounds,
) -> None:
    """Read one line into the part that it is about. took: the card that each process has, by the module asked for."""
    asked, group = line["module"], tuple(line["group"])
    if isinstance(line.get("device"), int) and line["device"] in modules and not group:
        took[asked] = modules[line["device"]]
    module = took.get(asked, asked)
    answers = parts.get(group or (module,))
    if answers is None or module not in (group or (module,)):
        return
    if line.get("done") is True:
        answers.done.add(module)
    elif isinstance(line.get("failed"), str):
        answers.failed[module] = printable(line["failed"])[:_LONGEST]
    elif line.get("check") in (OF_A_GROUP if group else OF_A_CARD):
        _checked(line, module, answers, bounds)


def _checked(line: Mapping[str, Any], module: int, answers: _Answers, bounds: ComputeBounds) -> None:
    """Read the result of one check."""
    check, exact = str(line["check"]), line["check"] != "matmul"
    form = {"of": int, **({"wrong": int} if exact else {"error": (int, float)})}
    found = {"at?": int, "expected?": str, "got?": str}
    if misfit(line, {**form, **found}) or not _bounded(line):
        return
    error = float(line.get("error", 0.0))
    if line["wrong"] == 0 if exact else error <= bounds.matmul:
        answers.passed.setdefault(module, set()).add(check)
        return
    if not exact:
        # A tolerance warns; the check was made.
        answers.passed.setdefault(module, set()).add(check)
    if len(answers.findings) == _MOST_FINDINGS:
        return
    expected, got = (printable(str(line.get(key, "?")))[:60] for key in ("expected", "got"))
    wrong, at = line.get("wrong", 1), line.get("at", 0)
    place = f"value {at} is {got} and should be {expected}"
    count = (
        f"{wrong} of {line['of']} values differ"
        if exact
        else f"the difference is {error:.3g} of the largest value, {bounds.matmul:.3g} is the bound"
    )
    of = f" on module {module}" if check in OF_A_GROUP else ""
    sentence = f"{_NAMES[check]}{of}: {place}; {count}."
    answers.findings.append(
        {
            "module": module,
            "check": check,
            "exact": exact,
            "expected": expected,
            "got": got,
            "at": at,
            "wrong": wrong,
            "of": line["of"],
            "sentence": sentence,
        }
    )


def _bounded(line: Mapping[str, Any]) -> bool:
    """Whether the numbers of a line can be written, and NaN is none."""
    numbers = [line.get(key, 0) for key in ("of", "wrong", "at", "error")]
    if not all(isinstance(number, (int, float)) for number in numbers):
        return False
    return all(0 <= number <= (_LARGEST if isinstance(number, int) else 1e31) for number in numbers) and all(
        map(math.isfinite, numbers)
    )


def keep(part: Mapping[str, Any] | None, checked: ComputePlan) -> list[Mapping[str, Any]]:
    """Return the rows of a valid verdict that this check does not replace. part: its compute check, if it has one."""
    again = {(module,) for module in checked.cards} | set(checked.groups)
    return [row for row in (part or {}).get("rows", ()) if tuple(row["modules"]) not in again]


def document(rows: Sequence[Mapping[str, Any]], copy_mib: int, not_checked: str) -> dict[str, Any]:
    """Return the compute check as a verdict has it: single cards first. not_checked: why cards have no row, or ""."""
    ordered = sorted(rows, key=lambda row: (len(row["modules"]), row["modules"]))
    return {"rows": [dict(row) for row in ordered], "copy_mib": copy_mib, "not_checked": not_checked}


def read(part: object) -> None:
    """Check the compute check of a verdict file. Raises ValueError, with a clause that begins with "it"."""
    wrong = misfit(part, FORM)
    if wrong:
        raise ValueError("it has no compute_check, or of another type")
    if any(row["outcome"] not in OUTCOMES or row["form"] not in ROUNDS for row in (part or {}).get("rows", ())):  # type: ignore[attr-defined]
        raise ValueError("it has a compute check of no known outcome")


def failed(part: Mapping[str, Any] | None, modules: Collection[int], *, alone: bool = False) -> list[str]:
    """Return why these modules compute wrongly, a sentence each. alone: only rows of single cards count."""
    return [
        row["sentence"]
        for row in (part or {}).get("rows", ())
        if row["outcome"] == FAILED and set(row["modules"]) & set(modules) and not (alone and len(row["modules"]) > 1)
    ]


def unproved(part: Mapping[str, Any] | None) -> list[str]:
    """Return what was found beside wrong numbers: cards that gave no answer, and products beyond their tolerance."""
    return [row["sentence"] for row in (part or {}).get("rows", ()) if row["outcome"] in (UNKNOWN, DIFFERS)]


def lines(part: Mapping[str, Any] | None) -> list[str]:
    """Return the compute check in a few lines for a status; [] for a verdict without it."""
    if part is None:
        return []
    rows = part["rows"]
    exact = [row for row in rows if row["outcome"] == PASSED]
    cards = [row["modules"][0] for row in exact if len(row["modules"]) == 1]
    said = []
    if cards:
        groups = [modules_text(row["modules"]) for row in exact if len(row["modules"]) > 1]
        again = [row["modules"][0] for row in exact if len(row["modules"]) == 1 and row["form"] == SHORT]
        short = f"; since a reboot in the short form: modules {modules_text(again)}" if again else ""
        summed = "".join(f", sum over modules {group}" for group in groups)
        proved = f"copies of {part['copy_mib']} MiB, gathers, matrix products{summed}"
        said.append(f"numbers: proved on modules {modules_text(cards)} ({proved}{short})")
    said += [row["sentence"] for row in rows if row["sentence"]]
    said += [advice(part)] if any(row["outcome"] == FAILED for row in rows) else []
    return [*said, *([f"numbers not checked: {part['not_checked']}"] if part["not_checked"] else [])]


def advice(part: Mapping[str, Any]) -> str:
    """Return what to do about wrong numbers: a fault of all cards is seldom one of the cards."""
    cards = [row for row in part["rows"] if len(row["modules"]) == 1]
    every = len(cards) > 1 and all(row["outcome"] == FAILED for row in cards)
    return str(remedy("wrong-numbers", "all" if every else ""))
