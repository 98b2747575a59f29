"""What a checkpoint from somebody else could have the converters read: links, and pipes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gaudi.node import beneath
from gaudi_fp8.checkpoint import carried_files
from gaudi_fp8.dynamic import shard

from tests.integration.fp8.checkpoints import shard_bytes, write

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


def test_folders_in_folders_are_listed_to_any_depth(tmp_path: Path) -> None:
    source = write(tmp_path / "in")
    before = carried_files(source, [])
    deep = "/".join(["d"] * 1200)
    folder = source
    for part in deep.split("/"):
        folder /= part
        folder.mkdir()
    (folder / "notes.txt").touch()
    after = carried_files(source, [])
    # pytest does not remove folders of this depth.
    beneath.remove_tree(source / "d", source)
    assert after == [*before, f"{deep}/notes.txt"]


LONG = "x" * 10**6
FP8 = {"dtype": "F8_E4M3", "shape": [0], "data_offsets": [0, 0]}
MARKED = {"w": FP8, "w_scale": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}}


@pytest.mark.parametrize(
    "header",
    [
        json.dumps({LONG: FP8}),
        json.dumps({LONG: 1}),
        f'{{"{LONG}": 1, "{LONG}": 1}}',
        json.dumps({"__metadata__": {"gaudi_fp8_range": LONG}, **MARKED}),
        '{"' + "\\ud800" * 10**5 + '": 1}',
    ],
    ids=range(5),
)
def test_no_text_of_a_header_is_quoted_whole(tmp_path: Path, header: str) -> None:
    (tmp_path / "in").mkdir()
    raw = header.encode()
    (tmp_path / "in/model.safetensors").write_bytes(len(raw).to_bytes(8, "little") + raw)
    done = convert(tmp_path / "in", tmp_path / "out")
    assert (done.returncode, done.stderr[:13]) == (1, "fp8_convert: ")
    assert len(done.stderr) < 2000


@pytest.mark.parametrize("place", ["weight_map", "shard"])
def test_no_name_of_an_index_is_quoted_whole(tmp_path: Path, place: str) -> None:
    source = write(tmp_path / "in")
    index = source / "model.safetensors.index.json"
    named: dict[str, Any] = json.loads(index.read_text())
    named["weight_map"].update({LONG: SHARD} if place == "weight_map" else {"a": LONG})
    index.write_text(json.dumps(named))
    done = convert(source, tmp_path / "out")
    assert done.returncode == 1
    assert len(done.stderr) < 2000


def test_a_check_of_a_shard_reads_each_tensor_of_the_result_a_few_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A header may have a million of them."""
    count, reads = 500, 0

    class CountedPart(shard.ResultTensor):
        def __getattribute__(self, name: str) -> Any:
            nonlocal reads
            reads += name == "result"
            return super().__getattribute__(name)

    source, target = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    source.write_bytes(shard_bytes({f"t{number}": ("U8", [1], b"x") for number in range(count)}))
    shard.convert_shard(source, target, {}, lambda _size: None)
    monkeypatch.setattr(shard, "ResultTensor", CountedPart)
    assert shard.verify_shard(source, target, {}, None) == count
    assert reads <= 20 * count
