"""Fetch or verify a model: python3 -m gaudi_weights fetch|verify REQUEST.json

Exit status 0 when it is whole, 1 with one sentence, 2 for wrong usage, 130 when stopped. Progress and result go to
the files that GAUDI_JOB_PROGRESS and GAUDI_JOB_RESULT name.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from . import request
from .fetch import fetch, verify
from .model import Refusal, Stop, Stopped
from .progress import Progress

WORK = {"fetch": fetch, "verify": verify}


def main(arguments: list[str]) -> int:
    """Entry point."""
    if len(arguments) != 2 or arguments[0] not in WORK:
        print("usage: python3 -m gaudi_weights fetch|verify REQUEST.json", file=sys.stderr)
        return 2
    # Weights are for the server to read; secrets lie elsewhere.
    os.umask(0o022)
    stop = Stop()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.ask())
    progress_path, result_path = (os.environ.get(f"GAUDI_JOB_{name}") for name in ("PROGRESS", "RESULT"))
    try:
        wish = request.load(Path(arguments[1]))
        result = WORK[arguments[0]](wish, Progress(Path(progress_path) if progress_path else None), stop)
    except Refusal as refusal:
        print(refusal, file=sys.stderr)
        return 1
    except Stopped:
        print("stopped; what has arrived is kept, and the same request continues there", file=sys.stderr)
        return 130
    except OSError as error:
        print(
            f"{error.filename or wish.target.parent} cannot be read or written ({error.strerror}). What has arrived is "
            "kept; mend it or make room, then run the same again",
            file=sys.stderr,
        )
        return 1
    if result_path:
        Path(result_path).write_text(json.dumps(result), encoding="utf-8")
    print(json.dumps(result), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
