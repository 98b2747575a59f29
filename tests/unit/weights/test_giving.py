"""Giving a folder to another node, and giving it no more."""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.basic import AnsibleModule

from tests.unit.ports import free_port
from tests.unit.weights.test_modules import run_main


class GivingNode:
    """Where things lie on the node that gives, and what its systemd was asked."""

    def __init__(self, root: Path) -> None:
        self.folder, self.directory, self.unit = root / "Model", root / "run/give", root / "run/systemd/give.service"
        self.asked: list[list[str]] = []
        self.fails = ""
        self.tasks = 1
        self.started = 0.0
        """When systemd started the daemon, by the clock that nobody sets; 0: it did not."""
        self.port = free_port()
        (self.folder / ".gaudi-serving").mkdir(parents=True)
        (root / "run").mkdir()
        (self.folder / ".gaudi-serving/manifest.json").write_text('{"files": []}')

    def run(self, **more: Any) -> dict[str, Any]:
        places = {"directory": str(self.directory), "unit_path": str(self.unit)}
        requested = {
            "folder": str(self.folder),
            "configuration": "read only = yes\n",
            "unit": "[Service]\n",
            "port": self.port,
        }
        return run_main(
            "weights_giving", {**places, **(more if more.get("state") == "absent" else {**requested, **more})}
        )

    def systemctl(self, command: list[str]) -> tuple[int, str, str]:
        self.asked.append(command[1:])
        if command[1] == self.fails:
            return 1, "", "It is broken.\n"
        if command[1] == "restart":
            self.started = time.clock_gettime(time.CLOCK_MONOTONIC)
        shown = f"TasksCurrent={self.tasks}\nActiveEnterTimestampMonotonic={int(self.started * 1e6)}\n"
        return 0, shown if command[1] == "show" else "", ""


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GivingNode:
    made = GivingNode(tmp_path)
    monkeypatch.setattr(AnsibleModule, "run_command", made.systemctl)
    return made


def test_it_is_served_with_a_token_of_its_own_each_time(node: GivingNode) -> None:
    first, second = node.run(), node.run()
    assert first["changed"]
    assert first["manifest"] == {"files": []}
    assert len(first["token"]) >= 40
    assert first["token"] != second["token"]
    assert (node.directory / "secrets").read_text() == f"receiver:{second['token']}\n"
    assert (node.directory / "rsyncd.conf").read_text() == "read only = yes\n"
    begun = [["daemon-reload"], ["restart", "give.service"]]
    assert node.asked == [*begun, ["stop", "give.service"], *begun]


def test_nobody_else_can_read_the_token(node: GivingNode) -> None:
    node.run()
    modes = {path: path.stat().st_mode & 0o777 for path in (node.directory, *node.directory.iterdir())}
    assert set(modes.values()) == {0o700, 0o600}
    assert modes[node.directory] == 0o700


def test_nothing_is_left_of_it(node: GivingNode) -> None:
    node.run()
    node.asked.clear()
    assert node.run(state="absent")["changed"] is True
    assert not node.directory.exists()
    assert not node.unit.exists()
    assert node.asked == [["stop", "give.service"], ["daemon-reload"]]
    assert node.run(state="absent")["changed"] is False


def test_what_was_not_stopped_is_not_forgotten(node: GivingNode) -> None:
    node.run()
    node.fails = "stop"
    assert node.run(state="absent")["msg"] == "systemctl stop give.service ended with status 1: It is broken."
    assert node.unit.exists()


def test_a_folder_without_a_record_is_not_given(node: GivingNode) -> None:
    record = node.folder / ".gaudi-serving/manifest.json"
    record.write_text("{")
    assert node.run()["msg"].startswith(f"{record} cannot be read (")
    assert node.asked == []
    assert not node.directory.exists()


@pytest.mark.parametrize("record", ["/secret.json", "../secret.json", ".gaudi-serving/../../secret.json", "", "."])
def test_a_record_outside_the_folder_is_not_read(node: GivingNode, record: str) -> None:
    """Its content goes to another node."""
    secret = node.folder.parent / "secret.json"
    secret.write_text('{"auths": "password"}')
    said = node.run(record=str(secret) if record == "/secret.json" else record)
    assert said["refused_id"] == "record_leads_out"
    assert "password" not in json.dumps(said)
    assert node.asked == []


@pytest.mark.parametrize("linked", ["", ".gaudi-serving", ".gaudi-serving/manifest.json"])
def test_no_link_to_a_record_is_followed(node: GivingNode, linked: str) -> None:
    outside = node.folder.parent / "outside"
    (outside / ".gaudi-serving").mkdir(parents=True)
    (outside / ".gaudi-serving/manifest.json").write_text('{"auths": "password"}')
    shutil.rmtree(node.folder)
    link = node.folder / linked
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(outside / linked)
    said = node.run()
    assert "links are not followed" in said["msg"]
    assert "password" not in json.dumps(said)


def test_what_is_passed_on_has_no_record_yet_and_nothing_old_is_said(node: GivingNode) -> None:
    said_before = node.folder / ".gaudi-serving/relay.json"
    said_before.write_text("{}")
    said = node.run(folder=None, forget=str(said_before), _ansible_check_mode=True)
    assert said_before.exists()
    said = node.run(folder=None, forget=str(said_before))
    assert "manifest" not in said
    assert said["token"]
    assert not said_before.exists()


def test_check_mode_does_nothing(node: GivingNode) -> None:
    said = node.run(_ansible_check_mode=True)
    assert said["changed"]
    assert "token" not in said
    assert not node.directory.exists()
    node.run()
    node.asked.clear()
    assert node.run(state="absent", _ansible_check_mode=True)["changed"]
    assert node.directory.exists()
    assert node.asked == []
    assert json.loads((node.folder / ".gaudi-serving/manifest.json").read_text()) == {"files": []}


def test_a_port_that_somebody_has_is_refused_before_anything_is_written(node: GivingNode) -> None:
    with socket.socket() as other:
        other.bind(("", node.port))
        other.listen()
        said = node.run()
    assert said["msg"].startswith(f"Port {node.port} is taken by another process, so this node gives no weights")
    assert not node.directory.exists()
    assert node.asked == []


def test_what_a_run_left_that_was_cut_off_is_ended_when_nobody_takes_it(node: GivingNode) -> None:
    node.run()
    node.asked.clear()
    # It has just begun.
    assert node.run(state="absent", unused_for=300)["changed"] is False
    assert node.directory.exists()
    long_ago = time.time() - 301
    node.started -= 301
    for path in node.directory.iterdir():
        os.utime(path, (long_ago, long_ago))
    # Somebody is at it, with a large file.
    node.tasks = 2
    assert node.run(state="absent", unused_for=300)["changed"] is False
    node.tasks = 1
    # Somebody was there a moment ago.
    (node.directory / "log").write_text("connect from ...")
    assert node.run(state="absent", unused_for=300)["changed"] is False
    os.utime(node.directory / "log", (long_ago, long_ago))
    assert node.run(state="absent", unused_for=300)["changed"] is True
    assert not node.directory.exists()
    assert not node.unit.exists()


def age(node: GivingNode, seconds: float, clock: float) -> None:
    """The daemon was started so many seconds ago and asked at once; the clock was set forward by so many since."""
    node.started -= seconds
    (node.directory / "log").write_text("connect from ...")
    then = time.time() - seconds - clock
    for path in node.directory.iterdir():
        os.utime(path, (then, then))


@pytest.mark.parametrize("clock", [86400, -86400, 0])
def test_what_has_begun_goes_on_whatever_the_clock_was_set_to(node: GivingNode, clock: float) -> None:
    node.run()
    age(node, 10, clock)
    assert node.run(state="absent", unused_for=300)["changed"] is False
    assert node.directory.exists()


@pytest.mark.parametrize("clock", [86400, -86400, 0])
def test_what_was_left_is_ended_whatever_the_clock_was_set_to(node: GivingNode, clock: float) -> None:
    node.run()
    age(node, 301, clock)
    assert node.run(state="absent", unused_for=300)["changed"] is True
    assert not node.directory.exists()
