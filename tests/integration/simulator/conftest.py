"""What all tests of the simulator share."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator import host


@pytest.fixture(autouse=True)
def locks(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Locks of the test's own: it neither waits for a real run of the simulator nor holds one up."""
    folder = tmp_path_factory.mktemp("locks")
    monkeypatch.setattr(host, "LOCKS", folder)
    return folder
