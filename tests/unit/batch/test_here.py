"""Who is asked a batch, and which servers were started for one alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible.module_utils.gaudi.base import paths
from ansible.module_utils.gaudi.batch import lines
from ansible.module_utils.gaudi.node import instances, states

from filter_plugins.batch_here import batch_here
from tests.unit.host.modules import run_main

OWN, ANOTHER = f"batch-{'0' * 16}", f"batch-{'1' * 16}"
REQUEST = lines.BatchRequest("one", "/v1/completions", {"model": "tiny"})


class InstanceFolders:
    """Folders of instances, each with a plan, and of one batch."""

    def __init__(self, root: Path) -> None:
        self.root, self.folder, self.state = root, root / "batches/b", "active"

    def serve(self, *names: str) -> None:
        for name in names:
            for place in ("plans", "states"):
                (self.root / place / name).mkdir(parents=True)
            (self.root / "plans" / name / "plan.json").write_text(json.dumps({"served_model_name": "tiny"}))
            (self.root / "states" / name / "state.json").write_text(json.dumps({"phase": "serving"}))

    def answer(self, status: int) -> None:
        self.folder.mkdir(parents=True)
        (self.folder / "output.jsonl").write_text(json.dumps(lines.answered(REQUEST, status, {})) + "\n")

    def look(self, again: bool = False) -> dict[str, Any]:
        report = run_main("library.node_report", {"parts": ["instances", "plans"]})
        earlier = run_main("library.batch_answers", {"src": str(self.folder / "output.jsonl"), "look": True})
        return batch_here(report, earlier, "tiny", OWN, again)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InstanceFolders:
    made = InstanceFolders(tmp_path)
    monkeypatch.setattr(states, "PLANS", tmp_path / "plans")
    monkeypatch.setattr(states, "STATES", tmp_path / "states")
    monkeypatch.setattr(instances, "systemctl", lambda _module, *_words: f"ActiveState={made.state}\n")
    return made


def test_who_serves_is_asked_and_no_server_of_another_batch(node: InstanceFolders) -> None:
    node.serve("chat", "batch-of-mine", ANOTHER)
    said = node.look()
    assert (said["instances"], said["own"], said["mine"]) == (["batch-of-mine", "chat"], False, False)
    assert said["others"][0].startswith(f"{ANOTHER}, of tiny")


def test_its_own_server_goes_first(node: InstanceFolders) -> None:
    node.serve("chat", OWN)
    said = node.look()
    assert (said["instances"], said["own"], said["mine"]) == ([OWN], True, True)


def test_its_own_server_that_ended_is_not_asked_and_still_to_be_removed(node: InstanceFolders) -> None:
    node.serve(OWN)
    node.state = "inactive"
    said = node.look()
    assert (said["instances"], said["own"], said["mine"]) == ([], True, True)


@pytest.mark.parametrize(("status", "asked"), [(200, [OWN]), (400, [])])
def test_answers_that_are_all_there_need_nobody(node: InstanceFolders, status: int, asked: list[str]) -> None:
    """The controller was away when the work ended, and its server with it."""
    node.answer(status)
    assert (node.look()["instances"], node.look()["mine"]) == (asked, True)
    assert (node.look(again=True)["instances"], node.look(again=True)["mine"]) == ([], False)


def test_what_is_no_file_of_answers_can_still_be_removed(node: InstanceFolders) -> None:
    (node.folder / "output.jsonl").mkdir(parents=True)
    assert (node.look()["instances"], node.look()["mine"]) == ([], True)


def test_an_instance_without_a_model_is_told_with_why(node: InstanceFolders) -> None:
    node.serve("chat", "cut", "none")
    (node.root / "plans/chat/plan.json").write_text("{}")
    (node.root / "plans/cut/plan.json").write_text('{"served_model_name": 7}')
    (node.root / "plans/none/plan.json").unlink()
    (node.root / "states/none/state.json").write_text('{"phase": "failed", "status": "No card."}')
    assert node.look()["others"] == [
        f"chat, of ({paths.INSTANCES}/chat/plan.json is damaged: it is no plan): active",
        f"cut, of ({paths.INSTANCES}/cut/plan.json is damaged: it names no model): active",
        "none, of (it has no plan): No card.",
    ]


HONEST = {"instances": {"instances": []}, "plans": {"plans": {}}}


@pytest.mark.parametrize(
    ("changes", "earlier"),
    [
        ({"instances": {"instances": [{"instance": "../chat", "active": "active", "state": {}}]}}, {}),
        ({"instances": {"instances": [{"instance": "chat", "active": "active", "state": []}]}}, {}),
        ({"instances": {"instances": [7] * 1025}}, {}),
        ({"instances": {"error": "Too late."}}, {}),
        ({"plans": {"plans": {"chat": {"up": 7}}}}, {}),
        ({}, {"there": []}),
        ({}, {"answered": None}),
    ],
)
def test_a_report_of_another_form_is_refused(changes: dict[str, Any], earlier: dict[str, Any]) -> None:
    with pytest.raises(AnsibleFilterError, match=r"\[[a-z_]+\]$"):
        batch_here(
            {"report": {**HONEST, **changes}}, {"there": False, "answered": False, **earlier}, "tiny", OWN, False
        )
