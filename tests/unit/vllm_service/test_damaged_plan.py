"""A damaged plan.json, in the modules and with the files of the role: it is written again or refused with a command."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.gaudi.node import weight_folders

from library import node_files
from tests.unit.host.modules import run_main
from tests.unit.node.damages import DAMAGES, damage
from tests.unit.vllm_service.test_changes import DOCUMENT, ask, instance, made_of
from tests.unit.vllm_service.test_rendered import PLAN, written

__all__ = ["instance"]


@pytest.fixture
def plan(instance: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The plan of an instance that runs, beside another instance; whoever runs the tests stands for root."""
    monkeypatch.setattr(node_files, "OWNER", (os.getuid(), os.getgid()))
    (instance.parent / "other").mkdir()
    (instance.parent / "other/plan.json").write_text('{"requires": {"weights_path": "/data/models/Other"}}')
    return instance / "plan.json"


def install(folder: Path) -> dict[str, Any]:
    """Write what the container is made of, as the role does."""
    etc = "/etc/gaudi-serving/instances/tiny"
    files = {Path(file["path"]).name: file for file in written(PLAN) if Path(file["path"]).parent == Path(etc)}
    made_of = [{**files[name], "path": str(folder / name)} for name in ("plan.json", "environment")]
    return run_main("library.node_files", {"files": made_of})


@pytest.mark.parametrize("kind", [kind for kind in DAMAGES if kind != "a directory"])
def test_a_damaged_plan_is_written_anew_and_the_instance_runs_on(kind: str, plan: Path) -> None:
    damage(plan, kind)
    answer = ask(DOCUMENT)
    assert answer["outdated"] is False, answer
    assert answer["reasons"], "the damage is told"
    assert str(plan) in install(plan.parent)["written"]
    assert plan.read_bytes() == made_of().plan + b"\n"
    assert install(plan.parent)["changed"] is False


def test_a_directory_in_its_place_is_refused_with_what_to_do(plan: Path) -> None:
    damage(plan, "a directory")
    assert ask(DOCUMENT)["reasons"] == [f"{plan} is damaged"]
    said = install(plan.parent)["msg"]
    assert said == (
        f"{plan} is a directory, where a file is to be. Move it away (mv {plan} {plan}.moved-away), then run again."
    )


@pytest.mark.parametrize("kind", DAMAGES)
def test_nobody_else_is_concerned(kind: str, plan: Path) -> None:
    damage(plan, kind)
    damaged = weight_folders.damaged_plans(plan.parents[1])
    # Other keys make another plan, which names no weights.
    assert damaged == ([] if kind in ("other keys", "other types", "an older schema") else [plan])
    assert weight_folders.users(Path("/data/models/Other"), plan.parents[1]) == ["other"]
    assert (plan.parents[1] / "other/plan.json").read_text().startswith('{"requires"')
