"""Runs of the simulator on one machine, of whichever checkout: one builds at a time, and clean takes nothing away."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from simulator import __main__ as command_line
from simulator import cleaning, demo, engine, host, images, kernel, layers, nodes, sources, supply, vault, world
from simulator.settings import ROOT, Scope
from tests import parts
from tests.parts import SuitePart

LOCKS = host.LOCKS


def test_locks_are_the_machines() -> None:
    """Checkouts share its engine."""
    assert not LOCKS.is_relative_to(ROOT)


def test_a_lock_that_another_user_made_is_only_opened(locks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To "create" it is refused where fs.protected_regular is on."""
    with host.lock("images"):
        pass
    (made,) = locks.iterdir()
    assert made.stat().st_mode & 0o777 == 0o644
    opened = os.open

    def strict(path: str, flags: int, *mode: int) -> int:
        assert not flags & os.O_CREAT
        return opened(path, flags, *mode)

    monkeypatch.setattr(os, "open", strict)
    with host.lock("images"):
        pass


def waiting_for(lock: Path) -> bool:
    """Whether somebody waits for a lock: the kernel marks those with an arrow."""
    lines = (line.split() for line in Path("/proc/locks").read_text().splitlines())
    return any(words[1] == "->" and words[6].endswith(f":{lock.stat().st_ino}") for words in lines)


def test_two_runs_build_one_after_the_other(locks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scope that they build in is one: who ended first removed it under the other's hands."""
    done: list[str] = []

    def up(*_arguments: Any) -> None:
        done.append("up")
        other.start()
        while len(done) == 1 and not any(map(waiting_for, locks.glob("*-build.lock"))):
            pass

    for module in (vault, supply, sources):
        monkeypatch.setattr(module, "start", lambda *_arguments: None)
    for name in ("vendor", "node", "vault"):
        monkeypatch.setattr(images, name, lambda *_arguments: "image")
    monkeypatch.setattr(world, "_up", up)
    monkeypatch.setattr(world, "_build_on", lambda _scope: done.append("build"))
    monkeypatch.setattr(world, "down", lambda *_arguments: done.append("down"))
    monkeypatch.setattr(nodes, "containers", lambda *_arguments: [MagicMock()])
    monkeypatch.setattr(layers, "forget", lambda *_arguments: None)
    monkeypatch.setattr(layers, "keep", lambda *_arguments: done.append("keep"))
    monkeypatch.setattr(layers, "held", lambda *_arguments: "keep" in done)
    other = threading.Thread(target=world.build, args=(MagicMock(), print))
    world.build(MagicMock(), print)
    other.join()
    assert done == ["up", "build", "keep", "down"]


@pytest.fixture
def removed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What clean removes of an engine that runs nothing and has an image of the simulator's."""
    gone: list[str] = []
    image = SimpleNamespace(id="sha256:1", tags=["gaudi-serving-simulator/node:1"])
    client = MagicMock()
    client.containers.list.return_value = client.networks.list.return_value = client.volumes.list.return_value = []
    client.images.list.return_value = [image]
    client.images.remove.side_effect = lambda name, **_: gone.append(name)
    monkeypatch.setattr(engine, "existing", lambda: client)
    monkeypatch.setattr(engine, "ensure", lambda *_: client)
    monkeypatch.setattr(engine, "stop", lambda _say: False)
    monkeypatch.setattr(kernel, "restore", list)
    monkeypatch.setattr(cleaning, "machines", list)
    return gone


def test_what_nobody_uses_is_removed(removed: list[str]) -> None:
    cleaning.clean([Scope()], print)
    assert removed == ["gaudi-serving-simulator/node:1"]


@pytest.mark.parametrize("command", ["images", "up", "demo"])
def test_images_stay_while_somebody_is_on_the_way_to_a_node(
    command: str, removed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    def meanwhile(*_arguments: Any, **_options: Any) -> list[Any]:
        cleaning.clean([Scope()], said.append)
        return []

    monkeypatch.setattr(world, "build", meanwhile)
    monkeypatch.setattr(world, "up", meanwhile)
    monkeypatch.setattr(demo, "run", meanwhile)
    monkeypatch.setattr("sys.argv", ["simulator", command])
    assert command_line.main() == 0
    assert removed == []
    assert said == ["Images, the engine and .cache stay: somebody else uses the simulator now. Clean again later."]


@pytest.mark.parametrize(("nodes", "stays"), [(True, True), (False, False)])
def test_images_stay_until_the_last_scenario_has_ended(
    nodes: bool, stays: bool, removed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the images and the first node, and between two scenarios, no scope shows that they are needed."""

    def start(part: SuitePart) -> tuple[int, str]:
        if part.name == "last":
            cleaning.clean([Scope()], print)
        return 0, f"{part.name}\n"

    monkeypatch.setattr(parts, "TEST", (SuitePart("first", (), nodes=nodes), SuitePart("last", (), nodes=nodes)))
    monkeypatch.setattr(parts, "start", start)
    monkeypatch.setattr("sys.argv", ["parts"])
    monkeypatch.delenv("V", raising=False)
    assert parts.main() == 0
    assert (removed == []) is stays
