"""Why a node did not get a folder is printed, also where the run goes on and gets it elsewhere.

A run prints nothing of a failed task that a rescue section deals with, so each of these sections prints the reason.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.unit.preflight.test_contracts import ROOT, load
from tests.unit.test_phases import run

ROLE = ROOT / "roles/weights_supply/tasks"
REASON = "fan-1 gave 1 files of Qwen2 that are not what its record says: model.safetensors."
KNOWN: dict[str, Any] = {
    "weights_supply_item": {"directory": "Qwen2"},
    "weights_supply_root": "/data/models",
    "__weights_supply_peer_name": "fan-1",
    "__weights_supply_seed_name": "fan-1",
    "__weights_supply_blames": "",
    "__weights_supply_config": "/nonexistent",
}


def printed(file: str, folder: Path) -> str:
    """What a run on two hosts prints if the first task of the file's block with a rescue section fails."""
    (block,) = [task for task in load(ROLE / f"{file}.yml") if "rescue" in task]
    failing = [{"name": "Fail", "ansible.builtin.fail": {"msg": REASON}}]
    done = run(folder, tasks=[{**block, "block": failing, "vars": KNOWN}])
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
