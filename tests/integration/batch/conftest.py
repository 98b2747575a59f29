"""Signals of each test's own, as the unit tests of batches have them."""

from __future__ import annotations

from tests.unit.batch.conftest import own_signals

__all__ = ["own_signals"]
