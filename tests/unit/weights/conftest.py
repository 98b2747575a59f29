"""A hub with one small model: the simulator's hub, and the real client library."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "roles/fp8_weights/files"))
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "roles/model_weights/files"))

from gaudi_weights.model import Stop
from gaudi_weights.progress import Progress

from simulator.hub.server import Hub, running
from tests.unit.weights.models import MODEL, write_model


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    """A hub with the small model."""
    with running() as made:
        made.repository(MODEL, write_model(tmp_path / "hub"))
        yield made


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses between tries that suit a hub on this machine."""
    monkeypatch.setattr("gaudi_weights.transfer.FIRST_PAUSE", 0.05)
    monkeypatch.setattr("gaudi_weights.fetch.FIRST_PAUSE", 0.05)


@pytest.fixture
def stop() -> Stop:
    """Nobody wants to end yet."""
    return Stop()


@pytest.fixture
def progress() -> Progress:
    """Progress nobody follows."""
    return Progress(None)
