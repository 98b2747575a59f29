"""What is written down before a driver is replaced, and when an earlier run's word counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible.module_utils.gaudi.base import paths
from ansible.module_utils.gaudi.driver.before import as_text
from ansible.module_utils.gaudi.node import instances, states
from ansible.module_utils.gaudi.node.report import driver_before as part

from filter_plugins.driver_trouble import driver_before
from tests.unit.host.modules import run_main
from tests.unit.node.damages import DAMAGES, damage
from tests.unit.preflight.test_contracts import ROOT, load
from tests.unit.preflight.test_templates import evaluate, results, task_of

OLD: dict[str, Any] = {"version": "1.21.3-57", "packages": {"habanalabs-dkms": "1.21.3-57"}, "modules": ["habanalabs"]}
NEW: dict[str, Any] = {"version": "1.22.2-32", "packages": {"habanalabs-dkms": "1.22.2-32"}, "modules": ["habanalabs"]}
PLAN = {"schema": 1, "instance": "chat", "modules": []}
WRITTEN = {**PLAN, "ask": {}, "explain": [], "warnings": [], "paths": []}


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node with an instance that runs, one whose plan is damaged, and one that does not run."""
    for name in ("chat", "cut", "old"):
        (tmp_path / "plans" / name).mkdir(parents=True)
        (tmp_path / "plans" / name / "plan.json").write_text(json.dumps({**PLAN, "instance": name}))
    (tmp_path / "plans/cut/plan.json").write_text("{")
    monkeypatch.setattr(states, "PLANS", tmp_path / "plans")
    monkeypatch.setattr(states, "STATES", tmp_path / "states")
    monkeypatch.setattr(part, "RECORD", tmp_path / "before.json")
    up = lambda _module, _show, unit, _what: f"ActiveState={'inactive' if 'old' in unit else 'active'}\n"  # noqa: E731
    monkeypatch.setattr(instances, "systemctl", up)
    return tmp_path / "before.json"


def reported() -> dict[str, Any]:
    return run_main("library.node_report", {"parts": ["driver_before", "plans"]})


def before(record: Path, present: dict[str, Any], state: str = "older") -> dict[str, Any]:
    """What the role knows by then; afterwards it is written down."""
    ran = driver_before(reported(), {"present": present, "state": state})
    record.write_text(as_text(ran))
    return ran


def test_driver_and_running_instances_are_written_down(node: Path) -> None:
    assert before(node, OLD) == {"driver": OLD, "plans": {"chat": WRITTEN}}
    # What the role vllm_service asks of a plan and does not write into plan.json.
    text = node.read_text()
    assert text == json.dumps({"driver": OLD, "plans": {"chat": WRITTEN}}, indent=1, sort_keys=True) + "\n"
    before(node, OLD)
    assert node.read_text() == text


def test_the_record_is_where_it_is_looked_for_and_only_root_reads_it() -> None:
    (file,) = task_of("gaudi_driver", "replace", "Write down what")["node_files"]["files"]
    reads = task_of("gaudi_driver", "replace", "Read what an earlier run")["register"]
    given = {
        reads: {"report": {"driver_before": {"text": None}, "plans": {"plans": {}}}},
        **results("gaudi_driver", gaudi_driver_info={"present": OLD, "state": "right"}),
    }
    assert evaluate("gaudi_driver", file["path"]) == paths.DRIVER_BEFORE
    written = evaluate("gaudi_driver", file["secret"], **given)
    assert (written, file["mode"]) == (as_text({"driver": OLD, "plans": {}}), "0600")


def test_what_a_run_wrote_that_was_cut_off_counts(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before(node, OLD)
    # The instances are stopped, and half of the packages are new.
    monkeypatch.setattr(instances, "systemctl", lambda *_: "ActiveState=inactive\n")
    for present, state in ((OLD, "older"), (NEW, "broken"), (NEW, "incomplete"), (NEW, "mixed")):
        assert before(node, present, state) == {"driver": OLD, "plans": {"chat": WRITTEN}}
    # The next change begins from what is there by then.
    assert before(node, NEW, "right") == {"driver": NEW, "plans": {}}


@pytest.mark.parametrize("kind", [*DAMAGES, "another form"])
def test_a_damaged_record_is_refused(node: Path, kind: str) -> None:
    if kind in DAMAGES:
        damage(node, kind)
    else:
        node.write_text('{"driver": {}, "plans": {"chat": 1}}')
    with pytest.raises(AnsibleFilterError, match=rf"^{paths.DRIVER_BEFORE} is damaged: it .*\[record_damaged\]$"):
        driver_before(reported(), {"present": OLD, "state": "older"})


NO_PLANS = {"driver_before": {"text": None}, "plans": {"plans": {}}}


@pytest.mark.parametrize(
    "changes",
    [
        {"driver_before": {"error": "Too late."}},
        {"driver_before": {"text": 7}},
        {"driver_before": {"damage": []}},
        {"plans": {}},
        {"plans": {"plans": []}},
        {"plans": {"plans": {"chat": 7}}},
        {"plans": {"plans": {"chat": {"up": "x", "text": None}}}},
        {"plans": {"plans": {f"n{n}": {"up": True, "text": None} for n in range(1025)}}},
    ],
)
def test_a_report_of_another_form_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(AnsibleFilterError, match=r"\[[a-z_]+\]$"):
        driver_before({"report": {**NO_PLANS, **changes}}, {"present": OLD, "state": "older"})


def test_what_is_no_name_or_no_plan_of_an_instance_is_left_out() -> None:
    plans = {"../x": {"up": True, "text": json.dumps(PLAN)}, "chat": {"up": True, "text": 7}, "old": {"up": True}}
    ran = driver_before({"report": {**NO_PLANS, "plans": {"plans": plans}}}, {"present": OLD, "state": "older"})
    assert ran == {"driver": OLD, "plans": {}}


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
        "Read what an earlier run wrote down, and the plans of instances",
        "Write down what driver and instances are",
        "Know what driver and instances are",
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
    now = {"present": {"packages": there}, "steps": {"repair": []}}
    given = {**results("gaudi_driver", gaudi_driver_info=now), "gaudi_driver_before": kept}
    sought = task_of("gaudi_driver", "back", "find")["ansible.builtin.find"]["patterns"]
    lost = ["habanalabs-dkms_1.21.3-57_*.deb"]
    assert evaluate("gaudi_driver", sought, **given) == lost
    # dpkg was killed while it replaced this one by another version: it still has the former version's name.
    now["steps"] = {"repair": ["habanalabs-dkms", "habanalabs-thunk", "more"]}
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
