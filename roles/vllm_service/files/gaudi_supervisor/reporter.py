"""What systemd, state.json and the watchdog are told while a supervisor works or waits."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from gaudi.base.printable import printable
from gaudi.node.documents import make_room
from gaudi.node.files import write_text

from . import clock
from .clock import now_text
from .state import SupervisorState
from .stopping import Signals
from .systemd import Notifier, say


class Reporter:
    """Publishes the state of one instance, and keeps systemd waiting."""

    def __init__(self, state: SupervisorState, file: Path, signals: Signals) -> None:
        """Take the state, the file that has it on disk, and the signals that end a wait."""
        self._state = state
        self._file = file
        # Sends fields to systemd, where there is one.
        self.systemd = Notifier(os.environ.get("NOTIFY_SOCKET"))
        self.notify = self.systemd.send
        # Waits so many seconds; raises Stopped as soon as a signal asks to stop.
        self.wait = signals.wait
        # Seconds between two signs of life; 0 without systemd's watchdog.
        self._watchdog = int(os.environ.get("WATCHDOG_USEC", "0")) / 2e6
        self._next_ping = 0.0
        self._written = 0.0
        self._unwritten = False
        self._lost = False

    def publish(self, phase: str, text: str, **extra: Any) -> None:
        """Tell systemd and state.json what is going on."""
        text = printable(text)
        document, progress = self._state.document, self._state.progress
        changed = phase != document.get("phase")
        if changed:
            document["since"] = now_text()
            document.pop("load", None)
        # Lines of the log may be read after the endpoint has answered, and belong into the state all the same.
        learned = {
            "warm_up": {name: list(counts) for name, counts in progress.warm_up.items()},
            "warm_up_seconds": progress.warm_up_seconds,
            "memory": progress.memory,
            "counts": self._state.counts.document(),
        }
        known = all(document.get(name) == value for name, value in learned.items())
        if not changed and known and text == document.get("status") and not extra:
            return
        self.note(phase=phase, status=text, **learned, **extra)
        self.notify(STATUS=text)
        if changed or extra:
            self.write()
        else:
            self.write_in_time()

    def note(self, **values: Any) -> None:
        """Change the state; ``write_in_time`` and the next ``publish`` write it."""
        self._state.document.update(values)
        self._unwritten = True

    @property
    def write_is_due(self) -> bool:
        """Whether something waits to be written, and can be."""
        return self._unwritten and not self._lost

    def write_in_time(self) -> None:
        """Write what is not written yet, but not more often than readers can follow."""
        interval = clock.POLL_SERVING if self._lost else clock.STATE_INTERVAL
        if self._unwritten and time.monotonic() - self._written > interval:
            self.write()

    def write(self) -> None:
        """Replace state.json in one step; a reader sees the old or the new, never half.

        A state that cannot be written ends nothing: it only reports.
        """
        self._written = time.monotonic()
        path = self._file
        try:
            make_room(path)
            write_text(path, json.dumps(self._state.document, indent=1) + "\n", mode=0o600)
        except OSError as failed:
            self._unwritten = True
            if not self._lost:
                say(f"{path} cannot be written ({failed.strerror}). The instance goes on, and this is tried again.", 4)
            self._lost = True
            return
        self._unwritten = False
        if self._lost:
            say(f"{path} can be written again.", 5)
        self._lost = False

    def ping(self) -> None:
        """Tell systemd's watchdog, where there is one, that this process is alive."""
        if self._watchdog:
            self.notify(WATCHDOG=1)

    def ping_in_time(self) -> None:
        """Ping, but not more often than the watchdog needs."""
        now = time.monotonic()
        if now >= self._next_ping:
            self.ping()
            self._next_ping = now + self._watchdog

    def extend(self, seconds: float) -> None:
        """Ask systemd for more time to start; it grants it only to a unit that is starting."""
        if self._state.ready_at is None:
            self.notify(EXTEND_TIMEOUT_USEC=int((seconds + clock.COMMAND_TIMEOUT) * 1e6))

    def wait_alive(self, seconds: float) -> None:
        """Ping, then wait, but no longer than the watchdog allows; raises Stopped."""
        self.ping()
        self.wait(self.within_watchdog(seconds))

    def within_watchdog(self, seconds: float) -> float:
        """The longest wait up to so many seconds that the watchdog allows."""
        return min(seconds, self._watchdog or seconds)
