"""Nodes and recorded output, as for the unit tests of the stand-ins."""

from __future__ import annotations

from tests.unit.standins.conftest import described, node, recorded

__all__ = ["described", "node", "recorded"]
