from __future__ import annotations

from pathlib import Path

import pytest

from simulator import host
from simulator.settings import SimulatorError

HERE = {"dockerd": "docker.io", "debootstrap": "debootstrap"}


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """A machine with apt-get and dockerd, and nothing of the simulator's; the commands run on it."""
    ran: list[list[str]] = []
    monkeypatch.setattr(host, "_INSTALLED", tmp_path / "cache" / "installed-packages.txt")
    monkeypatch.setattr(host, "find", {"dockerd": "/usr/bin/dockerd", "apt-get": "/usr/bin/apt-get"}.get)
    monkeypatch.setattr(host, "as_root", list)
    monkeypatch.setattr(host, "run", ran.append)
    return ran


def test_only_what_is_missing_is_installed_and_remembered(commands: list[list[str]]) -> None:
    said: list[str] = []
    host.install_packages(HERE, said.append)
    assert said == ["Install debootstrap"]
    assert host.installed_packages() == ["debootstrap"]
    assert commands[-1][-2:] == ["--no-install-recommends", "debootstrap"]


def test_an_upgrade_in_the_background_is_waited_for(commands: list[list[str]]) -> None:
    host.install_packages(HERE, print)
    assert "DPkg::Lock::Timeout=300" in commands[-1]


def test_nothing_missing_is_nothing_done(commands: list[list[str]]) -> None:
    host.install_packages({"dockerd": "docker.io", "/etc": "base-files"}, print)
    assert commands == []


def test_a_machine_without_apt_is_refused_by_name(commands: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "find", lambda program: None)
    with pytest.raises(SimulatorError, match=r"debootstrap, docker\.io"):
        host.install_packages(HERE, print)
    assert commands == []
