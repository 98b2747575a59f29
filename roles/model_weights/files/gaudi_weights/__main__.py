"""Fetch or verify a model: python3 -m gaudi_weights fetch|verify REQUEST.json

Exit status 0 when it is whole, 1 with one sentence, 2 for wrong usage, 130 when stopped. Progress and result go to
the files that GAUDI_JOB_PROGRESS and GAUDI_JOB_RESULT name.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from . import request
from .fetch import fetch, verify
from .model import StopSwitch
from .run import Work, run

WORK = {"fetch": fetch, "verify": verify}


def main(arguments: list[str]) -> int:
    """Entry point."""
    if len(arguments) != 2 or arguments[0] not in WORK:
        print("usage: python3 -m gaudi_weights fetch|verify REQUEST.json", file=sys.stderr)
        return 2
    stop = StopSwitch()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.ask())

    def begin() -> tuple[Path, Work]:
        requested = request.load(Path(arguments[1]))
        return requested.target, lambda progress: WORK[arguments[0]](requested, progress, stop)

    return run(begin)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
