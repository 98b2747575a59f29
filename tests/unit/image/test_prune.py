"""The module that removes images: what it asks the engine, what it writes, and what it leaves alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from ansible.module_utils.gaudi.node import engine_look

from library import serving_image_prune
from tests.unit.image.test_tidying import READY, RECORD, A, B, C, D
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


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The record of packages on a node whose engine others installed."""
    brought = tmp_path / "brought.json"
    brought.write_text(json.dumps({"packages": {"engine": ["nftables"]}}))
    monkeypatch.setattr(engine_look, "BROUGHT", brought)
    return brought


def removal(run: Run, record: Path, answers: Mapping[str, Answer] = MappingProxyType({}), check: bool = False) -> Any:
    """The module as the removal of the project calls it. A and B are as recorded; C's name is another image by now."""
    engine: dict[str, Answer] = {
        **ENGINE,
        "docker image ls": (0, f"{A}\n{B}\n{C}\n{D}\n<none>:<none>\n", ""),
        "docker image inspect": (1, "", "no such image"),
        **{
            f"docker image inspect --format {{{{.Id}}}} {name}": (0, f"sha256:{name[-1]}\n", "")
            for name in (A, B, READY)
        },
        f"docker image inspect --format {{{{.Id}}}} {C}": (0, "sha256:another\n", ""),
        **answers,
    }
    return run(serving_image_prune, {"all": True, "record": str(record)}, engine, check=check)


@pytest.mark.usefixtures("node", "others")
@pytest.mark.parametrize("check", [False, True])
def test_with_this_project_its_images_go_from_an_engine_of_others(run: Run, record: Path, check: bool) -> None:
    ran = removal(run, record, check=check)
    assert (ran["changed"], ran["removed"]) == (True, [A, B])
    removed = [command for command in ran.commands if "image rm" in command]
    assert removed == ([] if check else [f"docker image rm {A}", f"docker image rm {B}"])
    # What is in the record alone, or has the label alone, is named and stays.
    stays = {line.partition(": ")[0]: line for line in ran["stays"]}
    assert sorted(stays) == sorted([READY, C, D])
    assert stays[READY].endswith(f"this project did not build it on this node (docker image rm {READY} removes it)")
    assert "not in its record" in stays[D]


@pytest.mark.usefixtures("node", "others")
def test_with_this_project_a_pulled_image_with_its_label_is_not_called_unknown(run: Run, record: Path) -> None:
    stays = removal(run, record, {"docker image ls": (0, f"{A}\n{READY}\n", "")})["stays"]
    (line,) = (each for each in stays if each.startswith(READY))
    assert "not in its record" not in line


@pytest.mark.usefixtures("node", "others")
def test_with_this_project_an_image_that_a_container_uses_stays(run: Run, record: Path) -> None:
    uses: dict[str, Answer] = {f"docker ps --all --filter ancestor={A}": (0, "vllm-chat\ntheirs\n", "")}
    stays = f"{A}: it is used by the container vllm-chat, theirs (docker image rm {A} removes it)"
    ran = removal(run, record, uses)
    assert (ran["removed"], stays in ran["stays"]) == ([B], True)
    # In check mode our own containers are still there.
    uses = {f"docker ps --all --filter ancestor={A}": (0, "vllm-chat\n", "")}
    assert removal(run, record, uses, check=True)["removed"] == [A, B]


@pytest.mark.usefixtures("node", "others")
@pytest.mark.parametrize("damaged", [False, True])
def test_images_that_cannot_be_told_apart_stay_with_the_command_that_lists_them(
    run: Run, record: Path, damaged: bool
) -> None:
    silent: dict[str, Answer] = {"docker image ls": (1, "", "Cannot connect to the Docker daemon\n")}
    if damaged:
        record.write_text("{")
    ran = removal(run, record, {} if damaged else silent)
    assert (ran["changed"], ran["removed"]) == (False, [])
    (line,) = ran["stays"]
    assert "docker image ls --filter label=gaudi-serving.image.release" in line
    assert ("which are this project's" if damaged else "Cannot connect") in line


@pytest.mark.usefixtures("node")
def test_images_in_an_engine_of_ours_go_with_its_data(run: Run, record: Path, others: Path) -> None:
    others.write_text(json.dumps({"packages": {"engine": ["docker.io"]}}))
    ran = removal(run, record)
    assert (ran["changed"], ran["removed"], ran["stays"], ran.commands) == (False, [], [], [])


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
