"""The directory that a simulated Python index serves."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator import apt, host, wheelhouse


def test_an_index_has_every_wheel_below_its_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheelhouse, "CACHE", tmp_path)
    held = tmp_path / "wheelhouse" / "abc"
    held.mkdir(parents=True)
    wheel = held / "Some_thing.else-1.0-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    (held / "some_source-1.0.tar.gz").write_bytes(b"source")
    index = wheelhouse.index([held], {"simulated_common-1.0-py3-none-any.whl": b"stand-in"})
    assert (index / "simple" / "some-thing-else" / wheel.name).samefile(wheel)
    assert (index / "simple" / "simulated-common" / "simulated_common-1.0-py3-none-any.whl").read_bytes() == b"stand-in"
    assert wheelhouse.index([held], {"simulated_common-1.0-py3-none-any.whl": b"stand-in"}) == index
    assert (index / "simple" / "some-source" / "some_source-1.0.tar.gz").read_bytes() == b"source"
    assert wheelhouse.index([held], {}) != index
    assert not list(index.parent.glob("incomplete-*"))


def test_each_system_gets_wheels_for_its_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(wheelhouse, "CACHE", tmp_path)
    monkeypatch.setattr(host, "run", commands.append)
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("PyYAML==6.0.3\n")
    assert set(wheelhouse.PYTHONS) == set(apt.SUITES)
    directories = {wheelhouse.directory(requirements, python) for python in wheelhouse.PYTHONS.values()}
    assert len(directories) == len(commands) == len(apt.SUITES)
    assert "--python-version=3.13" in commands[-1]
