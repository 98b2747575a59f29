"""What hl_qual prints: the lines with PASSED or FAILED, and its ``Test result summary``.

No output of hl_qual was to be had. Known are the two words and the heading, from a public program that looks for them
in the eight lines after it; everything else of the output is kept, not read.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

from ..base.printable import printable

_SUMMARY = re.compile(r"test result summary", re.IGNORECASE)
_LINE = re.compile(r"(?P<name>[^\n]{0,200}?)\s*:\s*(?P<word>PASSED|FAILED)\b")


@dataclass(frozen=True)
class BurnIn:
    """passed: None where there was no summary; tests: what each line is about, and PASSED or FAILED; sentence."""

    passed: bool | None
    tests: tuple[tuple[str, str], ...]
    sentence: str

    def as_dict(self) -> dict[str, Any]:
        """Return it as the verdict has it."""
        return {**asdict(self), "tests": [list(test) for test in self.tests]}


def parse_hl_qual(text: str, status: int | None) -> BurnIn:
    """Read what hl_qual printed on both its streams; status None is a run that was ended. Never raises."""
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
