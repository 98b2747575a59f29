"""Plans that public reports ask for: reported.json has each with its address and what becomes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.gaudi.planning.many import plan_all

from action_plugins.serving_plan import read_topology
from tests.golden import canonical_plans
from tests.golden.serving_cases import vendor

ROOT = Path(__file__).resolve().parents[3]
CASES = {case["id"]: case for case in json.loads(Path(__file__).with_name("reported.json").read_text("utf-8"))}


def topology(name: str) -> Any:
    """A described machine; of first-generation cards the project describes none."""
    if name == "hl205":
        return canonical_plans.topology("HL-205")
    return read_topology(str(ROOT / "docs" / "examples" / "topologies" / f"{name}.yml"))


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_reported_plan_becomes_what_the_pinned_code_makes_of_it(name: str) -> None:
    case = CASES[name]
    request, expected = case["request"], case["expected"]
    catalogue = vendor.catalogue(case["release"], request.get("model"))
    (answer,) = plan_all(
        [vendor.said_openly(request)], catalogue, topology(case["topology"]), weights_root="/data/models"
    )
    assert answer.get("refused_id") == expected.get("refused"), answer.get("refused", answer.get("warnings"))
    if "refused" in expected:
        return
    assert expected.get("warned", "") in " ".join(answer["warnings"])
    option, value = expected.get("argument", ("--not-asked", None))
    assert vendor.options(answer["arguments"]).get(option.replace("_", "-")) == value
    variable, value = expected.get("variable", (None, None))
    assert answer["environment"].get(variable) == value
