"""Two runs at once that want other settings of a node: the one that was overwritten finds out, and names the other."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gaudi.engine import configuration
from ansible.module_utils.gaudi.node import engine_config
from ansible.module_utils.gaudi.node.host import desired_record

from tests.unit.host.modules import run_main
from tests.unit.node.damages import DAMAGES, damage

PASSWORD = "http://user:secret@proxy.example:3128"  # noqa: S105  # of nobody


class HeldNode:
    """A node on which runs hold a file, another one beside it, and a value of the kernel."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.file, self.beside, self.record = root / "unit", root / "sysctl", root / "state/wish.json"
        self.kernel = root / "proc/sys/vm/nr_hugepages"
        self.boot = root / "proc/sys/kernel/random/boot_id"
        for file in (self.kernel, self.boot):
            file.parent.mkdir(parents=True)
        self.boot.write_text("first\n")

    def hold(self, by: str, pages: str, check: bool = False) -> dict[str, Any]:
        """What a role does."""
        if not check:
            self.kernel.write_text(f"{pages}\n")
            self.beside.write_text(f"vm.nr_hugepages = {pages}\n")
        asked = {
            "desired": {"record": str(self.record), "of": "The settings of the host", "by": by},
            "held": {str(self.beside): f"vm.nr_hugepages = {pages}\n", str(self.root / "gone"): ""},
            "kernel": {"vm.nr_hugepages": pages},
            "files": [{"path": str(self.file), "content": "unit\n"}],
        }
        return run_main("library.node_files", asked, check=check)


def end(held: dict[str, Any]) -> dict[str, Any]:
    """The end of a run."""
    return run_main("library.desired_state_check", {"settings": [held["desired"]]})


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HeldNode:
    monkeypatch.setattr(desired_record, "PROC", tmp_path / "proc")
    monkeypatch.setattr("library.node_files.OWNER", (os.getuid(), os.getgid()))
    return HeldNode(tmp_path)


def test_a_run_that_nobody_disturbed_ends_well_and_the_next_changes_nothing(host: HeldNode) -> None:
    first = host.hold("controller-1", "64")
    assert (first["changed"], host.record.stat().st_mode & 0o7777) == (True, 0o600)
    assert end(first)["changed"] is False
    written = host.record.read_text()
    assert host.hold("controller-2", "64")["changed"] is False
    assert host.record.read_text() == written


def test_of_two_runs_the_one_that_was_overwritten_names_the_other(host: HeldNode) -> None:
    first, second = host.hold("controller-1", "64"), host.hold("controller-2", "32")
    answer = end(first)
    assert answer["refused_id"] == "overwritten"
    assert "(vm.nr_hugepages)" in answer["msg"]
    assert "controller-2 at 20" in answer["msg"]
    assert end(second)["changed"] is False
    # Whoever comes back to a setting comes to the same digest.
    assert host.hold("controller-3", "64")["changed"] is True
    assert end(first)["changed"] is False


def test_two_that_want_the_same_are_both_right(host: HeldNode) -> None:
    first, second = host.hold("controller-1", "64"), host.hold("controller-2", "64")
    assert "msg" not in end(first)
    assert "msg" not in end(second)


def test_no_order_of_writing_leaves_a_run_that_was_overwritten_green(host: HeldNode) -> None:
    """The other run has written its record first, and its files last; or its value of the kernel alone."""
    held = host.hold("controller-1", "64")
    for file, name in ((host.file, str(host.file)), (host.beside, str(host.beside)), (host.kernel, "vm.nr_hugepages")):
        before = file.read_text()
        file.write_text("of the other run\n")
        said = end(held)["msg"]
        assert f" ({name}): another run" in said
        assert "was written by" not in said
        file.write_text(before)
    assert "msg" not in end(held)


def test_what_was_to_be_absent_and_is_there_is_told(host: HeldNode) -> None:
    held = host.hold("controller-1", "64")
    (host.root / "gone").write_text("of the other run\n")
    assert f"({host.root / 'gone'})" in end(held)["msg"]


def test_what_a_boot_has_set_is_not_another_run(host: HeldNode) -> None:
    held = host.hold("controller-1", "64")
    host.boot.write_text("second\n")
    host.kernel.write_text("9\n")
    assert "msg" not in end(held)


def test_check_mode_says_that_it_would_change_and_writes_nothing(host: HeldNode) -> None:
    assert host.hold("controller-1", "64", check=True)["changed"] is True
    assert not host.record.exists()
    host.hold("controller-1", "64")
    written = host.record.read_text()
    assert host.hold("controller-2", "32", check=True)["changed"] is True
    assert host.hold("controller-2", "64", check=True)["changed"] is False
    assert host.record.read_text() == written


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_record_is_written_anew_and_names_nobody(host: HeldNode, kind: str) -> None:
    held = host.hold("controller-1", "64")
    damage(host.record, kind)
    assert "was written by" not in end(held)["msg"]
    again = host.hold("controller-1", "64")
    assert (again["changed"], "msg" in end(again)) == (True, False)
    assert json.loads(host.record.read_text())["written"]["by"] == "controller-1"


def without_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_config, "read_engine", lambda _module, **_: configuration.EngineFacts())


def daemon(host: HeldNode, by: str, proxy: str, mirrors: tuple[str, ...] = ()) -> dict[str, Any]:
    """What the role of the engine does."""
    host.beside.write_text(proxy)
    asked = {
        "path": str(host.file),
        "additions": {"registry-mirrors": list(mirrors)},
        "desired": {"record": str(host.record), "of": "The settings of the container engine", "by": by},
        "beside": {str(host.beside): proxy},
    }
    return run_main("library.docker_daemon_json", asked)


def test_another_proxy_is_told_and_no_digest_of_it_can_be_guessed(
    host: HeldNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_engine(monkeypatch)
    first = daemon(host, "controller-1", PASSWORD)
    assert daemon(host, "controller-1", PASSWORD)["changed"] is False
    assert PASSWORD not in json.dumps(first)
    assert json.loads(host.record.read_text())["salt"] not in json.dumps(first)
    assert "msg" not in end(first)
    daemon(host, "controller-2", "")
    assert "written by controller-2 at" in end(first)["msg"]


def test_another_mirror_is_told(host: HeldNode, monkeypatch: pytest.MonkeyPatch) -> None:
    without_engine(monkeypatch)
    monkeypatch.setattr("library.docker_daemon_json.validate", lambda *_: False)
    first, second = (daemon(host, f"controller-{each}", "", (f"https://mirror-{each}",)) for each in (1, 2))
    assert "written by controller-2 at" in end(first)["msg"]
    assert "msg" not in end(second)
    assert daemon(host, "controller-2", "", ("https://mirror-2",))["changed"] is False


def test_a_setting_that_the_engine_refuses_is_nobody_s(host: HeldNode, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(module: AnsibleModule, *_: object) -> bool:
        module.fail_json(msg="The installed engine refuses it.")
        return False

    without_engine(monkeypatch)
    first = daemon(host, "controller-1", "")
    monkeypatch.setattr("library.docker_daemon_json.validate", refuses)
    assert "refuses" in daemon(host, "controller-2", "", ("https://mirror-2",))["msg"]
    assert "msg" not in end(first)
