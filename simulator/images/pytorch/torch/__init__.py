"""Simulated: the stand-in for Habana's PyTorch. It computes on the CPU, in pure Python, what fabric_check asks for.

The device "hpu" acquires the card of this process as the vendor's library does: the module of HLS_MODULE_ID, whose
device node is opened and locked. What it computes is right, but for the faults of the node's description (``compute``),
which the simulated container runtime shows to containers.
"""

from __future__ import annotations

import fcntl
import json
import operator
import os
import signal
from array import array
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

__version__ = "0.0.0+simulated"

NODE_DOCUMENT = Path("/etc/gaudi-simulator/node.json")
DEV = Path("/dev/accel")
CPU, HPU = "cpu", "hpu"
# What array calls them. bfloat16 has no type of its own: what is computed here are small integers.
int8, int32, int64, float32, bfloat16 = "b", "i", "q", "f", "f"


@cache
def card() -> dict[str, list[int]]:
    """Acquire the card, and return what this process does wrong: modules by fault, empty or with its own."""
    try:
        node = json.loads(NODE_DOCUMENT.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RuntimeError("synStatus=8 [Device not found] Device acquire failed.") from None
    module = int(os.environ["HLS_MODULE_ID"])
    index = next((each["index"] for each in node["cards"] if each["module_id"] == module), None)
    device = DEV / f"accel{index}"
    if not device.exists():
        raise RuntimeError("synStatus=8 [Device not found] Device acquire failed.")
    descriptor = os.open(device, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise RuntimeError("synStatus=20 [Device already acquired] Device acquire failed.") from None
    faults = {fault: [each for each in modules if each == module] for fault, modules in node["compute"].items()}
    if faults["crash"]:
        raise RuntimeError("synStatus=26 [Generic failure] Device launch failed.")
    while faults["hang"]:
        signal.pause()
    return faults


class Tensor:
    """Numbers in a row, with a shape, on the host or on the card."""

    def __init__(self, values: array[Any], shape: Sequence[int], device: str = CPU) -> None:
        """Hold these numbers."""
        self.values, self.shape, self.device = values, tuple(shape), device

    def to(self, target: str) -> Tensor:
        """Copy to a device, or convert to a type."""
        if target not in (CPU, HPU):
            return Tensor(array(target, self.values), self.shape, self.device)
        values = self.values[:]
        if HPU in (target, self.device) and card()["copy"] and target == CPU:
            values = wrong(values)
        return Tensor(values, self.shape, target)

    def reshape(self, *shape: int) -> Tensor:
        """Return the same numbers in another shape; one of -1 is a row of all."""
        return Tensor(self.values, (len(self.values),) if shape == (-1,) else shape, self.device)

    def numel(self) -> int:
        """Return how many numbers there are."""
        return len(self.values)

    def tolist(self) -> list[Any]:
        """Return the numbers of a row."""
        return self.values.tolist()

    def sum(self) -> Tensor:
        """Return the sum of all."""
        return Tensor(array("q", [sum(self.values)]), (), self.device)

    def __int__(self) -> int:
        """Return a single number."""
        return int(self.values[0])

    def __getitem__(self, part: slice) -> Tensor:
        """Return a part of a row."""
        values = self.values[part]
        return Tensor(values, (len(values),), self.device)

    def __add__(self, other: Tensor) -> Tensor:
        """Add number by number."""
        return self._each(operator.add, other, self.values.typecode)

    def __ne__(self, other: object) -> Any:
        """Compare number by number."""
        return self._each(operator.ne, other, int8) if isinstance(other, Tensor) else NotImplemented

    __hash__ = None  # type: ignore[assignment] # as a tensor of several numbers has no single truth

    def _each(self, work: Callable[[Any, Any], Any], other: Tensor, kind: str) -> Tensor:
        return Tensor(array(kind, map(work, self.values, other.values)), self.shape, self.device)


def wrong(values: array[Any]) -> array[Any]:
    """Return numbers of which the last is another one, as a page that is not where it should be."""
    return values[:-1] + array(values.typecode, [0 if values[-1] else 1])


def frombuffer(data: bytearray, dtype: str) -> Tensor:
    """Return the numbers in some bytes."""
    values = array(dtype)
    values.frombytes(bytes(data))
    return Tensor(values, (len(values),))


def tensor(values: Sequence[Any], dtype: str) -> Tensor:
    """Return a row of these numbers."""
    return Tensor(array(dtype, values), (len(values),))


def equal(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same numbers."""
    return one.values.tobytes() == other.values.tobytes()


def index_select(table: Tensor, _dimension: int, order: Tensor) -> Tensor:
    """Return rows of a table."""
    width = table.shape[1]
    values = array(table.values.typecode)
    for row in order.values:
        values.extend(table.values[row * width : (row + 1) * width])
    if table.device == HPU and card()["gather"]:
        values = wrong(values)
    return Tensor(values, (len(order.values), width), table.device)


def matmul(left: Tensor, right: Tensor) -> Tensor:
    """Multiply two matrices."""
    (height, inner), width = left.shape, right.shape[1]
    rows = [left.values[place * inner : (place + 1) * inner].tolist() for place in range(height)]
    columns = [right.values[place::width].tolist() for place in range(width)]
    values = array(float32, [sum(map(operator.mul, row, column)) for row in rows for column in columns])
    if left.device == HPU and card()["matmul"]:
        values = array(float32, [value * 3 for value in values])
    return Tensor(values, (height, width), left.device)


def set_num_threads(_count: int) -> None:
    """Take one thread, whatever is asked for."""
