"""Find who listens at an address: the kernel's sockets, the processes behind them, and their answers over HTTP."""

from __future__ import annotations

import contextlib
import http.client
import io
import re
import socket
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..base import paths
from ..base.documents import Damaged
from ..base.listeners import Listener, parse_listeners, reached
from ..base.printable import printable
from ..serving.cgroup import is_of_container
from .documents import read_text
from .files import text_of

PROC = Path("/proc")
# Bytes of an answer before its body: status, headers, and interim responses that http.client skips.
_HEADERS = 256 * 1024
_SOCKET = re.compile(r"socket:\[(\d+)\]")


def listeners_at(address: str, port: int, process: int | str = "self") -> list[Listener]:
    """The sockets of which one accepts a connection, in the network of a process. Raises OSError where it has ended."""
    return reached(_listeners(process), address, port)


def listeners_of(version: int, port: int) -> list[Listener]:
    """The sockets that accept connections to a port over one IP version (4 or 6), at any address of the node.

    One at an address of IPv4 counts as such, also where the kernel lists it with IPv6 (::ffff:127.0.0.1).
    """
    found = [each for each in _listeners("self") if each.port == port]
    return [each for each in found if (4 if "." in each.address else each.version) == version]


def _listeners(process: int | str) -> list[Listener]:
    return [listener for table in _tables(process) for listener in parse_listeners(table)]


def _tables(process: int | str) -> list[str]:
    tables = [PROC / str(process) / "net" / name for name in ("tcp", "tcp6")]
    # A kernel without IPv6 has no second one.
    return [table.read_text(encoding="ascii") for table in tables if table.exists()]


def asked_at(url: str) -> list[Listener]:
    """The sockets that a request to a URL reaches. Raises OSError where its host is not known."""
    where = urllib.parse.urlsplit(url)
    address = socket.getaddrinfo(where.hostname, where.port, type=socket.SOCK_STREAM)[0][4][0]
    return listeners_at(str(address), int(where.port or 0))


def holds(pid: int, inode: int) -> bool:
    """Whether a process has a socket open; False for a process that ends meanwhile."""
    try:
        for descriptor in (PROC / str(pid) / "fd").iterdir():
            match = _SOCKET.fullmatch(str(descriptor.readlink()))
            if match and int(match.group(1)) == inode:
                return True
    except OSError:
        pass
    return False


def holders_of(inode: int, first: Sequence[int] = ()) -> Iterator[int]:
    """Return the processes that hold a socket, if visible; the named ones are checked first."""
    others = (int(path.name) for path in PROC.glob("[0-9]*") if path.name.isdigit() and int(path.name) not in first)
    return (pid for pids in (first, others) for pid in pids if holds(pid, inode))


def holder_within(inode: int, container: str, cgroup: str, first: Sequence[int] = ()) -> int | None:
    """Return a container's process that holds a socket; None without one.

    container: its full id. cgroup: the control groups of its main process.
    """
    pids = holders_of(inode, first)
    return next((pid for pid in pids if is_of_container(cgroup_of(pid), cgroup, container)), None)


def stranger_among(found: Sequence[Listener], container: str, main: int) -> Listener | None:
    """Return the first of these sockets that no process of a container holds.

    container: its full id. main: its main process.
    """
    cgroup = cgroup_of(main)
    return next((each for each in found if holder_within(each.inode, container, cgroup, [main]) is None), None)


def connected(
    url: str, own: Callable[[str, int], frozenset[int]], timeout: float
) -> tuple[http.client.HTTPConnection, frozenset[int]]:
    """Connect to a server whose listening sockets are its own; return the connection and the inodes of these sockets.

    own: returns the inodes of the sockets at an address and a port, and raises if one of them is not the server's. It
    is called before and after the connection is made: no two sockets have the same inode at a time, so sockets that
    exist before and after have accepted it. timeout: seconds. The connection is made once, and never again by itself.
    Raises OSError, TimeoutError (socket.timeout before Python 3.10) if no connection comes through.
    """
    where = urllib.parse.urlsplit(url)
    address = str(socket.getaddrinfo(where.hostname, where.port, type=socket.SOCK_STREAM)[0][4][0])
    connection = http.client.HTTPConnection(address, where.port, timeout=timeout)
    connection.auto_open = 0
    try:
        sockets = own(address, connection.port)
        connection.connect()
        if own(address, connection.port) != sockets:
            raise ConnectionAbortedError("the port changed hands while it was asked")
    except BaseException:
        connection.close()
        raise
    return connection, sockets


def known_sockets(own: frozenset[int]) -> Callable[[str, int], frozenset[int]]:
    """Return a check for connected() of a server that is identified only by the inodes of its sockets.

    It needs no right to inspect the server's processes.
    """

    def check(address: str, port: int) -> frozenset[int]:
        found = listeners_at(address, port)
        if not found:
            raise ConnectionRefusedError("no process listens at its port")
        stranger = next((each for each in found if each.inode not in own), None)
        if stranger is not None:
            raise ConnectionRefusedError(f"{describe(stranger)} listens at its port, and was sent nothing")
        return frozenset(each.inode for each in found)

    return check


def describe(listener: Listener) -> str:
    """Describe the owner of a socket, such as python3 (pid 4242, uid 1000)."""
    pid = next(holders_of(listener.inode), None)
    if pid is None:
        return f"a process that cannot be seen (uid {listener.uid})"
    return f"{printable(name_of(pid)) or 'a process'} (pid {pid}, uid {listener.uid})"


def cgroup_of(pid: int) -> str:
    """The control groups of a process; empty where it has ended."""
    return text_of(PROC / str(pid) / "cgroup")


def name_of(pid: int) -> str:
    """What a process calls itself; empty where it has ended."""
    return text_of(PROC / str(pid) / "comm").strip()


def headers_for(instance: str | None) -> dict[str, str]:
    """Return request headers; for a named instance with its supervisor's token, if there is one."""
    headers, token = {"Content-Type": "application/json"}, ""
    if instance is not None:
        with contextlib.suppress(Damaged):
            token = (read_text(Path(paths.INSTANCE_STATES) / instance / paths.PROBE) or "").strip()
    return {**headers, "Authorization": f"Bearer {token}"} if token else headers


class _Bounded(io.RawIOBase):
    """A connection's data, limited to a time of time.monotonic() and a number of bytes."""

    def __init__(self, connection: socket.socket, until: float, most: int) -> None:
        self._connection, self._until, self._left = connection, until, most

    def makefile(self, _mode: str) -> io.BufferedReader:
        """Read as http.client reads a socket."""
        return io.BufferedReader(self)

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read what is available. Raises OSError after the time or the bytes are used up."""
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer was not whole in time")
        self._connection.settimeout(left)
        count = self._connection.recv_into(buffer)
        self._left -= count
        if self._left < 0:
            raise OSError("it sends more than an answer has")
        return count


def streamed(
    connection: http.client.HTTPConnection, path: str, headers: Mapping[str, str], most: int, body: bytes
) -> Iterator[tuple[float, bytes]]:
    """Yield the lines of an answer as they arrive, each with the seconds since the request.

    Timeout, most and errors as in answer(); a status other than 200 raises OSError.
    """
    began = time.monotonic()
    connection.request("POST", path, body, dict(headers))
    received: Any = _Bounded(connection.sock, began + float(connection.timeout or 0.0), most + _HEADERS)
    with http.client.HTTPResponse(received) as said:
        said.begin()
        if said.status != http.client.OK:
            raise OSError(f"it answered with status {said.status}")
        while line := said.readline(most):
            yield time.monotonic() - began, line


def answer(
    connection: http.client.HTTPConnection,
    path: str,
    headers: Mapping[str, str],
    most: int,
    body: bytes | None = None,
) -> tuple[int, bytes]:
    """Return status and body of an answer; with a body the request is a POST.

    The timeout of the connection, in seconds, is that of the whole answer: otherwise an answer in tiny pieces, or
    endless interim answers, would block the caller. most: bytes of the body that are read. No redirection is followed.
    Raises OSError and http.client.HTTPException.
    """
    until = time.monotonic() + float(connection.timeout or 0.0)
    connection.request("GET" if body is None else "POST", path, body, dict(headers))
    received: Any = _Bounded(connection.sock, until, most + _HEADERS)
    with http.client.HTTPResponse(received) as said:
        said.begin()
        told = said.read(most)
        # For a truncated answer, http.client returns what has arrived.
        if said.length and len(told) < most:
            raise http.client.IncompleteRead(told, said.length)
        return said.status, told
