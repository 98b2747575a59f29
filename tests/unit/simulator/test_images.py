"""The root file system of all images is made from nothing but a checkout."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from simulator import apt, host, images
from simulator.settings import SimulatorError


def test_a_checkout_that_has_made_nothing_yet_has_somewhere_to_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Path] = []

    def run(command: list[str], **_: Any) -> None:
        begun.extend(Path(word) for word in command if word.startswith(str(tmp_path)))
        raise SimulatorError("no mirror here")

    monkeypatch.setattr(images, "CACHE", tmp_path / "cache" / "simulator")
    monkeypatch.setattr(host, "run", run)
    configuration = apt.Configuration(apt.Mirrors(), "")
    with pytest.raises(SimulatorError, match="no mirror here"):
        images._debootstrap(Mock(), "base:1", ["adduser"], configuration)
    assert begun
