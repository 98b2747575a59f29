"""A start, from the container's first moment until its endpoint answers: how far it is, and how long it may take."""

from __future__ import annotations

import time
from pathlib import Path

from gaudi.faults import words
from gaudi.node import disk_rate
from gaudi.node.weight_folders import loaded_files
from gaudi.serving import starts
from gaudi.serving.failure import Reason
from gaudi.serving.loading import LARGE, Loading
from gaudi.serving.plan import Plan
from gaudi.serving.starts import Start

from .clock import now_text
from .reporter import Reporter
from .settings import Settings
from .state import SupervisorState
from .systemd import say


def measure_weights(plan: Plan, stall: float, state: SupervisorState) -> None:
    """Record the size of the weights, and the rate of their disk; ends no start. stall: seconds without a line."""
    try:
        found = {folder: loaded_files(folder) for folder in map(Path, plan.weight_folders)}
        sizes = {folder: sum(file.stat().st_size for file in files) for folder, files in found.items()}
    except OSError as failed:
        say(f"The size of the weights is unknown: {failed}.", 4)
        return
    largest = max(sizes, key=lambda folder: sizes[folder])
    rate = disk_rate.measured(found[largest], largest) if sum(sizes.values()) >= LARGE else 0
    loading = Loading(sum(sizes.values()), rate)
    state.document["loading"] = loading.document()
    if text := loading.sentence(stall):
        say(text)


class Starting:
    """One start of a server. Of one that somebody else began, only its graphs are known, and no time."""

    def __init__(
        self, state: SupervisorState, reporter: Reporter, settings: Settings, digest: str, graphs: int, *, own: bool
    ) -> None:
        """Begin now. digest: of the plan. graphs: of the plan, 0 where it does not say. own: this process began it."""
        self._state, self._reporter, self._settings = state, reporter, settings
        self._digest, self._graphs, self._own = digest, graphs, own
        self._began = time.monotonic()
        self._record = starts.read(state.document["starts"])
        # When the first graph was seen, and how many were done then.
        self._warming: tuple[float, int] | None = None
        # Seconds until it answered; None before, and once they are written down.
        self._took: float | None = None

    def text(self) -> str:
        """How far it is in a line, with what the rest takes where that can be told."""
        progress = self._state.progress
        text = progress.text()
        if progress.phase == "warming-up":
            left = self._left()
            return text if left is None else f"{text}; {starts.words(left)} left"
        before = starts.last(self._record, self._digest)
        if progress.phase in ("starting", "loading") and before is not None:
            return f"{text}; the last start with this plan took {starts.words(before.seconds)}"
        return text

    @property
    def _total(self) -> int:
        """Graphs of the warm-up; 0 if unknown."""
        progress = self._state.progress
        before = starts.last(self._record, self._digest)
        return starts.graphs(self._graphs, progress.total, progress.total_known, before)

    def _left(self) -> float | None:
        now, done = time.monotonic(), self._state.progress.done
        if self._warming is None:
            self._warming = now, done
        since, seen = self._warming
        pace = starts.pace(done - seen, now - since, self._total, next(iter(self._record), None))
        return None if pace is None else pace * (self._total - done)

    def silence(self) -> float:
        """Seconds without a line after which it is given up: while weights load, as many as these may take."""
        stall, progress = self._settings.stall, self._state.progress
        return Loading.from_state(self._state.document).silence(stall, progress.shards) if progress.loading else stall

    def over(self) -> Reason | None:
        """Why it is given up; None while it has time left, or if its budget is unknown."""
        progress = self._state.progress
        if progress.gave_up is not None:
            # Only the end of the engines would end the server, which may take hours.
            gave_up = f"{progress.gave_up[0].upper()}{progress.gave_up[1:]}"
            said = words.say("engine-ready-timeout")
            return Reason(
                "engine-ready-timeout", f"{gave_up}, while the engines went on ({progress.doing()}). {said}", False
            )
        text = self._over_budget()
        return Reason("start-timeout", text, retry=True) if text else None

    def _over_budget(self) -> str:
        total = self._total
        before = starts.last(self._record, self._digest)
        loading = Loading.from_state(self._state.document)
        budget = self._settings.longest_start or starts.budget(total, before, loading.seconds)
        taken = time.monotonic() - self._began
        if budget is None or taken <= budget:
            return ""
        why = [f"{total} graphs"] if total else []
        why += [f"the last start with this plan ({starts.words(before.seconds)})"] if before is not None else []
        said = "vllm_service_longest_start" if self._settings.longest_start else f"worked out from {' and '.join(why)}"
        return words.say("start-timeout", taken=starts.words(budget), why=said, doing=self._state.progress.text())

    def answered(self) -> None:
        """Its end: the endpoint answers."""
        self._took = time.monotonic() - self._began

    def remember(self) -> None:
        """Write down how long it took, where all of it was seen.

        For a later look: the last lines of a warm-up may be read after the endpoint has answered.
        """
        if not self._own or self._took is None:
            return
        known = self._state.progress.warm_up_seconds
        seen = self._took - (self._warming[0] - self._began) if self._warming is not None else 0.0
        warm_up = round(known if known is not None else seen, 1)
        recipes = self._state.document.get("recipes")
        filled = None if recipes is None else bool(recipes["files"])
        start = Start(self._digest, self._state.progress.done, warm_up, round(self._took, 1), now_text(), filled)
        self._reporter.note(starts=[each.document() for each in starts.added(self._record, start)])
        self._took = None
