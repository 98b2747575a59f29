"""The role's entry point place: what is refused before a server starts for a batch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("at_once", [0, 1025])
def test_a_number_that_is_none_is_refused_before_a_server_starts(tmp_path: Path, at_once: int) -> None:
    plays = yaml.safe_load((ROOT / "playbooks/batch.yml").read_text())
    (place,) = [task for task in plays[0]["tasks"] if "tasks_from" in task.get("ansible.builtin.include_role", {})]
    play = [{"hosts": "localhost", "gather_facts": False, "connection": "local", "tasks": [place]}]
    (tmp_path / "play.yml").write_text(json.dumps(play))
    given = {"start": True, "at_once": at_once, "batch": {"digest": "0" * 64, "model": "tiny", "whole": False}}
    command = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", "localhost,", str(tmp_path / "play.yml")]
    command += ["-e", json.dumps({**given, "ansible_python_interpreter": sys.executable})]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"at_once (offline_batch_at_once) is {at_once}; a number from 1 to 1024 is needed." in done.stdout
    assert "look | " not in done.stdout
