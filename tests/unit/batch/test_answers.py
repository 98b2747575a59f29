"""The action and the module batch_answers: a file in parts, whole or not at all."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import stat
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from action_plugins import batch_answers

ROOT = Path(__file__).resolve().parents[3]
TEXT = b"".join(b"%d\n" % number for number in range(1000))


def parts_of(text: bytes, length: int) -> Callable[[int], dict[str, Any]]:
    def ask(offset: int) -> dict[str, Any]:
        return {"content": base64.b64encode(zlib.compress(text[offset : offset + length])).decode()}

    return ask


@pytest.mark.parametrize("length", [1, 7, len(TEXT) - 1, len(TEXT), len(TEXT) + 1])
def test_parts_are_put_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int) -> None:
    monkeypatch.setattr(batch_answers, "PART", length)
    target = tmp_path / "out.jsonl"
    batch_answers.bring(parts_of(TEXT, length), len(TEXT), hashlib.sha256(TEXT).hexdigest(), target)
    assert target.read_bytes() == TEXT
    assert batch_answers.digest_of(target) == hashlib.sha256(TEXT).hexdigest()
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]


@pytest.mark.parametrize("there", [TEXT[:-1], TEXT[:-1] + b"x", b""])
def test_what_changed_meanwhile_leaves_the_old_file(tmp_path: Path, there: bytes) -> None:
    target = tmp_path / "out.jsonl"
    target.write_text("old")
    with pytest.raises(ValueError, match="changed while it was read"):
        batch_answers.bring(parts_of(there, 100), len(TEXT), hashlib.sha256(TEXT).hexdigest(), target)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


def test_a_part_that_unpacks_to_more_than_was_asked_for_is_refused(tmp_path: Path) -> None:
    bomb = base64.b64encode(zlib.compress(bytes(batch_answers.PART + 1))).decode()
    with pytest.raises(ValueError, match="more than it was asked for"):
        batch_answers.bring(lambda offset: {"content": bomb}, 2 * batch_answers.PART, "", tmp_path / "out.jsonl")
    assert not list(tmp_path.iterdir())


def test_a_node_that_sends_a_byte_at_a_time_is_not_asked_again(tmp_path: Path) -> None:
    asked: list[int] = []

    def ask(offset: int) -> dict[str, Any]:
        asked.append(offset)
        return parts_of(TEXT, 1)(offset)

    with pytest.raises(ValueError, match="changed while it was read"):
        batch_answers.bring(ask, len(TEXT), hashlib.sha256(TEXT).hexdigest(), tmp_path / "out.jsonl")
    assert asked == [0]
    assert not list(tmp_path.iterdir())


def test_no_node_fills_the_disk_of_the_controller(tmp_path: Path) -> None:
    def ask(offset: int) -> dict[str, Any]:
        pytest.fail(f"asks for a part at {offset}")

    size = shutil.disk_usage(tmp_path).total
    with pytest.raises(ValueError, match=f"the node reports {size} bytes of answers, .* are free in {tmp_path}"):
        batch_answers.bring(ask, size, "", tmp_path / "out.jsonl")
    assert not list(tmp_path.iterdir())


def test_a_link_at_a_name_that_can_be_guessed_is_not_followed_and_others_cannot_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_answers, "PART", 100)
    victim = tmp_path / "victim"
    victim.write_text("of others")
    (tmp_path / ".out.jsonl.writing").symlink_to(victim)
    target = tmp_path / "out.jsonl"
    batch_answers.bring(parts_of(TEXT, 100), len(TEXT), hashlib.sha256(TEXT).hexdigest(), target)
    assert (target.read_bytes(), victim.read_text()) == (TEXT, "of others")
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_the_play_brings_them_in_parts(tmp_path: Path) -> None:
    """With Ansible's own way to the node."""
    source, target = tmp_path / "output.jsonl", tmp_path / "a folder/of mine/answers.jsonl"
    source.write_bytes(TEXT)
    tasks = [{"name": "Bring", "batch_answers": {"src": str(source), "dest": str(target)}}]
    play = [{"hosts": "localhost", "gather_facts": False, "connection": "local", "tasks": tasks}]
    (tmp_path / "play.yml").write_text(json.dumps(play))
    command = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", "localhost,", str(tmp_path / "play.yml")]
    command += ["-e", f"ansible_python_interpreter={sys.executable}"]
    for changed in (1, 0):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"changed={changed} " in done.stdout
    assert target.read_bytes() == TEXT
