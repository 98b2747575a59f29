"""What long work says to the job that runs it. A program that a person started by hand has no such job.

These files are root's alone, whatever umask the work has set for what it makes.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ..base.refusal import Refusal
from .files import write_json

MODE = 0o600


def progress_file() -> Path | None:
    """Where the job looks for progress; None without a job."""
    place = os.environ.get("GAUDI_JOB_PROGRESS")
    return Path(place) if place else None


def tell_progress(place: Path | None, progress: dict[str, Any]) -> None:
    """Leave how far the work is, where there is a place for it. A power cut may take it."""
    if place is not None:
        write_json(place, progress, durable=False, mode=MODE)


def tell_result(result: dict[str, Any]) -> None:
    """Leave the result, if there is a job to leave it to."""
    place = os.environ.get("GAUDI_JOB_RESULT")
    if place:
        write_json(Path(place), result, mode=MODE)


def tell_refusal(refusal: Refusal) -> None:
    """Leave why the work was refused; the job writes the id into its state."""
    tell_result(refusal.as_keys())
