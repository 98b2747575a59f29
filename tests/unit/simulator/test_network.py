"""Two checkouts on one engine keep their hands off each other's nodes."""

from __future__ import annotations

import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from simulator import network, world
from simulator.settings import CHECKOUT, ROOT, Scope, SimulatorError


class Networks:
    """The engine's networks, with one that a checkout has made; None for none. Anything else is refused loudly."""

    def __init__(self, owner: str | None) -> None:
        self.found = [] if owner is None else [SimpleNamespace(attrs={"Labels": {CHECKOUT: owner}})]
        self.made: list[str] = []

    def list(self, names: list[str]) -> list[Any]:
        return self.found

    def create(self, name: str, **_: object) -> None:
        self.made.append(name)


def engine(owner: str | None) -> Any:
    return SimpleNamespace(networks=Networks(owner))


def test_another_checkouts_nodes_are_neither_joined_nor_removed(tmp_path: Path) -> None:
    others = engine(str(tmp_path))
    with pytest.raises(SimulatorError, match=rf"Another checkout \({tmp_path}\) has the simulated nodes of scope demo"):
        network.ensure(others, Scope())
    # It has nothing but networks: a removal that looked further would fail with another error.
    with pytest.raises(SimulatorError, match="Another checkout"):
        world.down(others, Scope())
    assert others.networks.made == []


def test_nodes_of_a_checkout_that_is_gone_are_not_joined_and_can_be_removed(tmp_path: Path) -> None:
    gone = engine(str(tmp_path / "gone"))
    with pytest.raises(SimulatorError, match="GAUDI_SIMULATOR_SCOPE=demo python -m simulator down"):
        network.ensure(gone, Scope())
    network.refuse_others(gone, Scope())
    assert gone.networks.made == []


def test_a_network_is_made_once() -> None:
    fresh, own = engine(None), engine(str(ROOT))
    network.ensure(fresh, Scope())
    network.ensure(own, Scope())
    assert fresh.networks.made == [Scope().prefix]
    assert own.networks.made == []


def test_every_port_is_chosen_once(monkeypatch: pytest.MonkeyPatch) -> None:
    some = network.free_ports(6)
    monkeypatch.setattr(network, "PORTS", some)
    assert sorted(network.free_ports(6)) == sorted(some)


def test_a_port_that_somebody_has_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    some = network.free_ports(6)
    monkeypatch.setattr(network, "PORTS", some)
    with socket.create_server((network.ADDRESS, some[0])):
        assert sorted(network.free_ports(5)) == sorted(some[1:])
        with pytest.raises(SimulatorError, match=r"6 free ports .* are needed, 5 of"):
            network.free_ports(6)
