"""The stand-in server reads each release's surface by itself: it must take every plan we make."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import pytest

from . import vendor
from .test_releases import RELEASES

SERVING = vendor.ROOT / "simulator" / "images" / "serving"
sys.path.insert(0, str(SERVING))
surface = importlib.import_module("gaudi_simulated.surface")


def takes(release: str, plan: dict[str, Any]) -> None:
    known = surface.load(SERVING / "surface", release)
    surface.parse(known, plan["arguments"][3:])
    assert not surface.unknown_variables(known, {**plan["environment"], **plan["container"]["environment"]})


@pytest.mark.parametrize("release", RELEASES)
def test_every_model(release: str) -> None:
    for model in sorted(vendor.MODELS):
        plan = vendor.plan_request(release, {"model": model, "instance": "x"})
        if "refused" not in plan:
            takes(release, plan)


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in vendor.CASES["cases"]])
def test_every_case(case: dict[str, Any]) -> None:
    plan = vendor.plan_case(case)
    if "refused" not in plan:
        takes(vendor.release_of(case), plan)


def test_it_can_refuse() -> None:
    plan = vendor.plan_request("1.22", {"weights": "/m/x", "padding_limit": 0.1})
    with pytest.raises(AssertionError):
        takes("1.21", {**plan, "arguments": plan["arguments"][:3]})
    with pytest.raises(surface.UsageError):
        takes("1.22", {**plan, "arguments": [*plan["arguments"], "--no-such-option"]})
