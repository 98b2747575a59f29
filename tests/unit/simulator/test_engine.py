from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from simulator import engine, host
from simulator.settings import SimulatorError

# proc(5): a program may call itself anything, brackets and spaces included.
STAT = "4242 (a) b (c) S 1 4242 4242 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 15 0 105340 1 2 18446744073709551615"


def test_the_start_is_field_22_whatever_the_program_calls_itself() -> None:
    assert engine.start_ticks(STAT) == 105340


def test_a_process_is_more_than_its_pid() -> None:
    me = engine.identify(os.getpid())
    assert me is not None
    assert me == engine.identify(os.getpid())
    parent = engine.identify(os.getppid())
    assert parent != me


def test_a_process_that_is_gone_is_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    assert engine.identify(child) is None


@pytest.mark.parametrize(("enabled", "wanted"), [("Y\n", True), ("N\n", False), (None, False)])
def test_where_apparmor_is_on_its_parser_is_needed(tmp_path: Path, enabled: str | None, wanted: bool) -> None:
    parameter = tmp_path / "enabled"
    if enabled is not None:
        parameter.write_text(enabled)
    assert ("apparmor" in engine.packages(parameter).values()) is wanted


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["name=seccomp,profile=builtin", "name=rootless", "name=cgroupns"], "rootless"),
        (["name=apparmor", "name=userns"], "userns-remap"),
    ],
)
def test_an_engine_whose_root_is_not_the_machines_is_refused(options: list[str], word: str) -> None:
    reason = engine.refusal(options)
    assert reason is not None
    assert word in reason


def test_an_ordinary_engine_is_taken() -> None:
    assert engine.refusal(["name=apparmor", "name=seccomp,profile=builtin", "name=cgroupns"]) is None
    assert engine.refusal([]) is None


def test_a_refused_engine_is_not_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    rootless = SimpleNamespace(info=lambda: {"SecurityOptions": ["name=rootless"]})
    monkeypatch.setattr(engine, "connect", lambda: rootless)
    with pytest.raises(SimulatorError, match="rootless"):
        engine.ensure()


def test_without_sudo_a_socket_that_refuses_is_explained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    socket = tmp_path / "docker.sock"
    socket.touch()
    monkeypatch.setattr(engine, "_SOCKET", socket)
    monkeypatch.setattr(os, "getgroups", list)
    monkeypatch.setattr(host, "find", lambda program: None)
    with pytest.raises(SimulatorError, match="group"):
        engine._again_with_the_group_of_the_socket()
