"""playbooks/tasks/serve_config.yml: what lies beside weights that are not in the catalogue is looked at before use."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]


def read(folder: Path, weights: Path) -> subprocess.CompletedProcess[str]:
    """Run the tasks on this machine for a directory of weights, and show what they read as serve.yml hands it on."""
    request = yaml.safe_load((ROOT / "playbooks" / "serve.yml").read_text(encoding="utf-8"))[0]["vars"]["serve_request"]
    play = {
        "hosts": "localhost",
        "gather_facts": False,
        "vars": {"serve_weights": str(weights)},
        "tasks": [
            {"ansible.builtin.include_tasks": str(ROOT / "playbooks" / "tasks" / "serve_config.yml")},
            {"ansible.builtin.copy": {"content": request["model_config"], "dest": str(folder / "read")}},
        ],
    }
    (folder / "play.yml").write_text(json.dumps([play]), encoding="utf-8")
    return subprocess.run(
        [str(Path(sys.executable).parent / "ansible-playbook"), "-i", "localhost,", "-c", "local", "play.yml"],
        cwd=folder,
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_PYTHON_INTERPRETER": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: None, "/config.json is not on localhost. Put the model's directory there"),
        (lambda path: path.mkdir(), "/config.json is not a file of at most 1 MiB"),
        (lambda path: path.write_bytes(b"{}" + b" " * (1 << 20)), "/config.json is not a file of at most 1 MiB"),
    ],
    ids=["absent", "a directory", "far too large"],
)
def test_what_is_no_config_json_is_said_before_anything_is_changed(tmp_path: Path, make: object, words: str) -> None:
    assert callable(make)
    weights = tmp_path / "My Model"
    weights.mkdir()
    make(weights / "config.json")
    run = read(tmp_path, weights)
    assert run.returncode != 0
    said = " ".join(run.stdout.replace("''", "'").split())
    assert words in said
    assert "Nothing was changed." in said


@pytest.mark.parametrize("content", [b'{"model_type": "qwen2", "by": "J\xc3\xbcrgen {{ x }}"}', b"\xff\xfe{"])
def test_any_bytes_are_handed_on_as_text(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.json").write_bytes(content)
    run = read(tmp_path, tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
    assert (tmp_path / "read").read_text(encoding="utf-8").encode("latin-1") == content
