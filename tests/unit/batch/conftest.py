"""What the tests of batches share."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def own_signals() -> Iterator[None]:
    """The program sets what becomes of signals: the tests after it, and what they start, have their own again."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
