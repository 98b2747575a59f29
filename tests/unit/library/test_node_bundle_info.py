"""node_bundle_info: what is read is masked, and what cannot be read says why."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible.module_utils.gaudi.doctor import bundle
from ansible.module_utils.gaudi.node import instances

from tests.unit.host.modules import run_main

HIDDEN = "hf_SECRETsecret123"


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The bundle of a node with one instance, whose every file has a secret."""
    for name in ("plan.json", "environment", "guard/keys.json"):
        file = tmp_path / "plans/tiny" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"environment": {"HF_TOKEN": HIDDEN}}))
    monkeypatch.setattr(instances, "PLANS", tmp_path / "plans")
    monkeypatch.setattr(instances, "STATES", tmp_path / "states")
    monkeypatch.setattr(bundle, "FILES", ("/proc/meminfo", str(tmp_path / "none.json")))
    monkeypatch.setattr(bundle, "COMMAND_SECONDS", 0.5)
    commands = {
        "told": ("echo", f"HF_TOKEN={HIDDEN}"),
        "absent": ("no-such-program-here",),
        "hangs": ("sleep", "60"),
    }
    monkeypatch.setattr(bundle, "COMMANDS", commands)
    answer = run_main("library.node_bundle_info", {})
    return {name.removeprefix(str(tmp_path)[1:] + "/"): text for name, text in answer["texts"].items()}


def test_the_named_files_are_read_and_no_other(texts: dict[str, str]) -> None:
    assert set(texts) == {
        "proc/meminfo",
        "none.json",
        "plans/tiny/plan.json",
        "plans/tiny/let_through.json",
        "states/tiny/state.json",
        "commands/told",
        "commands/absent",
        "commands/hangs",
    }
    assert "MemTotal" in texts["proc/meminfo"]


def test_no_secret_is_in_it(texts: dict[str, str]) -> None:
    assert HIDDEN not in json.dumps(texts)
    assert bundle.MASKED in texts["plans/tiny/plan.json"]
    assert bundle.MASKED in texts["commands/told"]


def test_what_cannot_be_read_says_why(texts: dict[str, str]) -> None:
    assert "cannot be read: No such file or directory" in texts["none.json"]
    assert texts["commands/absent"] == "no-such-program-here is not on the node\n"
    assert texts["commands/hangs"] == "sleep 60 did not end within 0.5 s\n"
