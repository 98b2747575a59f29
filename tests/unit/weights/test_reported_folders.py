"""What a node reports of its folders of weights, as the controller reads and shows it."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible.module_utils.gaudi.weights.table import table
from ansible.utils.display import Display

from filter_plugins.weight_folders import weight_folders
from tests.unit.cards.modules import run_main
from tests.unit.weights.reports import FOLDER, reporting


def test_what_a_node_reports_of_its_weights_is_read() -> None:
    found = weight_folders(reporting([{"directory": "Qwen3-8B", "status": "whole"}]))
    assert found["folders"] == [{**FOLDER, "directory": "Qwen3-8B", "status": "whole"}]
    assert (found["giving"], found["rsync"], found["storage"]["fstype"]) == (False, True, "ext4")


@pytest.mark.parametrize(
    "result",
    [
        {},
        {"report": []},
        {"report": {}},
        {"report": {"weight_folders": None}},
        reporting([], folders=None),
        reporting([], folders=[None]),
        reporting([{"status": ["whole"]}]),
        reporting([{"bytes": "1"}]),
        reporting([{"bytes": float("inf")}]),
        reporting([{"wrong": "a"}]),
        reporting([{"wrong": [{}]}]),
        reporting([{"used_by": None}]),
        reporting([{"directory": "x" * 5000}]),
        reporting([{"wrong": ["a"] * 200_000}]),
        reporting([], storage={}),
        reporting([], giving="no"),
        reporting([], rsync=None),
        reporting([], damaged_plans="chat"),
    ],
)
def test_another_form_fails_the_node_that_reports_it(result: dict[str, Any]) -> None:
    with pytest.raises(AnsibleFilterError):
        weight_folders(result)


def test_a_part_that_the_node_could_not_read_fails_with_the_nodes_reason() -> None:
    entry = {"error": "Reading weight_folders took longer than 60 seconds.", "refused_id": "not_read_in_time"}
    with pytest.raises(AnsibleFilterError, match=r"Reading weight_folders took longer .*not_read_in_time"):
        weight_folders({"report": {"weight_folders": entry}})


def test_without_a_root_nothing_is_taken_for_no_weights() -> None:
    with pytest.raises(AnsibleFilterError, match="weights_root is missing"):
        weight_folders(run_main("node_report", {"parts": ["weight_folders"]}))


def test_a_damaged_plan_is_said_and_a_name_that_no_instance_has_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(Display, "warning", lambda _self, text: said.append(text))
    weight_folders(reporting([], damaged_plans=["chat", "\x1b[2J", 7]))
    assert said == ["/etc/gaudi-serving/instances/chat/plan.json is damaged: which folders chat uses is not known."]


def test_no_name_makes_a_line_of_the_table() -> None:
    """A node's user may call a folder or a file anything."""
    lines = table([{**FOLDER, "directory": "a\nQwen3-8B  16 GB  whole", "wrong": ["\x1b[2J\nb"], "revision": "1"}])
    assert len(lines) == 3
    assert all(line.isprintable() for line in lines)
