"""host_tuning_files: what differs is written, what is not asked for is left."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.gaudi.host.files import MARK

from tests.unit.host.modules import run_main


def hold(*files: dict[str, Any], check: bool = False) -> dict[str, Any]:
    return run_main("library.host_tuning_files", {"files": list(files)}, check=check)


def test_written_once_with_its_directory(tmp_path: Path) -> None:
    one = {"path": str(tmp_path / "new/one"), "content": "1\n"}
    two = {"path": str(tmp_path / "two"), "content": "2\n", "mode": "0755"}
    assert hold(one, two, check=True)["written"] == [one["path"], two["path"]]
    assert not (tmp_path / "new").exists()
    assert hold(one, two)["changed"] is True
    assert (tmp_path / "new/one").read_text() == "1\n"
    assert (tmp_path / "two").stat().st_mode & 0o7777 == 0o755
    assert hold(one, two) == {**hold(one, two), "changed": False, "written": [], "diff": []}


def test_only_what_differs_is_written_and_shown(tmp_path: Path) -> None:
    (tmp_path / "same").write_text("1\n")
    (tmp_path / "same").chmod(0o644)
    (tmp_path / "other").write_text("old\n")
    answer = hold(
        {"path": str(tmp_path / "same"), "content": "1\n"}, {"path": str(tmp_path / "other"), "content": "new\n"}
    )
    assert answer["written"] == [str(tmp_path / "other")]
    assert answer["diff"] == [{"before_header": str(tmp_path / "other"), "before": "old\n", "after": "new\n"}]


def test_a_wrong_mode_is_a_difference(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("1\n")
    (tmp_path / "one").chmod(0o600)
    assert hold({"path": str(tmp_path / "one"), "content": "1\n"})["changed"] is True
    assert (tmp_path / "one").stat().st_mode & 0o7777 == 0o644


def test_taken_away_with_its_empty_directory_only(tmp_path: Path) -> None:
    for name in ("alone/file", "shared/file", "shared/other"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    gone = [{"path": str(tmp_path / name), "with_directory": True} for name in ("alone/file", "shared/file")]
    assert hold(*gone)["changed"] is True
    assert not (tmp_path / "alone").exists()
    assert (tmp_path / "shared/other").exists()
    assert hold(*gone)["changed"] is False


@pytest.mark.parametrize("content", [None, f"{MARK}\nours\n"])
def test_a_file_of_somebody_else_is_named_and_nothing_is_touched(tmp_path: Path, content: str | None) -> None:
    (tmp_path / "ours").write_text("x")
    theirs = tmp_path / "90-gaudi-host-tuning.rules"
    theirs.write_text("theirs\n")
    answer = hold(
        {"path": str(tmp_path / "ours")},
        {"path": str(theirs), "marked": True, **({"content": content} if content else {})},
    )
    assert answer["msg"] == f"{theirs} was not written by this role. Move it away, then run again."
    assert theirs.read_text() == "theirs\n"
    assert (tmp_path / "ours").exists()


def test_a_marked_file_of_ours_is_replaced_and_taken_away(tmp_path: Path) -> None:
    path = tmp_path / "unit"
    for content in (f"{MARK}\nold\n", f"{MARK}\nnew\n"):
        assert hold({"path": str(path), "content": content, "marked": True})["changed"] is True
    assert hold({"path": str(path), "marked": True})["changed"] is True
    assert not path.exists()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, _mode: "locked" not in str(path))
    (tmp_path / "locked").mkdir()
    answer = hold(
        {"path": str(tmp_path / "one"), "content": "1"}, {"path": str(tmp_path / "locked/two"), "content": "2"}
    )
    assert answer["msg"].startswith(f"{tmp_path}/locked cannot be written, where {tmp_path}/locked/two is to be")
    assert not (tmp_path / "one").exists()


def test_a_file_in_another_encoding_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"\xfc")
    assert hold({"path": str(tmp_path / "one"), "content": "1"})["changed"] is True
