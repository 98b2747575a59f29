"""How an instance ends: the signals that stop it, and its exit statuses."""

from __future__ import annotations

import selectors
import signal
import socket
import time

# SIGTERM and SIGINT stop, SIGHUP hands over to the program on disk.
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

EXIT_STOPPED = 0
EXIT_GAVE_UP = 69
EXIT_RETRY = 75
EXIT_CONFIGURATION = 78


class Stopped(Exception):
    """SIGTERM or SIGINT while nothing has to finish first, or when it has finished."""


class Signals:
    """The signals that this process was sent, and a socket that becomes readable with each."""

    def __init__(self) -> None:
        """Listen to nothing yet."""
        self.received: set[int] = set()
        self.wakeup, self._end = socket.socketpair()

    def listen(self) -> None:
        """Take note of every signal from now on, also of one that a predecessor blocked while it handed over."""
        self.wakeup.setblocking(False)
        self._end.setblocking(False)
        signal.set_wakeup_fd(self._end.fileno(), warn_on_full_buffer=False)
        for number in SIGNALS:
            signal.signal(number, lambda received, _frame: self.received.add(received))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

    @property
    def asked_to_stop(self) -> bool:
        """Did systemd, or a person, ask for the end?"""
        return bool(self.received & {signal.SIGTERM, signal.SIGINT})

    def wait(self, seconds: float) -> None:
        """Wait until the time is over; raises Stopped as soon as a signal asks to stop."""
        deadline = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self.wakeup, selectors.EVENT_READ)
            while not self.asked_to_stop and (left := deadline - time.monotonic()) > 0:
                if selector.select(left):
                    self.wakeup.recv(64)
        if self.asked_to_stop:
            raise Stopped
