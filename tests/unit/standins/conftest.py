"""Descriptions and recorded output for the tests of the stand-ins."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from simulator.standins import description

# What the serving image runs lies there under its own names, as in the image.
sys.path.insert(0, str(description.HERE.parent / "images" / "serving"))

RECORDED = Path(__file__).parent / "recorded"


@pytest.fixture
def recorded() -> Callable[[str], str]:
    def read(name: str) -> str:
        return (RECORDED / name).read_text(encoding="utf-8")

    return read


@pytest.fixture
def node() -> dict[str, Any]:
    """The default node, with nobody on it."""
    return description.load(description.DEFAULT)


@pytest.fixture
def described() -> Callable[..., dict[str, Any]]:
    """A node like the default one, with some keys of its description changed."""

    def make(**changes: Any) -> dict[str, Any]:
        base = yaml.safe_load((description.DESCRIPTIONS / "gaudi2-oam8.yml").read_text(encoding="utf-8"))
        return description.expand({**base, **changes}, "test")

    return make
