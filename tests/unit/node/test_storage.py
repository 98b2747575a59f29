"""The file system of a directory, before and after it fails."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from gaudi.node import storage


def test_the_file_system_of_a_path_that_does_not_exist(tmp_path: Path) -> None:
    found = storage.file_system(Path("/proc/no/such/file"))
    assert (found.kind, found.point) == ("proc", "/proc")
    (tmp_path / "link").symlink_to("/proc")
    assert storage.file_system(tmp_path / "link/x").kind == "proc"


def test_a_folder_that_will_be_created_in_a_writable_one_is_no_problem(tmp_path: Path) -> None:
    assert storage.unwritable(tmp_path / "data/models") is None


@pytest.mark.report("W06")
def test_a_folder_of_a_file_system_that_refuses_writing_is_named(tmp_path: Path) -> None:
    look = (
        "import sys, pathlib; from gaudi.node import storage; print(storage.unwritable(pathlib.Path(sys.argv[1])).id)"
    )
    mount = f'mount -t tmpfs -o ro tmpfs {tmp_path}; exec "$@"'
    own = ["--user", "--map-root-user"] if os.geteuid() else []
    done = subprocess.run(
        ["unshare", *own, "--mount", "sh", "-c", mount, "sh", sys.executable, "-c", look, str(tmp_path / "models")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "read_only_storage\n", done.stderr


def test_an_error_of_the_system_is_explained_where_it_needs_it(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert storage.explained(full, tmp_path) is None
    known = storage.explained(OSError(errno.ESTALE, os.strerror(errno.ESTALE)), tmp_path, "renamed")
    assert known is not None
    assert f"Files in {tmp_path} cannot be renamed" in str(known)
