"""Cards and ports that instances give up to each other in one run: judged by the result."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.gaudi.node import weight_folders
from ansible.module_utils.gaudi.preflight import handover
from ansible.module_utils.gaudi.preflight.site import not_in_inventory
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

from library import gaudi_preflight
from tests.unit.doctor.test_status import EMPTY, NOTHING
from tests.unit.ports import free_port
from tests.unit.preflight.conftest import PS, Run
from tests.unit.preflight.test_contracts import ROOT, load, tasks
from tests.unit.preflight.test_modules import HERE, preflight
from tests.unit.preflight.test_modules import plan as planned
from tests.unit.preflight.test_templates import trusted


def plan(name: str, modules: list[int], port: int) -> dict[str, Any]:
    return {
        "instance": name,
        "modules": [{"module_id": module} for module in modules],
        "listen": {"host": "127.0.0.1", "port": port},
    }


def user(instance: str) -> dict[str, Any]:
    return {"pid": 7, "name": "python3", "unit": None, "container": "c", "container_name": f"vllm-{instance}"}


A, B = plan("a", [1], 30002), plan("b", [0], 30001)


def test_cards_that_are_swapped_are_given_up_by_both() -> None:
    topology = {"cards": [{"module_id": 0, "users": [user("a")]}, {"module_id": 1, "users": []}]}
    handed = handover.cards([A, B], topology, {"0": "a", "1": "b"}, {})
    assert handover.stopped_first(handed) == ["a", "b"]
    assert handover.sentences(handed) == [
        "b gives module 1 up to a, so it is stopped before a starts.",
        "a gives module 0 up to b, so it is stopped before b starts.",
    ]


def test_an_instance_that_keeps_its_cards_gives_nothing_up() -> None:
    topology = {"cards": [{"module_id": 1, "users": [user("a")]}, {"module_id": 0, "users": [user("b")]}]}
    assert handover.cards([A, B], topology, {"1": "a", "0": "b"}, {}) == []


@pytest.mark.parametrize(
    ("other", "given"),
    [("b", True), ("stranger", False), ("a", False)],
)
def test_a_port_is_given_up_by_an_instance_that_is_to_have_another(other: str, given: bool) -> None:
    handed = handover.port(A, user(other), [A, B])
    assert handed == (handover.Handover("port 30002", "b", "a") if given else None)


def test_a_port_that_nobody_has_and_one_that_its_instance_keeps() -> None:
    assert handover.port(A, None, [A, B]) is None
    assert handover.port(A, user("b"), [A, plan("b", [0], 30002)]) is None


@pytest.mark.parametrize(
    ("before", "said"),
    [
        (None, []),
        ({}, []),
        (plan("a", [1], 1), []),
        (plan("a", [3], 1), ["a moves from module 3 to module 1."]),
        (plan("a", [4, 3], 1), ["a moves from modules 3, 4 to module 1."]),
    ],
)
def test_a_move_is_said(before: dict[str, Any] | None, said: list[str]) -> None:
    assert handover.move(A, before) == said


def test_a_node_says_what_changes_hands_and_who_moves(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "one").mkdir()
    (tmp_path / "one/plan.json").write_text('{"modules": [{"module_id": 5}]}')
    monkeypatch.setattr(weight_folders, "PLANS", tmp_path)
    monkeypatch.setattr(gaudi_preflight, "user_of", lambda *_: user("two"))
    other = free_port()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])
        one = {**planned(tmp_path, port), "modules": [{"module_id": 3}]}
        two = {**planned(tmp_path, other), "instance": "two", "modules": [{"module_id": 4}]}
        answers = {**HERE, "systemctl show vllm-one.service": (0, "ActiveState=active\n", "")}
        ran = run(gaudi_preflight, preflight(plans=[one, two], reserved={"3": "two"}), answers)
    assert ran["problems"] == []
    assert ran["stop_first"] == ["two"]
    assert f"two gives module 3 and port {port} up to one, so it is stopped before one starts." in ran["findings"]
    assert "one moves from module 5 to module 3." in ran["findings"]
    assert ran["restarts"] == ["one"]


def test_who_starts_with_a_card_gives_it_up() -> None:
    running = {"a": plan("a", [0], 30001), "c": plan("c", [1], 30009)}
    assert handover.cards([A, B], {}, {}, running) == [handover.Handover("module 0", "a", "b")]


@pytest.mark.parametrize(
    ("state", "given"), [("activating", ["one", "two"]), ("active", ["one", "two"]), ("failed", [])]
)
def test_ports_are_swapped_by_instances_that_do_not_listen_yet(
    state: str, given: list[str], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setattr(weight_folders, "PLANS", tmp_path / "plans")
    one, two = free_port(), free_port()
    for name, port in (("one", two), ("two", one)):
        (tmp_path / "plans" / name).mkdir(parents=True)
        (tmp_path / "plans" / name / "plan.json").write_text(json.dumps(plan(name, [], port)))
    wished = [planned(tmp_path, one), {**planned(tmp_path, two), "instance": "two"}]
    ran = run(gaudi_preflight, preflight(plans=wished), {**HERE, "systemctl show": (0, f"ActiveState={state}\n", "")})
    assert (ran["problems"], ran["stop_first"]) == ([], given)


def test_a_port_that_an_instance_of_another_run_starts_with_is_refused(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setattr(weight_folders, "PLANS", tmp_path / "plans")
    port = free_port()
    (tmp_path / "plans/two").mkdir(parents=True)
    (tmp_path / "plans/two/plan.json").write_text(json.dumps(plan("two", [], port)))
    up = {**HERE, "systemctl show vllm-two.service": (0, "ActiveState=activating\n", "")}
    (problem,) = run(gaudi_preflight, preflight(plans=[planned(tmp_path, port)]), up)["problems"]
    assert f"port {port} on 127.0.0.1 is in use by the instance two (vllm-two.service)." in problem["message"]


@pytest.mark.parametrize(
    ("state", "changes", "restarts"),
    [
        ("active", {"arguments": ["--max-model-len", "512"]}, ["one"]),
        ("activating", {"arguments": []}, ["one"]),
        ("inactive", {"arguments": []}, []),
        ("active", {}, []),
        ("active", {"explain": {"port": "by wish"}, "warnings": ["new words"], "paths": ["/health"]}, []),
        ("active", {"ask": {"dimensions": 3}}, []),
    ],
)
def test_who_runs_and_changes_is_said(
    state: str,
    changes: dict[str, Any],
    restarts: list[str],
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setattr(weight_folders, "PLANS", tmp_path / "plans")
    wished = planned(tmp_path, 30001)
    (tmp_path / "plans/one").mkdir(parents=True)
    (tmp_path / "plans/one/plan.json").write_text(json.dumps({**wished, **changes}))
    ran = run(gaudi_preflight, preflight(plans=[wished]), {**HERE, "systemctl show": (0, f"ActiveState={state}\n", "")})
    assert ran["restarts"] == restarts


def test_who_listens_on_ports_that_are_closed_is_named(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text("{}")
    with socket.create_server(("0.0.0.0", 0)) as open_to_all, socket.create_server(("127.0.0.1", 0)) as local:
        port, other = (int(each.getsockname()[1]) for each in (open_to_all, local))
        (finding,) = said_of(run, tmp_path, [port, port])
        assert f"ports {port} to {port} are for its own processes" in finding
        assert f"on {port}: only this node will reach it." in finding
        assert f"pid {os.getpid()}" in finding
        assert said_of(run, tmp_path, [other, other]) == [], "nobody else reaches it anyway"
        monkeypatch.setattr(gaudi_preflight, "user_of", lambda *_: user("one"))
        assert said_of(run, tmp_path, [port, port]) == [], "it is the instance itself"


def said_of(run: Run, folder: Path, closed: list[int]) -> list[str]:
    wished = planned(folder, free_port())
    wished["listen"]["closed_ports"] = closed
    ran = run(gaudi_preflight, preflight(plans=[wished]), HERE)
    return [said for said in ran["findings"] if "closed to other machines" in said]


def test_a_container_with_another_name_is_its_instances(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setattr("ansible.module_utils.gaudi.cards.users.owner_of", lambda *_: (None, "c0" * 6))
    running = {**HERE, PS: (0, f"{'c0' * 32} oops one\n", "")}
    with socket.create_server(("127.0.0.1", 0)) as server:
        plans = [planned(tmp_path, int(server.getsockname()[1]))]
        problems = run(gaudi_preflight, preflight(plans=plans), running)["problems"]
    assert [problem["id"] for problem in problems] == ["container"], "the port is its own"
    assert "docker rename oops vllm-one puts that right while it serves" in problems[0]["message"]


def test_instances_that_give_something_up_are_stopped_before_any_starts() -> None:
    serve = next(play for play in load(ROOT / "site.yml") if "serial" in play)
    give_up, start, *_ = [task for task in serve["tasks"] if task["tags"] == ["vllm_service"]]
    assert give_up["when"] == "preflight_node.stop_first | length > 0"
    # And not before all plans are found to be such as can be served.
    image, look, stop = load(ROOT / give_up["ansible.builtin.include_tasks"]["file"])
    assert image["ansible.builtin.import_tasks"] == "all_served.yml"
    assert (look["ansible.builtin.include_role"]["tasks_from"], look["loop"]) == ("preflight", start["loop"])
    assert stop["ansible.builtin.include_role"]["tasks_from"] == "stop"
    assert start["vars"]["vllm_service_given_up_by"] == "{{ preflight_node.stop_first }}"
    # The node names them.
    assert stop["loop"] == "{{ preflight_node.stop_first | reported('instance_names') }}"
    (reserve,) = load(ROOT / "roles/vllm_service/tasks/reserve.yml")
    assert reserve["card_reservation"]["given_up_by"] == "{{ vllm_service_given_up_by }}"


def test_an_instance_that_the_inventory_does_not_name() -> None:
    assert not_in_inventory("n1", ["a"], ["a"]) == []
    (line,) = not_in_inventory("n1", ["a", "b"], ["a"])
    assert line.endswith("ansible-playbook playbooks/remove.yml --limit n1 -e instance=b")
    assert not_in_inventory("n1", ["a"], None) == []


@pytest.mark.parametrize(
    ("wished", "said"),
    [
        ([{"instance": "chat", "port": "{{ nowhere }}"}], True),
        ([{"instance": "old", "port": "{{ nowhere }}"}], False),
        (["nonsense", {"model": "x"}], True),
        ([], True),
        (None, False),
    ],
)
def test_status_names_it_whatever_else_the_inventory_says(wished: Any, said: bool) -> None:
    (play,) = load(ROOT / "playbooks/status.yml")
    show = next(task for task in play["tasks"] if "wanted" in task.get("vars", {}))
    site = {} if wished is None else {"gaudi_serving_instances": trusted(wished)}
    facts = {
        "instances": [{"instance": "old", "active": "inactive", "let_through": [], "drop_ins": []}],
        "strangers": [],
        "lost_weights": {},
        "covers": {},
    }
    node = {"report": {**EMPTY, "instances": facts}}
    values = {"inventory_hostname": "n1", "node": node, **site, **trusted(show["vars"])}
    text = Templar(loader=DataLoader(), variables=values).template(trusted(show["ansible.builtin.debug"]["msg"]))
    assert [line.split(" is on ")[0] for line in text.splitlines()] == [*NOTHING, *(["old"] if said else [])]


def test_a_name_that_no_node_has_is_refused_by_every_playbook() -> None:
    """remove.yml was green without a word."""
    for name in ("remove", "stop", "start"):
        (task,) = tasks(load(ROOT / f"playbooks/{name}.yml"))
        assert task["vars"] == {"vllm_service_instance": "{{ instance | default('') }}"}


def test_a_removal_that_was_cut_off_can_be_run_again() -> None:
    """An instance is known by its directory, so that goes last."""
    files = load(ROOT / "roles/vllm_service/tasks/remove.yml")
    names = [task.get("ansible.builtin.import_tasks") or next(key for key in task if key != "name") for task in files]
    assert names[-2:] == ["card_reservation", "erase.yml"]
    (*_, gone) = load(ROOT / "roles/vllm_service/tasks/erase.yml")
    assert gone["name"] == "erase | Ensure plan and state are gone"
