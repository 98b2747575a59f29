"""Build a serving image, or carry one.

    python3 -m gaudi_image build REQUEST.json
    python3 -m gaudi_image save REFERENCE FILE
    python3 -m gaudi_image load FILE [REFERENCE [ID ...]]
    python3 -m gaudi_image share REFERENCE FOLDER

Exit status 0 when it is there, 1 with one sentence, 2 for wrong usage, 130 when stopped. Progress and result go to the
files that GAUDI_JOB_PROGRESS and GAUDI_JOB_RESULT name.
"""

from __future__ import annotations

import json
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gaudi.base.refusal import Refusal
from gaudi.node import long_work

from . import request as requests
from .build import build
from .carry import load, save
from .engine import EngineClient, ImageInterrupt
from .share import share

USAGE = (
    "usage: python3 -m gaudi_image build REQUEST.json | save REFERENCE FILE | load FILE [REFERENCE [ID ...]] | "
    "share REFERENCE FOLDER"
)
_WORDS = {"build": (2,), "save": (3,), "load": range(2, 100), "share": (3,)}


def work(arguments: list[str], engine: EngineClient, tell: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Do what is asked for; returns the result. Raises Refusal and ImageInterrupt."""
    action, *rest = arguments
    if action == "save":
        return save(engine, tell, *rest)
    if action == "load":
        return load(engine, tell, *rest)
    if action == "share":
        return share(engine, tell, *rest)
    request = requests.load(Path(rest[0]))
    engine.log_in(request.docker_config)
    return build(request, engine, tell)


def on_signal(stop: Callable[[], None]) -> None:
    """Call ``stop`` at each signal that asks for the end.

    A thread calls it: a handler of Python's would wait for a read in progress, and the engine may have nothing to say.
    """
    hearing, telling = socket.socketpair()
    telling.setblocking(False)
    signal.set_wakeup_fd(telling.fileno(), warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: None)

    def hear() -> None:
        with hearing, telling:  # open as long as the program runs
            while hearing.recv(1):
                stop()

    threading.Thread(target=hear, name="signals", daemon=True).start()


def main(arguments: list[str]) -> int:
    """Entry point."""
    if not arguments or len(arguments) not in _WORDS.get(arguments[0], ()):
        print(USAGE, file=sys.stderr)
        return 2
    place = long_work.progress_file()
    engine = EngineClient()
    on_signal(engine.stop)
    try:
        result = work(arguments, engine, lambda progress: long_work.tell_progress(place, progress))
    except Refusal as refusal:
        print(refusal, file=sys.stderr)
        long_work.tell_refusal(refusal)
        return 1
    except ImageInterrupt:
        print("stopped; what is done is kept, and the same request goes on from there", file=sys.stderr)
        return 130
    long_work.tell_result(result)
    print(json.dumps(result), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
