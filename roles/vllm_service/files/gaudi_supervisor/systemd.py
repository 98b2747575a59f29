"""What systemd and the journal are told."""

from __future__ import annotations

import socket

from gaudi.base.printable import journal_line, printable

# Characters of a value: a message has to fit into a datagram, whatever a server's output is made into.
LONGEST = 1000


class Notifier:
    """systemd's notification socket; silent where there is none (run by hand)."""

    def __init__(self, address: str | None) -> None:
        self._address = "\0" + address[1:] if address and address.startswith("@") else address

    def send(self, **fields: str | int) -> None:
        """Send one message of NAME=value lines."""
        if self._address is None:
            return
        message = "\n".join(f"{name}={printable(str(value))[:LONGEST]}" for name, value in fields.items())
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
            channel.sendto(message.encode(), self._address)


def say(message: str, priority: int = 6) -> None:
    """Write a sentence of our own to the journal, with its syslog priority."""
    print(journal_line(f"gaudi-serving: {message}", priority), flush=True)
