"""What the tests of the converter share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from simulator import host


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 1 MiB; mounting takes root, as everything that prepares a node does."""
    folder = tmp_path / "disk"
    folder.mkdir()
    owner = f"uid={os.geteuid()},gid={os.getegid()}"
    host.run(host.as_root(["mount", "-t", "tmpfs", "-o", f"size=1m,mode=0755,{owner}", "none", str(folder)]))
    yield folder
    host.run(host.as_root(["umount", str(folder)]))
