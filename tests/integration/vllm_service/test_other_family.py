"""Nobody listens at a server's port in the address family that the server does not use."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from gaudi.base.listeners import Listener
from gaudi.node import listening
from gaudi_supervisor.other_family import OtherFamily
from gaudi_supervisor.systemd import Notifier

from tests.integration.vllm_service.node import PATIENCE
from tests.unit.ports import free_port

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


def word_of(process: subprocess.Popen[str], wait: float = PATIENCE) -> str:
    """The next word that an intruder says; empty if there is none in so many seconds."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], wait)
    return process.stdout.readline().strip() if ready else ""


def kill_a_supervisor(node: SupervisedNode) -> None:
    """Have a server serve without the supervisor that started it."""
    process = node.start()
    node.wait_ready()
    process.kill()
    process.communicate()
    node.messages.clear()


def test_a_server_does_not_start_beside_a_user_who_listens(node: SupervisedNode) -> None:
    with intruder(node.port) as process:
        assert word_of(process) == "listens"
        code, _ = node.run()
        assert (code, node.state["reason"]["kind"]) == (75, "port-taken")
        assert f"(pid {process.pid}, uid {USER})" in node.state["reason"]["message"]
    assert not node.container_exists()


# Becomes a user who has a port over IPv6, with or without SO_REUSEADDR, and listens when it reads a line.
BOUND = """
import os, socket, sys
os.setuid(int(sys.argv[2]))
with socket.socket(socket.AF_INET6) as door:
    door.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(sys.argv[3]))
    door.bind(("::", int(sys.argv[1])))
    print("bound", flush=True)
    sys.stdin.readline()
    try:
        door.listen()
        print("listens", flush=True)
    except OSError:
        print("refused", flush=True)
    sys.stdin.read()
"""


@contextmanager
def bound(port: int, reuse: bool) -> Iterator[subprocess.Popen[str]]:
    """A user who has the port and does not listen yet, beside a connection that has just ended there."""
    with (
        socket.create_server(("127.0.0.1", port)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        accepted, _ = server.accept()
        # The side that ends first keeps the port for a minute.
        accepted.close()
        client.recv(1)
    with subprocess.Popen(
        [sys.executable, "-S", "-c", BOUND, str(port), str(USER), str(int(reuse))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert word_of(process) == "bound"
            yield process
        finally:
            process.kill()


def test_a_server_does_not_start_beside_a_user_who_may_listen_later(node: SupervisedNode) -> None:
    with bound(node.port, reuse=False):
        code, _ = node.run()
    assert (code, node.state["reason"]["kind"]) == (75, "port-taken")
    assert not node.container_exists()


def test_a_user_who_has_the_port_since_before_cannot_listen_beside_a_server(node: SupervisedNode) -> None:
    with bound(node.port, reuse=True) as process:
        node.start()
        node.wait_ready()
        assert process.stdin is not None
        process.stdin.write("now\n")
        process.stdin.flush()
        assert word_of(process) == "refused"


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
        assert word_of(process, wait=0) == ""
        supervisor.terminate()
        supervisor.communicate(timeout=PATIENCE)
        assert node.state["phase"] == "stopped"
        # Only now is the port free.
        assert word_of(process) == "listens"
    assert supervisor.returncode == 0


def test_nobody_can_listen_while_no_supervisor_runs(node: SupervisedNode) -> None:
    """systemd keeps the socket of a supervisor that was killed, or ended since its unit has changed."""
    kill_a_supervisor(node)
    with intruder(node.port) as process:
        assert word_of(process) == "refused"
    second = node.start()
    node.wait_ready()
    node.messages.clear()
    second.send_signal(signal.SIGHUP)
    node.wait_ready()
    with intruder(node.port) as process:
        assert word_of(process) == "refused"
    second.terminate()
    second.communicate(timeout=PATIENCE)
    with intruder(node.port) as process:
        assert word_of(process) == "listens"
    assert second.returncode == 0


def test_a_socket_of_another_plan_is_given_up(node: SupervisedNode) -> None:
    kill_a_supervisor(node)
    former, node.port = node.port, free_port()
    node.plan["listen"]["port"] = node.port
    node.write_plan()
    node.scenario(lines=["INFO hello"])
    node.start()
    node.wait_ready()
    for port, word in ((former, "listens"), (node.port, "refused")):
        with intruder(port) as process:
            assert word_of(process) == word


def test_a_socket_of_the_family_that_the_plan_now_uses_is_given_up(node: SupervisedNode) -> None:
    """Otherwise the supervisor would keep its own server from the port."""
    kill_a_supervisor(node)
    node.plan["listen"]["host"] = "::1"
    node.write_plan()
    second = node.start()
    node.wait_for(lambda: len([call for call in node.calls if call[0] == "run"]) == 2, "the second container")
    second.terminate()
    second.communicate(timeout=PATIENCE)


def test_an_instance_ends_if_a_user_listens_since_the_release_before(node: SupervisedNode) -> None:
    """Its supervisors did not hold the port."""
    kill_a_supervisor(node)
    node.forget()
    with intruder(node.port) as process:
        assert word_of(process) == "listens"
        second = node.start("--unhealthy", "0.5")
        output, _ = second.communicate(timeout=PATIENCE)
        assert second.returncode == 75
        assert f"Port {node.port} on :: is taken by " in output
        assert f"(pid {process.pid}, uid {USER})" in output
    assert not node.container_exists()


def held(host: str, port: int, own: Callable[[Listener], bool]) -> OtherFamily:
    """Hold the port beside a server at an address."""
    plan: Any = SimpleNamespace(port=port, host=host, container={"network": "host"})
    made = OtherFamily(plan, own, Notifier(None), None)
    made.hold()
    return made


def nothing(_listener: Listener) -> bool:
    """No socket is the server's."""
    return False


@pytest.mark.parametrize(
    ("uid", "group", "accepted"),
    [(0, "/system.slice/nginx.service", True), (0, f"/docker/{'c0' * 32}", False), (1000, "/user.slice", False)],
)
def test_a_process_of_root_outside_containers_may_listen(
    monkeypatch: pytest.MonkeyPatch, uid: int, group: str, accepted: bool
) -> None:
    """It is the site's, such as a gateway that listens over IPv6 for a server of IPv4."""
    port = free_port()
    with socket.create_server(("::1", port), family=socket.AF_INET6) as gateway, monkeypatch.context() as patched:
        listener = Listener("::1", port, os.fstat(gateway.fileno()).st_ino, uid, 6)
        patched.setattr(listening, "listeners_of", lambda _version, _port: [listener])
        patched.setattr(listening, "cgroup_of", lambda pid: "0::/init.scope" if pid == 1 else f"0::{group}")
        holder = held("127.0.0.1", port, nothing)
    assert (not holder.problem) is accepted
    holder.hold()
    assert holder.problem == ""


@pytest.mark.parametrize("address", ["127.0.0.1", "::ffff:127.0.0.1"])
def test_who_listens_over_ipv4_beside_a_server_of_ipv6_is_found(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as door:
        door.bind((address, 0))
        door.listen()
        assert [each.inode for each in listening.listeners_of(4, door.getsockname()[1])] == [
            os.fstat(door.fileno()).st_ino
        ]


@pytest.mark.parametrize(("both", "free"), [(True, False), (False, True)])
@pytest.mark.parametrize("host", ["::", "localhost"])
def test_where_the_address_does_not_tell_the_server_does(host: str, both: bool, free: bool) -> None:
    """Whether a server at :: accepts IPv4 depends on its release; a name may have addresses of both families."""
    port = free_port()

    def binds() -> bool:
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            return False
        return True

    assert held(host, port, lambda _listener: True).problem == ""
    assert binds()
    with socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=both):
        holder = held(host, port, lambda _listener: True)
        assert holder.problem == ""
        # Taken by the server itself, or by the socket that is held.
        assert not binds()
    assert binds() is not free
    holder.release()
    assert binds()
