"""The module that removes images: what it asks the engine, what it writes, and what it leaves alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from library import serving_image_prune
from tests.unit.image.test_tidying import RECORD, A, B, C
from tests.unit.preflight.conftest import Answer, Run, record, run

__all__ = ["record", "run"]

WANTED = {"wanted": {"chat": C}, "references": [C]}
ENGINE: dict[str, Answer] = {
    "docker ps --all --filter": (0, "", ""),
    "docker image rm": (0, "Untagged\n", ""),
    "docker image ls": (0, "", ""),
}


@pytest.fixture
def node(tmp_path: Path, record: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node whose instance uses C and had B and A before; each image has a bill."""
    plans = tmp_path / "instances"
    (plans / "chat").mkdir(parents=True)
    (plans / "chat" / "plan.json").write_text(json.dumps({"image": C}))
    monkeypatch.setattr(serving_image_prune, "PLANS", plans)
    (record.parent / "sbom").mkdir(parents=True)
    images = {name: {**known, "id": f"sha256:{name[-1]}"} for name, known in RECORD.items()}
    for known in images.values():
        (record.parent / "sbom" / f"{known['id'][7:]}.cdx.json").write_text("{}")
    record.write_text(json.dumps({"schema": 1, "images": images, "history": {"chat": [C, B, A]}}))
    return tmp_path


def bills(record: Path) -> list[str]:
    return sorted(file.name[0] for file in (record.parent / "sbom").iterdir())


def removals(commands: list[str]) -> list[str]:
    """The commands that do more than ask which images there are."""
    return [command for command in commands if not command.startswith("docker image ls")]


def document(record: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(record.read_text())
    return content


@pytest.mark.usefixtures("node")
def test_what_nothing_needs_goes_with_its_bill(run: Run, record: Path) -> None:
    ran = run(serving_image_prune, {**WANTED, "record": str(record)}, ENGINE)
    assert (ran["changed"], ran["removed"], ran["stays"]) == (True, [A], [])
    assert f"docker image rm {A}" in ran.commands
    assert not any("--force" in command for command in ran.commands)
    assert A not in document(record)["images"]
    assert document(record)["history"] == {"chat": [C, B]}
    assert bills(record) == ["7", "b", "c"]
    assert f'"{A}"' in ran["diff"]["before"]
    assert f'"{A}"' not in ran["diff"]["after"]
    again = run(serving_image_prune, {**WANTED, "record": str(record)}, ENGINE)
    assert (again["changed"], removals(again.commands)) == (False, [])


@pytest.mark.usefixtures("node")
def test_check_mode_says_so_and_removes_nothing(run: Run, record: Path) -> None:
    before = record.read_text()
    ran = run(serving_image_prune, {**WANTED, "record": str(record)}, ENGINE, check=True)
    assert (ran["changed"], ran["removed"]) == (True, [A])
    assert not any("image rm" in command for command in ran.commands)
    assert (record.read_text(), bills(record)) == (before, ["7", "a", "b", "c"])


@pytest.mark.usefixtures("node")
@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ({"docker ps --all --filter": (0, "vllm-other\n", "")}, f"{A} stays: it is used by the container vllm-other."),
        ({"docker image rm": (1, "", "conflict: unable to remove\n")}, f"{A} stays: conflict: unable to remove"),
    ],
)
def test_what_a_container_uses_stays(run: Run, record: Path, answers: dict[str, Answer], why: str) -> None:
    ran = run(serving_image_prune, {**WANTED, "record": str(record)}, {**ENGINE, **answers})
    assert (ran["removed"], ran["stays"]) == ([], [why])
    assert A in document(record)["images"]
    assert "a" in bills(record)


@pytest.mark.usefixtures("node")
def test_what_is_gone_already_goes_from_the_record(run: Run, record: Path) -> None:
    gone: dict[str, Answer] = {"docker image rm": (1, "", f"Error: No such image: {A}\n")}
    assert run(serving_image_prune, {**WANTED, "record": str(record)}, {**ENGINE, **gone})["removed"] == [A]


def test_while_a_plan_cannot_be_read_nothing_goes(run: Run, record: Path, node: Path) -> None:
    (node / "instances" / "other").mkdir()
    (node / "instances" / "other" / "plan.json").write_text("{")
    before = document(record)
    ran = run(serving_image_prune, {**WANTED, "record": str(record)}, ENGINE)
    assert (ran["removed"], removals(ran.commands)) == ([], [])
    assert "which image other uses is not known" in ran["stays"][0]
    assert document(record) == before


def test_a_node_without_an_engine_or_record_is_left_alone(run: Run, record: Path) -> None:
    assert not run(serving_image_prune, {**WANTED, "record": str(record)}, {})["changed"]
    record.parent.mkdir()
    record.write_text("{")
    assert run(serving_image_prune, {"record": str(record)}, ENGINE)["refused_id"] == "image_record_damaged"


LEFT = f"{A}-unlabelled"
NAMES = f"{LEFT}\n{C}\n<none>:<none>\nmine/vllm:7-unlabelled\n"


@pytest.mark.usefixtures("node")
@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize(("state", "goes"), [("inactive", True), ("failed", True), ("active", False)])
def test_what_a_build_left_that_lost_its_power_goes_unless_it_is_built(
    run: Run, record: Path, state: str, goes: bool, check: bool
) -> None:
    unit = f"gaudi-job@image.{A.partition(':')[2]}.service"
    asked = {
        "docker image ls": (0, NAMES, ""),
        "systemctl show": (0, f"Id={unit}\nActiveState={state}\n", ""),
    }
    ran = run(serving_image_prune, {**WANTED, "record": str(record)}, {**ENGINE, **asked}, check=check)
    assert (LEFT in ran["removed"], ran["changed"], ran["stays"]) == (goes, True, [])
    assert (f"docker image rm {LEFT}" in ran.commands) == (goes and not check)
    assert any(unit in command for command in ran.commands)
    assert not any("mine/vllm" in command for command in ran.commands)
    assert any("label=gaudi-serving.image.release" in command for command in ran.commands)
