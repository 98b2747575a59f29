"""node_status_info: cards, what waits for a reboot and instances, in one round trip."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.gaudi.base import paths
from ansible.module_utils.gaudi.fabric.verdict import MadeOf, new_verdict, overridden
from ansible.module_utils.gaudi.node import instances, links, long_work, states
from ansible.module_utils.gaudi.serving.counts import Counts

from library import gaudi_preflight, node_status_info
from tests.unit.host.modules import run_main
from tests.unit.node.damages import DAMAGES, damage
from tests.unit.preflight.test_templates import evaluate, task_of

ROOT = Path(__file__).resolve().parents[3]
TOPOLOGY: dict[str, Any] = {"cards": [], "findings": [], "driver_version": None}
FINDING = {"id": "unreadable", "severity": "warning", "message": "cards.lock is damaged."}
PROGRAM = "import sys\nprint(*sys.argv[1:])\nprint('Reboot needed.')\nsys.exit({})\n"


@pytest.fixture(autouse=True)
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node with one instance and no card."""
    for name in ("plans/tiny/plan.json", "states/tiny/state.json"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(json.dumps({"phase": "serving"}))
    monkeypatch.setattr(states, "PLANS", tmp_path / "plans")
    monkeypatch.setattr(states, "STATES", tmp_path / "states")
    monkeypatch.setattr(instances, "systemctl", lambda _module, *_arguments: "ActiveState=active\n")
    monkeypatch.setattr(links, "VERDICT", tmp_path / "acceptance.json")
    monkeypatch.setattr(long_work, "JOBS", tmp_path / "jobs")
    for module in (node_status_info, gaudi_preflight):
        monkeypatch.setattr(module, "read_topology", lambda _module: {**TOPOLOGY, "findings": []})
        monkeypatch.setattr(module, "read_holders", lambda: ({}, [FINDING]))
    monkeypatch.setattr(
        node_status_info, "describe_node", lambda topology, _holders: topology["findings"][0]["message"]
    )
    return tmp_path


def status(program: Path) -> dict[str, Any]:
    return run_main("library.node_status_info", {"tuning_program": str(program)})


def test_everything_is_read_at_once(node: Path) -> None:
    answer = status(node / "none.py")
    assert (answer["changed"], answer["picture"], answer["waits"]) == (False, "cards.lock is damaged.", "")
    (found,) = answer["instances"]
    assert (found["instance"], found["active"], found["state"]) == ("tiny", "active", {"phase": "serving"})


def test_what_systemd_was_told_last_comes_along(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def systemctl(_module: object, *arguments: str) -> str:
        return "StatusText=It has the lock.\n" if "--property=StatusText" in arguments else "ActiveState=failed\n"

    monkeypatch.setattr(instances, "systemctl", systemctl)
    (found,) = status(node / "none.py")["instances"]
    assert found["said"] == "It has the lock."


def test_the_nodes_own_program_says_what_waits(node: Path) -> None:
    (node / "program.py").write_text(PROGRAM.format(0))
    assert status(node / "program.py")["waits"] == "waits\nReboot needed."
    (node / "program.py").write_text(PROGRAM.format(3))
    assert "waits failed with status 3" in status(node / "program.py")["msg"]


def test_a_kernel_update_that_loses_the_driver_waits_for_nobody(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_status_info, "lost_at_reboot", lambda _module: "Kernel 6.17 has no habanalabs module.")
    (node / "program.py").write_text(PROGRAM.format(0))
    assert status(node / "none.py")["waits"] == "Kernel 6.17 has no habanalabs module."
    assert status(node / "program.py")["waits"].endswith("Reboot needed.\nKernel 6.17 has no habanalabs module.")


def test_what_an_instance_was_set_up_with_is_remembered(node: Path) -> None:
    assert status(node / "none.py")["let_through"] == []
    file = node / "plans/tiny" / paths.LET_THROUGH
    file.write_text(json.dumps({"let_through": ["driver: found 1.21.3-1a2b3c4, wanted 1.22 (1.22.2-32)"]}))
    answer = status(node / "none.py")
    said = "driver: found 1.21.3-1a2b3c4, wanted 1.22 (1.22.2-32)"
    assert answer["let_through"] == [f"tiny runs although {said} (preflight_allow_mismatch) [driver]"]
    assert answer["instances"][0]["let_through"] == [said]


def test_drop_ins_of_an_administrator_are_shown(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = paths.LIMITS
    tuned = task_of("host_tuning", "unit", "host_tuning_files")["host_tuning_files"]["files"]
    assert limits in [evaluate("host_tuning", file["path"]) for file in tuned]
    own, packaged = "/etc/systemd/system/vllm-tiny.service.d/local.conf", "/usr/lib/systemd/system/service.d/10-a.conf"
    shown = f"ActiveState=active\nDropInPaths={packaged} {limits} {own}\n"
    monkeypatch.setattr(instances, "systemctl", lambda _module, *_arguments: shown)
    answer = status(node / "none.py")
    assert answer["instances"][0]["drop_ins"] == [own]
    assert answer["drop_ins"] == [f"vllm-tiny.service runs with drop-ins that are not ours and are kept: {own}"]
    assert "node.drop_ins" in (ROOT / "playbooks/status.yml").read_text()


def test_what_went_badly_while_an_instance_served_is_said(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = {"phase": "serving", "counts": Counts({"decode 4 1 64": 1}, preemptions=3).document()}
    (node / "states/tiny/state.json").write_text(json.dumps(state))
    shapes, preempted = status(node / "none.py")["while_serving"]
    assert shapes.startswith("tiny: ")
    assert "decode: batch 4, 64 blocks" in shapes
    assert "computed them again: 3" in preempted
    assert preempted.endswith(" [preempted]")
    assert "node.while_serving" in (ROOT / "playbooks/status.yml").read_text()
    monkeypatch.setattr(instances, "systemctl", lambda _module, *_arguments: "ActiveState=failed\n")
    assert status(node / "none.py")["while_serving"] == []


def test_what_runs_and_has_lost_its_weights_is_said(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = node / "weights"
    weights.mkdir()
    (weights / "config.json").write_text("{}")
    (weights / "model.safetensors").write_bytes(b"0")
    plan = {"requires": {"weights_path": str(weights)}, "image": "none"}
    monkeypatch.setattr(instances, "read_document", lambda *_arguments: plan)
    assert status(node / "none.py")["lost_weights"] == []
    (weights / "config.json").unlink()
    (lost,) = status(node / "none.py")["lost_weights"]
    # Something may be mounted over them.
    assert lost.startswith(
        f"tiny could not start again: {weights} has no config.json; it is on the file system that is "
    )
    assert "node.lost_weights" in (ROOT / "playbooks/status.yml").read_text()
    # What does not run says itself what it lacks.
    monkeypatch.setattr(instances, "systemctl", lambda _module, *_arguments: "ActiveState=failed\n")
    assert status(node / "none.py")["lost_weights"] == []


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_memory_is_said_and_ends_nothing(node: Path, kind: str) -> None:
    damage(node / "plans/tiny" / paths.LET_THROUGH, kind)
    (said,) = status(node / "none.py")["let_through"]
    assert "let_through.json is damaged" in said
    assert "the next site.yml writes it anew" in said


def test_its_default_is_where_the_role_puts_the_program() -> None:
    asked = task_of("host_tuning", "waits", "command")["ansible.builtin.command"]["argv"]
    program = evaluate("host_tuning", asked)[1]
    assert node_status_info.ARGUMENT_SPEC["tuning_program"]["default"] == program
    documented = yaml.safe_load(node_status_info.DOCUMENTATION)["options"]["tuning_program"]
    assert documented["default"] == program


@pytest.mark.parametrize("given", [{**TOPOLOGY, "driver_version": "1.22.1-x"}, None])
def test_preflight_reads_the_cards_only_where_nobody_did(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, Any] | None
) -> None:
    monkeypatch.setattr(gaudi_preflight, "systemctl", lambda *_: "")
    inventory = {
        "gaudi_release": "1.22",
        "gaudi_expected_cards": 8,
        "gaudi_image_registry": "vault.habana.ai",
        "gaudi_weights_root": "/data/models",
        "gaudi_weights_fetch": False,
        "gaudi_serving_instances": [],
    }
    arguments = {
        "host": "gaudi-01",
        "release": "1.22",
        "known_releases": ["1.22"],
        "inventory": inventory,
        "levels": yaml.safe_load((ROOT / "catalog/compatibility.yml").read_text()),
        "controller_time": 0,
        "daemon_json": "/nonexistent/daemon.json",
        **({} if given is None else {"topology": given}),
    }
    answer = run_main("library.gaudi_preflight", arguments)
    assert answer["topology"] == (given or {**TOPOLOGY, "findings": [FINDING]})
    assert (FINDING["message"] in answer["findings"]) is (given is None)


def test_the_verdict_on_cards_and_links_is_shown(node: Path) -> None:
    assert status(node / "none.py")["acceptance"] == []
    made_of = MadeOf({"0": "AM1"}, "1.22.1", None, None, None, None, None)
    document = new_verdict(
        node="n", time="now", made_of=made_of, faults=(), nics=None, results=(), located=(), not_measured="In use."
    )
    (node / "acceptance.json").write_text(json.dumps(overridden(document, "for a test")))
    said = status(node / "none.py")["acceptance"]
    assert (
        said[0]
        == f"cards and links: cards checked at now, links not measured, page on the node: {paths.ACCEPTANCE_PAGE}"
    )
    assert "  let through by fabric_check_override: for a test" in said


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_verdict_is_said_and_ends_nothing(node: Path, kind: str) -> None:
    damage(node / "acceptance.json", kind)
    (said,) = status(node / "none.py")["acceptance"]
    assert said.startswith(f"cards and links: {node / 'acceptance.json'} is damaged: it ")
    assert said.endswith(". It counts as no verdict; playbooks/accept.yml makes a new one.")


def test_long_work_that_has_not_come_to_its_end_is_shown(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert status(node / "none.py")["jobs"] == []
    begun = {"started": "2026-01-31T08:00:00Z"}
    for key, state in {
        "fetch.a": {"state": "running", **begun},
        "fetch.b": {"state": "running", **begun},
        "fetch.c": {"state": "failed", "message": "no room is left on /data", **begun},
        "fetch.d": {"state": "succeeded", **begun},
        "fetch.e": {"state": "cancelled", **begun},
        "fetch.f": {"state": "running", **begun},
    }.items():
        (node / "jobs" / key).mkdir(parents=True)
        progress = {} if key == "fetch.f" else {"phase": "fetch"}
        for name, content in (("job", {"digest": "d"}), ("state", state), ("progress", progress)):
            (node / "jobs" / key / f"{name}.json").write_text(json.dumps(content))
    shown = "Id=gaudi-job@fetch.a.service\nActiveState=active\n"
    monkeypatch.setattr(node_status_info, "systemctl", lambda _module, *_words: shown)
    begins = "long work fetch.{}, begun 2026-01-31T08:00:00Z, {}: {}"
    assert status(node / "none.py")["jobs"] == [
        begins.format("a", "runs", "fetch: no figures yet"),
        begins.format("b", "was cut off", "fetch"),
        begins.format("c", "failed", "no room is left on /data"),
        begins.format("f", "was cut off", "it did not say how far it was"),
    ]
    assert "node.jobs" in (ROOT / "playbooks/status.yml").read_text()
