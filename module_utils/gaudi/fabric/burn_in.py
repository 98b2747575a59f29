"""Call hl_qual and parse its output: lines with PASSED or FAILED, and the ``Test result summary``.

No output of hl_qual was available. The two words and the heading are known from a public program that looks for them in
the eight lines after it; all other output is kept, not parsed. The arguments are those of public calls (docs.habana.ai,
hl_qual; provisioning code of Intel's own cloud); we tried none of them on hardware.
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
_LINE = re.compile(r"(?P<name>[^\n]{0,200}?)\s*:\s*(?P<word>PASSED|FAILED)\b")


@dataclass(frozen=True)
class BurnIn:
    """The result of hl_qual. passed: None without a summary; tests: label and PASSED or FAILED of each line."""

    passed: bool | None
    tests: tuple[tuple[str, str], ...]
    sentence: str

    def as_dict(self) -> dict[str, Any]:
        """Return it as the verdict has it."""
        return {**asdict(self), "tests": [list(test) for test in self.tests]}


def wished(wishes: object) -> tuple[str, ...]:
    """Return the tests of fabric_check_burn_in, each once and in the order of TESTS.

    Raises Refusal for an unknown test.
    """
    names = {choice(each, "fabric_check_burn_in", TESTS) for each in sequence(wishes or [], "fabric_check_burn_in", 16)}
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
    tests = tuple(
        (printable(found["name"].strip(" -|*\t")), found["word"]) for found in map(_LINE.search, lines) if found
    )
    summary = [found["word"] for found in map(_LINE.search, lines[start:]) if found]
    failed = [name for name, word in tests if word == "FAILED"]
    if failed:
        names = ", ".join(name or "a test without a name" for name in dict.fromkeys(failed))
        return BurnIn(False, tests, f"hl_qual failed: {names}. Its log says why.")
    if status is None:
        return BurnIn(
            None, tests, "hl_qual did not end in time and was stopped. A card may be in reset: look at hl-smi."
        )
    if status != 0:
        return BurnIn(False, tests, f"hl_qual ended with status {status} and named no failed test. Its log says why.")
    if not summary:
        return BurnIn(None, tests, "hl_qual ended well, but printed no summary that can be read. Its log is kept.")
    return BurnIn(True, tests, f"hl_qual passed: of {len(tests)} results none failed.")
