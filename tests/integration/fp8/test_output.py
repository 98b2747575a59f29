"""How a converted shard gets to its disk: whole, with its checksum, and on record as soon as there is room."""

from __future__ import annotations

import ctypes
import errno
import io
import json
import os
import random
import sys
import time
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gaudi.node.files import write_json
from gaudi_fp8.block.program import main
from gaudi_fp8.shards import CHUNK, WRITE_BEHIND, ShardOutput, crc32, quickest_crc32

from simulator import host
from tests.integration.fp8 import checkpoints
from tests.integration.fp8.test_fp8_convert import result_of, run


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """An ext4 file system of 24 MiB on a device of its own."""
    image, folder = tmp_path / "disk.img", tmp_path / "disk"
    image.touch()
    os.truncate(image, 24 << 20)
    folder.mkdir()
    owner = f"root_owner={os.geteuid()}:{os.getegid()}"
    host.run(["mkfs.ext4", "-q", "-E", owner, str(image)])
    host.run(host.as_root(["mount", "-o", "loop", str(image), str(folder)]))
    yield folder
    host.run(host.as_root(["umount", str(folder)]))


class ReluctantDisk(io.FileIO):
    """A disk that takes a part of what it is given."""

    def write(self, data: Any, /) -> int:
        return super().write(memoryview(data)[:1000])


@pytest.mark.parametrize("size", [0, 1, 999, 1000, 2 * WRITE_BEHIND + 7])
@pytest.mark.parametrize("taking", [io.FileIO, ReluctantDisk])
def test_every_byte_arrives_and_is_counted(tmp_path: Path, taking: type[io.FileIO], size: int) -> None:
    content = random.Random(size).randbytes(size)
    with taking(tmp_path / "shard", "wb") as stream:
        output = ShardOutput(stream)
        for begin in range(0, size, CHUNK):
            output.write(content[begin : begin + CHUNK])
        done = output.close()
    assert (tmp_path / "shard").read_bytes() == content
    assert done == {"bytes": size, "crc32": f"{zlib.crc32(content):08x}"}


class Deflate:
    """What a machine with libdeflate gives: its function takes where the bytes are, and how many."""

    def __init__(self, name: str) -> None:
        assert name == "libdeflate.so.0"
        self.calls: list[int] = []

    def libdeflate_crc32(self, before: int, where: Any, size: int) -> int:
        self.calls.append(size)
        return zlib.crc32(where if isinstance(where, bytes) else ctypes.string_at(where, size), before)


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_a_quicker_checksum_is_the_same(monkeypatch: pytest.MonkeyPatch, kind: type) -> None:
    opened: list[Deflate] = []

    def load(name: str) -> Any:
        opened.append(Deflate(name))
        # A method takes no attributes, a function of a library does.
        return SimpleNamespace(libdeflate_crc32=partial(opened[-1].libdeflate_crc32))

    monkeypatch.setattr(ctypes, "CDLL", load)
    crc32 = quickest_crc32()
    rng = random.Random(7)
    for size in (0, 1, 31, CHUNK):
        data = kind(rng.randbytes(size))
        for before in (0, 0xCBF43926):
            assert crc32(data, before) == zlib.crc32(data, before)
    assert opened[0].calls == [1, 1, 31, 31, CHUNK, CHUNK]


def test_this_machine_s_checksum_is_the_same() -> None:
    rng = random.Random(8)
    for size in (0, 1, 63, 4096, CHUNK, CHUNK + 5):
        data = rng.randbytes(size)
        assert crc32(data, 5) == crc32(bytearray(data), 5) == zlib.crc32(data, 5)


@pytest.mark.parametrize("lacking", ["ctypes", "the library", "its function"])
def test_without_libdeflate_zlib_computes_checksums(monkeypatch: pytest.MonkeyPatch, lacking: str) -> None:
    def load(_name: str) -> Any:
        if lacking == "the library":
            raise OSError("libdeflate.so.0: cannot open shared object file: No such file or directory")
        return SimpleNamespace()

    monkeypatch.setattr(ctypes, "CDLL", load)
    if lacking == "ctypes":
        monkeypatch.setitem(sys.modules, "ctypes", None)
    assert quickest_crc32() is zlib.crc32


def test_a_disk_that_fills_up_in_the_middle_of_a_shard(
    tmp_path: Path, disk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = checkpoints.write(tmp_path / "in", shards=3, rows=8192)
    assert run(source, tmp_path / "reference").returncode == 0
    (disk / "in the way").write_bytes(bytes(12 << 20))
    monkeypatch.setattr("gaudi_fp8.block.journal.check_room", lambda *_: None)
    assert main([str(source), str(disk / "out"), "--jobs", "1"]) == 1
    assert "no room left" in capsys.readouterr().err
    assert not (disk / "out").exists()
    assert not list((disk / "out.partial").glob("*.writing"))
    monkeypatch.undo()
    (disk / "in the way").unlink()
    result = run(source, disk / "out", "--verify")
    assert result.returncode == 0, result.stderr
    assert "continuing" in result.stderr
    assert result_of(disk / "out") == result_of(tmp_path / "reference")


def test_a_record_there_was_no_room_for_is_written_once_half_shards_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = checkpoints.write(tmp_path / "in", shards=3, rows=32768)
    staging = tmp_path / "out.partial"
    real, full = write_json, iter([True])

    def no_room_once(path: Path, *rest: Any, **more: Any) -> None:
        if path.name == "done.json" and next(full, False):
            deadline = time.monotonic() + 30
            while not any(staging.glob("*.writing")) and time.monotonic() < deadline:
                time.sleep(0.001)
            raise OSError(errno.ENOSPC, "No space left on device")
        real(path, *rest, **more)

    monkeypatch.setattr("gaudi_fp8.block.journal.write_json", no_room_once)
    assert main([str(source), str(tmp_path / "out"), "--jobs", "1"]) == 1
    assert "What is finished is kept" in capsys.readouterr().err
    assert not list(staging.glob("*.writing"))
    done = json.loads((staging / ".gaudi-serving" / "done.json").read_text())
    assert len(done) == 1
    assert "continuing: 1 of 3 shards" in run(source, tmp_path / "out").stderr
