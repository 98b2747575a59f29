"""What a checkpoint from somebody else could have the converters read: links, and pipes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.fp8.checkpoints import write

PROGRAMS = Path(__file__).parents[3] / "roles/fp8_weights/files"
SHARD = "model-00002-of-00003.safetensors"


def convert(source: Path, target: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PROGRAMS / "fp8_convert.py"), str(source), str(target), "--jobs", "1"]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


@pytest.mark.parametrize("name", ["notes.txt", "tokenizer.json", SHARD, "config.json"])
def test_a_link_that_leaves_the_folder_is_refused_by_name(tmp_path: Path, name: str) -> None:
    source, secret = write(tmp_path / "in"), tmp_path / "shadow"
    if (source / name).exists():
        (source / name).rename(secret)
    else:
        secret.write_text("root:$6$hash")
    (source / name).symlink_to(secret)
    done = convert(source, tmp_path / "out")
    assert done.returncode == 1
    assert f"{source / name} is a link to {secret}, outside its folder, and is not read" in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_link_above_the_folder_by_a_relative_way_is_refused(tmp_path: Path) -> None:
    source = write(tmp_path / "in")
    (tmp_path / "shadow").write_text("root:$6$hash")
    (source / "notes.txt").symlink_to("../shadow")
    done = convert(source, tmp_path / "out")
    assert done.returncode == 1
    assert "outside its folder" in done.stderr


def test_a_snapshot_of_a_hubs_cache_is_converted(tmp_path: Path) -> None:
    plain = write(tmp_path / "in")
    snapshot, blobs = tmp_path / "models--m/snapshots/0123", tmp_path / "models--m/blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for number, path in enumerate(sorted(path for path in plain.rglob("*") if path.is_file())):
        place = snapshot / path.relative_to(plain)
        place.parent.mkdir(parents=True, exist_ok=True)
        (blobs / str(number)).write_bytes(path.read_bytes())
        place.symlink_to(os.path.relpath(blobs / str(number), place.parent))
    done = convert(snapshot, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert convert(plain, tmp_path / "out2").returncode == 0
    names = sorted(path.relative_to(tmp_path / "out2") for path in (tmp_path / "out2").rglob("*") if path.is_file())
    for name in names:
        assert not (tmp_path / "out" / name).is_symlink()
        if name.parts[0] != ".gaudi-serving":
            assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "out2" / name).read_bytes()


def test_a_link_within_the_folder_is_read(tmp_path: Path) -> None:
    source = write(tmp_path / "in")
    (source / "notes.txt").symlink_to("config.json")
    done = convert(source, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "notes.txt").read_text() == (source / "config.json").read_text()


def test_a_linked_staging_folder_is_refused(tmp_path: Path) -> None:
    source = write(tmp_path / "in")
    (tmp_path / "home").mkdir()
    (tmp_path / "out.partial").symlink_to(tmp_path / "home")
    done = convert(source, tmp_path / "out")
    assert done.returncode == 1
    assert "out.partial is a link" in done.stderr
    assert list((tmp_path / "home").iterdir()) == []


def test_a_half_written_shard_of_somebody_else_is_not_written_through(tmp_path: Path) -> None:
    source, victim = write(tmp_path / "in"), tmp_path / "passwd"
    victim.write_text("root:x:0:0")
    (tmp_path / "out.partial").mkdir()
    (tmp_path / "out.partial/.gaudi-serving").mkdir()
    (tmp_path / "out.partial/.gaudi-serving/journal.json.writing").symlink_to(victim)
    convert(source, tmp_path / "out")
    assert victim.read_text() == "root:x:0:0"


def test_a_folder_that_others_write_to_is_refused(tmp_path: Path) -> None:
    source, shared = write(tmp_path / "in"), tmp_path / "all"
    shared.mkdir()
    shared.chmod(0o1777)
    done = convert(source, shared / "out")
    assert done.returncode == 1
    assert f"{shared} can be written by everybody" in done.stderr
    assert list(shared.iterdir()) == []
