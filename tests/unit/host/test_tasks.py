"""When the role's tasks act: their conditions and options, evaluated as Ansible does, without a node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.preflight import test_templates as templates
from tests.unit.preflight.test_templates import evaluate, results

TASKS = Path(__file__).resolve().parents[3] / "roles/host_tuning/tasks"
UNIT = "/etc/systemd/system/gaudi-host-tuning.service"


def task(file: str, name: str) -> dict[str, Any]:
    return templates.task_of("host_tuning", file, name)


def acts_at(one: dict[str, Any], **given: Any) -> bool:
    return templates.runs("host_tuning", one, **given)


def said_by(one: dict[str, Any], text: str, **given: Any) -> Any:
    return templates.within("host_tuning", one, text, **given)


@pytest.mark.parametrize(
    ("drop_in", "recorded", "acts"), [(True, {}, True), (False, {"/boot/vmlinuz": "ro"}, True), (False, {}, False)]
)
def test_what_was_set_is_taken_away_whatever_the_inventory_says(
    drop_in: bool, recorded: dict[str, str], acts: bool
) -> None:
    found = {"drop_in": drop_in, "former": {"kernel_arguments": recorded}, "loader": None, "container": False}
    known = results("host_tuning", host_tuning_info=found)
    for wanted in (True, False):
        one = task("untune", "the next boot has the kernel arguments it had")
        assert acts_at(one, host_tuning_kernel_cmdline=wanted, **known) is acts


@pytest.mark.parametrize(
    ("wanted", "drop_in", "container", "acts"),
    [(True, False, False, True), (False, True, False, True), (False, False, False, False), (True, True, True, False)],
)
def test_a_drop_in_goes_when_the_inventory_no_longer_asks_for_it(
    wanted: bool, drop_in: bool, container: bool, acts: bool
) -> None:
    found = {"drop_in": drop_in, "container": container}
    one = task("kernel_cmdline", "the next boot has the kernel arguments")
    given = {"host_tuning_found": found, "host_tuning_kernel_cmdline": wanted}
    assert acts_at(one, **given) is acts
    state = said_by(one, one["host_tuning_kernel_cmdline"]["state"], **given)
    assert state == ("present" if wanted else "absent")


def settled(**seen: Any) -> dict[str, Any]:
    """What host_tuning_info says of a host that runs as it is to, but for what is given."""
    return {"reload_needed": False, "unit_outdated": False, "unit_settled": True, "container": False, **seen}


@pytest.mark.parametrize(
    ("found", "checking", "written", "state"),
    [
        (settled(), False, [], None),
        (settled(unit_settled=False), False, [], "reloaded"),
        # Whatever an interrupted run left is taken up.
        (settled(reload_needed=True), False, [], "restarted"),
        (settled(unit_outdated=True, unit_settled=False), False, [], "restarted"),
        (settled(reload_needed=True), False, [UNIT], "restarted"),
        # Only check mode goes by what would be written; the unit does not run with the file for needrestart.
        (settled(), True, ["/etc/systemd/system/vllm-.service.d/50-host-tuning.conf"], "restarted"),
        (settled(), True, ["/etc/needrestart/conf.d/gaudi-serving-host-tuning.conf"], None),
        (settled(), False, ["/etc/systemd/system/vllm-.service.d/50-host-tuning.conf"], None),
        # Before its first real run there is no unit.
        (settled(reload_needed=True, unit_settled=False), True, [UNIT], None),
    ],
)
def test_the_unit_is_left_alone_when_it_is_settled(
    found: dict[str, bool], checking: bool, written: list[str], state: str | None
) -> None:
    one = task("settle", "our unit runs now and at boot")
    given = {
        "host_tuning_found": found,
        "host_tuning_written": {"written": written},
        "ansible_check_mode": checking,
    }
    service = one["ansible.builtin.systemd_service"]
    assert (said_by(one, service["state"], **given) if acts_at(one, **given) else None) == state
    assert service["daemon_reload"] is True


def test_untune_always_has_systemd_read_its_files_again() -> None:
    one = task("untune", "forget our files before a reboot can")
    assert one["ansible.builtin.systemd_service"]["daemon_reload"] is True
    assert "when" not in one


def wanted(file: str, number: int = 0, **given: Any) -> Any:
    """What the role asks host_tuning_info to compare with."""
    asking = [one for one in templates.files_of("host_tuning")[file] if "host_tuning_info" in one]
    return evaluate("host_tuning", asking[number]["host_tuning_info"]["wanted"], **given)


def test_untune_remembers_what_was_ours_after_the_record_is_gone() -> None:
    first = task("untune", "what was there before the first change")["register"]
    assert wanted("untune", -1, **{first: {"ours": ["quiet"]}})["formerly"] == ["quiet"]


@pytest.mark.parametrize(("given", "expected"), [("quiet", ["quiet"]), (["quiet", "ro"], ["quiet", "ro"])])
def test_one_argument_without_a_list_is_a_list_of_one(given: object, expected: list[str]) -> None:
    rules = wanted("settle", host_tuning_extra_kernel_arguments=given)["kernel_rules"]
    assert [rule["arguments"] for rule in rules if rule["id"] == "site"] == [expected]


def test_hugepages_are_judged_as_they_were_written() -> None:
    asked = wanted("settle", host_tuning_sysctl={"a.b": 1}, host_tuning_hugepages=True)
    assert asked["sysctl"] == {"a.b": 1, "vm.nr_hugepages": True}


@pytest.mark.parametrize(("states", "reboots"), [(["reboot", "ok"], True), (["reboot", "wrong"], False)])
def test_verify_advises_what_helps(states: list[str], reboots: bool) -> None:
    one = task("verify", "Fail unless all is in effect")
    items = [{"item": f"item {state}", "state": state} for state in states]
    said = said_by(one, one["ansible.builtin.assert"]["fail_msg"], host_tuning_found={"items": items})
    assert said.startswith("Not in effect: item reboot")
    assert ("A reboot of this node brings it" in said) is reboots


@pytest.mark.parametrize(
    ("findings", "left", "lost", "leaving", "says"),
    [
        ([], False, [], [], "The host is as it was before."),
        (["a is 1."], False, [], [], "The host is as it was before, but for what follows. a is 1."),
        (
            [],
            True,
            [],
            [],
            "before, but for what follows. What the processors had before could not be put back: journalctl",
        ),
        ([], False, ["a", "b"], [], "before, but for what follows. What a, b were before was not recorded any more"),
        ([], False, [], ["quiet (speed)"], "as it was before after a reboot, which takes away quiet (speed)"),
    ],
)
def test_untune_says_what_it_could_not_put_back(
    findings: list[str], left: bool, lost: list[str], leaving: list[str], says: str
) -> None:
    one = task("untune", "Say it")
    answers = {
        "host_tuning_sysctl": {"findings": findings},
        "stat": {"stat": {"exists": left}},
        "host_tuning_info": {"former_lost": lost, "removed_at_reboot": leaving},
    }
    message = one["ansible.builtin.debug"]["msg"]
    said = said_by(one, message, **results("host_tuning", **answers), ansible_check_mode=False)
    assert says in " ".join(said.split())
    assert ("but for" in said) is bool(findings or left or lost)


WRITING = ("host_tuning_sysctl", "host_tuning_kernel_cmdline", "node_files")
SETTLED = {"reload_needed": False, "unit_settled": True, "document_kept": True, "reboot": []}


@pytest.mark.parametrize(
    ("changed", "found", "reboot", "checking", "unsettled"),
    [
        ("", {}, "if_needed", False, False),
        # Something was written: the host is read again.
        ("sysctl", {}, "never", False, True),
        ("kernel_cmdline", {}, "never", False, True),
        ("files", {}, "never", False, True),
        ("", {"reload_needed": True}, "never", False, True),
        ("", {"unit_settled": False}, "never", False, True),
        ("", {"document_kept": False}, "never", False, True),
        ("", {"reboot": ["quiet"]}, "never", False, False),
        ("", {"reboot": ["quiet"]}, "if_needed", False, True),
        ("", {"reboot": ["quiet"]}, "if_needed", True, False),
    ],
)
def test_a_host_is_left_alone_where_it_runs_as_it_is_to(
    changed: str, found: dict[str, Any], reboot: str, checking: bool, unsettled: bool
) -> None:
    answers: dict[str, Any] = {module: {"changed": module.endswith(changed or "nothing")} for module in WRITING}
    known = results("host_tuning", host_tuning_info={**SETTLED, **found}, **answers)
    given = {**known, "host_tuning_reboot": reboot, "ansible_check_mode": checking}
    assert acts_at(task("main", "Have it in effect"), **given) is unsettled


def test_what_runs_is_read_before_anything_is_decided_by_it() -> None:
    first, *_ = yaml.safe_load((TASKS / "settle.yml").read_text())
    assert first["register"] == "host_tuning_found"
    assert "host_tuning_info" in first
    assert "when" not in first


def test_no_host_goes_through_the_others_to_find_its_turn() -> None:
    (turn,) = [one for one in yaml.safe_load((TASKS / "reboot_in_turn.yml").read_text()) if "loop" in one]
    assert turn["loop"] == ["{{ inventory_hostname }}"]


@pytest.mark.parametrize(
    ("code", "out", "err", "fails", "said"),
    [
        (0, "", "", False, ""),
        (0, "Reboot needed.", "", False, "Reboot needed."),
        (255, "", "No module named 'gaudi'.", False, "No module named 'gaudi'."),
        (1, "", "Traceback", True, "Traceback"),
    ],
)
def test_status_says_why_a_node_cannot_know_what_waits(code: int, out: str, err: str, fails: bool, said: str) -> None:
    asked = task("waits", "what waits for a reboot")
    known = {asked["register"]: {"rc": code, "stdout": out, "stderr": err}}
    assert said_by(asked, f"{{{{ {asked['failed_when']} }}}}", **known) is fails
    one = task("waits", "Say it")
    assert said_by(one, one["ansible.builtin.debug"]["msg"], **known) == f"{said}\n"
    assert acts_at(one, **known) is bool(said)


USES = {
    "site.yml": ("fabric_check", "vllm_service"),
    "playbooks/accept.yml": ("fabric_check",),
    "playbooks/accept_pairs.yml": ("fabric_check",),
    "playbooks/calibrate.yml": ("fabric_check", "fp8_calibration"),
}


@pytest.mark.parametrize("playbook", USES)
def test_no_playbook_uses_cards_before_it_has_asked_what_the_kernel_shows_of_them(playbook: str) -> None:
    """serve.yml asks in its preflight, which no role follows that could repair it."""
    plays = yaml.safe_load((TASKS.parents[2] / playbook).read_text())
    roles = [
        (role["name"], role.get("tasks_from"))
        for play in plays
        for one in play.get("tasks", [])
        if (role := one.get("ansible.builtin.import_role") or one.get("ansible.builtin.include_role"))
    ]
    # What is only foreseen, or copied between nodes, uses no card.
    idle = ("foresee", "carry", "carry_ready")
    uses = [place for place, (name, part) in enumerate(roles) if name in USES[playbook] and part not in idle]
    assert uses
    assert roles.index(("host_tuning", "passthrough")) < uses[0]
