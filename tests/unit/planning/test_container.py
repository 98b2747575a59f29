"""What a container is given is never more than its release's manual asks for, and where nothing asks, less."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.module_utils.gaudi.catalogue.fabric import HOST_NICS_VARIABLES

from tests.golden.serving_cases import vendor

from .test_releases import RELEASES


def container(release: str, **options: Any) -> dict[str, Any]:
    """The container of a plan."""
    plan = vendor.plan_request(release, {"instance": "a", "weights": "/models/x", **options})
    assert "refused" not in plan, plan
    return dict(plan["container"])


@pytest.mark.parametrize("release", RELEASES)
def test_memory_is_shared_with_nobody_unless_that_is_wished(release: str) -> None:
    asked = vendor.catalogue(release).release.container
    box = container(release)
    assert (box["ipc"], box["shm_mib"], box["network"]) == ("private", 16384, asked.network)
    assert set(box["capabilities"]) <= set(asked.capabilities)
    assert ("memlock" in box["ulimits"]) <= asked.memlock
    assert 0 < box["pids"] < 2**22, "the kernel's own limit, which a fork bomb must not reach"
    back = container(release, ipc="host")
    assert (back["ipc"], back["shm_mib"]) == ("host", None)


@pytest.mark.parametrize("value", ["shareable", "container:other", "none", "", "host\n", None, True])
def test_nothing_else_is_an_ipc(value: object) -> None:
    plan = vendor.plan_request("1.22", {"instance": "a", "weights": "/models/x", "ipc": value})
    if value is None:
        assert plan["container"]["ipc"] == "private"
    else:
        assert plan["refused_id"] == "unknown_choice"


def test_cards_that_talk_over_host_nics_have_what_the_manuals_ask_for() -> None:
    request = {"instance": "a", "weights": "/models/x", "tensor_parallel_size": 8}
    plan = vendor.plan_request("1.22", request, "pcie8", host_nics=True)
    assert plan["requires"]["host_nics"] is True
    assert plan["container"]["ipc"] == "host"
    given = plan["container"]["environment"]
    assert HOST_NICS_VARIABLES.items() <= given.items()
    assert {**given, **plan["environment"]}["HCCL_SOCKET_IFNAME"] not in ("", "lo")
    assert plan["container"]["capabilities"] == ["SYS_NICE", "IPC_LOCK"]
    assert plan["container"]["ulimits"]["memlock"] == -1
    wished = vendor.plan_request("1.22", {**request, "ipc": "private"}, "pcie8", host_nics=True)
    assert wished["container"]["ipc"] == "private"


def test_every_release_says_over_which_interface_host_nics_meet(subtests: pytest.Subtests) -> None:
    for release in RELEASES:
        with subtests.test(release=release):
            request: dict[str, Any] = {"instance": "a", "weights": "/models/x", "tensor_parallel_size": 8}
            request["extra_environment"] = {"MLX5_SCATTER_TO_CQE": "1"}
            plan = vendor.plan_request(release, request, "pcie8", host_nics=True)
            both = {**plan["container"]["environment"], **plan["environment"]}
            assert both["HCCL_SOCKET_IFNAME"] not in ("", "lo")
            assert plan["container"]["capabilities"].count("IPC_LOCK") == 1


def test_cards_that_need_no_host_nics_are_given_nothing_of_them() -> None:
    request = {"instance": "a", "weights": "/models/x", "tensor_parallel_size": 4}
    plan = vendor.plan_request("1.22", request, "pcie8", host_nics=True)
    assert not HOST_NICS_VARIABLES.keys() & plan["container"]["environment"].keys()
    assert plan["container"]["capabilities"] == ["SYS_NICE"]


NETWORK = {"VLLM_HOST_IP": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo", "HCCL_SOCKET_IFNAME": "lo"}


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "10.20.0.11"])
@pytest.mark.parametrize("release", RELEASES)
def test_a_servers_processes_talk_over_loopback(release: str, host: str) -> None:
    """Ports between them have no key: wherever clients are served, these are for the node alone."""
    request = {"instance": "a", "weights": "/models/x", "host": host}
    plan = vendor.plan_request(release, request)
    known = vendor.catalogue(release).release.variables
    assert {name: plan["environment"].get(name) for name in NETWORK if name in known} == {
        name: value for name, value in NETWORK.items() if name in known
    }
    back = vendor.plan_request(release, {**request, "node_address": "10.20.0.11"})
    assert back["environment"]["VLLM_HOST_IP"] == "10.20.0.11"


def test_host_nics_keep_the_network_of_the_releases_script() -> None:
    request = {"instance": "a", "weights": "/models/x", "tensor_parallel_size": 8}
    plan = vendor.plan_request("1.21", request, "pcie8", host_nics=True)
    assert plan["requires"]["host_nics"] is True
    assert plan["environment"]["VLLM_HOST_IP"] != "127.0.0.1"


@pytest.mark.parametrize("release", RELEASES)
def test_the_ports_of_a_servers_own_processes_are_known_and_closed(release: str) -> None:
    """PyTorch's store listens on every address whatever it is told."""
    plan = vendor.plan_request(release, {"instance": "a", "weights": "/models/x"})
    if "VLLM_PORT" not in vendor.catalogue(release).release.variables:
        # Nobody can tell this release which ports to take: SECURITY.md says so.
        assert "closed_ports" not in plan["listen"]
        return
    assert plan["environment"]["VLLM_PORT"] == "28000"
    assert plan["listen"]["closed_ports"] == [28000, 28015]
    moved = {"instance": "a", "weights": "/models/x", "extra_environment": {"VLLM_PORT": "40000"}}
    assert vendor.plan_request(release, moved)["listen"]["closed_ports"] == [40000, 40015]


def test_they_go_with_the_lowest_card() -> None:
    request = {"instance": "a", "weights": "/models/x", "modules": [3, 2], "tensor_parallel_size": 2}
    plan = vendor.plan_request("1.22", request)
    assert plan["listen"]["closed_ports"] == [28032, 28047]


@pytest.mark.parametrize("port", [28000, 28127])
def test_clients_are_served_on_none_of_them(port: int) -> None:
    plan = vendor.plan_request("1.22", {"instance": "a", "weights": "/models/x", "port": port})
    assert plan["refused_id"] == "port_kept"
    assert "28000 to 28127" in plan["refused"]
