"""The playbooks of images, as a person runs them: what is there, and what is not built."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def play(folder: Path, *extra: str, book: str = "image.yml") -> subprocess.CompletedProcess[str]:
    (folder / "hosts.yml").write_text("gaudi_nodes: {hosts: {node: {ansible_connection: local}}}\n")
    command = [str(Path(sys.executable).parent / "ansible-playbook"), str(ROOT / "playbooks" / book)]
    return subprocess.run(
        [*command, "-i", "hosts.yml", "-e", "ansible_become=false", *extra],
        cwd=folder,
        env={
            **os.environ,
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
            "PWD": str(folder),
        },
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_playbook_shows_a_table_in_check_mode(tmp_path: Path) -> None:
    done = play(tmp_path, "--check")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "changed=0" in done.stdout


def test_the_playbook_writes_json_where_it_was_typed(tmp_path: Path) -> None:
    done = play(tmp_path, "-e", "image_output=images.json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((tmp_path / "images.json").read_text())["node"].keys() == {"images", "instances"}


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (["-e", "against=x"], "Name it: -e image=NAME"),
        (["-e", "image=nothing-of-that-name", "-e", "against=x"], "No node has an image 'nothing-of-that-name'"),
    ],
)
def test_the_playbook_refuses_in_words(tmp_path: Path, extra: list[str], words: str) -> None:
    done = play(tmp_path, *extra)
    assert done.returncode != 0
    said = " ".join((done.stdout + done.stderr).split())
    assert words in said
    assert "filter plugin" not in said


def test_a_build_of_what_cannot_be_built_ends_before_anything_is_done(tmp_path: Path) -> None:
    said = {
        "gaudi_release": "1.22",
        "serving_image_constraint": ["transformers==4.57.1"],
        "serving_image_build_gib": "lots",
        "serving_image_zzz": 1,
    }
    done = play(tmp_path, "--check", "-e", json.dumps(said), book="build_image.yml")
    printed = " ".join((done.stdout + done.stderr).split())
    assert done.returncode != 0
    assert "Refuse what cannot be built, before anything is changed" in printed
    assert "Did you mean serving_image_constraints?" in printed
    assert "serving_image_zzz is set, but there is no such variable." in printed
    assert "serving_image_build_gib is 'lots', but must be a whole number from 1 to 1000" in printed
    assert "ok=3 " in printed


def test_a_ready_image_is_not_passed_over_where_one_is_to_be_built(tmp_path: Path) -> None:
    said = {"gaudi_release": "1.22", "serving_image_ref": "registry.example.com/gaudi/vllm:7"}
    done = play(tmp_path, "--check", "-e", json.dumps(said), book="build_image.yml")
    printed = " ".join((done.stdout + done.stderr).split())
    assert done.returncode != 0
    assert "serving_image_ref names the image registry.example.com/gaudi/vllm:7, which is not built" in printed
    assert "Ensure a container engine runs" not in printed
