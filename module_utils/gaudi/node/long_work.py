"""What long work says to the job that runs it. A program that a person started by hand has no such job."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ..base.refusal import Refusal
from .files import write_json


def progress_file() -> Path | None:
    """Where the job looks for progress; None without a job."""
    place = os.environ.get("GAUDI_JOB_PROGRESS")
    return Path(place) if place else None


def tell_result(result: dict[str, Any]) -> None:
    """Leave the result, if there is a job to leave it to."""
    place = os.environ.get("GAUDI_JOB_RESULT")
    if place:
        write_json(Path(place), result)


def tell_refusal(refusal: Refusal) -> None:
    """Leave why the work was refused; the job writes the id into its state."""
    tell_result(refusal.as_keys())
