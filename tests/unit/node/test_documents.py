"""Files of a node in every state they may be found in."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from ansible.module_utils.gaudi.base.documents import Damaged
from ansible.module_utils.gaudi.node import documents, files


def test_a_document_is_read(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_text('{"phase": "serving"}')
    assert documents.read_json(path, {"phase": str}) == {"phase": "serving"}


def test_nothing_is_none(tmp_path: Path) -> None:
    assert documents.read_json(tmp_path / "state.json") is None
    assert documents.read_json(tmp_path / "no folder" / "state.json") is None


def test_a_link_to_a_document_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("{}")
    (tmp_path / "state.json").symlink_to("real")
    assert documents.read_json(tmp_path / "state.json") == {}


def listening(path: Path) -> None:
    """Leave a socket at a path."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty": (lambda path: path.write_text(""), "it is empty"),
    "cut off": (lambda path: path.write_text('{"phase": "ser'), "it is cut off or no JSON"),
    "other bytes": (lambda path: path.write_bytes(b"\xff\xfe{}"), "it is no text"),
    "another type": (lambda path: path.write_text("7"), "it holds a number where a mapping is to be"),
    "another form": (lambda path: path.write_text('{"phase": 7}'), "it has no phase, or of another type"),
    "a directory": (lambda path: path.mkdir(), "it is a directory"),
    "a pipe": (os.mkfifo, "it is a pipe"),
    "a socket": (listening, "it is a socket"),
    "a device": (lambda path: path.symlink_to("/dev/null"), "it is a device"),
    "a dangling link": (lambda path: path.symlink_to("nowhere"), "it is a link to nothing"),
    "a link to itself": (lambda path: path.symlink_to(path.name), "it cannot be opened"),
    "endless": (lambda path: path.write_bytes(bytes(documents.LONGEST + 1)), "it is larger than"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_wrong_is_said(damage: str, tmp_path: Path) -> None:
    break_it, what = DAMAGES[damage]
    path = tmp_path / "state.json"
    break_it(path)
    opened = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(Damaged) as raised:
        documents.read_json(path, {"phase": str})
    assert str(raised.value).startswith(f"{path} is damaged: {what}")
    assert len(list(Path("/proc/self/fd").iterdir())) == opened


def test_a_directory_makes_room_and_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    for content in ("one", "two"):
        path.mkdir()
        (path / content).touch()
        documents.make_room(path)
    assert not path.exists()
    assert sorted(str(file.relative_to(tmp_path)) for file in tmp_path.glob("*/*")) == [
        "state.json.was-a-directory-too/two",
        "state.json.was-a-directory/one",
    ]


def test_a_file_needs_no_room(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    assert documents.make_room(path) is None
    path.touch()
    assert documents.make_room(path) is None
    assert path.exists()


def test_what_cannot_be_written_is_named_and_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    files.write_json(path, {"phase": "serving"})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        with pytest.raises(files.WriteFailure) as failed:
            files.write_json(path, {"phase": "stopped"})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    said = "cannot be written (File too large), and is as it was. Correct that, then run this again."
    assert str(failed.value) == f"{path} {said}"
    assert documents.read_json(path) == {"phase": "serving"}
    assert list(tmp_path.iterdir()) == [path]
