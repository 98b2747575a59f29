"""Acquiring cards, and numactl's checks against the described node."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gaudi_simulated import cards, numactl
from hypothesis import given
from hypothesis import strategies as st

from simulator.standins import description

NOT_FOUND = r"synStatus=8 \[Device not found\] Device acquire failed\."
ACQUIRED = r"synStatus=20 \[Device already acquired\] Device acquire failed\."


@pytest.fixture
def dev(tmp_path: Path) -> Iterator[Path]:
    """Cards 0 to 3, which are modules 3, 7, 1 and 0; what a test acquired is given back after it."""
    for index in range(4):
        (tmp_path / f"accel{index}").touch()
    yield tmp_path
    for descriptor in descriptors(tmp_path):
        os.close(descriptor)


def descriptors(directory: Path) -> list[int]:
    """What this process has open in a directory."""
    links = {int(entry.name): entry.readlink() for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()}
    return [number for number, target in links.items() if target.parent == directory]


def held(dev: Path, index: int) -> bool:
    with (dev / f"accel{index}").open("rb+") as device:
        try:
            fcntl.flock(device, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@pytest.mark.parametrize(
    ("environment", "count", "indexes"),
    [
        ({"HABANA_VISIBLE_MODULES": "7,1"}, 2, [1, 2]),
        ({"HLS_MODULE_ID": "0"}, 1, [3]),
        # One card: HLS_MODULE_ID wins over an inherited list.
        ({"HLS_MODULE_ID": "0", "HABANA_VISIBLE_MODULES": "7,1"}, 1, [3]),
        # For more than one it names nothing.
        ({"HLS_MODULE_ID": "0", "HABANA_VISIBLE_MODULES": "7,1"}, 2, [1, 2]),
        ({}, 2, [3, 2]),
    ],
)
def test_the_named_modules_are_held(
    environment: dict[str, str], count: int, indexes: list[int], dev: Path, node: dict[str, Any]
) -> None:
    cards.acquire(node, environment, count, dev)
    assert [index for index in range(4) if held(dev, index)] == sorted(indexes)


@pytest.mark.parametrize(
    ("environment", "count"),
    [
        ({"HABANA_VISIBLE_MODULES": "6,1"}, 2),  # module 6 is not among the container's devices
        ({"HABANA_VISIBLE_MODULES": "7"}, 2),
        ({"HABANA_VISIBLE_MODULES": "7,7"}, 2),
        ({"HLS_MODULE_ID": "99"}, 1),
        ({}, 5),
    ],
)
def test_cards_that_are_not_there(environment: dict[str, str], count: int, dev: Path, node: dict[str, Any]) -> None:
    with pytest.raises(cards.AcquireError, match=NOT_FOUND):
        cards.acquire(node, environment, count, dev)


def test_a_card_somebody_holds_cannot_be_acquired(dev: Path, node: dict[str, Any]) -> None:
    with (dev / "accel1").open("rb+") as device:
        fcntl.flock(device, fcntl.LOCK_EX)
        with pytest.raises(cards.AcquireError, match=ACQUIRED):
            cards.acquire(node, {"HABANA_VISIBLE_MODULES": "7,1"}, 2, dev)
        # Without names the framework takes what is free.
        assert cards.acquire(node, {}, 3, dev) == [0, 1, 3]


def test_two_servers_cannot_have_one_card(dev: Path, node: dict[str, Any]) -> None:
    cards.acquire(node, {"HLS_MODULE_ID": "1"}, 1, dev)
    with pytest.raises(cards.AcquireError, match=ACQUIRED):
        cards.acquire(node, {"HLS_MODULE_ID": "1"}, 1, dev)


def test_descriptors_stay_open_over_exec(dev: Path, node: dict[str, Any]) -> None:
    cards.acquire(node, {"HLS_MODULE_ID": "0"}, 1, dev)
    assert [os.get_inheritable(descriptor) for descriptor in descriptors(dev)] == [True]


def test_an_image_outside_a_simulated_node_says_where_it_belongs(tmp_path: Path) -> None:
    with pytest.raises(cards.AcquireError, match="runs on simulated nodes"):
        cards.load_node(tmp_path / "node.json")


@pytest.mark.parametrize(
    "arguments",
    [
        ["-C", "0-9,80-89", "-p", "0", "python3"],
        ["--physcpubind=40-49", "--preferred=1", "python3"],
        ["-C", "0-39", "-m", "0,1", "python3", "-m", "x"],
    ],
)
def test_vectors_for_the_described_node_pass(arguments: list[str], node: dict[str, Any]) -> None:
    binding = numactl.parse(arguments)
    numactl.check(binding, node)
    assert binding.command[0] == "python3"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        # What the vendor's scripts produce on machines they do not foresee.
        (["-C", "0-7,8-15", "-p", "python3"], "<python3> is invalid"),
        (["-C", "-,-", "-p", "0", "x"], "<-,-> is invalid"),
        (["-C", "0-7", "-p", "56-69", "x"], "node argument 56 is out of range"),
        (["-C", "300", "-p", "0", "x"], "cpu argument 300 is out of range"),
        (["-C", "0-7", "-m", "2", "x"], "node argument 2 is out of range"),
        (["-C", "0-7", "-p", "0,1", "x"], "<1> is invalid"),
        (["-C", "7-0", "-p", "0", "x"], "<7-0> is invalid"),
        (["-C", "0-7", "-p", "0"], "usage: numactl"),
        (["-C"], "option requires an argument"),
        (["--interleave=all", "x"], "not among the options"),
    ],
)
def test_vectors_the_real_numactl_refuses(arguments: list[str], message: str, node: dict[str, Any]) -> None:
    with pytest.raises(numactl.Refused) as refusal:
        numactl.check(numactl.parse(arguments), node)
    assert message in str(refusal.value)


@given(st.sets(st.integers(0, 160)), st.sets(st.integers(0, 160)))
def test_what_is_bound_is_asked_for_and_there(asked: set[int], there: set[int]) -> None:
    binding = numactl.Binding(cpus=sorted(asked), preferred=[1])
    options = numactl.reduce(binding, there, {0})
    bound = {int(cpu) for option in options for cpu in option.removeprefix("--physcpubind=").split(",")}
    assert bound == asked & there


def test_a_machine_without_numa_has_node_0(described: Any) -> None:
    flat = described(numa=[])
    numactl.check(numactl.parse(["-C", "0-3", "-p", "0", "x"]), flat)
    with pytest.raises(numactl.Refused):
        numactl.check(numactl.parse(["-p", "1", "x"]), flat)
    assert description.DEFAULT == "gaudi2-oam8"
