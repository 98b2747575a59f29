"""Call hl_qual and parse its output: lines with PASSED or FAILED, and the ``Test result summary``.

One output was recorded, of release 1.24.1 on a Gaudi 2: it took no test from its arguments (tests/unit/fabric).
Below the heading stands a line for each card, then ``hl qual report`` with the bare word. No output of a test that ran
was available; all other lines are kept, not parsed. The arguments are those of public calls (docs.habana.ai, hl_qual;
provisioning code of Intel's own cloud); we tried none of them on hardware.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..base.checks import choice, sequence
from ..base.printable import printable

# Arguments of hl_qual for each test that a site may choose; the tests run in this order.
TESTS: Mapping[str, tuple[str, ...]] = {
    "memory": ("-mb", "-memOnly"),
    "pci": ("-mb", "-pciOnly"),
    "serdes": ("-ser",),
    "power": ("-s",),
}
# Seconds until a test is stopped. A guess: public calls let the longest test run half an hour.
LIMIT_SECONDS = 3600

_SUMMARY = re.compile(r"test result summary", re.IGNORECASE)
# An outcome, with what it is of before it: a pattern for both takes more than linear time for a line of blanks.
_OUTCOME = re.compile(r":\s*(?P<word>PASSED|FAILED)\b")
_LONGEST_NAME = 200
# The line of a card whose outcome is another word.
_OTHER = re.compile(
    r"device with busID:\s*(?P<bus>\S{1,64})\s+result:[ \t]*(?!\s*(?:PASSED|FAILED)\b)(?P<word>[^\n]{0,100})",
    re.IGNORECASE,
)
_CARD = re.compile(r"(?:hl_qual\W+)?device with busID:\s*(?P<bus>\S+)\s+result", re.IGNORECASE)
# The heading of the bare word, which is the outcome of all cards.
_REPORT = re.compile(r"hl qual report", re.IGNORECASE)
# hl_qual took no test from its arguments. It then prints FAILED for each card, and 0 for all that it measured.
_NO_TEST = re.compile(r"No plugin was identified|Failed to set plugin under test", re.IGNORECASE)
# A line of its help, which it prints for arguments that it does not know.
_HELP = re.compile(r"-rmod\s+==>")


@dataclass(frozen=True)
class BurnIn:
    """The result of hl_qual. passed: None without a summary; tests: label and PASSED or FAILED of each line."""

    passed: bool | None
    tests: tuple[tuple[str, str], ...]
    sentence: str

    def as_dict(self) -> dict[str, Any]:
        """Return it as the verdict has it."""
        return {**asdict(self), "tests": [list(test) for test in self.tests]}


def requested_tests(value: object) -> tuple[str, ...]:
    """Return the tests of fabric_check_burn_in, each once and in the order of TESTS.

    Raises Refusal for an unknown test.
    """
    names = {choice(each, "fabric_check_burn_in", TESTS) for each in sequence(value or [], "fabric_check_burn_in", 16)}
    return tuple(name for name in TESTS if name in names)


def program(generation: str) -> str:
    """Return where hl_qual lies for cards of a generation, such as ``gaudi2`` (package habanalabs-qual)."""
    return f"/opt/habanalabs/qual/{generation}/bin/hl_qual"


def commands(generation: str, test: str, groups: int) -> tuple[tuple[str, ...], ...]:
    """Return the argument vectors of a test, one for each group of cards that their own links join.

    Cards of two groups of four are called quad_0 and quad_1 (a public handbook of HL-288E); a group of eight is all.
    """
    sets = [f"quad_{place}" for place in range(groups)] if groups > 1 else ["all"]
    return tuple(
        (program(generation), f"-{generation}", "-c", cards, "-rmod", "parallel", "-dis_mon", *TESTS[test])
        for cards in sets
    )


def combined(runs: Sequence[tuple[str, BurnIn]]) -> BurnIn:
    """Combine the results of several tests: one failure fails all; one unknown result leaves the outcome unknown."""
    outcomes = [run.passed for _, run in runs]
    passed = False if False in outcomes else None if None in outcomes or not outcomes else True
    tests = tuple((f"{name}: {line}" if line else name, word) for name, run in runs for line, word in run.tests)
    wrong = [f"{name}: {run.sentence}" for name, run in runs if run.passed is not True]
    if wrong:
        return BurnIn(passed, tests, " ".join(wrong))
    return BurnIn(passed, tests, f"hl_qual passed: {', '.join(dict.fromkeys(name for name, _ in runs))}.")


def parse_hl_qual(text: str, status: int | None) -> BurnIn:
    """Parse hl_qual's stdout and stderr; status None means that it was stopped at its limit. Never raises."""
    lines = text.splitlines()
    start = next((place for place, line in enumerate(lines) if _SUMMARY.search(line)), len(lines))
    outcomes = [found for found in map(_OUTCOME.search, lines) if found]
    tests = tuple((_label(_before(found)), found["word"]) for found in outcomes)
    others = [(found["bus"], found["word"].strip()) for found in map(_OTHER.search, lines) if found]
    ran = tests or others or _reported(lines)
    no_test = _NO_TEST.search(text) or (None if ran else _HELP.search(text))
    if no_test:
        what = "it printed its help" if "==>" in no_test.group() else no_test.group()
        return BurnIn(
            None,
            (),
            f"hl_qual took no test from its arguments ({what}), so that what it printed is no verdict on a card. "
            "Compare the arguments in its log with those of its release (hl_qual -h).",
        )
    summary = [found["word"] for found in map(_OUTCOME.search, lines[start:]) if found]
    failed = [name for name, word in tests if word == "FAILED"]
    if not failed and "FAILED" in _reported(lines):
        failed = ["its report"]
    if failed:
        names = ", ".join(name or "a test without a name" for name in dict.fromkeys(failed))
        return BurnIn(False, tests, f"hl_qual failed: {names}. Its log says why.")
    if others:
        named = ", ".join(f"card {bus}: {word or 'nothing'}" for bus, word in others)
        return BurnIn(None, tests, printable(f"hl_qual gave an outcome that is not known ({named}). Read its log."))
    if status is None:
        return BurnIn(
            None, tests, "hl_qual did not end in time and was stopped. A card may be in reset: look at hl-smi."
        )
    if status != 0:
        return BurnIn(False, tests, f"hl_qual ended with status {status} and named no failed test. Its log says why.")
    if not summary:
        return BurnIn(None, tests, "hl_qual ended well, but printed no summary that can be read. Its log is kept.")
    return BurnIn(True, tests, f"hl_qual passed: of {len(tests)} results none failed.")


def _before(outcome: re.Match[str]) -> str:
    """Return what stands in a line before its outcome."""
    before = outcome.string[: outcome.start()].rstrip()
    return before[-_LONGEST_NAME:]


def _label(name: str) -> str:
    """Return the name of a result: ``card`` with its bus address for one of a card."""
    card = _CARD.search(name)
    return printable(f"card {card['bus']}" if card else name.strip(" -|*\t"))


def _reported(lines: Sequence[str]) -> list[str]:
    """Return the bare words below the report's heading."""
    start = next((place for place, line in enumerate(lines) if _REPORT.search(line)), len(lines))
    return [line.strip() for line in lines[start:] if line.strip() in ("PASSED", "FAILED")]
