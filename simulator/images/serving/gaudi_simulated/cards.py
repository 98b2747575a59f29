"""Acquiring simulated cards: the device node opened and locked, for as long as the server lives."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

NODE_DOCUMENT = Path("/etc/gaudi-simulator/node.json")
DEV = Path("/dev/accel")


class AcquireError(Exception):
    """The server ends with status 1 and this message, as the vendor's library words it."""


def load_node(path: Path = NODE_DOCUMENT) -> dict[str, Any]:
    """Read the node document that the simulated container runtime binds into the container."""
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise AcquireError(
            f"{path} is missing: this simulated image runs on simulated nodes, with --runtime=habana."
        ) from None
    return document


def modules_wanted(environment: Mapping[str, str], count: int) -> list[int] | None:
    """Return the module ids the framework takes: HABANA_VISIBLE_MODULES, HLS_MODULE_ID for one; None: the first free.

    AcquireError when the list is no list of numbers, or too short.
    """
    listed = environment.get("HABANA_VISIBLE_MODULES", "")
    if count == 1 and environment.get("HLS_MODULE_ID"):
        listed = environment["HLS_MODULE_ID"]
    if not listed:
        return None
    try:
        modules = [int(part) for part in listed.split(",")]
    except ValueError:
        raise AcquireError(f"RuntimeError: module ids {listed!r} are not numbers") from None
    if len(set(modules)) < count:
        raise AcquireError("RuntimeError: synStatus=8 [Device not found] Device acquire failed.")
    return modules[:count]


def acquire(node: Mapping[str, Any], environment: Mapping[str, str], count: int, dev: Path = DEV) -> list[int]:
    """Open and lock the cards and return their module ids; AcquireError as the real library words it.

    The descriptors stay open over exec, so the server that is started next holds the cards.
    """
    index_of = {card["module_id"]: card["index"] for card in node["cards"]}
    wanted = modules_wanted(environment, count)
    if wanted is None:
        present = sorted(module for module, index in index_of.items() if (dev / f"accel{index}").exists())
    else:
        present = [module for module in wanted if (dev / f"accel{index_of.get(module)}").exists()]
    if len(present) < count:
        raise AcquireError("RuntimeError: synStatus=8 [Device not found] Device acquire failed.")
    taken: dict[int, int] = {}
    for module in present:
        if len(taken) < count and (descriptor := _lock(dev / f"accel{index_of[module]}")) is not None:
            taken[module] = descriptor
    if len(taken) < count:
        for descriptor in taken.values():
            os.close(descriptor)
        raise AcquireError("RuntimeError: synStatus=20 [Device already acquired] Device acquire failed.")
    return list(taken)


def _lock(device: Path) -> int | None:
    """Return a descriptor that holds the card and lives on over exec; None when somebody else holds it."""
    descriptor = os.open(device, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    os.set_inheritable(descriptor, True)
    return descriptor
