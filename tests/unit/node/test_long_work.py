"""What long work leaves for its job: root's alone, whatever umask the work has set for its own files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible.module_utils.gaudi.base import owned_paths, paths
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.node import long_work

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _open() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("PROGRESS", "RESULT"):
        monkeypatch.setenv(f"GAUDI_JOB_{name}", str(tmp_path / f"{name.lower()}.json"))
    return tmp_path


def test_a_result_and_a_refusal_are_roots_alone(job: Path) -> None:
    long_work.tell_result({"files": 3})
    assert json.loads((job / "result.json").read_text()) == {"files": 3}
    assert (job / "result.json").stat().st_mode & 0o777 == 0o600
    long_work.tell_refusal(Refusal("no_room", "There is no room"))
    assert json.loads((job / "result.json").read_text())["refused_id"] == "no_room"
    assert (job / "result.json").stat().st_mode & 0o777 == 0o600


def test_progress_is_roots_alone(job: Path) -> None:
    long_work.tell_progress(long_work.progress_file(), {"phase": "list"})
    assert json.loads((job / "progress.json").read_text()) == {"phase": "list"}
    assert (job / "progress.json").stat().st_mode & 0o777 == 0o600
    long_work.tell_progress(None, {"phase": "list"})


def test_stalled_work_tells_what_can_be_calculated_with(job: Path) -> None:
    long_work.tell_progress(long_work.progress_file(), {"phase": "fetch", "eta": float("inf"), "rate": float("nan")})
    assert long_work.progress(job) == {"phase": "fetch"}


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_what_work_leaves_in_the_place_of_a_file_is_not_followed(job: Path, kind: str, tmp_path: Path) -> None:
    """Work on hostile data may write to its own folder, and root's modules read there."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "secret.json").write_text('{"digest": "hunter2", "state": "done", "message": "hunter2"}')
    for name in ("progress.json", "state.json", "job.json"):
        if kind == "link":
            (folder / name).symlink_to(tmp_path / "secret.json")
        else:
            os.mkfifo(folder / name)
    assert "hunter2" not in json.dumps([long_work.progress(folder), long_work.state(folder), long_work.digest(folder)])


def test_the_modes_are_those_of_the_table(job: Path) -> None:
    long_work.tell_result({})
    long_work.tell_progress(long_work.progress_file(), {})
    for path in job.iterdir():
        owned = owned_paths.owner_of(f"{paths.JOBS}/fetch.x/{path.name}")
        assert owned is not None
        assert (owned.owner, owned.mode) == ("long_work", f"{path.stat().st_mode & 0o777:04o}")


def test_no_work_reads_the_names_itself() -> None:
    """The program of the job, which gives them, and its own words about them are in role node_job."""
    programs = [path for path in ROOT.glob("roles/*/files/**/*.py") if path.parts[-3] != "node_job"]
    assert [path for path in programs if "environ" in (text := path.read_text()) and "GAUDI_JOB_" in text] == []
