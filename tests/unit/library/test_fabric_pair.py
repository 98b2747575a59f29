"""fabric_pair: what a node says before it meets another one, and its half of the run."""

from __future__ import annotations

import fcntl
import json
import socket
from typing import Any

import pytest
from ansible.module_utils.gaudi.faults.facts import Facts
from ansible.module_utils.gaudi.node import links

from library import fabric_pair
from tests.unit.host.modules import run_main
from tests.unit.library.test_fabric_check import CARD_TYPES, IMAGE, FabricNode, check, node

__all__ = ["node"]
USER = {"pid": 1, "name": "python3", "unit": None, "container": None, "container_name": None}


@pytest.fixture(autouse=True)
def places(node: FabricNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node's own files, and an address that others reach."""
    monkeypatch.setattr(links, "VERDICT", node.folder / "acceptance.json")
    monkeypatch.setattr(links, "LOCK", node.folder / "acceptance.lock")
    monkeypatch.setattr(fabric_pair, "read_topology", node.topology)
    monkeypatch.setattr(fabric_pair, "outside", lambda _addresses: [("eth0", "127.0.0.1"), ("eth0", "fd00::1")])


def look(**given: Any) -> dict[str, Any]:
    arguments = {"state": "ready", "image": IMAGE, "card_types": CARD_TYPES, "expected_cards": 8, **given}
    return run_main("library.fabric_pair", arguments, check=True)


HALF: dict[str, Any] = {
    **{"image": IMAGE, "half": 0, "address": "10.20.0.11", "port": 41234, "modules": list(range(8))},
    **{"collective": "all_reduce", "size": 33554432, "loop": 100, "limit": 77},
}


def half(number: int = 0, *, check: bool = False, **given: Any) -> dict[str, Any]:
    return run_main("library.fabric_pair", {**HALF, "half": number, **given}, check=check)


def test_a_sound_node_says_what_it_takes_part_with(node: FabricNode) -> None:
    said = look()
    assert (said["ready"], said["why"], said["modules"]) == (True, "", list(range(8)))
    assert said["card_type"] == "HL-225"
    assert said["address"] == "127.0.0.1"
    with socket.socket() as free:
        free.bind(("127.0.0.1", said["port"]))
    assert said["verdict"] == {}
    assert node.measured() == []
    check()
    assert look()["verdict"]["state"] == "accepted"
    (node.folder / "acceptance.json").write_text("{")
    assert look()["verdict"] == {}


def test_why_a_node_takes_no_part(node: FabricNode, monkeypatch: pytest.MonkeyPatch) -> None:
    node.users = {3: [USER]}
    assert look()["why"] == "Module 3 is in use. Stop what uses them."
    node.users, node.down = {}, [(5, 9)]
    assert "internal ports down: 9" in look()["why"]
    node.down, node.image = [], False
    assert IMAGE in look()["why"]
    node.image, node.name, node.tells_ports = True, "HL-288E", False
    assert "fabric_check_host_nics" in look()["why"]
    assert look(host_nics=True)["ready"]
    node.name, node.tells_ports = "HL-225", True
    monkeypatch.setattr(fabric_pair, "outside", lambda _addresses: [])
    assert "fabric_check_address" in look()["why"]
    node.name = "HL-999"
    assert "no cards that the catalogue knows" in look()["why"]


def test_the_address_of_the_inventory_comes_before_the_first_one(
    node: FabricNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert node.modules
    monkeypatch.setattr(fabric_pair, "outside", lambda _: [("ens1", "127.0.0.1"), ("ens2", "127.0.0.2")])
    said = look(preferred=["192.0.2.1", "127.0.0.2"])
    assert (said["address"], said["interface"]) == ("127.0.0.2", "ens2")
    # Behind another address the node has none of them.
    assert look(preferred=["192.0.2.1"])["address"] == "127.0.0.1"


def test_what_cannot_be_is_refused(node: FabricNode) -> None:
    assert node.modules
    assert look(address="192.0.2.1")["refused_id"] == "no_such_address_here"


@pytest.mark.parametrize("option", HALF)
def test_a_half_is_not_run_without_what_it_needs(node: FabricNode, option: str) -> None:
    lacking = run_main("library.fabric_pair", {name: value for name, value in HALF.items() if name != option})
    assert lacking["msg"].endswith(f": {option}")
    assert node.measured() == []


def test_a_half_is_told_where_rank_0_is_and_which_ranks_are_here(node: FabricNode) -> None:
    half(1, modules=[0, 1, 2, 3])
    (command,) = node.measured()
    assert command[2] == "77"
    assert "HCCL_COMM_ID=10.20.0.11:41234" in command
    text = " ".join(command)
    assert "--nranks 8 --ranks_per_node 4 --node_id 1" in text
    assert "HCCL_GAUDI_DIRECT" not in text
    half(1, host_nics=True, direct=True, interface="ens1")
    assert {"HCCL_GAUDI_DIRECT=1", "FI_EFA_USE_DEVICE_RDMA=1", "HCCL_SOCKET_IFNAME=ens1"} <= set(node.measured()[1])
    assert "--cap-add IPC_LOCK" in " ".join(node.measured()[1])
    half(1, host_nics=True)
    assert "HCCL_OVER_OFI=1" in node.measured()[2]


def test_the_first_half_has_the_figure_for_all_ranks(node: FabricNode) -> None:
    node.ranks = 16
    said = {"changed": False, "nw_gb_s": 258.209121, "sentence": "", "no_direct": False}
    assert half() == {**said, "invocation": half()["invocation"]}
    node.ranks = 8
    assert "contradict each other" in half()["sentence"], "the factor is that of 8 ranks"


@pytest.mark.parametrize(("driver", "names"), [("1.22.2-32", False), ("1.23.0-695", True)])
def test_a_half_compares_the_driver_with_the_release_of_the_image(
    node: FabricNode, driver: str, names: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "read_facts", lambda _indexes: Facts(holders=()))
    node.driver, node.fails = driver, "HCCL demo error: synDeviceAcquire(&handle, nullptr) failed with synapse error: 8"
    node.labels = {"gaudi-serving.image.version.habana-torch-plugin": "1.22.2.32"}
    assert ("are of two releases" in half()["sentence"]) is names


def test_a_half_that_misses_gaudi_direct_says_so_where_it_was_asked_for(node: FabricNode) -> None:
    node.without_direct = "Gaudi-direct not supported due to libfabric version 1.17"
    missed = half(host_nics=True, direct=True)
    assert (missed["nw_gb_s"], missed["no_direct"]) == (None, True)
    assert "libfabric version 1.17" in missed["sentence"]
    node.ranks = 16
    assert half(host_nics=True)["no_direct"] is False
    node.without_direct = "HCCL demo error: it broke"
    assert half(host_nics=True, direct=True)["no_direct"] is False


@pytest.mark.parametrize(("told", "asks"), [(True, True), (None, True), (False, False)])
def test_gaudi_direct_is_asked_for_unless_the_verdict_says_that_there_is_none(
    node: FabricNode, told: bool | None, asks: bool
) -> None:
    assert look(host_nics=True)["direct"], "no verdict says so"
    check()
    nics: dict[str, Any] = {"libfabric": None, "provider": None, "wrapper": None, "gaudi_direct": told, "faults": []}
    (node.folder / "acceptance.json").write_text(json.dumps({**node.verdict(), "host_nics": nics}))
    assert look(host_nics=True)["direct"] is asks
    assert not look()["direct"], "the cards' own ports carry the traffic"


def test_what_goes_wrong_is_a_sentence_and_no_failure(node: FabricNode) -> None:
    node.status = 124
    assert "77 s" in half(1)["sentence"]
    node.status, node.users = 0, {3: [USER]}
    assert "Modules 3 came into use" in half()["sentence"]
    node.users = {}
    with (node.folder / "acceptance.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert "Another run measures" in half()["sentence"]
    runs = len(node.measured())
    assert half(check=True)["nw_gb_s"] is None
    assert len(node.measured()) == runs
