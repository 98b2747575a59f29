"""Who is let in where a node gives weights: what the role writes for rsync. Real rsync is in molecule/fanout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleError
from ansible.module_utils.gaudi.fanout.rounds import weights_round

from tests.unit.preflight.test_borders import every_task
from tests.unit.preflight.test_templates import evaluate, fact_of, render, results, task_of, trusted, within
from tests.unit.weights.reports import reporting

ROLE = Path(__file__).parents[3] / "roles" / "weights_supply"


ROUND = fact_of("weights_supply", "round", "Decide which nodes fetch")
HOSTS: dict[str, Any] = {
    "a": {"weights_supply_addresses": ["10.0.0.1"]},
    "b": {"weights_supply_addresses": ["10.0.0.2", "fd00::2"]},
    "c": {"weights_supply_addresses": ["10.0.0.3"]},
}
GIVING: dict[str, Any] = {
    "weights_supply_root": "/data/models",
    "weights_supply_item": {"directory": "Model"},
    "weights_supply_relays": False,
}


def configuration(*receivers: str, giver: str = "a", **known: dict[str, Any]) -> list[str]:
    """What the role writes for a folder Model, by lines; known: what else is known of nodes."""
    reached = {"weights_supply_address": "gateway:8730", "ansible_facts": {}}
    hosts = {name: {**reached, **node, **known.get(name, {})} for name, node in HOSTS.items()}
    given = {**GIVING, "weights_supply_receivers": list(receivers), "weights_supply_giver": giver, "hostvars": hosts}
    return render("weights_supply", "rsyncd.conf.j2", **given, inventory_hostname="b").splitlines()


@pytest.mark.parametrize(
    "said", ["max connections = 4", "timeout = 600", "hosts deny = *", "hosts allow = 10.0.0.1 10.0.0.3"]
)
def test_only_those_who_take_are_let_in_and_so_many_at_a_time(said: str) -> None:
    lines = configuration("a", "c")
    # For all modules: below one of them it would be that one's alone.
    assert said in lines[: lines.index("[weights]")]


def test_who_may_come_is_who_takes() -> None:
    takes = {"b": {"peer": "a", "seed": "a"}, "c": {"peer": "b", "seed": "a"}}
    gives = task_of("weights_supply", "round", "Give it")
    known = {"inventory_hostname": "a", ROUND: {"take": takes}}
    receivers = within("weights_supply", gives, gives["vars"]["weights_supply_receivers"], **known)
    assert "hosts allow = 10.0.0.2 fd00::2" in configuration(*receivers)


@pytest.mark.parametrize(("giver", "listen"), [("a", ["address = 10.0.0.1"]), ("c", [])])
def test_it_listens_at_the_address_of_the_node_that_gives(giver: str, listen: list[str]) -> None:
    """That may be another one than the node that asks for it; what a gateway has is listened at nowhere."""
    found = {"ansible_facts": {"all_ipv4_addresses": ["10.0.0.1"]}}
    lines = configuration("b", giver=giver, a={**found, "weights_supply_address": "10.0.0.1:8730"}, c=found)
    assert [line for line in lines if line.startswith("address")] == listen
    assert evaluate("weights_supply", "{{ weights_supply_giver }}", inventory_hostname="b") == "b"


def expression(file: str, task: str, *keys: str) -> Any:
    """Return an argument of a task of the role, which Ansible evaluates on the receiver or on the node that gives."""
    found = next(
        each for each in every_task(yaml.safe_load((ROLE / "tasks" / file).read_text())) if each["name"] == task
    )
    for key in keys:
        found = found[key]
    return found


@pytest.mark.parametrize("token", ["x" * 1000, "a\nb", 7, None, ["x"], {"token": "x"}])
def test_a_node_that_gives_no_token_is_not_asked(token: Any) -> None:
    content = expression("take.yml", "take | Write the peer's token", "ansible.builtin.copy", "content")
    hosts = {"m": {"weights_supply_given": {"token": token}}}
    given = {"inventory_hostname": "h", "hostvars": hosts, ROUND: {"take": {"h": {"peer": "m"}}}}
    with pytest.raises(AnsibleError, match="no valid token"):
        evaluate("weights_supply", content, **given)


@pytest.mark.parametrize(
    ("inventory", "fact", "reached"),
    [
        ("nas-1.example", "10.0.0.1", "nas-1.example"),
        (None, "10.0.0.1", "10.0.0.1"),
        (None, "nas-1.example", ""),
        (None, "127.0.0.1", ""),
        (None, ["10.0.0.1"], ""),
    ],
)
def test_only_the_inventory_has_a_name_where_others_reach_a_node(inventory: Any, fact: Any, reached: str) -> None:
    task = "reached | Say where others reach it"
    given = {**trusted(expression("reached.yml", task, "vars")), "ansible_facts": {"default_ipv4": {"address": fact}}}
    if inventory:
        given["gaudi_weights_address"] = inventory
    address = expression("reached.yml", task, "ansible.builtin.set_fact", "weights_supply_address")
    if reached:
        assert evaluate("weights_supply", address, **given) == f"{reached}:8730"
    else:
        with pytest.raises(AnsibleError):
            evaluate("weights_supply", address, **given)


@pytest.mark.parametrize(
    ("role", "file", "decided"),
    [("serving_image", "share", "serving_image_shared"), ("vllm_service", "carry_one", "vllm_service_carried")],
)
def test_of_what_no_pin_binds_the_controller_names_the_source(role: str, file: str, decided: str) -> None:
    (carried,) = [
        task["vars"]
        for task in every_task(yaml.safe_load((ROLE.parent / role / f"tasks/{file}.yml").read_text()))
        if task.get("ansible.builtin.include_role", {}).get("name") == "weights_supply"
    ]
    shares = {decided: {"key": "x", "value": {"give": ["a"], "take": {"b": "a"}}}, "vllm_service_carry_recipes": True}
    for name in ("a", "b", "c"):
        source = evaluate(role, carried["weights_supply_source"], inventory_hostname=name, **shares)
        assert source is (name == "a")


@pytest.mark.parametrize(("attempt", "took", "takes"), [(-1, False, {"h": "s"}), (0, False, {}), (0, True, {"h": "m"})])
def test_a_node_that_reports_a_folder_is_no_source_before_it_has_taken_it(
    attempt: int, took: bool, takes: dict[str, str]
) -> None:
    """It gives what it has taken in this run: the source may be lost by then."""
    said = task_of("weights_supply", "round", "Say what this node has and needs")["ansible.builtin.set_fact"]
    (report,) = said.values()
    begins = task_of("weights_supply", "fetch", "Begin with no round")["ansible.builtin.set_fact"]
    taken = fact_of("weights_supply", "take", "Remember that it was taken")
    look = [{"status": "whole"}]
    nodes = {}
    for name, source in {"h": False, "m": False, "s": attempt < 0}.items():
        there = name == "m" or source
        nodes[name] = evaluate(
            "weights_supply",
            report,
            **{
                **begins,
                "inventory_hostname": name,
                "ansible_play_hosts_all": [],
                "hostvars": {},
                "gaudi_weights_root": "/data",
                "weights_supply_source": source,
                "weights_supply_needed": name == "h",
                "weights_supply_item": {"directory": "x", "repositories": {}},
                **results("weights_supply", node_report=reporting(look if there else [])),
                ROUND: {"attempt": attempt},
                taken: took and name == "m",
            },
        )
    assert {name: take["seed"] for name, take in weights_round(nodes, 0)["take"].items()} == takes
