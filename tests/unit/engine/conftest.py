"""Modules are run as those of the preflight are."""

from __future__ import annotations

from tests.unit.preflight.conftest import record, run

__all__ = ["record", "run"]
