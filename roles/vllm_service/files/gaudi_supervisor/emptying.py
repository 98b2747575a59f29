"""Waiting for requests in flight before a server is stopped: most releases abort what runs when they are told to."""

from __future__ import annotations

import http.client
import time
from dataclasses import dataclass, field

from .endpoint import Endpoint


@dataclass
class Emptying:
    """Looks at a server that is to be stopped, until no request runs any more or the grace time (seconds) is over."""

    endpoint: Endpoint
    grace: float
    own: float = 0.0
    """Seconds in which the server itself finishes requests once it is told to stop; 0 where it aborts them."""
    running: int | None = None
    """What the last look counted."""
    told: float = 0.0
    """Seconds that the server is given to finish requests that nobody counts."""
    _idle: bool = False
    _until: float = field(init=False)

    def __post_init__(self) -> None:
        """The time begins now."""
        self._until = time.monotonic() + self.grace

    @property
    def left(self) -> float:
        """Seconds of the grace time."""
        return self._until - time.monotonic()

    def look(self) -> str | None:
        """Why the server may be stopped now; None while it may not.

        A request counts once it has a slot, so that only the second look at none is believed.
        """
        try:
            load = self.endpoint.load()
        except ConnectionRefusedError:
            return "Nobody listens at the server's port any more: stopping the server."
        except (OSError, http.client.HTTPException) as failed:
            # A busy server may be slow to answer; only the end of the time ends the wait.
            return f"The server does not answer ({failed}): what still runs is cut." if self.left <= 0 else None
        self.running = None if load is None else load.requests
        idle, self._idle = self._idle, self.running == 0
        if self.running is None and self.own:
            self.told = min(self.own, max(self.left, 0.0))
            return f"The server does not say how many requests run: it has {self.told:.0f} s to finish them."
        if self.running is None:
            return "The server does not say how many requests run, so streams in flight are cut."
        if self.running == 0 and idle:
            return "No request runs any more: stopping the server."
        if self.left <= 0:
            return f"After {self.grace:g} s requests are cut that still run: {self.running}."
        return None
