"""Who listens at an address: sockets as the kernel lists them, and the processes that hold them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..base.listeners import Listener, parse_listeners, reached
from ..base.printable import printable
from ..serving.cgroup import is_of_container

PROC = Path("/proc")
_SOCKET = re.compile(r"socket:\[(\d+)\]")


def listeners_at(address: str, port: int, process: int | str = "self") -> list[Listener]:
    """The sockets of which one accepts a connection, in the network of a process. Raises OSError where it has ended."""
    tables = [PROC / str(process) / "net" / name for name in ("tcp", "tcp6")]
    # A kernel without IPv6 has no second one.
    found = [parse_listeners(table.read_text(encoding="ascii")) for table in tables if table.exists()]
    return reached([listener for table in found for listener in table], address, port)


def holds(pid: int, inode: int) -> bool:
    """Whether a process has a socket open. One that ends while it is looked at has none."""
    try:
        for descriptor in (PROC / str(pid) / "fd").iterdir():
            match = _SOCKET.fullmatch(str(descriptor.readlink()))
            if match and int(match.group(1)) == inode:
                return True
    except OSError:
        pass
    return False


def holders_of(inode: int, first: Sequence[int] = ()) -> Iterator[int]:
    """The processes that hold a socket, as far as they can be seen; those named first are asked first."""
    others = (int(path.name) for path in PROC.glob("[0-9]*") if path.name.isdigit() and int(path.name) not in first)
    return (pid for pids in (first, others) for pid in pids if holds(pid, inode))


def holder_within(inode: int, container: str, cgroup: str, first: Sequence[int] = ()) -> int | None:
    """A process of a container that holds a socket; None where none of it does.

    container: its whole id. cgroup: the control groups of its main process.
    """
    pids = holders_of(inode, first)
    return next((pid for pid in pids if is_of_container(cgroup_of(pid), cgroup, container)), None)


def describe(listener: Listener) -> str:
    """Who has a socket, such as python3 (pid 4242, uid 1000)."""
    pid = next(holders_of(listener.inode), None)
    if pid is None:
        return f"a process that cannot be seen (uid {listener.uid})"
    return f"{printable(name_of(pid)) or 'a process'} (pid {pid}, uid {listener.uid})"


def cgroup_of(pid: int) -> str:
    """The control groups of a process; empty where it has ended."""
    return _text(pid, "cgroup")


def name_of(pid: int) -> str:
    """What a process calls itself; empty where it has ended."""
    return _text(pid, "comm").strip()


def _text(pid: int, name: str) -> str:
    try:
        return (PROC / str(pid) / name).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
