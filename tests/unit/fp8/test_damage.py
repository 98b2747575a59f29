"""Results that are damaged, and a source that is: what is found, what is said, how it is mended."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.fp8 import checkpoints
from tests.unit.fp8.test_fp8_convert import PROGRAM, refused, result_of, run, wait_for_workers

SHARD = "model-00002-of-00003.safetensors"


def spoil(path: Path, at: int = -700) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def record(target: Path) -> dict[str, Any]:
    return dict(json.loads((target / ".gaudi-serving" / "fp8.json").read_text()))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return checkpoints.write(tmp_path / "in")


def begin(source: Path, target: Path, *options: str) -> list[str]:
    """Kill a conversion when some of its shards are done; returns their names."""
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), str(source), str(target), "--jobs", "1", *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    done = target.with_name(target.name + ".partial") / ".gaudi-serving" / "done.json"
    while not done.exists():
        assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_for_workers(target)
    return list(json.loads(done.read_text()))


def test_a_continued_verification_compares_what_was_done_before(tmp_path: Path) -> None:
    source = checkpoints.write(tmp_path / "in", shards=4, rows=16384)
    assert run(source, tmp_path / "whole").returncode == 0
    names = begin(source, tmp_path / "out")
    # Not in the sample, which was compared before.
    spoil(tmp_path / "out.partial" / names[0], -100)
    result = run(source, tmp_path / "out", "--verify")
    assert result.returncode == 0, result.stderr
    assert f"{names[0]}: tensor 'model.layers" in result.stderr
    assert "it is converted anew" in result.stderr
    assert result_of(tmp_path / "out") == result_of(tmp_path / "whole")
    assert record(tmp_path / "out")["verified"] == "every byte"


def test_a_damaged_twin_of_a_shard_that_was_given_up_is_never_published(tmp_path: Path) -> None:
    source = checkpoints.write(tmp_path / "in", shards=4, rows=16384)
    (name, *_) = begin(source, tmp_path / "out", "--in-place-space")
    (source / name).unlink(missing_ok=True)
    spoil(tmp_path / "out.partial" / name)
    sentence = refused(source, tmp_path / "out", "--in-place-space", "--verify")
    assert f"{name}: its size or checksum is not the recorded one, and its source was given up" in sentence
    assert "fetch the model again" in sentence
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("again", [[], ["--verify"]])
def test_what_a_verification_found_wrong_is_converted_anew(source: Path, tmp_path: Path, again: list[str]) -> None:
    target = tmp_path / "out"
    assert run(source, target).returncode == 0
    good = result_of(target)
    untouched = (target / "model-00001-of-00003.safetensors").stat().st_mtime_ns
    spoil(target / SHARD)
    spoil(target / "tokenizer.json", 0)
    assert "Run the same command again" in refused(source, target, "--verify")
    made = record(target)
    assert made["verified"] == "found wrong"
    assert made["wrong"]["files"] == [SHARD, "tokenizer.json"]
    for options in ([], ["--verify"]):
        assert run(source, target, "--check", *options).returncode == 3
    assert run(source, target, *again).returncode == 0
    assert result_of(target) == good
    assert (target / "model-00001-of-00003.safetensors").stat().st_mtime_ns == untouched
    made = record(target)
    assert made["verified"] == "every byte"
    assert "wrong" not in made
    assert [path.name for path in (target / ".gaudi-serving").iterdir()] == ["fp8.json"]
    assert run(source, target, "--check", "--verify").returncode == 0


def test_what_was_found_wrong_cannot_be_mended_without_its_source(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    copy = shutil.copytree(source, tmp_path / "copy")
    assert run(source, target, "--in-place-space").returncode == 0
    good = result_of(target)
    said = run(source, target, "--verify")
    assert (said.returncode, "held against the checksums" in said.stdout) == (0, True)
    spoil(target / SHARD)
    sentence = refused(source, target, "--verify")
    assert f"{SHARD}: its size or checksum is not the recorded one" in sentence
    assert f"Fetch {source} again" in sentence
    for options in ([], ["--check"]):
        assert f"({SHARD}), and {source}, which it was made from, is gone" in refused(source, target, *options)
    shutil.rmtree(source)
    copy.rename(source)
    assert "converted anew what was found wrong" in run(source, target).stdout
    assert result_of(target) == good


def test_carried_files_are_looked_at(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    assert run(source, target).returncode == 0
    assert set(record(target)["carried"]) == {
        "code/modeling.py", "config.json", "model.safetensors.index.json", "tokenizer.json"
    }  # fmt: skip
    (target / "config.json").unlink()
    for options in ([], ["--check"], ["--verify"]):
        assert f"{target / 'config.json'} is not as it was written" in refused(source, target, *options)


def test_a_record_without_carried_files_is_accepted(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    assert run(source, target).returncode == 0
    made = record(target)
    del made["carried"]
    (target / ".gaudi-serving" / "fp8.json").write_text(json.dumps(made))
    assert run(source, target, "--check").returncode == 0
    assert run(source, target, "--verify").returncode == 0
