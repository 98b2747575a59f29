"""Which addresses are tried, and what is said of one that does not answer."""

from __future__ import annotations

import errno
import http.client
import socket
from typing import Any

import pytest
from ansible.module_utils.gaudi.serving import reach


def plan(instance: str, host: str, port: int = 30001) -> dict[str, Any]:
    return {"instance": instance, "listen": {"host": host, "port": port}}


def test_only_servers_for_others_are_tried_at_the_address_that_is_known() -> None:
    plans = [plan("one", "0.0.0.0"), plan("two", "::", 2), plan("three", "10.20.0.11"), plan("own", "127.0.0.1")]
    found = reach.targets([*plans, plan("named", "gaudi-01.example"), plan("local", "localhost")], "10.20.0.99")
    assert found == {
        "one": ("10.20.0.99", 30001),
        "two": ("10.20.0.99", 2),
        "three": ("10.20.0.11", 30001),
        "named": ("gaudi-01.example", 30001),
    }
    assert reach.targets(plans, "127.0.0.1") == {"three": ("10.20.0.11", 30001)}


@pytest.mark.parametrize(
    ("error", "connected", "said"),
    [
        (TimeoutError("timed out"), False, "nothing answered within 3 s"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), False, "refused"),
        (OSError(errno.EHOSTUNREACH, "No route to host"), False, "No route to host"),
        (OSError(errno.ENETUNREACH, "Network is unreachable"), False, "Network is unreachable"),
        (socket.gaierror(-2, "Name or service not known"), False, "no address for this name"),
        (TimeoutError("timed out"), True, "nothing within 3 s"),
        (http.client.BadStatusLine("SSH-2.0-x\x1b[2J"), True, "SSH-2.0-x"),
    ],
)
def test_the_cause_is_what_happened(error: Exception, connected: bool, said: str) -> None:
    text = reach.cause(error, 3, connected=connected)
    assert said in text
    assert ("was accepted" in text) is connected
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("firewalls", "opened", "said", "unsaid"),
    [
        (["firewalld (zone public)"], False, ["firewalld (zone public)", "vllm_service_open_firewall"], "no firewall"),
        (["ufw"], True, ["ufw", "vllm_service_firewall_sources"], "vllm_service_open_firewall"),
        (["nftables (table inet filter, chain input: policy drop)"], False, ["policy drop", "30001"], "vllm_service_"),
        ([], False, ["no firewall", "network between"], "vllm_service_"),
        (None, False, ["did not say"], "vllm_service_"),
    ],
)
def test_the_firewall_that_may_be_the_cause_is_named(
    firewalls: list[str] | None, opened: bool, said: list[str], unsaid: str
) -> None:
    target = ("10.20.0.11", 30001)
    text = reach.sentence("chat", "gaudi-01", target, "nothing answered within 3 s", firewalls, opened=opened)
    for part in ["chat", "gaudi-01", "http://10.20.0.11:30001", *said]:
        assert part in text
    assert unsaid not in text


def test_a_name_that_is_not_known_is_no_fault_of_a_firewall() -> None:
    text = reach.sentence("chat", "gaudi-01", ("gaudi-01", 30001), reach.NAME, ["ufw"], opened=False)
    assert "ansible_host" in text
    assert "ufw" not in text
    assert "http://[2001:db8::1]:2" in reach.sentence("a", "b", ("2001:db8::1", 2), "x", [], opened=False)
