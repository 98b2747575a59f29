"""node_record_info, of a support bundle: what is read is masked, and what cannot be read says why."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible.module_utils.gaudi.doctor import bundle
from ansible.module_utils.gaudi.node import states

from tests.unit.host.modules import run_main

HIDDEN = "hf_SECRETsecret123"


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The bundle of a node with one instance, whose every file has a secret."""
    for name in ("plan.json", "environment", "guard/keys.json"):
        file = tmp_path / "plans/tiny" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"environment": {"HF_TOKEN": HIDDEN}}))
    monkeypatch.setattr(states, "PLANS", tmp_path / "plans")
    monkeypatch.setattr(states, "STATES", tmp_path / "states")
    monkeypatch.setattr(bundle, "FILES", ("/proc/meminfo", str(tmp_path / "none.json")))
    monkeypatch.setattr(bundle, "COMMAND_SECONDS", 0.5)
    commands = (("echo", f"HF_TOKEN={HIDDEN}"), ("no-such-program-here",), ("sleep", "60"))
    monkeypatch.setattr(bundle, "COMMANDS", commands)
    text = str(run_main("library.node_record_info", {"bundle": True})["text"]).replace(f"{tmp_path}/", "")
    sections = [section.partition("\n") for section in text.removeprefix("==== ").split("\n==== ")]
    return {bundle.masked_text(name).strip(): said for name, _, said in sections}


def test_the_named_files_are_read_and_no_other(texts: dict[str, str]) -> None:
    assert list(texts) == [
        "/proc/meminfo",
        "none.json",
        "plans/tiny/plan.json",
        "plans/tiny/let_through.json",
        "states/tiny/state.json",
        f"echo HF_TOKEN={bundle.MASKED}",
        "no-such-program-here",
        "sleep 60",
    ]
    assert "MemTotal" in texts["/proc/meminfo"]


def test_no_secret_is_in_it(texts: dict[str, str]) -> None:
    assert HIDDEN not in json.dumps(texts)
    assert bundle.NOT_SHOWN in texts["plans/tiny/plan.json"]
    assert texts[f"echo HF_TOKEN={bundle.MASKED}"].strip() == f"HF_TOKEN={bundle.MASKED}"


def test_what_cannot_be_read_says_why(texts: dict[str, str]) -> None:
    assert "cannot be read: No such file or directory" in texts["none.json"]
    assert texts["no-such-program-here"].strip() == "no-such-program-here is not on the node"
    assert texts["sleep 60"].strip() == "sleep 60 did not end within 0.5 s"
