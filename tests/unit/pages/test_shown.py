"""Every plan can be shown, whatever of it is not known."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.module_utils.gaudi.pages.page import page

from tests.golden.serving_cases import vendor
from tests.unit.planning.test_releases import RELEASES


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in vendor.CASES["cases"]])
def test_every_case(case: dict[str, Any]) -> None:
    plan = vendor.plan_case(case)
    text = page([plan], vendor.topology(case["topology"]))
    assert ("refused" in text) == ("refused" in plan)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("options", [{}, {"max_model_len": 4096, "max_num_batched_tokens": 4096}, {"model_config": {}}])
def test_a_path_and_nothing_else(release: str, options: dict[str, Any]) -> None:
    plan = vendor.plan_request(release, {"weights": "/models/x", **options})
    assert "refused" not in plan, plan
    text = page([plan], vendor.topology("oam8"))
    assert ("Warm-up" in text) == (plan["buckets"] is not None)
