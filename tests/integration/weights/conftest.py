"""A hub with one small model, as the unit tests have it."""

from __future__ import annotations

from tests.unit.weights.conftest import few_certificates, hub, one_certificate

__all__ = ["few_certificates", "hub", "one_certificate"]
