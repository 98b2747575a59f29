"""What the tests of the converter share."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 1 MiB; mounting takes root, as everything that prepares a node does."""
    folder = tmp_path / "disk"
    folder.mkdir()
    sudo = [] if os.geteuid() == 0 else ["sudo", "-n"]
    owner = f"uid={os.geteuid()},gid={os.getegid()}"
    subprocess.run([*sudo, "mount", "-t", "tmpfs", "-o", f"size=1m,{owner}", "none", str(folder)], check=True)
    yield folder
    subprocess.run([*sudo, "umount", str(folder)], check=True)
