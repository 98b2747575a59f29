"""Build a serving image: python3 -m gaudi_image build REQUEST.json

Exit status 0 when it is there, 1 with one sentence, 2 for wrong usage, 130 when stopped. Progress and result go to the
files that GAUDI_JOB_PROGRESS and GAUDI_JOB_RESULT name.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

from gaudi.base.refusal import Refusal
from gaudi.node import long_work

from . import request as requests
from .build import build
from .engine import Engine, Stopped


def main(arguments: list[str]) -> int:
    """Entry point."""
    if len(arguments) != 2 or arguments[0] != "build":
        print("usage: python3 -m gaudi_image build REQUEST.json", file=sys.stderr)
        return 2
    place = long_work.progress_file()
    try:
        request = requests.load(Path(arguments[1]))
        engine = Engine(request.docker_config)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: engine.stop())
        result = build(request, engine, lambda progress: long_work.tell_progress(place, progress))
    except Refusal as refusal:
        print(refusal, file=sys.stderr)
        long_work.tell_refusal(refusal)
        return 1
    except Stopped:
        print("stopped; what is done is kept, and the same request goes on from there", file=sys.stderr)
        return 130
    long_work.tell_result(result)
    print(json.dumps(result), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
