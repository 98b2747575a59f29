"""Who is let in where a node gives weights: what the role writes for rsync. Real rsync is in molecule/fanout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleError
from ansible.module_utils.gaudi.fanout.rounds import weights_round
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from tests.unit.preflight.test_borders import every_task
from tests.unit.preflight.test_templates import evaluate, trusted

ROLE = Path(__file__).parents[3] / "roles" / "weights_supply"


def configuration(allow: list[str], listen: str = "") -> list[str]:
    """What the role writes for a folder Model, by lines."""
    values: dict[str, Any] = {
        "weights_supply_root": "/data/models",
        "weights_supply_item": {"directory": "Model"},
        "weights_supply_relays": False,
        "__weights_supply_giving": "/run/giving",
        "__weights_supply_allow": allow,
        "__weights_supply_listen": listen,
    }
    text = trust_as_template((ROLE / "templates" / "rsyncd.conf.j2").read_text())
    return str(Templar(loader=DataLoader(), variables=values).template(text)).splitlines()


@pytest.mark.parametrize("said", ["max connections = 4", "timeout = 600", "hosts deny = *", "hosts allow = a b"])
def test_only_those_who_take_are_let_in_and_so_many_at_a_time(said: str) -> None:
    lines = configuration(["a", "b"])
    # For all modules: below one of them it would be that one's alone.
    assert said in lines[: lines.index("[weights]")]


def test_it_listens_where_it_is_reached() -> None:
    assert "address = 10.0.0.1" in configuration(["a"], "10.0.0.1")
    assert not [line for line in configuration(["a"]) if line.startswith("address")]


def test_who_may_come_is_who_takes() -> None:
    values = yaml.safe_load((ROLE / "vars" / "main.yml").read_text())
    hosts = {name: {"weights_supply_addresses": addresses} for name, addresses in
             {"a": ["10.0.0.1"], "b": ["10.0.0.2", "fd00::2"], "c": ["10.0.0.3"]}.items()}  # fmt: skip
    takes = {"b": {"peer": "a", "seed": "a"}, "c": {"peer": "b", "seed": "a"}}
    variables = {
        "inventory_hostname": "a",
        "hostvars": hosts,
        "__weights_supply_round": {"take": takes},
        "weights_supply_receivers": trust_as_template(values["__weights_supply_takers"]),
    }
    templar = Templar(loader=DataLoader(), variables=variables)
    assert templar.template(trust_as_template(values["__weights_supply_allow"])) == ["10.0.0.2", "fd00::2"]


@pytest.mark.parametrize(("giver", "listen"), [("a", "10.0.0.1"), ("behind", "")])
def test_it_listens_at_the_address_of_the_node_that_gives(giver: str, listen: str) -> None:
    """That may be another one than the node that asks for it."""
    values = yaml.safe_load((ROLE / "vars" / "main.yml").read_text())
    found = {"all_ipv4_addresses": ["10.0.0.1"]}
    hosts = {
        "a": {"weights_supply_address": "10.0.0.1:8730", "ansible_facts": found},
        "behind": {"weights_supply_address": "gateway:8730", "ansible_facts": found},
    }
    variables = {"inventory_hostname": "b", "hostvars": hosts, "weights_supply_giver": giver}
    templar = Templar(loader=DataLoader(), variables=variables)
    assert templar.template(trust_as_template(values["__weights_supply_listen"])) == listen
    defaults = yaml.safe_load((ROLE / "defaults" / "main.yml").read_text())
    assert templar.template(trust_as_template(defaults["weights_supply_giver"])) == "b"


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
    given = {"inventory_hostname": "h", "hostvars": hosts, "__weights_supply_round": {"take": {"h": {"peer": "m"}}}}
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


SOURCES = {
    "serving_image/tasks/share.yml": "__serving_image_gives",
    "vllm_service/tasks/carry_one.yml": "__vllm_service_gives",
}


@pytest.mark.parametrize(("file", "chosen"), SOURCES.items())
def test_of_what_no_pin_binds_the_controller_names_the_source(file: str, chosen: str) -> None:
    (carried,) = [
        task["vars"]
        for task in every_task(yaml.safe_load((ROLE.parent / file).read_text()))
        if task.get("ansible.builtin.include_role", {}).get("name") == "weights_supply"
    ]
    assert carried["weights_supply_source"] == f"{{{{ {chosen} }}}}"


@pytest.mark.parametrize(("attempt", "took", "takes"), [(-1, False, {"h": "s"}), (0, False, {}), (0, True, {"h": "m"})])
def test_a_node_that_reports_a_folder_is_no_source_before_it_has_taken_it(
    attempt: int, took: bool, takes: dict[str, str]
) -> None:
    """It gives what it has taken in this run: the source may be lost by then."""
    said = expression("round.yml", "round | Say what this node has and needs", "ansible.builtin.set_fact")
    look = {"folders": [{"status": "whole", "revision": ""}], "storage": {"fstype": "ext4", "source": "/dev/sda1"}}
    nodes = {}
    for name, source in {"h": False, "m": False, "s": attempt < 0}.items():
        there = name == "m" or source
        nodes[name] = evaluate(
            "weights_supply",
            said["__weights_supply_said"],
            **{
                "inventory_hostname": name,
                "ansible_play_hosts_all": [],
                "hostvars": {},
                "gaudi_weights_root": "/data",
                "weights_supply_source": source,
                "weights_supply_needed": name == "h",
                "weights_supply_item": {"directory": "x", "repositories": {}},
                "__weights_supply_look": look if there else {**look, "folders": []},
                "__weights_supply_round": {"attempt": attempt},
                "__weights_supply_took": took and name == "m",
                "__weights_supply_can_give": True,
                "__weights_supply_refused": "",
                "__weights_supply_verified": False,
            },
        )
    assert {name: take["seed"] for name, take in weights_round(nodes, 0)["take"].items()} == takes
