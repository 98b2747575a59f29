"""The status of a node: read by node_report, told on the controller."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.gaudi.base import paths
from ansible.module_utils.gaudi.cards.document import new_card
from ansible.module_utils.gaudi.doctor import status
from ansible.module_utils.gaudi.driver.dkms import DkmsBuild
from ansible.module_utils.gaudi.driver.next_boot import NextBoot
from ansible.module_utils.gaudi.fabric.verdict import VerdictSubject, new_verdict, overridden
from ansible.module_utils.gaudi.host.cmdline import NeededArgument
from ansible.module_utils.gaudi.host.iommu import IommuGroup
from ansible.module_utils.gaudi.node import instances, long_work, states
from ansible.module_utils.gaudi.node.driver import next_boot
from ansible.module_utils.gaudi.node.report import acceptance, jobs, tuning
from ansible.module_utils.gaudi.serving.counts import Counts

from tests.unit.host.modules import run_main
from tests.unit.host.test_program import document
from tests.unit.node.damages import DAMAGES, damage
from tests.unit.preflight.test_templates import evaluate, task_of

TOPOLOGY: dict[str, Any] = {
    "cards": [],
    "findings": [],
    "driver_version": None,
    "hl_smi_version": None,
    "addresses": [],
}
# What a node without anything reports.
EMPTY: dict[str, Any] = {
    "cards": TOPOLOGY,
    "reservations": {"reservations": {}, "damage": ""},
    "tuning": {
        "state": {"text": None},
        "kernel": "6.8.0",
        "command_line": [],
        "groups": [],
    },
    "next_boot": {"running": "6.8.0", "chosen": "", "coming": "6.8.0", "built": []},
    "acceptance": {"text": None},
    "instances": {"instances": [], "strangers": [], "lost_weights": {}, "covers": {}},
    "jobs": {"jobs": []},
}
NOTHING = ["no card"]


@pytest.fixture(autouse=True)
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node with one instance and no card, whose kernel stays."""
    for name in ("plans/tiny/plan.json", "states/tiny/state.json"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(json.dumps({"phase": "serving"}))
    monkeypatch.setattr(states, "PLANS", tmp_path / "plans")
    monkeypatch.setattr(states, "STATES", tmp_path / "states")
    monkeypatch.setattr(instances, "systemctl", lambda _module, *_arguments: "ActiveState=active\n")
    monkeypatch.setattr(acceptance, "VERDICT", tmp_path / "acceptance.json")
    monkeypatch.setattr(long_work, "JOBS", tmp_path / "jobs")
    monkeypatch.setattr(tuning, "STATE", tmp_path / "host_tuning.json")
    monkeypatch.setattr(tuning, "read_command_line", lambda: ["ro"])
    monkeypatch.setattr(tuning, "read_groups", lambda: ())
    monkeypatch.setattr(next_boot, "read", lambda _module: NextBoot("6.8.0", "", "6.8.0"))
    return tmp_path


def reported(*parts: str) -> dict[str, Any]:
    """What the node reports of these parts, and of the others what an empty one does."""
    return {**EMPTY, **run_main("library.node_report", {"parts": parts})["report"]}


def told(*parts: str, wanted: list[str] | None = None) -> list[str]:
    """The status by these parts, without the line on cards that every status begins with."""
    first, *lines = status.lines(reported(*parts), "n1", wanted)
    assert [first] == NOTHING
    return lines


def test_an_empty_node_has_nothing_to_tell() -> None:
    assert status.lines(EMPTY, "n1", []) == NOTHING


def test_a_damaged_file_of_reservations_stands_with_the_cards() -> None:
    lines = status.lines({**EMPTY, "reservations": {"reservations": {}, "damage": "cards.lock is damaged."}}, "n1", [])
    assert any(line.startswith("warning: cards.lock is damaged.") for line in lines)
    lines = status.lines({**EMPTY, "reservations": {"error": "Both claim module 3."}}, "n1", [])
    said = f"{paths.RESERVATIONS} does not show who has which card: Both claim module 3."
    assert said in " ".join(line.strip() for line in lines)


def test_each_instance_comes_with_what_systemd_was_told_last(monkeypatch: pytest.MonkeyPatch) -> None:
    def systemctl(_module: object, *arguments: str) -> str:
        return "StatusText=It has the lock.\n" if "--property=StatusText" in arguments else "ActiveState=failed\n"

    monkeypatch.setattr(instances, "systemctl", systemctl)
    (found,) = reported("instances")["instances"]["instances"]
    assert (found["instance"], found["active"], found["state"]) == ("tiny", "failed", {"phase": "serving"})
    assert found["said"] == "It has the lock."


def test_what_waits_for_a_reboot_follows_from_what_the_role_recorded(
    node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert told("tuning") == []
    needed = [NeededArgument("iommu=pt", "correctness", "x", shown=True), NeededArgument("quiet", "speed", "y")]
    (node / "host_tuning.json").write_text(json.dumps({"schema": 2, **document(needed)}))
    assert told("tuning") == ["Reboot needed, because of quiet (speed: y)"]
    monkeypatch.setattr(tuning, "read_groups", lambda: (IommuGroup("0000:33:00.0", "1", "DMA-FQ", 3, "habanalabs"),))
    because, quiet, refused = told("tuning")
    assert (because, quiet) == (
        "Reboot needed, because of iommu=pt (correctness: x)",
        "Reboot needed, because of quiet (speed: y)",
    )
    assert refused.startswith(
        "Serving is refused. The IOMMU translates what cards address (DMA-FQ of 0000:33:00.0 (module 3))."
    )
    assert f"kernel {platform.release()} was started without iommu=pt" in refused


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_record_of_the_role_is_told_and_ends_nothing(node: Path, kind: str) -> None:
    damage(node / "host_tuning.json", kind)
    (said,) = told("tuning")
    assert said.startswith(f"Whether this kernel may serve is not known: {paths.HOST_TUNING} cannot be read (it ")


def test_a_kernel_update_that_loses_the_driver_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    built = (DkmsBuild("1.22", "6.8.0", "installed"),)
    monkeypatch.setattr(next_boot, "read", lambda _module: NextBoot("6.8.0", "6.2", "6.17", built=built))
    waits, lost = told("next_boot")
    assert waits == "Kernel 6.2 is chosen (gaudi_driver_kernel), kernel 6.8.0 runs: reboot the node."
    assert lost.startswith("Kernel 6.17, which boots next, has no habanalabs module: ")


def test_a_next_boot_that_cannot_be_read_hides_nothing_of_the_kernel_that_runs(
    node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dkms(_module: object) -> NextBoot:
        raise OSError(5, "Input/output error", "/var/lib/dkms")

    monkeypatch.setattr(next_boot, "read", dkms)
    (node / "host_tuning.json").write_text(
        json.dumps({"schema": 2, **document([NeededArgument("quiet", "speed", "y")])})
    )
    quiet, unread = told("tuning", "next_boot")
    assert quiet == "Reboot needed, because of quiet (speed: y)"
    assert unread == "next_boot: /var/lib/dkms cannot be read: Input/output error."


def test_what_an_instance_was_set_up_with_is_remembered(node: Path) -> None:
    assert told("instances") == []
    file = node / "plans/tiny" / paths.LET_THROUGH
    said = "driver: found 1.21.3-1a2b3c4, wanted 1.22 (1.22.2-32)"
    file.write_text(json.dumps({"let_through": [said]}))
    assert told("instances") == [f"tiny runs although {said} (preflight_allow_mismatch) [driver]"]
    assert reported("instances")["instances"]["instances"][0]["let_through"] == [said]


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_memory_is_told_and_ends_nothing(node: Path, kind: str) -> None:
    damage(node / "plans/tiny" / paths.LET_THROUGH, kind)
    (said,) = told("instances")
    assert "let_through.json is damaged" in said
    assert "the next site.yml writes it again" in said


def test_drop_ins_of_an_administrator_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = paths.LIMITS
    tuned = task_of("host_tuning", "unit", "node_files")["node_files"]["files"]
    assert limits in [evaluate("host_tuning", file["path"]) for file in tuned]
    own, packaged = "/etc/systemd/system/vllm-tiny.service.d/local.conf", "/usr/lib/systemd/system/service.d/10-a.conf"
    shown = f"ActiveState=active\nDropInPaths={packaged} {limits} {own}\n"
    monkeypatch.setattr(instances, "systemctl", lambda _module, *_arguments: shown)
    assert reported("instances")["instances"]["instances"][0]["drop_ins"] == [own]
    assert told("instances") == [f"vllm-tiny.service runs with drop-ins that are not ours and are kept: {own}"]


def test_what_went_badly_while_an_instance_served_is_told(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = {"phase": "serving", "counts": Counts({"decode 4 1 64": 1}, preemptions=3).document()}
    (node / "states/tiny/state.json").write_text(json.dumps(state))
    shapes, preempted = told("instances")
    assert shapes.startswith("tiny: ")
    assert "decode: batch 4, 64 blocks" in shapes
    assert "computed them again: 3" in preempted
    assert preempted.endswith(" [preempted]")
    monkeypatch.setattr(instances, "systemctl", lambda _module, *_arguments: "ActiveState=failed\n")
    assert told("instances") == []


def test_what_runs_and_has_lost_its_weights_is_told(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = node / "weights"
    weights.mkdir()
    (weights / "config.json").write_text("{}")
    (weights / "model.safetensors").write_bytes(b"0")
    plan = {"instance": "tiny", "requires": {"weights_path": str(weights)}, "image": "none"}
    (node / "plans/tiny/plan.json").write_text(json.dumps(plan))
    assert told("instances") == []
    (weights / "config.json").unlink()
    (lost,) = told("instances")
    # Something may be mounted over them.
    assert lost.startswith(
        f"tiny could not start again: {weights} has no config.json; it is on the file system that is "
    )
    # What does not run says itself what it lacks.
    monkeypatch.setattr(instances, "systemctl", lambda _module, *_arguments: "ActiveState=failed\n")
    assert told("instances") == []


def test_what_belongs_to_no_instance_or_to_no_inventory_is_named(node: Path) -> None:
    (node / "plans/Foo Bar").mkdir()
    other, unknown = told("instances", wanted=[])
    assert other.startswith("tiny is on n1, but not in gaudi_serving_instances: ")
    assert unknown == (
        f"'{node}/plans/Foo Bar' belongs to no instance, and nothing here reads or changes it. "
        "Remove it by hand if nobody needs it."
    )


def test_the_verdict_on_cards_and_links_is_shown(node: Path) -> None:
    assert told("acceptance") == []
    made_of = VerdictSubject({"0": "AM1"}, "1.22.1", None, None, None, None, None)
    verdict = new_verdict(
        node="n", time="now", made_of=made_of, faults=(), nics=None, results=(), located=(), not_measured="In use."
    )
    (node / "acceptance.json").write_text(json.dumps(overridden(verdict, "for a test")))
    said = told("acceptance")
    assert (
        said[0]
        == f"cards and links: cards checked at now, links not measured, page on the node: {paths.ACCEPTANCE_PAGE}"
    )
    assert "  let through by fabric_check_override: for a test" in said


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_verdict_is_told_and_ends_nothing(node: Path, kind: str) -> None:
    damage(node / "acceptance.json", kind)
    (said,) = told("acceptance")
    assert said.startswith(f"cards and links: {paths.ACCEPTANCE} is damaged: it ")
    assert said.endswith(". It counts as no verdict; playbooks/accept.yml makes a new one.")


def test_long_work_that_has_not_come_to_its_end_is_shown(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert told("jobs") == []
    begun = {"started": "2026-01-31T08:00:00Z"}
    for key, state in {
        "fetch.a": {"state": "running", **begun},
        "fetch.b": {"state": "running", **begun},
        "fetch.c": {"state": "failed", "message": "no room is left on /data", "log": ["x" * 10**6], **begun},
        "fetch.d": {"state": "succeeded", **begun},
        "fetch.e": {"state": "cancelled", **begun},
        "fetch.f": {"state": "running", **begun},
    }.items():
        (node / "jobs" / key).mkdir(parents=True)
        progress = {} if key == "fetch.f" else {"phase": "fetch"}
        for name, content in (("job", {"digest": "d"}), ("state", state), ("progress", progress)):
            (node / "jobs" / key / f"{name}.json").write_text(json.dumps(content))
    shown = "Id=gaudi-job@fetch.a.service\nActiveState=active\n"
    monkeypatch.setattr(jobs, "systemctl", lambda _module, *_words: shown)
    begins = "long work fetch.{}, begun 2026-01-31T08:00:00Z, {}: {}"
    assert told("jobs") == [
        begins.format("a", "runs", "fetch: no figures yet"),
        begins.format("b", "was cut off", "fetch"),
        begins.format("c", "failed", "no room is left on /data"),
        begins.format("f", "was cut off", "it did not say how far it was"),
    ]
    text = json.dumps(reported("jobs"), allow_nan=False)
    assert len(text) < 10_000


@pytest.mark.parametrize("part", status.PARTS)
@pytest.mark.parametrize(
    "hostile", [None, 7, [[1]], {"instances": 7, "cards": [{}], "text": 7, "state": [], "jobs": 7, "reservations": 7}]
)
def test_a_part_of_another_form_ends_no_other_part(part: str, hostile: Any) -> None:
    shown = "cards" if part == "reservations" else part
    said = f"{shown}: the node reports nothing that can be read"
    expected = [said] if shown == "cards" else [*NOTHING, said]
    assert status.lines({**EMPTY, part: hostile}, "n1", ["a"]) == expected


CARD = new_card(0, 0)


@pytest.mark.parametrize("cards", [[CARD] * 257, [CARD | {"serial": "x" * 5000}], [CARD | {"module_id": "x" * 9}]])
def test_cards_that_no_node_has_are_not_drawn(cards: list[dict[str, Any]]) -> None:
    lines = status.lines({**EMPTY, "cards": {**TOPOLOGY, "cards": cards}}, "n1", [])
    assert lines == ["cards: the node reports nothing that can be read"]


def test_a_card_is_for_no_instance_whose_name_no_instance_has() -> None:
    held = {"x" * 49: {"cards": [{"module_id": 0, "serial": None}]}}
    lines = status.lines(
        {**EMPTY, "cards": {**TOPOLOGY, "cards": [CARD]}, "reservations": {"reservations": held}}, "n1", []
    )
    assert any(line.rstrip(" |").endswith("free") for line in lines)


@pytest.mark.parametrize(
    ("key", "many"),
    [
        (
            "state",
            {
                "text": json.dumps(
                    {"schema": 2, **document([NeededArgument(f"a{n}=1", "speed", "y") for n in range(65)])}
                )
            },
        ),
        ("command_line", ["quiet"] * 1025),
        ("groups", [asdict(IommuGroup("0000:33:00.0", "1", "identity", 3, "habanalabs"))] * 257),
    ],
)
def test_settings_that_no_kernel_has_are_not_compared(key: str, many: Any) -> None:
    (said,) = status.lines({**EMPTY, "tuning": {**EMPTY["tuning"], key: many}}, "n1", [])[1:]
    assert "cannot be read" in said or said == "tuning: the node reports nothing that can be read"


def test_the_command_that_removes_an_instance_has_its_name_as_one_word() -> None:
    found = {"instance": "a $(id)", "active": "inactive", "drop_ins": [], "let_through": [], "state": {}}
    (said,) = status.lines({**EMPTY, "instances": {**EMPTY["instances"], "instances": [found]}}, "n1", [])[1:]
    assert said.endswith("-e instance='a $(id)'")


def test_a_part_that_could_not_be_read_says_why_once() -> None:
    lines = status.lines({**EMPTY, "instances": {"error": "\x1b[2Jlost"}}, "n1", [])
    assert lines == [*NOTHING, "instances: lost"]


def test_what_is_no_report_is_told_as_such() -> None:
    deep: Any = "x"
    for _ in range(40):
        deep = [deep]
    reports: tuple[Any, ...] = (7, [], {"cards": deep}, {"jobs": "x" * 300_000})
    for report in reports:
        (line,) = status.lines(report, "n1", [])
        assert line.startswith("n1 reports nothing that can be read. ")
