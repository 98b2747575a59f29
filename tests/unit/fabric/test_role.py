"""What the role fabric_check says, evaluated as Ansible does."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.unit.fabric.made import ROOT
from tests.unit.preflight.test_templates import evaluate

JUDGE = ROOT / "roles" / "fabric_check" / "tasks" / "judge.yml"
LINE = "cards and links: accepted at 2026-11-24T00:00:00+00:00"


@pytest.mark.parametrize(
    ("measured", "check", "why"),
    [
        (True, False, []),
        (True, True, ["There is no verdict yet."]),
        (False, False, ["There is no verdict yet."]),
    ],
)
def test_why_it_was_measured_is_not_said_beside_the_new_verdict(measured: bool, check: bool, why: list[str]) -> None:
    (task,) = yaml.safe_load(JUDGE.read_text(encoding="utf-8"))
    found: dict[str, Any] = {"measured": measured, "why": "There is no verdict yet.", "lines": [LINE]}
    found |= {"held_back": [], "warnings_of_start": ["w"]}
    said = task["ansible.builtin.assert"]["success_msg"]
    assert evaluate("fabric_check", said, fabric_check_found=found, ansible_check_mode=check) == [*why, LINE, "w"]
