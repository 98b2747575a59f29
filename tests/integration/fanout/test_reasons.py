"""Why a node did not get a folder is printed, also where the run goes on and gets it elsewhere, and only if it is so.

A run prints nothing of a failed task that a rescue section deals with, so each of these sections prints the reason.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_phases import run
from tests.unit.preflight.test_contracts import ROOT, load
from tests.unit.preflight.test_templates import elsewhere, fact_of, task_of

ROLE = ROOT / "roles/weights_supply/tasks"
# What a node knows of its round: whom it takes from.
ROUND = fact_of("weights_supply", "round", "Decide which nodes fetch")
REASON = "fan-1 gave 1 files of Qwen2 that are not what its record says: model.safetensors."
KNOWN: dict[str, Any] = {"weights_supply_item": {"directory": "Qwen2"}, "weights_supply_root": "/data/models"}
BEGIN = task_of("weights_supply", "fetch", "Begin with no round behind us")


def printed(file: str, folder: Path) -> str:
    """What a run on two hosts prints if the first task of the file's block with a rescue section fails."""
    (block,) = [task for task in load(ROLE / f"{file}.yml") if "rescue" in task]
    failing = [{"name": "Fail", "ansible.builtin.fail": {"msg": REASON}}]
    taken = {"take": {host: {"peer": "fan-1", "seed": "fan-1"} for host in ("a", "b")}}
    known = {**elsewhere("weights_supply", "/etc/gaudi-serving/weights", folder), **KNOWN}
    decided = {"name": "Decide", "ansible.builtin.set_fact": {ROUND: taken}}
    done = run(folder, tasks=[BEGIN, decided, {**block, "block": failing, "vars": known}])
    assert done.returncode == 0, done.stdout + done.stderr
    return re.sub(r"\s+", " ", done.stdout)


@pytest.mark.parametrize(
    ("file", "sentence"),
    [
        ("take", "HOST did not get Qwen2 from fan-1: "),
        ("outside_tried", "HOST did not get Qwen2 from a hub: "),
        ("give", "HOST gives nothing: "),
    ],
)
def test_a_node_that_goes_on_prints_why_it_has_to(file: str, sentence: str, tmp_path: Path) -> None:
    said = printed(file, tmp_path)
    for host in ("a", "b"):
        assert f"{sentence.replace('HOST', host)}{REASON}" in said


def test_a_folder_that_comes_in_the_last_attempt_has_arrived(tmp_path: Path) -> None:
    """On two nodes there are three attempts; the folder was reported as missing if the third one brought it."""
    steps = ("ready", "addresses", "give", "give_no_more", "outside", "outside_tried", "take")
    for step in steps:
        (tmp_path / f"{step}.yml").write_text("[]")
    shutil.copy(ROLE / "round.yml", tmp_path)
    taken = {"src": f"{tmp_path}/a/Qwen2", "dest": f"{tmp_path}/b/", "mode": "preserve"}
    third = f"{ROUND}.attempt | int == 2"
    (tmp_path / "take.yml").write_text(json.dumps([{"name": "Take", "ansible.builtin.copy": taken, "when": third}]))
    entry = {"name": "config.json", "size": 2, "sha256": hashlib.sha256(b"{}").hexdigest()}
    made = {"schema": 1, "source": "hub", "repository": "a/b", "revision": "c0" * 20, "fetched": "", "files": [entry]}
    (tmp_path / "a/Qwen2/.gaudi-serving").mkdir(parents=True)
    (tmp_path / "a/Qwen2/.gaudi-serving/manifest.json").write_text(json.dumps(made))
    (tmp_path / "a/Qwen2/config.json").write_text("{}")
    (tmp_path / "b").mkdir()
    (arrived,) = [task for task in load(ROLE / "fetch.yml") if task["name"] == "fetch | Ensure it has arrived"]
    variables = {
        **elsewhere("weights_supply", "/etc/gaudi-serving/weights", tmp_path),
        "weights_supply_item": {"directory": "Qwen2", "repositories": {}},
        "weights_supply_root": str(tmp_path / "{{ inventory_hostname }}"),
        "weights_supply_needed": True,
        "weights_supply_shared": False,
    }
    go = {"name": "Go round", "ansible.builtin.include_tasks": f"{tmp_path}/round.yml"}
    done = run(tmp_path, tasks=[{"name": "Fetch", "vars": variables, "block": [BEGIN, go, arrived]}])
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "b/Qwen2/config.json").exists()
