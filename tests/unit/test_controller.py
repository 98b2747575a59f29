"""A controller that is not supported: one sentence before the first task, whatever it lacks."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from plugin_utils import controller

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.report("N05")
@pytest.mark.parametrize(
    ("ansible", "python", "missing", "named"),
    [
        ("2.18.9", (3, 12), [], ["ansible-core 2.18.9", "2.19 is needed"]),
        ("2.9.6", (3, 8), [], ["ansible-core 2.9.6", "Python 3.8", "3.11 or newer"]),
        ("2.20.0b1", (3, 12), [], ["ansible-core 2.20.0b1"]),
        ("2.190.1", (3, 12), [], ["ansible-core 2.190.1"]),
        ("2.19.14", (3, 11), ["jsonschema"], ["no package jsonschema"]),
    ],
)
def test_an_unsupported_controller_is_one_sentence(
    ansible: str, python: tuple[int, int], missing: list[str], named: list[str]
) -> None:
    sentence = controller.unsupported(ansible, python, missing)
    assert sentence is not None
    assert "\n" not in sentence
    for part in [*named, "make venv"]:
        assert part in sentence


@pytest.mark.parametrize("version", ["2.19.0", "2.19.14"])
def test_a_supported_controller(version: str) -> None:
    assert controller.unsupported(version, (3, 11), []) is None
    assert controller.unsupported(version, (3, 14), []) is None


def test_supported_is_what_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == ">=" + ".".join(str(part) for part in controller.PYTHON)
    assert any(pin.startswith(f"ansible-core=={controller.ANSIBLE}.") for pin in project["dependencies"])
