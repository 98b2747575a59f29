"""The role fp8_calibration: what an earlier run left behind, and the words of its files."""

from __future__ import annotations

import os
from pathlib import Path

import calibrate
import pytest
import yaml
from gaudi.calibration import run

from tests.unit.host.modules import run_main

ROOT = Path(__file__).resolve().parents[3]
ROLE = ROOT / "roles/fp8_calibration"


def test_what_an_earlier_run_left_is_removed_before_a_description_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leftover peer would be asked by a node that is to measure. An earlier release called it NAME.giver."""
    monkeypatch.setattr("library.node_files.OWNER", (os.getuid(), os.getgid()))
    tasks = yaml.safe_load((ROLE / "tasks/install.yml").read_text())
    removing, writing = tasks[-2:]
    assert writing["ansible.builtin.copy"]["dest"] == "{{ __fp8_calibration_description }}"
    # Work that runs needs its own.
    assert removing["when"] == writing["when"]
    names = yaml.safe_load((ROLE / "vars/main.yml").read_text())
    begins = "{{ __fp8_calibration_description | splitext | first }}"
    for name in ("calibrate-chat.giver", "calibrate-chat.peer.json", "calibrate-chat.token", "calibrate-chat.json"):
        (tmp_path / name).write_text("secret")

    def here(path: str) -> str:
        return str(names.get(path.strip("{} "), path)).replace(begins, str(tmp_path / "calibrate-chat"))

    files = [{**file, "path": here(file["path"])} for file in removing["node_files"]["files"]]
    assert run_main("library.node_files", {"files": files})["changed"]
    assert [path.name for path in tmp_path.iterdir()] == ["calibrate-chat.json"]
    assert not run_main("library.node_files", {"files": files})["changed"]


def test_the_record_that_a_seed_sends_is_that_of_the_measurement() -> None:
    (giving,) = [
        task["vars"]
        for task in yaml.safe_load((ROLE / "tasks/spread.yml").read_text())
        if task.get("ansible.builtin.include_role", {}).get("tasks_from") == "give.yml"
    ]
    assert giving["weights_supply_record"] == f"{run.OWN}/{calibrate.RECORD}"


@pytest.mark.parametrize(
    "path", sorted(path for path in ROLE.rglob("*") if path.is_file() and path.suffix != ".pyc"), ids=str
)
def test_a_node_that_has_measured_is_called_the_seed(path: Path) -> None:
    """The words of the role weights_supply, and of the filter that decides."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if "giver" in line.lower()]
    # What an earlier release called the file.
    assert [line for line in lines if ".giver" not in line or path.name != "install.yml"] == []
