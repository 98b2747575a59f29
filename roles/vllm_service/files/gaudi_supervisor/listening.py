"""Whether who listens at a server's port is the server: looked at before anything is sent."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable

from gaudi.base.listeners import Listener
from gaudi.cards.users import owner_of
from gaudi.faults.words import remedy
from gaudi.node import listening
from gaudi.serving.failure import EngineGone
from gaudi.serving.plan import LABEL_INSTANCE

from .clock import HTTP_TIMEOUT
from .engine import Container, Docker

UNIT = re.compile(r"vllm-([a-z0-9-]+)\.service")


class Stranger(OSError):
    """Somebody else listens at the port; says who."""

    def __str__(self) -> str:
        """The sentence alone."""
        return str(self.args[0])


class Listening:
    """One container, and the sockets that its processes hold in the network that its plan names."""

    def __init__(self, look: Callable[[], Container | None], name: str, network: str) -> None:
        """Take how the container is looked up, and what it is to be called."""
        self._look_up = look
        self._name = name
        self._network = network
        self._container: Container | None = None
        self._cgroup = ""
        # Who had the socket last: of a thousand processes only one is looked at.
        self._server: int | None = None

    def sockets(self, address: str, port: int) -> frozenset[int]:
        """Inodes of the sockets that a connection reaches, all of them the container's.

        Raises ConnectionRefusedError where nobody listens, Stranger where somebody else does.
        """
        process = "self" if self._network == "host" else self._pid()
        found = listening.listeners_at(address, port, process)
        if not found:
            raise ConnectionRefusedError(f"nobody listens at port {port} of {address}")
        for listener in found:
            if not self.is_own(listener):
                if listener.version == 6 and ":" not in address and not _takes(address, port):
                    # It asked for IPv6 alone, which the kernel's list does not show.
                    raise ConnectionRefusedError(f"nobody listens at port {port} of {address}")
                if listening.listeners_at(address, port, process) != found:
                    raise ConnectionAbortedError("the port changed hands while it was looked at")
                raise Stranger(
                    f"Port {port} on {address} is taken by {listening.describe(listener)}, which is not of the "
                    f"container {self._name}: nothing was sent to it. {remedy('port-taken')}"
                )
        return frozenset(listener.inode for listener in found)

    def is_own(self, listener: Listener) -> bool:
        """Whether a process of the container holds a socket. Raises OSError if the engine does not answer."""
        self._look()
        if self._container is None:
            return False
        known = [] if self._server is None else [self._server]
        self._server = listening.holder_within(listener.inode, self._container.id, self._cgroup, known)
        return self._server is not None

    def _pid(self) -> int:
        self._look()
        if self._container is None:
            raise ConnectionRefusedError(f"the container {self._name} does not run yet")
        return self._container.pid

    def _look(self) -> None:
        """Learn once which container it is; its processes keep their control group for as long as it runs."""
        if self._container is not None:
            return
        try:
            found = self._look_up()
        except EngineGone as gone:
            raise OSError(f"the container engine does not answer, so nobody knows who listens ({gone})") from gone
        if found is not None and found.running:
            self._container, self._cgroup = found, listening.cgroup_of(found.pid)


def owner_at(listener: Listener) -> tuple[str | None, str | None] | None:
    """The unit and the container of the process that holds a socket; None if no process is seen to hold it."""
    pid = next(listening.holders_of(listener.inode), None)
    return None if pid is None else owner_of(listening.cgroup_of(pid), listening.cgroup_of(1))


def instance_at(listener: Listener, docker: Docker) -> str | None:
    """The instance whose container or supervisor owns a socket; None if it belongs to no known instance."""
    unit, container = owner_at(listener) or (None, None)
    if container is None:
        found = UNIT.fullmatch(unit or "")
        return found[1] if found else None
    try:
        owner = docker.container(container)
    except EngineGone:
        return None
    return None if owner is None else owner.labels.get(LABEL_INSTANCE)


def _takes(address: str, port: int) -> bool:
    """Whether anybody takes a connection. Nothing is sent over it."""
    try:
        socket.create_connection((address, port), timeout=HTTP_TIMEOUT).close()
    except ConnectionRefusedError:
        return False
    except OSError:
        return True
    return True
