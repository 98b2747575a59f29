"""Who listens: the kernel's list, the process behind a socket, and whether it is a container's."""

from __future__ import annotations

import ast
import contextlib
import http.client
import itertools
import os
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from ansible.module_utils.gaudi.base.listeners import Listener, reached
from ansible.module_utils.gaudi.node import listening
from ansible.module_utils.gaudi.serving.cgroup import is_of_container

from tests.unit.ports import free_port

ID = "4f" * 32
V2 = f"0::/system.slice/docker-{ID}.scope\n"
V1 = f"12:pids:/docker/{ID}\n4:memory:/docker/{ID}\n1:name=systemd:/docker/{ID}\n0::/system.slice/docker.service\n"


@pytest.mark.parametrize(
    ("process", "main", "own"),
    [
        (V2, V2, True),
        (f"0::/system.slice/docker-{ID}.scope/below\n", V2, True),
        (V1, V1, True),
        ("0::/user.slice/user-1000.slice/session-3.scope\n", V2, False),
        # A user names a group of his own as he likes.
        (f"0::/user.slice/user-1000.slice/user@1000.service/docker-{ID}.scope\n", V2, False),
        (f"0::/system.slice/docker-{ID}.scope-mine\n", V2, False),
        ("0::/system.slice/docker-" + "5a" * 32 + ".scope\n", V2, False),
        # Of v1's hierarchies all have to agree.
        (V1.replace(f"4:memory:/docker/{ID}", "4:memory:/user.slice"), V1, False),
        (f"12:pids:/docker/{ID}\n", V1, False),
        ("", V2, False),
        # A main process that is in nobody's group makes nothing its own.
        ("0::/\n", "0::/\n", False),
        (V2, "", False),
    ],
)
def test_a_process_is_a_containers_by_its_whole_control_group(process: str, main: str, own: bool) -> None:
    assert is_of_container(process, main, ID) is own


OURS, OTHER = Listener("127.0.0.1", 30001, 1), Listener("10.0.0.5", 30001, 2)
EVERY, EVERY_V6 = Listener("*", 30001, 3), Listener("*", 30001, 4, version=6)


@pytest.mark.parametrize(
    ("listeners", "address", "found"),
    [
        ([], "127.0.0.1", []),
        ([Listener("127.0.0.1", 30002, 1)], "127.0.0.1", []),
        ([OTHER], "127.0.0.1", []),
        # One of just this address takes the connection; [::] beside it may be anybody's, for IPv6 alone.
        ([EVERY_V6, OURS], "127.0.0.1", [OURS]),
        ([EVERY_V6, EVERY], "127.0.0.1", [EVERY]),
        ([EVERY_V6], "127.0.0.1", [EVERY_V6]),
        ([EVERY], "::1", []),
        ([EVERY_V6], "::1", [EVERY_V6]),
        # Sockets that share a port: each has to be the server's.
        ([OURS, Listener("127.0.0.1", 30001, 9)], "127.0.0.1", [OURS, Listener("127.0.0.1", 30001, 9)]),
        # One of a single address takes from a wildcard socket what comes to this address.
        ([EVERY, OTHER], "127.0.0.1", [EVERY, OTHER]),
        ([EVERY_V6, OTHER], "127.0.0.1", [EVERY_V6, OTHER]),
        ([EVERY, Listener("2001:db8::7", 30001, 9, version=6)], "127.0.0.1", [EVERY]),
        ([OURS, OTHER], "127.0.0.1", [OURS]),
    ],
)
def test_which_socket_takes_a_connection(listeners: list[Listener], address: str, found: list[Listener]) -> None:
    assert reached(listeners, address, 30001) == found


def test_a_socket_of_this_process_is_found_with_its_holder() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        assert listening.listeners_at("127.0.0.1", port) == []
        server.listen()
        (found,) = listening.listeners_at("127.0.0.1", port)
        assert (found.uid, found.inode) == (os.getuid(), os.fstat(server.fileno()).st_ino)
        assert os.getpid() in list(listening.holders_of(found.inode))
        assert listening.describe(found).endswith(f"(pid {os.getpid()}, uid {os.getuid()})")
        name = Path("/proc/self/comm").read_text().strip()
        assert listening.describe(found).startswith(name)
    assert listening.listeners_at("127.0.0.1", port) == []


def test_a_socket_whose_process_cannot_be_seen_is_told_by_its_uid() -> None:
    assert listening.describe(Listener("127.0.0.1", 1, 1, uid=1000)) == "a process that cannot be seen (uid 1000)"


def test_a_process_that_takes_the_port_before_the_connection_is_sent_nothing() -> None:
    """It listens once the server's socket was checked, and accepts the connection that is meant for the server."""
    port = free_port()
    server = socket.create_server(("127.0.0.1", port))
    thief = socket.socket()
    thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    known = listening.known_sockets(frozenset({os.fstat(server.fileno()).st_ino}))

    def check_then_lose_the_port(address: str, port: int) -> frozenset[int]:
        sockets = known(address, port)
        server.close()
        thief.bind((address, port))
        thief.listen()
        return sockets

    with server, thief:
        with pytest.raises(ConnectionRefusedError, match="was sent nothing"):
            listening.connected(f"http://127.0.0.1:{port}", check_then_lose_the_port, 5.0)
        accepted, _ = thief.accept()
        with accepted:
            assert accepted.recv(100) == b""


def test_sockets_that_change_while_a_server_is_asked_are_not_trusted() -> None:
    numbers = itertools.count(1)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        pytest.raises(ConnectionAbortedError, match="changed hands"),
    ):
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        listening.connected(url, lambda _address, _port: frozenset({next(numbers)}), 5.0)


def test_a_checked_connection_is_never_made_again_without_a_check() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        own = frozenset({os.fstat(server.fileno()).st_ino})
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        connection, sockets = listening.connected(url, listening.known_sockets(own), 5.0)
        assert sockets == own
        connection.close()
        with pytest.raises(http.client.NotConnected):
            listening.answer(connection, "/health", {}, 100)


def test_programs_that_send_a_token_connect_only_after_these_checks() -> None:
    root = Path(__file__).parents[3]
    folders = ("library", "module_utils", "roles/vllm_service/files", "roles/offline_batch/files")
    programs = [path for folder in folders for path in (root / folder).rglob("*.py")]
    connecting = {
        path.name
        for path in programs
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("HTTPConnection")
    }
    assert connecting == {"listening.py"}


# --- what is answered --------------------------------------------------------------------------------------

# Seconds after which an answer without end ends all the same; more than those that a caller gives it.
SENDING = 60.0
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"


@contextmanager
def answering(parts: Iterable[bytes], pause: float) -> Iterator[http.client.HTTPConnection]:
    """A connection to a server that answers with these parts, a pause after each, until nobody listens any more.

    It ends by itself after a while: whoever reads on for so long is to fail the test, not to hang in it.
    """
    with socket.create_server(("127.0.0.1", 0)) as door:

        def serve() -> None:
            came, _ = door.accept()
            until = time.monotonic() + SENDING
            with came, contextlib.suppress(OSError):
                came.recv(65536)
                for part in itertools.takewhile(lambda _part: time.monotonic() < until, parts):
                    came.sendall(part)
                    time.sleep(pause)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        connection = http.client.HTTPConnection("127.0.0.1", door.getsockname()[1], timeout=1.0)
        try:
            yield connection
        finally:
            connection.close()
            thread.join()


def test_an_answer_is_read() -> None:
    with answering([b"HTTP/1.1 100 Continue\r\n\r\n", HEAD, b"abcde"], 0.0) as connection:
        assert listening.answer(connection, "/health", {}, 3) == (200, b"abc")


DRIPS = {
    "interim answers": (b"HTTP/1.1 100 Continue\r\n\r\n" for _ in iter(int, 1)),
    "a status": (b"H" for _ in iter(int, 1)),
    "headers": itertools.chain([b"HTTP/1.1 200 OK\r\n"], (b"X: y\r\n"[n % 6 : n % 6 + 1] for n in itertools.count())),
    "a body": itertools.chain([b"HTTP/1.1 200 OK\r\n\r\n"], (b"x" for _ in iter(int, 1))),
}


@pytest.mark.parametrize("parts", DRIPS.values(), ids=DRIPS.keys())
def test_an_answer_in_drops_holds_nobody(parts: Iterable[bytes]) -> None:
    begun = time.monotonic()
    with answering(parts, 0.05) as connection, pytest.raises((OSError, http.client.HTTPException)):
        listening.answer(connection, "/health", {}, 100)
    assert time.monotonic() - begun < SENDING


def test_an_answer_without_end_is_left() -> None:
    flood = itertools.repeat(b"HTTP/1.1 100 Continue\r\n\r\n" * 4000)
    with answering(flood, 0.0) as connection, pytest.raises(OSError, match="more than an answer has"):
        connection.timeout = 60.0
        listening.answer(connection, "/health", {}, 100)
