"""The controller tries what others are to reach, without a key and without a proxy, and only warns."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.module_utils.gaudi.serving import reach
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from action_plugins import vllm_service_reach
from plugin_utils.resolving import is_own
from tests.unit.host.modules import run_main, script
from tests.unit.node.test_firewall import ADDRESSES, ROUTES
from tests.unit.serving.test_firewall import NFT, STRICT
from tests.unit.serving.test_reach import plan

# What the controller resolves; an address stands for itself.
HOSTS = {"gaudi-01": ["10.20.0.11"], "gaudi-02": ["127.0.1.1"]}
OWN = ("10.20.0.1", "127.0.1.1")
NODE = {"firewalls": ["ufw"], "addresses": ["10.20.0.11", "192.0.2.4"]}


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers of these tests listen on loopback, and stand for other machines."""
    monkeypatch.setattr(vllm_service_reach, "is_routable", lambda _: True)
    monkeypatch.setattr(vllm_service_reach, "is_own", lambda _: False)


@pytest.fixture
def guarded() -> Iterator[tuple[int, list[dict[str, str]]]]:
    """A server that wants a key: its port, and the headers of each request."""
    seen: list[dict[str, str]] = []

    class Guard(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(dict(self.headers))
            self.send_response(401)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Guard) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield server.server_address[1], seen
        server.shutdown()


@pytest.mark.usefixtures("beside")
def test_any_answer_counts_and_neither_key_nor_proxy_is_used(
    guarded: tuple[int, list[dict[str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    port, seen = guarded
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        refused = closed.getsockname()[1]
    causes = vllm_service_reach.try_all({"one": ("127.0.0.1", port), "two": ("127.0.0.1", refused)})
    assert list(causes) == ["two"]
    assert "refused" in causes["two"]
    assert [headers for headers in seen if "authorization" in {name.lower() for name in headers}] == []
    assert len(seen) == 1


@pytest.mark.parametrize(
    "answers",
    [
        *(["127.0.0.1"], ["127.0.1.1"], ["169.254.169.254"], ["0.0.0.0"], ["0.1.2.3"], ["224.0.0.1"]),
        *(["::1"], ["fe80::1%eth0"], ["::ffff:169.254.169.254"], ["64:ff9b::a9fe:a9fe"]),
    ],
)
def test_a_reported_name_that_leads_to_the_controller_or_its_link_is_not_asked(
    guarded: tuple[int, list[dict[str, str]]], monkeypatch: pytest.MonkeyPatch, answers: list[str]
) -> None:
    """Whoever controls a node and a name can choose what the name stands for."""
    port, seen = guarded
    asked: list[object] = []

    def connect(place: object, *_: object, **__: object) -> socket.socket:
        asked.append(place)
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(2, 1, 6, "", (each, port)) for each in answers])
    monkeypatch.setattr(socket, "create_connection", connect)
    why = vllm_service_reach.try_once("chat.attacker.example", port)
    assert (asked, seen) == ([], [])
    assert "no other machine" in why
    assert "http://chat" in reach.sentence("chat", "gaudi-01", ("chat", port), why, ["ufw"], opened=False)


def test_a_service_of_the_controller_is_not_asked_at_its_own_address(
    guarded: tuple[int, list[dict[str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as that of its network card, or 172.17.0.1 of its Docker; here 127.0.0.1 stands for one of those."""
    port, seen = guarded
    monkeypatch.setattr(vllm_service_reach, "is_routable", lambda _: True)
    why = vllm_service_reach.try_once("127.0.0.1", port)
    assert seen == []
    assert why == reach.OWN
    said = reach.sentence("chat", "gaudi-01", ("172.17.0.1", port), why, ["ufw"], opened=False)
    assert "the controller itself" in said
    assert "ufw" not in said


def test_of_a_reported_name_only_addresses_of_other_machines_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    monkeypatch.setattr(vllm_service_reach, "is_own", {"10.20.0.1": True, "10.20.0.11": False}.__getitem__)
    monkeypatch.setattr(vllm_service_reach, "addresses_of", lambda *_: ["127.0.0.1", "10.20.0.1", "10.20.0.11"])

    def answer(address: str, _: int) -> tuple[str, bool]:
        tried.append(address)
        return "", True

    monkeypatch.setattr(vllm_service_reach, "try_address", answer)
    assert vllm_service_reach.try_once("chat.attacker.example", 80) == ""
    assert tried == ["10.20.0.11"]


def test_an_address_from_which_the_kernel_sends_to_it_is_the_controllers_own() -> None:
    assert is_own("127.0.0.1")


def test_an_address_without_a_route_or_of_others_is_not_the_controllers_own() -> None:
    assert [each for each in ("192.0.2.251", "198.51.100.7", "2001:db8::7", "255.255.255.255") if is_own(each)] == []


def test_a_name_is_resolved_once_and_its_checked_address_is_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a second answer could be another one."""
    lookups = iter([["127.0.0.1", "192.0.2.4", "192.0.2.5"], ["127.0.0.1"]])
    tried: list[str] = []

    def connect(place: tuple[str, int], *_: object, **__: object) -> socket.socket:
        tried.append(place[0])
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(2, 1, 6, "", (each, 0)) for each in next(lookups)])
    monkeypatch.setattr(socket, "create_connection", connect)
    assert "refused" in vllm_service_reach.try_once("chat.site.example", 30001)
    assert tried == ["192.0.2.4", "192.0.2.5"]


@pytest.mark.usefixtures("beside")
def test_what_hangs_ends_with_the_time_that_all_have_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_service_reach, "TIMEOUT", 0.05)
    monkeypatch.setattr(vllm_service_reach, "LONGEST", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        targets = {str(number): silent.getsockname() for number in range(8)}
        causes = vllm_service_reach.try_all(targets)
    assert set(causes) == set(targets)
    release = threading.Event()
    monkeypatch.setattr(vllm_service_reach, "try_once", lambda *_: release.wait(300))
    assert "nothing answered" in vllm_service_reach.try_all({"name": ("a name that is looked up", 1)})["name"]
    release.set()


class ReachRun:
    """One run of the action, with what it tried and asked the node."""

    def __init__(
        self,
        patch: pytest.MonkeyPatch,
        plans: list[dict[str, Any]],
        why: str,
        variables: dict[str, Any],
        transport: str,
    ) -> None:
        self.tried: list[tuple[str, int]] = []
        self.asked: list[dict[str, Any]] = []
        tried, asked = self.tried, self.asked

        def try_once(address: str, port: int) -> str:
            tried.append((address, port))
            return why

        patch.setattr(vllm_service_reach, "try_once", try_once)
        patch.setattr(vllm_service_reach, "addresses_of", lambda host, _: HOSTS.get(host, [host]))
        patch.setattr(vllm_service_reach, "is_own", OWN.__contains__)

        class ScriptedReach(vllm_service_reach.ActionModule):
            def __init__(self) -> None:
                self._task = SimpleNamespace(args={"plans": plans}, check_mode=False, diff=False, async_val=0)
                self._connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir=None), transport=transport)
                self._templar = Templar(loader=DataLoader(), variables={"site_address": "10.20.0.11"})

            def _execute_module(self, **options: Any) -> dict[str, Any]:
                asked.append(options["module_args"])
                return dict(NODE)

        self.answer = ScriptedReach().run(None, {"inventory_hostname": "gaudi-01", **variables})


@pytest.mark.parametrize(
    ("plans", "why", "variables", "tried", "asks"),
    [
        # What only the node reaches is not tried, and a node that is reached is not asked anything.
        ([plan("chat", "127.0.0.1")], "refused", {}, [], False),
        ([plan("chat", "0.0.0.0")], "", {"ansible_host": "10.20.0.11"}, ["10.20.0.11"], False),
        (
            [plan("chat", "0.0.0.0")],
            "",
            {"ansible_host": trust_as_template("{{ site_address }}")},
            ["10.20.0.11"],
            False,
        ),
        ([plan("chat", "0.0.0.0")], "", {}, ["gaudi-01"], False),
        ([plan("chat", "0.0.0.0"), plan("own", "::1")], "refused", {}, ["gaudi-01"], True),
        # Through a tunnel the controller knows no address of the node but the node's own.
        ([plan("chat", "0.0.0.0")], "", {"ansible_host": "127.0.0.1"}, ["10.20.0.11"], True),
        ([plan("chat", "192.0.2.4")], "", {"ansible_host": "127.0.0.1"}, ["192.0.2.4"], True),
        # The controller's own name in its /etc/hosts.
        ([plan("chat", "0.0.0.0")], "", {"ansible_host": "gaudi-02"}, ["10.20.0.11"], True),
        # A port of the controller that is forwarded to the node.
        ([plan("chat", "0.0.0.0")], "", {"ansible_host": "10.20.0.1"}, ["10.20.0.11"], True),
    ],
)
def test_what_is_tried_and_when_the_node_is_asked(
    monkeypatch: pytest.MonkeyPatch,
    plans: list[dict[str, Any]],
    why: str,
    variables: dict[str, Any],
    tried: list[str],
    asks: bool,
) -> None:
    run = ReachRun(monkeypatch, plans, why, variables, "ssh")
    assert [address for address, _ in run.tried] == tried
    assert bool(run.asked) is asks
    warned = bool(why and tried)
    assert not run.answer.get("failed")
    assert bool(run.answer.get("warnings")) is warned
    assert [text for text in run.answer["unreached"] if "http://gaudi-01:30001" in text and "ufw" in text] == (
        run.answer["unreached"]
    )


@pytest.mark.parametrize(("host", "warned"), [("10.20.0.1", False), ("127.0.0.1", False), ("10.20.0.11", True)])
def test_a_controller_that_is_the_node_asks_nothing_of_itself_and_warns_of_nothing(
    monkeypatch: pytest.MonkeyPatch, host: str, warned: bool
) -> None:
    """Where the inventory has another machine, the node reports an address that leads nowhere, and the run warns."""
    run = ReachRun(monkeypatch, [plan("chat", "10.20.0.1")], reach.OWN, {"ansible_host": host}, "ssh")
    assert bool(run.answer.get("warnings")) is warned


def test_a_run_on_the_node_itself_proves_nothing_and_tries_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    run = ReachRun(monkeypatch, [plan("chat", "0.0.0.0")], "refused", {}, "local")
    assert (run.tried, run.asked, run.answer["unreached"]) == ([], [], [])


def test_the_node_names_its_firewalls_and_its_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    programs: dict[str, Any] = {
        "ip": lambda command: (0, ROUTES if "route" in command else ADDRESSES, ""),
        "nft": lambda _: (0, NFT + STRICT, ""),
        "ufw": lambda _: (0, "Status: inactive\n", ""),
        "firewall-cmd": lambda _: (252, "", "not running\n"),
    }
    script(monkeypatch, programs)
    found = run_main("library.vllm_service_reach", {"host": "0.0.0.0"})
    assert found["addresses"] == ["192.0.2.4", "10.20.0.11"]
    assert found["firewalls"] == ["nftables (table inet filter, chain input: policy drop)"]
    programs["ufw"] = lambda _: (0, "Status: active\n", "")
    assert run_main("library.vllm_service_reach", {"host": "0.0.0.0"})["firewalls"] == ["ufw"]
    programs["firewall-cmd"] = lambda command: (0, "running\n" if "--state" in command else "public\n", "")
    assert run_main("library.vllm_service_reach", {"host": "0.0.0.0"})["firewalls"] == [
        "firewalld (zone public)",
        "ufw",
    ]
