"""Modules are run as those of the preflight are."""

from __future__ import annotations

from tests.unit.preflight.conftest import run

__all__ = ["run"]
