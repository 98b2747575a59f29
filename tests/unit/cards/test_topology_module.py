"""gaudi_topology_info with scripted commands: what it runs, what it reads, what it answers."""

from __future__ import annotations

import importlib
import json
import os
import pwd
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.gaudi.cards.query import CommandResult
from ansible.module_utils.gaudi.cards.reservations import render_reservations
from ansible.module_utils.gaudi.cards.users import CONTAINER_LINE

from tests.unit.cards.modules import commands, lay_out, process, run_main
from tests.unit.cards.nodes import BUS_IDS, DETAILS, IDENTITY, answers, recorded

HL_SMI = ["/usr/bin/timeout", "--kill-after=5", "60", "/usr/bin/hl-smi"]
OTHER = ["/usr/bin/timeout", "--kill-after=5", "20"]
CONTAINER = "4f1d2c3b4a59" + "0" * 52
ADDRESSES = [{"ifname": "eth0", "addr_info": [{"local": "10.20.0.11", "prefixlen": 24}]}]


def node(changes: dict[str, CommandResult] | None = None) -> Any:
    """Return a healthy node's answers to whole commands."""
    given = {**answers(), **(changes or {})}
    lspci = "".join(f"{bus_id[5:]} Processing accelerators: Habana Labs Ltd.\n" for bus_id in BUS_IDS)

    def answer(command: Sequence[str]) -> tuple[int, str, str]:
        program, *arguments = command[3:]
        if program == "/usr/bin/hl-smi":
            reply = given[" ".join(arguments)]
            return reply.status, reply.stdout, reply.stderr
        return {
            "/usr/bin/lspci": (0, lspci, ""),
            "/usr/bin/ip": (0, json.dumps(ADDRESSES), ""),
            "/usr/bin/docker": (0, f"{CONTAINER} vllm-qwen3-8b\n", ""),
        }[program]

    return answer


@pytest.mark.parametrize("check_mode", [False, True])
def test_what_is_run_and_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check_mode: bool) -> None:
    lay_out(tmp_path, monkeypatch)
    with commands(monkeypatch, node()) as run:
        result = run_main("gaudi_topology_info", {"_ansible_check_mode": check_mode})
    assert run == [
        HL_SMI,
        [*HL_SMI, *IDENTITY.split()],
        [*HL_SMI, *DETAILS.split()],
        [*HL_SMI, "-L"],
        *([*HL_SMI, "-n", "link", "-i", bus_id] for bus_id in BUS_IDS),
        [*HL_SMI, "topo", "-c", "-N"],
        [*OTHER, "/usr/bin/lspci", "-d", "1da3:"],
        [*OTHER, "/usr/bin/ip", "-json", "-4", "address", "show"],
    ]
    topology = result["topology"]
    assert (result["changed"], topology["findings"]) == (False, [])
    assert [card["module_id"] for card in topology["cards"]] == list(range(8))
    assert {card["state"] for card in topology["cards"]} == {"operational"}
    assert topology["addresses"] == [["eth0", "10.20.0.11/24"]]


def test_who_holds_a_card_is_found_in_proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay_out(tmp_path, monkeypatch)
    process(tmp_path, 99, "python3", f"0::/system.slice/docker-{CONTAINER}.scope", ["/dev/null", "/dev/null"])
    process(tmp_path, 100, "hl-smi", "0::/system.slice/x.service", ["/dev/null"])
    # The path of a card, but no device, and a pipe.
    process(tmp_path, 101, "python3", "0::/", ["/dev/accel/accel7", "pipe:[1]"])
    with commands(monkeypatch, node()) as run:
        topology = run_main("gaudi_topology_info", {})["topology"]
    users = {card["index"]: card["users"] for card in topology["cards"] if card["users"]}
    assert users == {
        0: [
            {
                "pid": 99,
                "name": "python3",
                "account": pwd.getpwuid(os.getuid()).pw_name,
                "unit": None,
                "container": "4f1d2c3b4a59",
                "container_name": "vllm-qwen3-8b",
            }
        ]
    }
    assert [*OTHER, "/usr/bin/docker", "ps", "--no-trunc", "--format", CONTAINER_LINE] in run


def test_an_engine_that_does_not_answer_leaves_the_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay_out(tmp_path, monkeypatch)
    process(tmp_path, 99, "python3", f"0::/docker/{CONTAINER}", ["/dev/null"])
    healthy = node()

    def answer(command: Sequence[str]) -> tuple[int, str, str]:
        reply: tuple[int, str, str] = (1, "", "no daemon") if "/usr/bin/docker" in command else healthy(command)
        return reply

    with commands(monkeypatch, answer):
        topology = run_main("gaudi_topology_info", {})["topology"]
    (user,) = next(card["users"] for card in topology["cards"] if card["index"] == 0)
    assert (user["container"], user["container_name"]) == ("4f1d2c3b4a59", None)
    (finding,) = topology["findings"]
    assert finding["message"].startswith("docker ps failed (status 1)")


def test_a_process_of_hl_smis_table_gets_its_owner_only_if_it_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay_out(tmp_path, monkeypatch)
    busy = {"": CommandResult(0, recorded("1.16.0/hl-smi.txt"), "")}
    process(tmp_path, 618796, "ray::ServeRepli", "0::/system.slice/ray.service", [])
    with commands(monkeypatch, node(busy)):
        topology = run_main("gaudi_topology_info", {})["topology"]
    (user,) = next(card["users"] for card in topology["cards"] if card["index"] == 6)
    assert (user["pid"], user["unit"]) == (618796, "ray.service")
    assert user["account"] == pwd.getpwuid(os.getuid()).pw_name
    (tmp_path / "proc/618796/comm").write_text("bash\n", encoding="utf-8")
    with commands(monkeypatch, node(busy)):
        topology = run_main("gaudi_topology_info", {})["topology"]
    (user,) = next(card["users"] for card in topology["cards"] if card["index"] == 6)
    assert (user["pid"], user["name"], user["unit"]) == (618796, "ray::ServeRepli", None)


def test_a_bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay_out(tmp_path, monkeypatch)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with commands(monkeypatch, node(), programs=["timeout"]) as run:
        topology = run_main("gaudi_topology_info", {})["topology"]
    assert run == []
    assert [finding["id"] for finding in topology["findings"]] == ["not-root", "no-hl-smi", "unreadable"]
    assert "ip address show failed or is not installed" in topology["findings"][2]["message"]
    assert [card["module_id"] for card in topology["cards"]] == list(range(8))


def test_the_picture_shows_reservations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay_out(tmp_path, monkeypatch)
    held = {"qwq-32b": {"cards": [{"module_id": 3, "serial": "AM50016130"}], "since": "2026-11-21T03:04:05+00:00"}}
    (tmp_path / "cards.lock").write_text(render_reservations(held), encoding="utf-8")
    with commands(monkeypatch, node()):
        result = run_main("gaudi_topology_info", {})
    (line,) = [line for line in result["picture"].split("\n") if "0000:33:00.0" in line]
    assert "for qwq-32b" in line
    assert result["picture"].count("free") == 7
    (tmp_path / "cards.lock").write_bytes(b"\xff")
    with commands(monkeypatch, node()):
        result = run_main("gaudi_topology_info", {})
    assert "cards.lock is damaged: it is no text" in result["topology"]["findings"][0]["message"]
    assert "warning: " in " ".join(result["picture"].split())  # wherever the line is broken, which the path decides


def test_there_are_no_options() -> None:
    module = importlib.import_module("gaudi_topology_info")
    assert yaml.safe_load(module.DOCUMENTATION)["options"] == module.ARGUMENT_SPEC == {}
    assert "Unsupported parameters" in run_main("gaudi_topology_info", {"hl_smi": "elsewhere"})["msg"]


def test_the_documentation_names_what_is_returned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay_out(tmp_path, monkeypatch)
    process(tmp_path, 99, "python3", "0::/system.slice/foo.service", ["/dev/null"])
    with commands(monkeypatch, node()):
        topology = run_main("gaudi_topology_info", {})["topology"]
    documented = yaml.safe_load(importlib.import_module("gaudi_topology_info").RETURN)["topology"]["contains"]
    assert set(topology) == set(documented)
    for card in topology["cards"]:
        assert set(card) == set(documented["cards"]["contains"])
        for user in card["users"]:
            assert set(user) == set(documented["cards"]["contains"]["users"]["contains"])
