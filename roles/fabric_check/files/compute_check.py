"""Compute on cards, and compare with the CPU: copies, gathers, matrix products, and a sum over all cards of a group.

    compute_check.py REQUEST

Runs in the serving image, which has PyTorch for the cards. REQUEST is JSON, made by module_utils/gaudi/fabric/
compute.py. Each card has a process of its own, which prints lines of JSON; the caller judges them.

Without IOMMU passthrough, owners of Gaudi servers saw exact results for small tensors and wrong ones for large gathers
and long products, different in each run. So the data is large, it is new in each run, and each check is repeated.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import re
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

MARK = "gaudi-compute "
# Bytes of random data; what is larger is made of it. A prime: no page shows what another one has.
BLOCK = 16777213
# The status of a process whose card computes wrongly.
WRONG = 3
# Bytes of a row of a table, and elements that are compared in Python where a larger piece differs.
ROW, PIECE = 4096, 1 << 16
# Five small integers for products, and those of 0 to 31 for sums. Sums of a product stay exact in a float, and sums
# over eight cards even in bfloat16 (256).
FACTORS = bytes((byte % 5 - 2) & 0xFF for byte in range(256))
SUMMANDS = bytes(byte % 32 for byte in range(256))
# Where the processes of a group meet: a directory of the container alone.
MEETING = "/tmp"  # noqa: S108 - of the container
DEVICE_NODE = re.compile(r"/dev/accel/accel([0-9]+)")


def report(**values: Any) -> None:
    """Print one line, in one piece: other processes write to the same stream, and libraries leave lines unfinished."""
    os.write(1, f"\n{MARK}{json.dumps(values)}\n".encode())


class ComputeCard:
    """One card, seen from its process: PyTorch, the device, and the keys of each of its lines."""

    def __init__(self, request: dict[str, Any], module: int, group: list[int]) -> None:
        """Load PyTorch. group: the modules of a sum; empty where the card is alone."""
        os.environ["HABANA_VISIBLE_MODULES"] = ",".join(map(str, group or [module]))
        # Of several visible modules the one that this process takes (habana_frameworks.torch.distributed.hccl).
        os.environ["HLS_MODULE_ID"] = str(module)
        self.about: dict[str, Any] = {"module": module, "group": group}
        self.status = 0
        self.request, self.name = request, request["device"]
        self.torch = importlib.import_module("torch")
        if self.name == "hpu":
            importlib.import_module("habana_frameworks.torch.core")
        processes = len(group) or len(request["cards"])
        self.torch.set_num_threads(max(1, (os.cpu_count() or 1) // processes))
        # Nothing of an earlier run is right by chance.
        self.random = random.Random(int.from_bytes(os.urandom(8), "little"))  # noqa: S311 - no secret

    def there(self, tensor: Any) -> Any:
        """Return a copy of a tensor on the card."""
        return tensor.to(self.name)

    def acquire(self) -> None:
        """Take the card, and report which one it is: the device node that this process has opened."""
        self.there(self.integers(bytes(64)))
        # The descriptor that lists the others is closed by now.
        names = [str(each.readlink()) for each in list(Path("/proc/self/fd").iterdir()) if each.is_symlink()]
        held = {int(found[1]) for found in map(DEVICE_NODE.fullmatch, names) if found}
        report(**self.about, device=held.pop() if len(held) == 1 else None)

    def integers(self, data: bytes) -> Any:
        """Return these bytes as a tensor of 32-bit integers."""
        return self.torch.frombuffer(bytearray(data), dtype=self.torch.int32)

    def small(self, count: int, table: bytes) -> Any:
        """Return so many random small integers of a table, of eight bits each."""
        data = self.bytes(count, self.block(count)).translate(table)
        return self.torch.frombuffer(bytearray(data), dtype=self.torch.int8)

    def block(self, size: int) -> bytes:
        """Return new random bytes, as many as that or a block."""
        length = min(size, BLOCK)
        return self.random.getrandbits(8 * length).to_bytes(length, "little")

    def bytes(self, size: int, block: bytes, shift: int = 0) -> bytes:
        """Return so many bytes of a block, shifted and repeated."""
        start = shift % len(block)
        block = block[start:] + block[:start]
        return (block * (size // len(block) + 1))[:size]

    def compare(self, check: str, expected: Any, got: Any) -> bool:
        """Return whether two tensors of integers are equal, and report where they differ."""
        if self.torch.equal(expected, got):
            return True
        expected, got = expected.reshape(-1), got.reshape(-1)
        self.status = WRONG
        wrong, place = int((expected != got).sum()), self.first(expected, got)
        values = [str(each[place : place + 1].tolist()[0]) for each in (expected, got)]
        report(
            **self.about,
            check=check,
            wrong=wrong,
            of=expected.numel(),
            at=place,
            expected=values[0],
            got=values[1],
        )
        return False

    def first(self, expected: Any, got: Any) -> int:
        """Return the place of the first element that differs."""
        for start in range(0, expected.numel(), PIECE):
            pair = expected[start : start + PIECE], got[start : start + PIECE]
            if not self.torch.equal(*pair):
                lists = zip(*(each.tolist() for each in pair))
                return start + next(place for place, (one, other) in enumerate(lists) if one != other)
        raise ValueError("two tensors that differ have equal pieces")

    def passed(self, check: str, of: int) -> None:
        """Report that a check found no wrong element."""
        report(**self.about, check=check, wrong=0, of=of)

    def copy(self) -> None:
        """Copy patterns to the card, as much as the request says, and back when all of it is there."""
        size, total = self.request["chunk_bytes"], self.request["copy_bytes"]
        for _ in range(self.request["rounds"]):
            block = self.block(size)

            def pattern(place: int, block: bytes = block) -> Any:
                return self.integers(self.bytes(size, block, 4099 * place))

            there = [self.there(pattern(place)) for place in range(total // size)]
            for place, tensor in enumerate(there):
                if not self.compare("copy", pattern(place), tensor.to("cpu")):
                    return
        self.passed("copy", total // 4)

    def gather(self) -> None:
        """Take rows of a large table in random order."""
        rows = self.request["table_bytes"] // ROW
        for _ in range(self.request["rounds"]):
            block = self.block(rows * ROW)
            table = self.integers(self.bytes(rows * ROW, block)).reshape(rows, ROW // 4)
            order = self.torch.tensor(self.random.sample(range(rows), rows), dtype=self.torch.int64)
            expected = self.torch.index_select(table, 0, order)
            got = self.torch.index_select(self.there(table), 0, self.there(order)).to("cpu")
            if not self.compare("gather", expected, got):
                return
        self.passed("gather", rows * ROW // 4)

    def matmul(self) -> None:
        """Multiply two matrices of small integers in bfloat16, over a long inner side; report the largest difference.

        It is relative to the largest value. The CPU's result is exact.
        """
        torch, side, inner = self.torch, self.request["side"], self.request["inner"]
        worst: dict[str, Any] = {"error": 0.0}
        for _ in range(self.request["rounds"]):
            left = self.small(side * inner, FACTORS).reshape(side, inner).to(torch.bfloat16)
            right = self.small(side * inner, FACTORS).reshape(inner, side).to(torch.bfloat16)
            expected = torch.matmul(left.to(torch.float32), right.to(torch.float32)).reshape(-1).tolist()
            product = torch.matmul(self.there(left), self.there(right)).to("cpu").to(torch.float32)
            got = product.reshape(-1).tolist()
            largest = max(map(abs, expected)) or 1.0
            # NaN is larger than every bound.
            errors = [abs(one - other) / largest for one, other in zip(expected, got)]
            errors = [error if error == error else float("inf") for error in errors]
            error = max(errors)
            if error > worst["error"]:
                at = errors.index(error)
                worst = {"error": min(error, 1e30), "at": at, "expected": str(expected[at]), "got": str(got[at])}
        report(**self.about, check="matmul", of=side * side, **worst)

    def all_reduce(self, rank: int, seed: int) -> None:
        """Add one tensor of every card of a group; each card has to have the sum. seed: the same for all ranks."""
        torch, group, count = self.torch, self.about["group"], self.request["sum_elements"]
        distributed = importlib.import_module("torch.distributed")
        if self.name == "hpu":
            importlib.import_module("habana_frameworks.torch.distributed.hccl")
        self.random = random.Random(seed)  # noqa: S311 - no secret
        parts = [self.small(count, SUMMANDS).to(torch.float32) for _ in group]
        distributed.init_process_group(
            backend="hccl" if self.name == "hpu" else "gloo",
            # Not at a port: PyTorch's store listens on every address of the node, and believes whoever connects.
            init_method=f"file://{MEETING}/{seed:x}",
            rank=rank,
            world_size=len(group),
        )
        # The CPU's sum first: a device that shares the CPU's memory would change it.
        expected = parts[0]
        for part in parts[1:]:
            expected = expected + part
        own = self.there(parts[rank])
        distributed.all_reduce(own)
        if self.compare("all_reduce", expected, own.to("cpu")):
            self.passed("all_reduce", count)


def alone(request: dict[str, Any], module: int) -> int:
    """Check one card; return its status."""
    card = ComputeCard(request, module, [])
    card.acquire()
    card.copy()
    card.gather()
    card.matmul()
    report(**card.about, done=True)
    return card.status


def together(request: dict[str, Any], group: list[int], module: int, seed: int) -> int:
    """Take part in the sum of a group; return the card's status."""
    card = ComputeCard(request, module, group)
    card.all_reduce(group.index(module), seed)
    report(**card.about, done=True)
    return card.status


def begin(module: int, group: list[int], work: Callable[[], int]) -> int:
    """Do some work in a process of its own, and return its id. How it fails is reported in a line as well."""
    process = os.fork()
    if process:
        return process

    def failed(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
        traceback.print_exception(kind, error, where)
        report(module=module, group=group, failed=f"the check in the image ended with {kind.__name__}: {error}"[:500])

    sys.excepthook = failed
    status = work()
    sys.stdout.flush()
    # Libraries of the vendor may hang where an interpreter ends; everything is printed by now.
    os._exit(status)


def finish(processes: dict[int, int], group: list[int]) -> set[int]:
    """Wait for processes (modules by id), report which were killed, and return the modules of sound cards."""
    sound = set()
    while processes:
        process, status = os.wait()
        module = processes.pop(process)
        if os.WIFSIGNALED(status):
            report(module=module, group=group, failed=f"ended by signal {os.WTERMSIG(status)}")
        elif status == 0:
            sound.add(module)
    return sound


def main() -> None:
    """Check every card, then the sum of each group of sound cards."""
    request = json.loads(sys.argv[1])
    alone_in = {begin(module, [], partial(alone, request, module)): module for module in request["cards"]}
    sound = finish(alone_in, [])
    for group in request["groups"]:
        # One value for all ranks, which make the same tensors of it.
        seed = int.from_bytes(os.urandom(8), "little")
        if sound.issuperset(group):
            finish({begin(each, group, partial(together, request, group, each, seed)): each for each in group}, group)


if __name__ == "__main__":
    main()
