"""What systemd and the journal are told."""

from __future__ import annotations

import socket
from array import array

from gaudi.base.printable import journal_line, printable

# Characters of a value: a message has to fit into a datagram, whatever a server's output is made into.
LONGEST = 1000


class Notifier:
    """systemd's notification socket; silent where there is none (run by hand)."""

    def __init__(self, address: str | None) -> None:
        self._address = "\0" + address[1:] if address and address.startswith("@") else address

    def send(self, **fields: str | int) -> None:
        """Send one message of NAME=value lines."""
        message = "\n".join(f"{name}={printable(str(value))[:LONGEST]}" for name, value in fields.items())
        self._send(message)

    def store(self, name: str, descriptor: int) -> None:
        """Have systemd keep a file, and pass it to the next process of this unit, whatever ends this one."""
        # Of a socket that does not listen, poll(2) says that it is hung up: systemd would close it without FDPOLL
        # (sd_pid_notify_with_fds(3), systemd 246).
        self._send(f"FDSTORE=1\nFDNAME={name}\nFDPOLL=0", descriptor)

    def _send(self, message: str, *descriptors: int) -> None:
        if self._address is None:
            return
        files = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", descriptors))] if descriptors else []
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
            channel.sendmsg([message.encode()], files, 0, self._address)


def say(message: str, priority: int = 6) -> None:
    """Write a sentence of our own to the journal, with its syslog priority."""
    print(journal_line(f"gaudi-serving: {message}", priority), flush=True)
