"""How the programs of this package run as a job of the node: where they report, and what they say when they fail.

Python 3.9 and its standard library.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gaudi.base.refusal import Refusal
from gaudi.node import long_work, storage

from .model import TransferInterrupt
from .progress import TransferProgress

Work = Callable[[TransferProgress], dict[str, Any]]


def run(load: Callable[[], tuple[Path, Work]]) -> int:
    """Load a request, giving the folder it is about and the work, and do it. Returns the exit status.

    0 when it is done, 1 with one sentence, 130 when stopped. The job is told progress and result; the result of a
    refusal is its sentence and its id.
    """
    # Weights are for the server to read; secrets lie elsewhere.
    os.umask(0o022)
    try:
        target, work = load()
        try:
            result = work(TransferProgress(long_work.progress_file()))
        except OSError as error:
            known = storage.explained(error, Path(error.filename) if error.filename else target.parent)
            if known is not None:
                raise known from error
            raise Refusal(
                "system_error",
                f"{error.filename or target.parent} cannot be read or written ({error.strerror}). What has arrived is "
                "kept; correct that or make room, then run the same again",
            ) from error
    except Refusal as refusal:
        print(refusal, file=sys.stderr)
        long_work.tell_refusal(refusal)
        return 1
    except TransferInterrupt:
        print("stopped; what has arrived is kept, and the same request continues there", file=sys.stderr)
        return 130
    long_work.tell_result(result)
    print(json.dumps(result), flush=True)
    return 0
