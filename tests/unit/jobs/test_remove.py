"""Roles that can be taken back: nothing goes while work needs it, and the library goes with the last of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from tests.unit.preflight.test_templates import evaluate, task_of

ROLES = Path(__file__).parents[3] / "roles"


def tasks(role: str, name: str = "*") -> list[dict[str, Any]]:
    """The tasks of a role's files, those in blocks included."""
    waiting = [
        task for path in (ROLES / role / "tasks").glob(f"{name}.yml") for task in yaml.safe_load(path.read_text())
    ]
    for task in waiting:
        waiting += [inner for part in ("block", "rescue", "always") for inner in task.get(part, [])]
    return waiting


def installs(task: dict[str, Any]) -> bool:
    """Whether a task writes programs with the library that they import."""
    return "library_for" in task.get("node_files", {}) and "library_state" not in task["node_files"]


USERS = sorted(path.name for path in ROLES.iterdir() if any(map(installs, tasks(path.name))))


def test_the_roles_that_need_the_library_are_found() -> None:
    assert {"host_tuning", "model_weights", "vllm_service"} < set(USERS)


@pytest.mark.parametrize("role", USERS)
def test_a_role_that_needs_the_library_can_say_that_it_needs_it_no_more(role: str) -> None:
    asked = [task["node_files"] for task in tasks(role) if "library_state" in task.get("node_files", {})]
    assert [(each["library_for"], each["library_state"]) for each in asked] == [(role, "absent")]


@pytest.mark.parametrize(
    ("role", "key", "status", "refused"),
    [
        ("node_job", "fetch.tiny", "running", True),
        ("node_job", "fetch.tiny", "succeeded", False),
        ("model_weights", "fetch.tiny", "running", True),
        ("model_weights", "take.tiny", "running", True),
        ("model_weights", "verify.tiny", "running", True),
        ("model_weights", "take.tiny", "failed", False),
        ("model_weights", "convert.tiny", "running", False),
        ("fp8_weights", "convert.tiny", "running", True),
        ("fp8_weights", "convert.tiny", "interrupted", False),
        ("fp8_weights", "calibrate.tiny", "running", False),
        ("fp8_calibration", "calibrate.tiny", "running", True),
        ("fp8_calibration", "calibrate.tiny", "cancelled", False),
        ("fp8_calibration", "fetch.tiny", "running", False),
        ("offline_batch", "batch.0d599f0ec05c3bda", "running", True),
        ("offline_batch", "batch.0d599f0ec05c3bda", "failed", False),
        ("offline_batch", "fetch.tiny", "running", False),
    ],
)
def test_nothing_goes_while_work_needs_it(role: str, key: str, status: str, refused: bool) -> None:
    first = tasks(role, "remove")[0]
    shared = first.get("ansible.builtin.import_role") or {
        "name": role,
        "tasks_from": first["ansible.builtin.import_tasks"],
    }
    assert shared["name"] == "node_job"
    look, refuse = tasks("node_job", shared["tasks_from"].removesuffix(".yml"))
    assert look["node_report"] == {"parts": ["jobs"]}
    told = refuse["ansible.builtin.assert"]
    defaults = yaml.safe_load((ROLES / "node_job/defaults/main.yml").read_text())
    active = "active" if status == "running" else "inactive"
    state = {"state": "running" if status == "interrupted" else status}
    job = {"key": key, "active": active, "state": state, "progress": {}, "now": 0}
    given = {look["register"]: {"report": {"jobs": {"jobs": [job]}}}}
    variables = {
        "inventory_hostname": "n1",
        **{**defaults, **first.get("vars", {})},
        **given,
        **{name: trust_as_template(text) for name, text in refuse["vars"].items()},
    }
    templar = Templar(loader=DataLoader(), variables=variables)
    assert templar.evaluate_conditional(trust_as_template(told["that"])) is not refused
    if refused:
        assert key in templar.template(trust_as_template(told["fail_msg"]))


def test_what_ran_work_goes_and_the_folder_that_others_share_stays() -> None:
    (gone,) = [task["node_files"]["files"] for task in tasks("node_job", "remove") if "node_files" in task]
    wrote = evaluate("node_job", task_of("node_job", "install", "node_files")["node_files"]["files"])
    assert {file["path"] for file in gone} == {file["path"] for file in wrote} - {"/var/lib/gaudi-serving"}
    assert {file["state"] for file in gone} == {"absent"}
