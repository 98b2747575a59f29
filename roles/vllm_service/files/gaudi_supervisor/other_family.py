"""The port of a server in the address family that the server does not use, which nobody else gets."""

from __future__ import annotations

import errno
import os
import socket

from gaudi.cards.users import owner_of
from gaudi.faults.words import remedy
from gaudi.node import listening
from gaudi.serving.plan import Plan

# The file descriptor of the bound socket, for the program that this process becomes.
_PASSED = "GAUDI_SUPERVISOR_SOCKET"


class OtherFamily:
    """A socket that is bound to the port and never listens.

    Without it every user of the node can listen at [::]:8000 beside a server at 0.0.0.0:8000, and receives what clients
    send that try IPv6 first, their keys included.
    """

    def __init__(self, plan: Plan) -> None:
        """Take over the socket that the program before this one has passed on, if there is one."""
        self._port = plan.port
        self._version = 4 if ":" in plan.host else 6
        # A server at :: receives requests over IPv4 as well, so that the kernel refuses others there.
        self._needed = plan.host != "::" and plan.container["network"] == "host"
        passed = os.environ.pop(_PASSED, "")
        self._socket = socket.socket(fileno=int(passed)) if passed else None
        # Who else has the port, as a sentence; empty if nobody has it.
        self.problem = ""

    def hold(self) -> None:
        """Bind the port unless it is bound."""
        if not self._needed or self._socket is not None:
            return
        self.problem = ""
        try:
            self._socket = self._bound()
        except OSError as failed:
            # A node without the family has nobody who could listen there.
            if failed.errno == errno.EADDRINUSE:
                self.problem = self._taken()

    def pass_on(self) -> None:
        """Leave the socket to the program that this process becomes."""
        if self._socket is not None:
            self._socket.set_inheritable(True)
            os.environ[_PASSED] = str(self._socket.fileno())

    @property
    def _address(self) -> str:
        return "0.0.0.0" if self._version == 4 else "::"  # noqa: S104 - nothing is received there

    def _bound(self) -> socket.socket:
        """Without SO_REUSEADDR, which would let others bind it as well."""
        taken = socket.socket(socket.AF_INET if self._version == 4 else socket.AF_INET6)
        try:
            if self._version == 6:
                taken.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            taken.bind((self._address, self._port))
        except OSError:
            taken.close()
            raise
        return taken

    def _taken(self) -> str:
        """Say who has the port; empty for a process of root outside containers, such as the site's gateway."""
        found = listening.listeners_of(self._version, self._port)
        others = [each for each in found if each.uid != 0 or _in_container(each.inode)]
        if found and not others:
            return ""
        who = ", ".join(map(listening.describe, others)) or "a process that does not listen yet"
        return f"Port {self._port} on {self._address} is taken by {who}. {remedy('port-taken')}"


def _in_container(inode: int) -> bool:
    """Whether the holder of a socket is in a container; True if it cannot be seen."""
    pid = next(listening.holders_of(inode), None)
    return pid is None or owner_of(listening.cgroup_of(pid), listening.cgroup_of(1))[1] is not None
