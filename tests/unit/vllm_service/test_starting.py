"""What a supervisor says of a start, and what it writes down of it for the next one."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.module_utils.gaudi.serving.progress import Progress

from tests.unit.serving.test_progress import DESERTED, FILLED, lines_of


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A clock that a test moves."""
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr("gaudi_supervisor.starting.time", SimpleNamespace(monotonic=lambda: now.seconds))
    return now


class StartLines:
    """A start whose lines a test reads, with the plan's 205 graphs."""

    def __init__(self, record: list[dict[str, Any]] | None = None, graphs: int = 205) -> None:
        from gaudi_supervisor.reporter import Reporter
        from gaudi_supervisor.settings import Settings
        from gaudi_supervisor.starting import Starting
        from gaudi_supervisor.state import SupervisorState
        from gaudi_supervisor.stopping import Signals

        self.state = SupervisorState({"starts": record or [], "recipes": None})
        reporter = Reporter(self.state, Path("never written"), Signals())
        self.starting = Starting(self.state, reporter, Settings(), "digest", graphs, own=True)

    def hear(self, line: str) -> str:
        self.state.progress.hear(line)
        return self.starting.text()


def minutes(text: str) -> int:
    found = re.search(r"; about (\d+) min left", text)
    return int(found[1]) if found else 0


def recorded(begun: StartLines, clock: Any) -> list[tuple[float, str]]:
    """Read the recorded start at its pace: 656 s of warm-up after 181 s; the seconds and texts of its warm-up."""
    first = next(place for place, line in enumerate(FILLED) if "warmup processing" in line)
    last = next(place for place, line in enumerate(FILLED) if "Warmup finished" in line)
    texts, ahead = [], Progress()
    for place, line in enumerate(FILLED):
        ahead.hear(line)
        clock.seconds = 181 + 656 * ahead.done / 216 if place >= first else 0
        texts.append((clock.seconds, begun.hear(line)))
    begun.starting.answered()
    begun.starting.remember()
    return texts[first:last]


def test_recorded_start_is_written_down_with_both_warm_ups(clock: Any) -> None:
    begun = StartLines()
    recorded(begun, clock)
    (start,) = begun.state.document["starts"]
    assert (start["graphs"], start["warm_up_seconds"], start["seconds"]) == (216, 656, 837)


def test_time_left_of_the_recorded_start_is_right_to_a_minute(clock: Any) -> None:
    left = [(837 - now, minutes(text)) for now, text in recorded(StartLines(), clock) if "min left" in text]
    assert len(left) > 300
    assert all(abs(said * 60 - true) <= 60 for true, said in left)


def test_the_next_start_foretells_all_of_it_from_the_first_graph_on(clock: Any) -> None:
    begun = StartLines()
    recorded(begun, clock)
    clock.seconds = 0.0
    again = StartLines(begun.state.document["starts"])
    assert again.hear("INFO hello").endswith("the last start with this plan took about 14 min")
    # Neither version nor type of model are read, as by a supervisor that came later.
    assert minutes(again.hear("Prompt warmup processing:   0%|          | 0/120 [00:00<?, ?item/s]")) == 11


def test_servers_that_gave_up_end_the_start_with_their_reason(clock: Any) -> None:
    begun = StartLines()
    before, after = DESERTED.split("(ApiServer_0 pid=509983) TimeoutError")
    for line in lines_of(before):
        begun.hear(line)
    assert begun.starting.over() is None
    for line in lines_of("(ApiServer_0 pid=509983) TimeoutError" + after):
        begun.hear(line)
    reason = begun.starting.over()
    assert reason is not None
    assert (reason.kind, reason.retry) == ("engine-ready-timeout", False)
    assert reason.message.startswith(
        "The API servers gave up waiting after 600 s, while the engines went on (warm-up: prompt 168/168, decode 32/90)"
    )
    assert "VLLM_ENGINE_READY_TIMEOUT_S" in reason.message


GAVE_UP = "TimeoutError: Timed out waiting for engine core processes to start. Waited 600s"


@pytest.mark.parametrize("listens", ["INFO:     Started server process [1]", "INFO:     Application startup complete."])
def test_text_of_a_client_gives_no_start_up(clock: Any, listens: str) -> None:
    begun = StartLines()
    begun.hear(listens)
    begun.hear(f"INFO 09-10 17:57:55 [logger.py:41] Received request cmpl-1: prompt: '{GAVE_UP}'")
    assert begun.starting.over() is None


def test_what_the_server_says_counts_more_than_the_plan(clock: Any) -> None:
    """A plan may expect other graphs than the server makes of its memory."""
    begun = StartLines(graphs=900)
    texts = recorded(begun, clock)
    assert max(minutes(text) for _, text in texts) <= 12
