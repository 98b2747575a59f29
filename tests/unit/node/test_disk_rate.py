"""How fast a disk gives weights."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.gaudi.node import disk_rate


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """A folder with one large file that takes no room, and a small one."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "a.safetensors").write_bytes(b"")
    os.truncate(folder / "a.safetensors", 4 * 1024**3)
    (folder / "b.safetensors").write_bytes(b"x")
    return folder


def test_some_pieces_of_the_largest_file_are_read(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = []

    def read(_handle: int, pieces: list[Any], place: int) -> int:
        places.append(place)
        return sum(map(len, pieces))

    monkeypatch.setattr(os, "preadv", read)
    monkeypatch.setattr(os, "O_DIRECT", 0)
    assert disk_rate.measured(sorted(weights.iterdir()), weights) > 0
    assert len(places) == disk_rate.PIECES
    assert max(places) > 3.8 * 1024**3


def test_a_slow_disk_is_read_for_a_short_time(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(100))
    monkeypatch.setattr("time.monotonic", lambda: next(now))
    monkeypatch.setattr(os, "O_DIRECT", 0)
    monkeypatch.setattr(os, "preadv", lambda _handle, pieces, _place: len(pieces[0]))
    # Each look at the clock is a second later: three pieces in four seconds.
    assert disk_rate.measured(sorted(weights.iterdir()), weights) == 3 * disk_rate.PIECE // 4


def test_a_file_system_without_direct_access_is_not_measured(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr("fcntl.fcntl", refuse)
    assert disk_rate.measured(sorted(weights.iterdir()), weights) == 0


def test_files_elsewhere_are_not_read(weights: Path) -> None:
    other = weights.parent / "other"
    other.write_bytes(b"x" * (32 << 20))
    (weights / "link.safetensors").symlink_to(other)
    assert disk_rate.measured([weights / "link.safetensors"], weights) == 0
    assert disk_rate.measured([], weights) == 0
