"""Nobody listens at a server's port in the address family that the server does not use."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from gaudi.base.listeners import Listener
from gaudi.node import listening
from gaudi.serving.plan import Plan
from gaudi_supervisor.other_family import OtherFamily

from tests.integration.vllm_service.node import PATIENCE

if TYPE_CHECKING:
    from tests.integration.vllm_service.node import SupervisedNode

# Becomes a user, and tries to listen at a port over IPv6 alone: once, or again and again with a fourth argument.
INTRUDER = """
import os, socket, sys
os.setuid(int(sys.argv[3]))
tries = 0
while True:
    try:
        with socket.socket(socket.AF_INET6) as door:
            door.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
                door.setsockopt(socket.SOL_SOCKET, option, 1)
            door.bind((sys.argv[1], int(sys.argv[2])))
            door.listen()
            print("listens", flush=True)
            sys.stdin.read()
            break
    except OSError:
        tries += 1
        if len(sys.argv) == 4:
            print("refused", flush=True)
            break
        if tries == 1:
            print("tries", flush=True)
"""
# Another user of the node than root, whose sockets are trusted; tests that run as a user are this user.
USER = os.getuid() or 65534


@contextmanager
def intruder(port: int, address: str = "::", *options: str) -> Iterator[subprocess.Popen[str]]:
    """A user who wants to listen beside the server; its first word has been said when this returns."""
    with subprocess.Popen(
        [sys.executable, "-S", "-c", INTRUDER, address, str(port), str(USER), *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def word_of(process: subprocess.Popen[str]) -> str:
    """The next word that an intruder says."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_server_does_not_start_beside_a_user_who_listens(node: SupervisedNode) -> None:
    with intruder(node.port) as process:
        assert word_of(process) == "listens"
        code, _ = node.run()
        assert (code, node.state["reason"]["kind"]) == (75, "port-taken")
        assert f"(pid {process.pid}, uid {USER})" in node.state["reason"]["message"]
    assert not node.container_exists()


@pytest.mark.parametrize("address", ["::", "::1"])
def test_nobody_can_listen_beside_a_server(node: SupervisedNode, address: str) -> None:
    node.start()
    node.wait_ready()
    with intruder(node.port, address) as process:
        assert word_of(process) == "refused"


def test_nobody_can_listen_while_a_supervisor_hands_over(node: SupervisedNode) -> None:
    supervisor = node.start()
    node.wait_ready()
    with intruder(node.port, "::", "always") as process:
        assert word_of(process) == "tries"
        node.messages.clear()
        supervisor.send_signal(signal.SIGHUP)
        node.wait_ready()
        supervisor.terminate()
        supervisor.communicate(timeout=PATIENCE)
        assert node.state["phase"] == "stopped"
        # Only now is the port free.
        assert word_of(process) == "listens"
    assert supervisor.returncode == 0


def test_an_instance_ends_if_a_user_listens_since_its_supervisor_was_killed(node: SupervisedNode) -> None:
    first = node.start()
    node.wait_ready()
    first.kill()
    first.communicate()
    with intruder(node.port) as process:
        assert word_of(process) == "listens"
        second = node.start("--unhealthy", "0.5")
        output, _ = second.communicate(timeout=PATIENCE)
        assert second.returncode == 75
        assert f"Port {node.port} on :: is taken by " in output
        assert f"(pid {process.pid}, uid {USER})" in output
    assert not node.container_exists()


@pytest.mark.parametrize(
    ("uid", "group", "accepted"),
    [(0, "/system.slice/nginx.service", True), (0, f"/docker/{'c0' * 32}", False), (1000, "/user.slice", False)],
)
def test_a_process_of_root_outside_containers_may_listen(
    node: SupervisedNode, monkeypatch: pytest.MonkeyPatch, uid: int, group: str, accepted: bool
) -> None:
    """It is the site's, such as a gateway that listens over IPv6 for a server of IPv4."""
    with socket.create_server(("::1", node.port), family=socket.AF_INET6) as gateway:
        listener = Listener("::1", node.port, os.fstat(gateway.fileno()).st_ino, uid, 6)
        monkeypatch.setattr(listening, "listeners_of", lambda _version, _port: [listener])
        monkeypatch.setattr(listening, "cgroup_of", lambda pid: "0::/init.scope" if pid == 1 else f"0::{group}")
        held = OtherFamily(Plan.from_document(node.plan))
        held.hold()
    assert (not held.problem) is accepted
    held.hold()
    assert held.problem == ""


def test_an_instance_of_all_addresses_needs_no_second_socket(node: SupervisedNode) -> None:
    node.plan["listen"]["host"] = "::"
    held = OtherFamily(Plan.from_document(node.plan))
    held.hold()
    with socket.create_server(("::", node.port), family=socket.AF_INET6, dualstack_ipv6=True):
        assert held.problem == ""
