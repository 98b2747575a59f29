"""What a supervisor knows of its instance, and what it takes over from the last one."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gaudi.base.documents import Damaged
from gaudi.faults.tracebacks import ServerLog
from gaudi.node.documents import read_json
from gaudi.serving.counts import Counts
from gaudi.serving.progress import Progress
from gaudi.serving.state import FORM

from .systemd import say


@dataclass
class SupervisorState:
    """What is known of an instance. Only the reporter writes it to disk."""

    document: dict[str, Any]
    """What state.json has."""
    earlier: dict[str, Any] = field(default_factory=dict)
    """What the last supervisor left; empty where it left nothing."""
    log: ServerLog = field(default_factory=ServerLog)
    progress: Progress = field(default_factory=Progress)
    counts: Counts = field(default_factory=Counts)
    ready_at: float | None = None
    """Monotonic time at which the server first answered this process; None before."""

    @property
    def served(self) -> bool:
        """Whether the server has answered, be it to an earlier supervisor."""
        return "ready" in self.document

    @property
    def seconds_served(self) -> float:
        """Since the server first answered this process; 0 before."""
        return 0.0 if self.ready_at is None else time.monotonic() - self.ready_at

    def read_earlier(self, file: Path) -> None:
        """Read what the last supervisor left; an unreadable file counts as none."""
        try:
            self.earlier = read_json(file, FORM) or {}
        except Damaged as damage:
            say(f"{damage}. It is written again.", 4)

    def take_over(self) -> None:
        """Take over what the last supervisor knew of a container that never stopped."""
        earlier, started = self.earlier, self.document["container_started"]
        if earlier.get("container_started", started) != started:
            say("Somebody has started the container again meanwhile, so its start is waited for.", 4)
            return
        kept = ("started", "ready", "failures", "recipes", "loading", "low_memory")
        self.document.update({name: earlier[name] for name in kept if name in earlier})
        self.document["cards"] = earlier.get("cards", self.document["cards"])
        counts = earlier.get("warm_up", {}).items()
        self.progress.warm_up = {name: (pair[0], pair[1]) for name, pair in counts if len(pair) == 2}
        self.progress.warm_up_seconds = earlier.get("warm_up_seconds")
        self.progress.memory = dict(earlier.get("memory", {}))
        # The supervisor of an earlier release counted nothing.
        self.counts = Counts.from_document(earlier["counts"]) if "counts" in earlier else Counts()
        # It has clients, whose text its lines may have.
        self.progress.listens = self.served
        self.log = ServerLog(served=self.served)

    def start_over(self) -> None:
        """Forget the server that served: somebody has started the container again."""
        self.ready_at = None
        self.progress, self.counts, self.log = Progress(), Counts(), ServerLog()
        self.document.pop("ready", None)
