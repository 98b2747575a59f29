"""What is written down before a driver is replaced, and when an earlier run's word counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.gaudi.node import instances, states

from library import driver_before
from tests.unit.node.damages import DAMAGES, damage
from tests.unit.preflight.conftest import Run
from tests.unit.preflight.test_contracts import ROOT, load
from tests.unit.preflight.test_templates import evaluate, results, task_of

OLD: dict[str, Any] = {"version": "1.21.3-57", "packages": {"habanalabs-dkms": "1.21.3-57"}, "modules": ["habanalabs"]}
NEW: dict[str, Any] = {"version": "1.22.2-32", "packages": {"habanalabs-dkms": "1.22.2-32"}, "modules": ["habanalabs"]}
PLAN = {"schema": 1, "instance": "chat", "modules": []}


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node with an instance that runs and one that does not."""
    for name in ("chat", "old"):
        (tmp_path / "plans" / name).mkdir(parents=True)
        (tmp_path / "plans" / name / "plan.json").write_text(json.dumps({**PLAN, "instance": name}))
    monkeypatch.setattr(states, "PLANS", tmp_path / "plans")
    monkeypatch.setattr(states, "STATES", tmp_path / "states")
    up = lambda _module, _show, unit, _what: f"ActiveState={'active' if 'chat' in unit else 'inactive'}\n"  # noqa: E731
    monkeypatch.setattr(instances, "systemctl", up)
    return tmp_path


def before(run: Run, node: Path, present: dict[str, Any], whole: bool = True, check: bool = False) -> Any:
    given = {"present": present, "whole": whole, "record": str(node / "state/before.json")}
    return run(driver_before, given, check=check)


def test_driver_and_running_instances_are_written_down(run: Run, node: Path) -> None:
    ran = before(run, node, OLD)
    assert (ran["changed"], ran["driver"], list(ran["plans"])) == (True, OLD, ["chat"])
    # What the role vllm_service asks of a plan and does not write into plan.json.
    assert ran["plans"]["chat"] == {**PLAN, "ask": {}, "explain": [], "warnings": [], "paths": []}
    file = node / "state/before.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert before(run, node, OLD)["changed"] is False


def test_check_mode_writes_nothing(run: Run, node: Path) -> None:
    assert before(run, node, OLD, check=True)["changed"] is True
    assert not (node / "state").exists()


def test_what_a_run_wrote_that_was_cut_off_counts(run: Run, node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before(run, node, OLD)
    # The instances are stopped, and half of the packages are new.
    monkeypatch.setattr(instances, "systemctl", lambda *_: "ActiveState=inactive\n")
    for present, whole in ((OLD, True), (NEW, False)):
        ran = before(run, node, present, whole)
        assert (ran["changed"], ran["driver"], list(ran["plans"])) == (False, OLD, ["chat"])
    # The next change begins from what is there by then.
    ran = before(run, node, NEW)
    assert (ran["changed"], ran["driver"], ran["plans"]) == (True, NEW, {})


@pytest.mark.parametrize("kind", [*DAMAGES, "another form"])
def test_a_damaged_record_is_refused(run: Run, node: Path, kind: str) -> None:
    (node / "state").mkdir()
    if kind in DAMAGES:
        damage(node / "state/before.json", kind)
    else:
        (node / "state/before.json").write_text('{"driver": {}, "plans": {"chat": 1}}')
    ran = before(run, node, OLD)
    assert ran["refused_id"] == "record_damaged"
    assert "state/before.json" in ran["msg"]


def test_documented_options_are_the_real_ones() -> None:
    options = yaml.safe_load(driver_before.DOCUMENTATION)["options"]
    documented = {
        name: {key: said for key, said in option.items() if key != "description"} for name, option in options.items()
    }
    assert documented == driver_before.ARGUMENT_SPEC


@pytest.mark.parametrize(
    ("replaces", "check", "file"),
    [(False, False, "install.yml"), (True, False, "replace.yml"), (True, True, "install.yml")],
)
def test_a_driver_is_replaced_by_the_tasks_that_know_the_way_back(replaces: bool, check: bool, file: str) -> None:
    (task,) = [
        task for task in load(ROOT / "roles/gaudi_driver/tasks/apply.yml") if "installed and loaded" in task["name"]
    ]
    given = {"gaudi_driver_found": {"replaces": replaces}, "ansible_check_mode": check}
    assert evaluate("gaudi_driver", task["ansible.builtin.include_tasks"]["file"], **given) == file


def test_packages_are_kept_before_anything_is_stopped() -> None:
    """And what is there is written down before it changes."""
    *first, change = load(ROOT / "roles/gaudi_driver/tasks/replace.yml")
    assert [task["name"].partition("| ")[2] for task in first] == [
        "Refuse what the repositories do not offer",
        "Keep the packages that are there (Debian, Ubuntu)",
        "Write down what driver and instances are",
    ]
    assert [task["name"].partition("| ")[2] for task in change["block"]] == [
        "Ensure our instances are stopped",
        "Install it",
        "Verify it",
    ]
    back, end = change["rescue"]
    assert back["ansible.builtin.include_tasks"]["file"] == "back.yml"
    assert "ansible.builtin.fail" in end


def test_what_goes_back_is_what_differs() -> None:
    kept = {"driver": {"packages": {"habanalabs-dkms": "1.21.3-57", "habanalabs-thunk": "1.22.2-32"}}}
    there = {"habanalabs-dkms": "1.22.2-32", "habanalabs-thunk": "1.22.2-32", "more": "1"}
    now = {"present": {"packages": there}, "steps": {"mend": []}}
    given = {**results("gaudi_driver", gaudi_driver_info=now), "gaudi_driver_before": kept}
    sought = task_of("gaudi_driver", "back", "find")["ansible.builtin.find"]["patterns"]
    lost = ["habanalabs-dkms_1.21.3-57_*.deb"]
    assert evaluate("gaudi_driver", sought, **given) == lost
    # dpkg was killed while it replaced this one by another version: it still has the former version's name.
    now["steps"] = {"mend": ["habanalabs-dkms", "habanalabs-thunk", "more"]}
    assert evaluate("gaudi_driver", sought, **given) == [*lost, "habanalabs-thunk_1.22.2-32_*.deb"]
    purge = task_of("gaudi_driver", "back", "that came with the change")
    assert evaluate("gaudi_driver", purge["ansible.builtin.apt"]["name"], **given) == ["more"]


@pytest.mark.parametrize(
    ("wish", "waits", "fails"),
    [
        ("never", ["1.22.2-32 is installed, 1.21.3-57 is loaded"], True),
        ("if_needed", ["1.22.2-32 is installed, 1.21.3-57 is loaded"], False),
        # A module that nobody signed is none after a reboot.
        ("if_needed", [], True),
    ],
)
def test_modules_that_do_not_go_need_a_reboot_and_a_wish(wish: str, waits: list[str], fails: bool) -> None:
    block, look, bring_up = load(ROOT / "roles/gaudi_driver/tasks/modules.yml")
    # Last, whichever way the modules came: they bring the ports, and none up.
    assert look["register"] == "gaudi_driver_found"
    assert bring_up["loop"] == "{{ gaudi_driver_found.interfaces_down }}"
    _, said, reboot = block["rescue"]
    given = {"gaudi_driver_reboot": wish, "gaudi_driver_found": {"reboot": waits}}
    assert evaluate("gaudi_driver", f"{{{{ {said['when']} }}}}", **given) is fails
    assert reboot["ansible.builtin.include_tasks"]["file"] == "reboot.yml"
    failed = {"ansible_failed_result": {"msg": "modprobe: FATAL: Module habanalabs is in use."}}
    words = evaluate("gaudi_driver", said["ansible.builtin.fail"]["msg"], **given, **failed)
    assert ("A reboot brings it (1.22.2-32 is installed, 1.21.3-57 is loaded)" in words) is bool(waits)
    stop, boot, *_ = load(ROOT / "roles/gaudi_driver/tasks/reboot.yml")
    assert stop["loop"] == "{{ gaudi_driver_found.instances }}"
    assert "ansible.builtin.reboot" in boot
