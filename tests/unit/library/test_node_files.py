"""node_files: what differs is written, in one rename and for root; check mode and differences say so per file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.gaudi.host.files import MARK

from library import node_files
from tests.unit.host.modules import run_main
from tests.unit.preflight.test_templates import evaluate

GONE = {"state": "absent"}


@pytest.fixture(autouse=True)
def _owner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests stands for root."""
    monkeypatch.setattr(node_files, "OWNER", (os.getuid(), os.getgid()))


def hold(*files: dict[str, Any], check: bool = False) -> dict[str, Any]:
    return run_main("library.node_files", {"files": list(files)}, check=check)


def mode_of(path: Path) -> str:
    return f"{path.stat().st_mode & 0o7777:04o}"


def test_written_once_and_then_left_alone(tmp_path: Path) -> None:
    files = [
        {"path": str(tmp_path / "closed"), "state": "directory", "mode": "0700"},
        {"path": str(tmp_path / "closed/one"), "content": "1\n", "mode": "0600"},
        {"path": str(tmp_path / "two"), "content": "{{ 2 }}"},
    ]
    paths = [file["path"] for file in files]
    assert hold(*files, check=True)["written"] == paths
    assert list(tmp_path.iterdir()) == []
    assert hold(*files)["written"] == paths
    assert [mode_of(Path(path)) for path in paths] == ["0700", "0600", "0644"]
    assert (tmp_path / "two").read_text() == "{{ 2 }}"
    stamp = (tmp_path / "two").stat()
    again = hold(*files)
    assert (again["changed"], again["written"], again["diff"]) == (False, [], [])
    assert (tmp_path / "two").stat() == stamp
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["closed", "one", "two"]


def test_a_directory_made_on_the_way_has_the_rights_of_the_one_asked_for(tmp_path: Path) -> None:
    hold({"path": str(tmp_path / "a/b"), "state": "directory", "mode": "0750"})
    assert (mode_of(tmp_path / "a"), mode_of(tmp_path / "a/b")) == ("0750", "0750")


def test_each_file_that_differs_is_shown_under_its_name(tmp_path: Path) -> None:
    one, two, same = (tmp_path / name for name in ("one", "two", "same"))
    for path in (one, two, same):
        path.write_text("old\n")
        path.chmod(0o644)
    answer = hold(
        {"path": str(one), "content": "new\n"},
        {"path": str(two), "content": "old\n", "mode": "0600"},
        {"path": str(same), "content": "old\n"},
        check=True,
    )
    owner = ":".join(map(str, node_files.OWNER))
    assert [(shown["after_header"], shown["before"], shown["after"]) for shown in answer["diff"]] == [
        (str(one), "old\n", "new\n"),
        (f"{two} (kind and rights)", f"file {owner} 0644\n", f"file {owner} 0600\n"),
    ]


def test_a_secret_is_written_and_nowhere_shown(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("formerly-a-secret")
    answer = hold({"path": str(path), "secret": "open-sesame", "mode": "0600"})
    assert path.read_text() == "open-sesame"
    assert str(path) in [shown["after_header"] for shown in answer["diff"]]
    assert "sesame" not in json.dumps(answer)
    assert "formerly" not in json.dumps(answer)
    gone = hold({"path": str(path), "state": "absent"})
    assert [shown["after"] for shown in gone["diff"]] == ["absent\n"]
    assert "sesame" not in json.dumps(gone)


@pytest.mark.parametrize("there", [True, False], ids=["over one that all may read", "new"])
def test_a_secret_is_open_to_nobody_for_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool) -> None:
    target = tmp_path / "secret"
    if there:
        target.write_text("no secret")
        target.chmod(0o644)
    seen: list[int] = []
    monkeypatch.setattr(node_files, "sync_folder", lambda _folder: seen.append(target.stat().st_mode & 0o777))
    hold({"path": str(target), "secret": "hunter2", "mode": "0600"})
    assert seen == [0o600]


def test_absent_goes_with_everything_in_it(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys/key").write_text("x")
    gone = {"path": str(tmp_path / "keys"), "state": "absent"}
    assert hold(gone, check=True)["written"] == [gone["path"]]
    assert (tmp_path / "keys/key").exists()
    assert hold(gone)["changed"] is True
    assert not (tmp_path / "keys").exists()
    assert hold(gone)["changed"] is False


def test_absent_is_what_another_program_took_away_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = tmp_path / "state.new"
    left.write_text("{}")
    unlink = Path.unlink

    def renamed_before(path: Path, missing_ok: bool = False) -> None:
        if path == left:
            unlink(path)
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", renamed_before)
    assert hold({"path": str(left), "state": "absent"})["changed"] is True


def test_a_file_that_follows_another_keeps_its_words_until_that_changes(tmp_path: Path) -> None:
    plan, words = str(tmp_path / "plan"), str(tmp_path / "words")

    def written(plan_is: str, words_are: str) -> list[str]:
        answer = hold(
            {"path": words, "content": words_are, "follows": plan}, {"path": plan, "content": plan_is, "mode": "0600"}
        )
        return list(answer["written"])

    assert written("1", "first") == [words, plan]
    assert written("1", "second") == []
    assert Path(words).read_text() == "first"
    assert written("2", "third") == [words, plan]
    assert Path(words).read_text() == "third"
    # One that is missing comes back, whatever it follows.
    Path(words).unlink()
    assert written("2", "fourth") == [words]


def test_of_two_files_that_change_together_the_difference_shows_one(tmp_path: Path) -> None:
    plan, words = str(tmp_path / "plan"), str(tmp_path / "words")
    answer = hold({"path": words, "content": "why\n", "follows": plan}, {"path": plan, "content": "what\n"})
    assert [shown["after"] for shown in answer["diff"] if "kind" not in shown["after_header"]] == [
        f"(the content changes with {plan})\n",
        "what\n",
    ]


def test_what_is_in_the_way_is_named_and_nothing_is_touched(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    answer = hold(
        {"path": str(tmp_path / "new"), "content": "x"},
        {"path": str(tmp_path / "there"), "content": "x"},
        {"path": str(tmp_path / "empty")},
    )
    assert answer["failed"] is True
    assert f"{tmp_path / 'there'} is a directory, where a file is to be." in answer["msg"]
    assert f"{tmp_path / 'empty'} is to be a file, but has neither content nor secret." in answer["msg"]
    assert not (tmp_path / "new").exists()


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    hold({"path": str(tmp_path / "link"), "content": "new"})
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


@pytest.mark.parametrize("there", [True, False])
def test_a_directory_that_is_a_link_is_the_one_it_leads_to(tmp_path: Path, there: bool) -> None:
    """Also before the first run, where it leads to nothing yet."""
    real, link = tmp_path / "disk/settings", tmp_path / "gaudi-serving"
    if there:
        real.mkdir(parents=True, mode=0o700)
    link.symlink_to(real)
    files = [
        {"path": str(link), "state": "directory", "mode": "0755"},
        {"path": str(link / "instances"), "state": "directory", "mode": "0700"},
        {"path": str(link / "instances/plan.json"), "content": "{}", "mode": "0600"},
    ]
    assert hold(*files)["changed"]
    assert link.is_symlink()
    assert (real / "instances/plan.json").read_text() == "{}"
    assert (mode_of(real), mode_of(real / "instances")) == ("0755", "0700")
    assert not hold(*files)["changed"]


def test_what_belongs_to_somebody_else_becomes_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "one"
    path.write_text("1")
    path.chmod(0o644)
    given: list[tuple[Path, int, int]] = []
    monkeypatch.setattr(node_files, "OWNER", (4242, 4242))
    monkeypatch.setattr(os, "chown", lambda where, user, group: given.append((where, user, group)))
    assert hold({"path": str(path), "content": "1"})["written"] == [str(path)]
    assert given == [(path, 4242, 4242)]


@pytest.mark.parametrize("kind", ["itself", "each other", "a pipe"])
def test_a_link_that_can_hold_nothing_is_replaced(tmp_path: Path, kind: str) -> None:
    """One to a device is what systemctl mask leaves: nothing is written there, nor in the place of the device."""
    path, other = tmp_path / "environment", tmp_path / "other"
    path.symlink_to(path if kind == "itself" else other)
    if kind == "each other":
        other.symlink_to(path)
    if kind == "a pipe":
        # In place of a device, which a test leaves alone.
        os.mkfifo(other)
    files = [{"path": str(path), "content": "A=1\n", "mode": "0600"}]
    assert hold(*files, check=True)["written"] == [str(path)]
    assert path.is_symlink()
    answer = hold(*files)
    assert (answer["written"], path.is_symlink(), path.read_text()) == ([str(path)], False, "A=1\n")
    assert mode_of(path) == "0600"
    assert hold(*files)["changed"] is False
    assert other.is_fifo() is (kind == "a pipe")


@pytest.mark.parametrize("target", ["instances", "pipe"])
def test_a_directory_that_is_an_unusable_link_is_made_anew_with_what_is_in_it(tmp_path: Path, target: str) -> None:
    folder = tmp_path / "instances"
    os.mkfifo(tmp_path / "pipe")
    folder.symlink_to(tmp_path / target)
    files = [{"path": str(folder), "state": "directory"}, {"path": str(folder / "plan.json"), "content": "{}"}]
    assert hold(*files)["written"] == [str(folder), str(folder / "plan.json")]
    assert (folder / "plan.json").read_text() == "{}"


def test_a_link_to_itself_that_is_none_of_ours_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "systemd"
    folder.symlink_to(folder)
    answer = hold({"path": str(folder / "a.service"), "content": "x"})
    assert f"rm {folder}" in answer["msg"]
    assert folder.is_symlink()


def test_a_file_of_somebody_else_is_named_and_nothing_is_touched(tmp_path: Path) -> None:
    (tmp_path / "ours").write_text("x")
    theirs, folder = tmp_path / "90-theirs.rules", tmp_path / "folder"
    theirs.write_text("theirs\n")
    folder.mkdir()
    for path, wanted in ((theirs, {"content": f"{MARK}\nours\n"}), (theirs, GONE), (folder, GONE)):
        answer = hold({"path": str(tmp_path / "ours"), **GONE}, {"path": str(path), "mark": MARK, **wanted})
        assert answer["msg"] == f"{path} was not written by this role. Move it away, then run again."
        assert answer["refused_id"] == "file_in_the_way"
    assert theirs.read_text() == "theirs\n"
    assert (tmp_path / "ours").exists()
    assert folder.is_dir()


def test_a_marked_file_of_ours_is_replaced_and_removed(tmp_path: Path) -> None:
    path = {"path": str(tmp_path / "unit"), "mark": MARK}
    for content in (f"{MARK}\nold\n", f"{MARK}\nnew\n"):
        assert hold({**path, "content": content})["changed"] is True
    assert hold({**path, **GONE})["changed"] is True
    assert hold({**path, **GONE})["changed"] is False


def test_the_role_host_tuning_marks_its_files() -> None:
    assert evaluate("host_tuning", "{{ __host_tuning_mark }}") == MARK


@pytest.mark.parametrize("wanted", [{"content": "2"}, {"state": "absent"}])
def test_a_folder_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: dict[str, str]
) -> None:
    monkeypatch.setattr(os, "access", lambda path, _mode: "locked" not in str(path))
    (tmp_path / "locked").mkdir()
    two = tmp_path / "locked/two"
    two.write_text("1")
    answer = hold({"path": str(tmp_path / "one"), "content": "1"}, {"path": str(two), **wanted})
    assert answer["msg"].startswith(f"{tmp_path}/locked cannot be written, where {two} is to be")
    assert not (tmp_path / "one").exists()
    two.chmod(0o644)
    assert hold({"path": str(two), "content": "1"})["changed"] is False


@pytest.mark.parametrize("below", ["one", "deep/one"])
def test_a_file_where_a_folder_is_needed_is_named_and_nothing_is_written(tmp_path: Path, below: str) -> None:
    (tmp_path / "folder").write_text("theirs")
    path = tmp_path / "folder" / below
    answer = hold({"path": str(tmp_path / "other"), "content": "1"}, {"path": str(path), "content": "1"})
    assert answer["msg"].startswith(f"{tmp_path}/folder is no directory, where {path} is to be")
    assert not (tmp_path / "other").exists()
    assert hold({"path": str(path), "state": "absent"})["changed"] is False
