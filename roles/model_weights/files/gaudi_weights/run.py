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
from gaudi.node import files

from .model import Stopped
from .progress import Progress

Work = Callable[[Progress], dict[str, Any]]


def run(load: Callable[[], tuple[Path, Work]]) -> int:
    """Load a request, giving the folder it is about and the work, and do it. Returns the exit status.

    0 when it is done, 1 with one sentence, 130 when stopped. Progress and result go to the files that
    GAUDI_JOB_PROGRESS and GAUDI_JOB_RESULT name; the result of a refusal is its sentence and its id.
    """
    # Weights are for the server to read; secrets lie elsewhere.
    os.umask(0o022)
    progress_path, result_path = (os.environ.get(f"GAUDI_JOB_{name}") for name in ("PROGRESS", "RESULT"))
    try:
        target, work = load()
        try:
            result = work(Progress(Path(progress_path) if progress_path else None))
        except OSError as error:
            raise Refusal(
                "storage_failed",
                f"{error.filename or target.parent} cannot be read or written ({error.strerror}). What has arrived is "
                "kept; mend it or make room, then run the same again",
            ) from error
    except Refusal as refusal:
        print(refusal, file=sys.stderr)
        if result_path:
            files.write_json(Path(result_path), refusal.as_keys())
        return 1
    except Stopped:
        print("stopped; what has arrived is kept, and the same request continues there", file=sys.stderr)
        return 130
    if result_path:
        files.write_json(Path(result_path), result)
    print(json.dumps(result), flush=True)
    return 0
