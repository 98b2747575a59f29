"""The port of a server in the address family that the server does not use, which nobody else gets."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
from collections.abc import Callable

from gaudi.base.listeners import Listener
from gaudi.faults.words import remedy
from gaudi.node import listening
from gaudi.serving.plan import Plan

from .listening import owner_at
from .systemd import Notifier

# What systemd calls the socket that it keeps (sd_listen_fds(3)), and the descriptor of the first one that it passes.
NAME = "other-family"
_FIRST = 3
_FAMILIES = {4: (socket.AF_INET, "0.0.0.0"), 6: (socket.AF_INET6, "::")}  # noqa: S104 - nothing is received there
_OTHER = {4: 6, 6: 4}


class OtherFamily:
    """A socket that is bound to the port and never listens.

    Without it every user of the node can listen at [::]:8000 beside a server at 0.0.0.0:8000, and receives what clients
    send that try IPv6 first, their keys included. systemd keeps the socket while no supervisor runs.
    """

    def __init__(
        self, plan: Plan, own: Callable[[Listener], bool], systemd: Notifier, passed: socket.socket | None
    ) -> None:
        """Begin with the socket of the supervisor before this one, if there is one.

        own: whether a socket is the server's; raises OSError if that is not known.
        """
        self._port, self._own, self._systemd = plan.port, own, systemd
        self._in_nodes_network = plan.container["network"] == "host"
        self._fixed = _other_than(plan.host)
        # Which other process has the port, as a sentence; empty if there is none.
        self.problem = ""
        self._socket = passed

    def hold(self) -> None:
        """Bind the port unless it is bound."""
        if not self._in_nodes_network or self._socket is not None:
            return
        self.problem = ""
        version = self._fixed or self._unused()
        if version is None:
            return
        try:
            held = _bound(version, self._port)
        except OSError as failed:
            # A node without the family has nobody who could listen there.
            if failed.errno == errno.EADDRINUSE:
                self.problem = self._taken(version)
            return
        if listening.listeners_of(version, self._port):
            # Since a moment ago: nobody can from now on.
            held.close()
            self.problem = self._taken(version)
            return
        self._socket = held
        self._systemd.store(NAME, held.fileno())

    def pass_on(self) -> None:
        """Leave the socket to the program that this process becomes, in the way of systemd."""
        if self._socket is not None:
            os.dup2(self._socket.fileno(), _FIRST)
            # Where it has this number already, nothing was copied.
            os.set_inheritable(_FIRST, True)
            os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1", LISTEN_FDNAMES=NAME)

    def release(self) -> None:
        """Give the port up, also in systemd."""
        if self._socket is not None:
            _give_up(self._socket, self._systemd)
            self._socket = None

    def _unused(self) -> int | None:
        """The family in which the server does not listen; None if it listens in neither or in both."""
        try:
            used = [
                version for version in _FAMILIES if any(map(self._own, listening.listeners_of(version, self._port)))
            ]
        except OSError:
            # The engine does not answer. It is asked again in ten seconds.
            return None
        return _OTHER[used[0]] if len(used) == 1 else None

    def _taken(self, version: int) -> str:
        """Say who has the port; empty for a process of root outside containers, such as the site's gateway."""
        found = listening.listeners_of(version, self._port)
        others = [each for each in found if each.uid != 0 or _in_container(each)]
        # A server at :: that accepts IPv4 has the port itself.
        if not others and (found or self._fixed is None):
            return ""
        who = ", ".join(map(listening.describe, others)) or "a process that does not listen yet"
        return f"Port {self._port} on {_FAMILIES[version][1]} is taken by {who}. {remedy('port-taken')}"


def taken_over(plan: Plan, systemd: Notifier) -> socket.socket | None:
    """Return the socket of the supervisor before this one; one that is not for this plan is given up."""
    passed = _passed()
    if passed is None:
        return None
    version = 6 if passed.family == socket.AF_INET6 else 4
    if passed.getsockname()[1] == plan.port and _other_than(plan.host) in (version, None):
        return passed
    _give_up(passed, systemd)
    return None


def _give_up(held: socket.socket, systemd: Notifier) -> None:
    systemd.send(FDSTOREREMOVE=1, FDNAME=NAME)
    held.close()


def _other_than(host: str) -> int | None:
    """The family that a server at this address does not use; None if that is not known before it listens.

    A name may have addresses of both. A server at :: accepts IPv4 or not: that depends on the node and its release.
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    return None if address.version == 6 and address.is_unspecified else _OTHER[address.version]


def _passed() -> socket.socket | None:
    """The socket that systemd or the program before this one has passed. No child gets the variables."""
    process, count = os.environ.pop("LISTEN_PID", ""), os.environ.pop("LISTEN_FDS", "")
    name = os.environ.pop("LISTEN_FDNAMES", "")
    if (process, count, name) != (str(os.getpid()), "1", NAME):
        return None
    os.set_inheritable(_FIRST, False)
    return socket.socket(fileno=_FIRST)


def _bound(version: int, port: int) -> socket.socket:
    """A socket that has a port, so that nobody else can listen there.

    It is bound with SO_REUSEADDR, as connections of an earlier server keep the port for a minute. Another process may
    be bound there in the same way. Then the option is taken away, and listen() of that process fails: the kernel
    compares the sockets again.
    """
    family, address = _FAMILIES[version]
    taken = socket.socket(family)
    try:
        if version == 6:
            taken.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind((address, port))
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    except OSError:
        taken.close()
        raise
    return taken


def _in_container(listener: Listener) -> bool:
    """Whether the process that holds a socket is in a container; True if no process is seen to hold it."""
    owner = owner_at(listener)
    return owner is None or owner[1] is not None
