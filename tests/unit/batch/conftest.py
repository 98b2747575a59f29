"""What the tests import lies where the role has it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROLES = Path(__file__).resolve().parents[3] / "roles"
sys.path.insert(0, str(ROLES / "offline_batch/files"))


@pytest.fixture(autouse=True)
def own_signals() -> Iterator[None]:
    """The program sets what becomes of signals: the tests after it, and what they start, have their own again."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
