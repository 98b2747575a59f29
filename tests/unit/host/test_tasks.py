"""When the role's tasks act: their conditions and options, evaluated as Ansible does, without a node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

TASKS = Path(__file__).resolve().parents[3] / "roles/host_tuning/tasks"


def task(file: str, name: str) -> dict[str, Any]:
    """The one task of a file whose name ends like this."""
    (found,) = [one for one in yaml.safe_load((TASKS / file).read_text()) if one["name"].endswith(name)]
    return dict(found)


def holds(condition: str | list[str], **values: Any) -> bool:
    conditions = [condition] if isinstance(condition, str) else condition
    return all(jinja2.Environment(autoescape=True).compile_expression(one)(**values) for one in conditions)


@pytest.mark.parametrize(
    ("drop_in", "recorded", "acts"), [(True, {}, True), (False, {"/boot/vmlinuz": "ro"}, True), (False, {}, False)]
)
def test_what_was_set_is_taken_away_whatever_the_inventory_says(
    drop_in: bool, recorded: dict[str, str], acts: bool
) -> None:
    found = {"drop_in": drop_in, "former": {"kernel_arguments": recorded}, "loader": None, "container": False}
    condition = task("untune.yml", "the next boot has the kernel arguments it had")["when"]
    for wanted in (True, False):
        values = {"__host_tuning_first": found, "__host_tuning_kernel_cmdline": wanted}
        assert holds(condition, **values) is acts


@pytest.mark.parametrize(
    ("wanted", "drop_in", "container", "acts"),
    [(True, False, False, True), (False, True, False, True), (False, False, False, False), (True, True, True, False)],
)
def test_a_drop_in_goes_when_the_inventory_no_longer_asks_for_it(
    wanted: bool, drop_in: bool, container: bool, acts: bool
) -> None:
    found = {"drop_in": drop_in, "container": container}
    one = task("kernel_cmdline.yml", "the next boot has the kernel arguments")
    assert holds(one["when"], host_tuning_found=found, __host_tuning_kernel_cmdline=wanted) is acts
    state = one["host_tuning_kernel_cmdline"]["state"].strip("{} ")
    expression = jinja2.Environment(autoescape=True).compile_expression(state)
    assert expression(__host_tuning_kernel_cmdline=wanted) == ("present" if wanted else "absent")


@pytest.mark.parametrize(
    ("foreseen", "reload", "outdated", "stale"),
    [(True, False, False, True), (False, True, False, True), (False, False, True, True), (False, False, False, False)],
)
def test_what_an_interrupted_run_left_is_taken_up(foreseen: bool, reload: bool, outdated: bool, stale: bool) -> None:
    one = task("settle.yml", "our unit runs now and at boot")
    seen = {"reload_needed": reload, "unit_outdated": outdated}
    given = {"__host_tuning_foreseen": foreseen, "host_tuning_found": seen}
    expression = one["vars"]["__host_tuning_stale"].strip("{} ")
    assert jinja2.Environment(autoescape=True).compile_expression(expression)(**given) is stale
    assert one["ansible.builtin.systemd_service"]["daemon_reload"] is True


@pytest.mark.parametrize(
    ("checking", "written", "foreseen"),
    # The unit does not run with the file for needrestart.
    [(True, ["/unit"], True), (True, ["/needrestart"], False), (True, [], False), (False, ["/unit"], False)],
)
def test_only_check_mode_goes_by_what_would_be_written(checking: bool, written: list[str], foreseen: bool) -> None:
    given = {"ansible_check_mode": checking, "host_tuning_written": {"written": written}}
    assert variable("__host_tuning_foreseen", __host_tuning_needrestart="/needrestart", **given) is foreseen


@pytest.mark.parametrize(
    ("stale", "settled", "checking", "written", "acts"),
    [
        (False, True, False, [], False),
        (False, False, False, [], True),
        (True, True, False, ["/unit"], True),
        (True, False, True, ["/unit"], False),
        (True, False, True, ["/limits"], True),
    ],
)
def test_the_unit_is_left_alone_when_it_is_settled(
    stale: bool, settled: bool, checking: bool, written: list[str], acts: bool
) -> None:
    one = task("settle.yml", "our unit runs now and at boot")
    given = {
        "__host_tuning_stale": stale,
        "host_tuning_found": {"unit_settled": settled},
        "host_tuning_written": {"written": written},
        "__host_tuning_paths": {"unit": "/unit"},
        "ansible_check_mode": checking,
    }
    assert all(holds(condition, **given) for condition in one["when"]) is acts


def test_untune_always_has_systemd_read_its_files_again() -> None:
    one = task("untune.yml", "forget our files before a reboot can")
    assert one["ansible.builtin.systemd_service"]["daemon_reload"] is True
    assert "when" not in one


def test_untune_remembers_what_was_ours_after_the_record_is_gone() -> None:
    wanted = yaml.safe_load((TASKS.parent / "vars/main.yml").read_text())["__host_tuning_wanted"]
    expression = jinja2.Environment(autoescape=True).compile_expression(wanted["formerly"].strip("{} "))
    assert expression(__host_tuning_first={"ours": ["quiet"]}) == ["quiet"]
    assert task("untune.yml", "what was there before the first change")["register"] == "__host_tuning_first"


def variable(name: str, **values: Any) -> Any:
    """One of the role's variables, as Ansible would make it of these values."""
    text = yaml.safe_load((TASKS.parent / "vars/main.yml").read_text())
    for part in name.split("."):
        text = text[part]
    return Templar(loader=DataLoader(), variables=values).template(trust_as_template(text))


@pytest.mark.parametrize(("given", "expected"), [("quiet", ["quiet"]), (["quiet", "ro"], ["quiet", "ro"])])
def test_one_argument_without_a_list_is_a_list_of_one(given: object, expected: list[str]) -> None:
    rules = variable(
        "__host_tuning_rules",
        host_tuning_extra_kernel_arguments=given,
        __host_tuning_catalog={"kernel_arguments": []},
        __host_tuning_cpu=True,
    )
    assert [rule["arguments"] for rule in rules] == [expected]


def test_hugepages_are_judged_as_they_were_written() -> None:
    wanted = variable("__host_tuning_wanted.sysctl", host_tuning_sysctl={"a.b": 1}, host_tuning_hugepages=True)
    assert wanted == {"a.b": 1, "vm.nr_hugepages": True}


@pytest.mark.parametrize(("states", "reboots"), [(["reboot", "ok"], True), (["reboot", "wrong"], False)])
def test_verify_advises_what_helps(states: list[str], reboots: bool) -> None:
    one = task("verify.yml", "Fail unless all is in effect")
    items = [{"item": f"item {state}", "state": state} for state in states]
    templar = Templar(loader=DataLoader(), variables={"host_tuning_found": {"items": items}})
    lacking = templar.template(trust_as_template(one["vars"]["lacking"]))
    said = Templar(loader=DataLoader(), variables={"lacking": lacking}).template(
        trust_as_template(one["ansible.builtin.assert"]["fail_msg"])
    )
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
            "before, but for what follows. What the processors had before could not be put back: systemctl",
        ),
        ([], False, ["a", "b"], [], "before, but for what follows. What a, b were before was not recorded any more"),
        ([], False, [], ["quiet (speed)"], "as it was before after a reboot, which takes away quiet (speed)"),
    ],
)
def test_untune_says_what_it_could_not_put_back(
    findings: list[str], left: bool, lost: list[str], leaving: list[str], says: str
) -> None:
    one = task("untune.yml", "Say it")
    values = {
        "__host_tuning_given_back": {"findings": findings},
        "__host_tuning_cpu_record": {"stat": {"exists": left}},
        "__host_tuning_first": {"former_lost": lost},
        "host_tuning_found": {"removed_at_reboot": leaving},
        "ansible_check_mode": False,
    }
    differs = Templar(loader=DataLoader(), variables=values).template(trust_as_template(one["vars"]["differs"]))
    said = Templar(loader=DataLoader(), variables={**values, "differs": differs}).template(
        trust_as_template(one["ansible.builtin.debug"]["msg"])
    )
    assert says in " ".join(said.split())
    assert ("but for" in said) is bool(findings or left or lost)


SETTLED = {"reload_needed": False, "unit_settled": True, "document_kept": True, "reboot": []}


@pytest.mark.parametrize(
    ("changed", "found", "reboot", "checking", "unsettled"),
    [
        ("", {}, "if_needed", False, False),
        # Something was written: the host is read again.
        ("settings", {}, "never", False, True),
        ("arguments", {}, "never", False, True),
        ("written", {}, "never", False, True),
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
    said = variable(
        "__host_tuning_unsettled",
        **{f"__host_tuning_{name}": {"changed": name == changed} for name in ("settings", "arguments")},
        host_tuning_written={"changed": changed == "written"},
        host_tuning_found={**SETTLED, **found},
        host_tuning_reboot=reboot,
        ansible_check_mode=checking,
    )
    assert said is unsettled


def test_what_runs_is_read_before_anything_is_decided_by_it() -> None:
    first, *_ = yaml.safe_load((TASKS / "settle.yml").read_text())
    assert first["register"] == "host_tuning_found"
    assert "host_tuning_info" in first
    assert "when" not in first


@pytest.mark.parametrize("file", ["reboot_in_turn.yml", "untune.yml"])
def test_no_host_goes_through_the_others_to_find_its_turn(file: str) -> None:
    (turn,) = [one for one in yaml.safe_load((TASKS / file).read_text()) if "loop" in one]
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
    values = {"__host_tuning_waiting": {"rc": code, "stdout": out, "stderr": err}}
    assert holds(task("waits.yml", "what waits for a reboot")["failed_when"], **values) is fails
    one = task("waits.yml", "Say it")
    text = Templar(loader=DataLoader(), variables=values).template(trust_as_template(one["vars"]["__host_tuning_said"]))
    assert (text, holds(one["when"], __host_tuning_said=text)) == (said, bool(said))


USES = {
    "site.yml": ("fabric_check", "vllm_service"),
    "playbooks/accept.yml": ("fabric_check",),
    "playbooks/accept_pairs.yml": ("fabric_check",),
    "playbooks/calibrate.yml": ("fabric_check", "fp8_calibration"),
}


@pytest.mark.parametrize("playbook", USES)
def test_no_playbook_uses_cards_before_it_has_asked_what_the_kernel_shows_of_them(playbook: str) -> None:
    """serve.yml asks in its preflight, which no role follows that could mend it."""
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
