from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from simulator import context
from simulator.context import ContextFile

FILES = {"a/Dockerfile": ContextFile(b"FROM x\n"), "a/run": ContextFile(b"#!/bin/sh\n", 0o755)}


@pytest.mark.parametrize(
    "other",
    [
        {**FILES, "a/run": ContextFile(b"#!/bin/sh\n", 0o644)},
        {**FILES, "a/run": ContextFile(b"#!/bin/sh \n", 0o755)},
        {**FILES, "a/more": ContextFile(b"")},
        {"a/Dockerfile": FILES["a/Dockerfile"]},
        {"b/Dockerfile": FILES["a/Dockerfile"], "a/run": FILES["a/run"]},
    ],
)
def test_every_change_of_a_file_changes_the_hash(other: dict[str, ContextFile]) -> None:
    assert context.digest(other) != context.digest(FILES)


def test_the_order_of_files_does_not() -> None:
    assert context.digest(dict(reversed(FILES.items()))) == context.digest(FILES)


def test_inputs_do_not_run_into_each_other() -> None:
    assert context.digest(FILES, "ab", "c") != context.digest(FILES, "a", "bc")
    assert context.digest(FILES, "ab") != context.digest(FILES)


def test_a_tag_can_be_made_of_it() -> None:
    assert len(context.digest(FILES)) == 12
    assert int(context.digest(FILES), 16) >= 0


def test_a_tree_keeps_what_git_keeps(tmp_path: Path) -> None:
    (tmp_path / "bin" / "__pycache__").mkdir(parents=True)
    (tmp_path / "bin" / "tool").write_text("x")
    (tmp_path / "bin" / "tool").chmod(0o700)
    (tmp_path / "notes").write_text("y")
    (tmp_path / "notes").chmod(0o600)
    (tmp_path / "bin" / "__pycache__" / "tool.cpython-311.pyc").write_text("z")
    assert context.tree(tmp_path, prefix="files/") == {
        "files/bin/tool": ContextFile(b"x", 0o755),
        "files/notes": ContextFile(b"y", 0o644),
    }


def test_the_archive_is_the_same_every_time_and_holds_the_files() -> None:
    packed = context.archive(FILES)
    assert packed == context.archive(dict(reversed(FILES.items())))
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        run = tar.extractfile("a/run")
        assert tar.getnames() == ["a/Dockerfile", "a/run"]
        assert tar.getmember("a/run").mode == 0o755
        assert run is not None
        assert run.read() == b"#!/bin/sh\n"
