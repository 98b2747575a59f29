"""Every reader of a node's documents, with every damage: one instance or job is concerned, and never all."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.gaudi.base import owned_paths, paths
from ansible.module_utils.gaudi.node import instances, long_work, states
from ansible.module_utils.gaudi.node.report import jobs
from ansible.module_utils.gaudi.node.reservations import read_reservations

from filter_plugins.job_key import node_jobs
from library import card_reservation, node_job, vllm_service_info
from tests.unit.host.modules import run_main
from tests.unit.node.damages import DAMAGES, damage
from tests.unit.refused import refused

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def two_instances(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two serving instances; returns the state file of the first."""
    for name in ("one", "two"):
        for folder, content in (("plans", {}), ("states", {"phase": "serving", "status": "serving"})):
            file = tmp_path / folder / name / ("plan.json" if folder == "plans" else "state.json")
            file.parent.mkdir(parents=True)
            file.write_text(json.dumps(content))
    monkeypatch.setattr(states, "PLANS", tmp_path / "plans")
    monkeypatch.setattr(states, "STATES", tmp_path / "states")
    monkeypatch.setattr(instances, "systemctl", lambda _module, *_arguments: "ActiveState=active\n")
    return tmp_path / "states/one/state.json"


@pytest.mark.parametrize("kind", DAMAGES)
def test_one_damaged_state_concerns_its_instance_alone(kind: str, two_instances: Path) -> None:
    damage(two_instances, kind)
    answer = run_main(vllm_service_info.__name__, {})
    one, two = answer["instances"]
    assert one["state"] == {}
    assert one["damaged"].startswith(f"{two_instances} is damaged: it ")
    assert one["damaged"].endswith("systemctl reload vllm-one writes it again, and the server goes on")
    assert (two["state"]["phase"], two["damaged"]) == ("serving", "")


def test_an_instance_without_a_plan_is_still_shown(two_instances: Path, tmp_path: Path) -> None:
    (tmp_path / "plans/one/plan.json").unlink()
    answer = run_main(vllm_service_info.__name__, {})
    assert [found["instance"] for found in answer["instances"]] == ["one", "two"]


@pytest.fixture
def two_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two jobs that succeeded; returns the folder of the first."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "job.json").write_text(json.dumps({"digest": "d"}))
        (tmp_path / name / "state.json").write_text(json.dumps({"state": "succeeded"}))
        (tmp_path / name / "progress.json").write_text(json.dumps({"phase": "fetching"}))
    for module in (node_job, long_work):
        monkeypatch.setattr(module, "JOBS", tmp_path)
    monkeypatch.setattr(jobs, "systemctl", lambda _module, *_arguments: "")
    monkeypatch.setattr(node_job, "systemctl", lambda _module, *_arguments: "inactive\n")
    return tmp_path / "one"


@pytest.mark.parametrize("file", ["job.json", "state.json", "progress.json"])
@pytest.mark.parametrize("kind", DAMAGES)
def test_one_damaged_job_concerns_itself_alone(kind: str, file: str, two_jobs: Path) -> None:
    damage(two_jobs / file, kind)
    found = node_jobs(run_main("library.node_report", {"parts": ["jobs"]}))
    status = {job["key"]: job["status"] for job in found}
    assert status == {"one": "interrupted" if file == "state.json" else "succeeded", "two": "succeeded"}


@pytest.mark.parametrize("file", ["job.json", "lock", "state.json", "progress.json"])
@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_job_is_run_again(kind: str, file: str, two_jobs: Path) -> None:
    damage(two_jobs / file, kind)
    answer: dict[str, Any] = run_main(node_job.__name__, {"key": "one", "command": ["true"], "state": "started"})
    assert answer.get("changed") is True, answer
    assert json.loads((two_jobs / "job.json").read_text())["command"] == ["true"]
    assert long_work.state(two_jobs) == {}


@pytest.mark.parametrize(("file", "state"), [("cancelled", "cancelled"), ("lock", "started")])
def test_a_link_that_work_left_in_its_folder_makes_no_file_elsewhere(
    file: str, state: str, two_jobs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The module is not confined as the work is."""
    monkeypatch.setattr(node_job, "systemctl", lambda _module, *words: "active\n" if state == "cancelled" else "\n")
    (two_jobs / file).symlink_to(two_jobs.parent / "elsewhere")
    run_main(node_job.__name__, {"key": "one", "command": ["true"], "state": state})
    assert not (two_jobs.parent / "elsewhere").exists()
    assert (two_jobs / file).is_file()


@pytest.fixture
def node_with_plans(tmp_path: Path) -> Path:
    """The reservations of a node with two instances, one of them stopped."""
    for number, name in enumerate(("one", "two")):
        (tmp_path / "plans" / name).mkdir(parents=True)
        plan = {"modules": [{"module_id": number, "serial": f"AN{number}"}]}
        (tmp_path / "plans" / name / "plan.json").write_text(json.dumps(plan))
    return tmp_path / "cards.lock"


@pytest.mark.parametrize("kind", DAMAGES)
def test_damaged_reservations_give_no_card_away(kind: str, node_with_plans: Path) -> None:
    damage(node_with_plans, kind)
    found = read_reservations(node_with_plans, node_with_plans.parent / "plans", "now")
    assert {name: held["cards"][0]["module_id"] for name, held in found.reservations.items()} == {"one": 0, "two": 1}
    assert found.damage.startswith(f"{node_with_plans} is damaged: it ")


def test_damaged_reservations_beside_a_damaged_plan_are_refused(node_with_plans: Path) -> None:
    damage(node_with_plans, "empty")
    plan = node_with_plans.parent / "plans/two/plan.json"
    damage(plan, "cut off")
    with refused("reservations_damaged", plan, "playbooks/remove.yml --limit NODE -e instance=two"):
        read_reservations(node_with_plans, node_with_plans.parent / "plans", "now")


@pytest.mark.parametrize("kind", DAMAGES)
def test_where_plan_and_reservations_are_damaged_the_cards_of_the_container_count(
    kind: str, node_with_plans: Path
) -> None:
    damage(node_with_plans, "empty")
    damage(node_with_plans.parent / "plans/two/plan.json", kind)
    state = node_with_plans.parent / "instances/two/state.json"
    state.parent.mkdir(parents=True)
    state.write_text(json.dumps({"phase": "serving", "cards": [{"module_id": 5, "serial": "AN5", "index": 3}]}))
    found = read_reservations(node_with_plans, node_with_plans.parent / "plans", "now")
    assert {name: held["cards"][0]["module_id"] for name, held in found.reservations.items()} == {"one": 0, "two": 5}
    damage(state, kind)
    with refused("reservations_damaged", "plans/two/plan.json"):
        read_reservations(node_with_plans, node_with_plans.parent / "plans", "now")


def plan_of(node_with_plans: Path, instance: str, text: str) -> None:
    """Give an instance a plan."""
    folder = node_with_plans.parent / "plans" / instance
    folder.mkdir(exist_ok=True)
    (folder / "plan.json").write_text(text)


@pytest.mark.parametrize("text", ['{"modules": [{"module_id": 0}]}', '{"modules": [{'])
def test_removing_an_instance_ends_what_its_plan_makes_unclear(
    text: str, node_with_plans: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refusal advises that very removal: a copy that names the same card, or a plan that is damaged."""
    monkeypatch.setattr(card_reservation, "STATE", node_with_plans.parent)
    monkeypatch.setattr(card_reservation, "PLANS", node_with_plans.parent / "plans")
    damage(node_with_plans, "empty")
    plan_of(node_with_plans, "copy", text)
    refused = run_main(card_reservation.__name__, {"instance": "two", "cards": [{"module_id": 1}]})
    assert refused["refused_id"] == "reservations_damaged"
    assert "playbooks/remove.yml --limit NODE -e instance=" in refused["msg"]
    answer = run_main(card_reservation.__name__, {"instance": "copy", "state": "absent"})
    assert answer.get("changed") is True, answer
    assert set(json.loads(node_with_plans.read_text())["reservations"]) == {"one", "two"}


def test_removing_one_of_three_that_claim_a_card_does_not_wait_for_the_others(
    node_with_plans: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(card_reservation, "STATE", node_with_plans.parent)
    monkeypatch.setattr(card_reservation, "PLANS", node_with_plans.parent / "plans")
    damage(node_with_plans, "empty")
    for name in ("copy", "other"):
        plan_of(node_with_plans, name, '{"modules": [{"module_id": 0}]}')
    answer = run_main(card_reservation.__name__, {"instance": "copy", "state": "absent"})
    assert answer.get("changed") is False, answer
    assert "copy holds no card once its plan is gone" in capsys.readouterr().err
    assert node_with_plans.read_text() == "", "nobody can tell yet who has the card"


def test_without_a_file_nothing_is_reserved(node_with_plans: Path) -> None:
    assert read_reservations(node_with_plans, node_with_plans.parent / "plans", "now").reservations == {}


@pytest.mark.parametrize("kind", DAMAGES)
def test_damaged_reservations_are_written_anew(
    kind: str, node_with_plans: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(card_reservation, "STATE", node_with_plans.parent)
    monkeypatch.setattr(card_reservation, "PLANS", node_with_plans.parent / "plans")
    damage(node_with_plans, kind)
    answer = run_main(card_reservation.__name__, {"instance": "three", "state": "absent"})
    assert answer["changed"] is True, answer
    assert set(json.loads(node_with_plans.read_text())["reservations"]) == {"one", "two"}
    assert run_main(card_reservation.__name__, {"instance": "three", "state": "absent"})["changed"] is False


# Documents that nobody on the node of the scenario default reads, with those who do.
ELSEWHERE = {
    "/etc/gaudi-serving/access/apt.conf": "tests/unit/library/test_site_access.py",
    "/etc/gaudi-serving/access/ca-certificates.crt": "tests/unit/library/test_site_access.py",
    "/etc/gaudi-serving/instances/*/firewall.json": "tests/unit/node/test_firewall.py",
    "/etc/gaudi-serving/image/*.json": "tests/integration/image/test_build.py",
    "/var/lib/gaudi-serving/acceptance.html": "written and not read",
    "/var/lib/gaudi-serving/acceptance.json": "tests/unit/library",
    "/var/lib/gaudi-serving/acceptance.lock": "tests/unit/library",
    "/var/lib/gaudi-serving/batches/*/answered.jsonl": "tests/unit/batch",
    "/var/lib/gaudi-serving/batches/*/input.jsonl": "read on the controller before it is brought",
    "/var/lib/gaudi-serving/batches/*/output.jsonl": "written and not read",
    "/etc/gaudi-serving/image/apt": "the build's apt",
    "/etc/gaudi-serving/image/git": "the build's git",
    "/etc/gaudi-serving/image/pip": "the build's pip",
    "/etc/gaudi-serving/instances/*/let_through.json": "nothing is let through there; tests/unit/library",
    "/etc/gaudi-serving/registry/config.json": "docker's client",
    "/etc/gaudi-serving/weights/*.take.json": "tests/integration/weights/test_program.py",
    "/etc/gaudi-serving/weights/*.token": "a secret, not a document",
    "/etc/gaudi-serving/weights/pip.conf": "pip",
    "/etc/gaudi-serving/weights/peer.password": "a secret, not a document",
    "/var/lib/gaudi-serving/benchmarks/*.json": "tests/unit/benchmark",
    "/var/lib/gaudi-serving/benchmarks/*/*.json": "tests/unit/benchmark",
    "/var/lib/gaudi-serving/brought.json": "tests/unit/engine/test_brought.py",
    "/var/lib/gaudi-serving/burn_in.log": "written and not read",
    "/var/lib/gaudi-serving/calibrations/*.json": "tests/integration/calibration/test_calibrate.py",
    "/var/lib/gaudi-serving/calibrations/*.peer.json": "tests/integration/calibration/test_calibrate.py",
    "/var/lib/gaudi-serving/calibrations/*.token": "a secret, not a document",
    "/var/lib/gaudi-serving/container_runtime_settings.json": "tests/unit/engine/test_engine_config.py",
    "/var/lib/gaudi-serving/container_runtime_wish.json": "tests/unit/node/test_two_runs.py",
    "/var/lib/gaudi-serving/driver_before.json": "tests/unit/driver/test_before.py",
    "/var/lib/gaudi-serving/host_tuning_before.json": "tests/unit/host/test_info.py",
    "/var/lib/gaudi-serving/host_tuning_wish.json": "tests/unit/node/test_two_runs.py",
    "/var/lib/gaudi-serving/instances/*/back.json": "tests/integration/vllm_service/test_going_back.py",
    "/var/lib/gaudi-serving/instances/*/plans/*.json": "tests/integration/vllm_service/test_going_back.py",
    "/var/lib/gaudi-serving/instances/*/lock": "nobody: it is only locked",
    "/var/lib/gaudi-serving/jobs/*/lock": "nobody: it is only locked; test_a_damaged_job_is_run_again",
    "/var/lib/gaudi-serving/jobs/*/log.1": "nobody",
    "/var/lib/gaudi-serving/runtime_proof.json": "tests/unit/engine/test_proof.py",
    "/var/lib/gaudi-serving/sbom/*.cdx.json": "tests/unit/image/test_contents.py; written again when damaged",
}


def test_every_file_of_a_node_is_damaged_on_a_node() -> None:
    """molecule/default/damaged.py has who reads each."""
    code = "import damaged, json; print(json.dumps(list(damaged.LOOKS)))"
    folders = [ROOT / "molecule/default", ROOT / "tests/unit/node", ROOT / "module_utils"]
    environment = {"PYTHONPATH": ":".join(map(str, folders)), "PYTHONDONTWRITEBYTECODE": "1"}
    looked = set(json.loads(subprocess.check_output([sys.executable, "-c", code], env=environment)))
    files = {row.path for row in owned_paths.TABLE if not row.whole and not int(row.mode, 8) & 0o100}
    kept = {path for path in files if not path.startswith(paths.PROGRAMS)}
    assert looked | set(ELSEWHERE) == kept
    assert not looked & set(ELSEWHERE)
