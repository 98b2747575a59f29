"""Which processes of a node have which card open, and what else decides between the causes of one line of a log.

Without Ansible: the supervisor asks too.
"""

from __future__ import annotations

import pwd
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from ..base.printable import printable
from ..cards.sources import Holder
from ..cards.users import device_index, is_reader, owner_of
from ..faults.facts import Facts
from .beneath import look
from .files import text_of

# The driver's name for the state of a card whose reset failed.
DISABLED = "disabled"
# Names of devices that are looked for in a container: accel0 and on.
MOST_CARDS = 64


def read_open(proc: Path, dev: Path = Path("/dev")) -> Iterator[Holder]:
    """Yield processes with a card's device file open, in whatever container."""
    numbers = _numbers(dev)
    for process in sorted(proc.glob("[0-9]*")):
        indexes = set(_open_cards(process, numbers))
        if indexes:
            name = text_of(process / "comm").strip()
            # It has ended, or only queries cards.
            if name and not is_reader(name):
                cgroup = text_of(process / "cgroup")
                account = account_of(process)
                yield from (Holder(index, int(process.name), name, cgroup, account) for index in sorted(indexes))


def card_states(sys: Path) -> dict[int, str]:
    """Return the driver's name for the state of each card that it has, by module id; empty where it does not tell."""
    found = {}
    for device in sys.glob("class/accel/accel[0-9]*/device"):
        module = text_of(device / "module_id").strip()
        # Another vendor's has none, nor has one that went between two reads.
        if module.isdigit():
            found[int(module)] = text_of(device / "status").strip().lower()
    return found


def offered(states: Mapping[int, str]) -> set[int]:
    """Return the module ids of the cards that the driver has up."""
    return {module for module, state in states.items() if state != DISABLED}


def read_passed(
    pid: int, indexes: Mapping[int, int], proc: Path = Path("/proc"), dev: Path = Path("/dev")
) -> tuple[int, ...] | None:
    """Return the module ids of those cards whose device a process of a container has; None if it has ended.

    Devices are compared by number, whatever a runtime calls them in the container. The container may write to its /dev:
    no link there is followed, which would lead out of it, and no list of its files is read.
    """
    inside = proc / str(pid) / "root/dev"
    names = [f"accel{number}" for number in sorted({*range(MOST_CARDS), *indexes})]
    try:
        if not inside.is_dir():
            return None
        seen = [look(inside / "accel" / name, inside) for name in names]
    except OSError:
        return None
    numbers = {found.st_rdev for found in seen if found is not None and stat.S_ISCHR(found.st_mode)}
    return tuple(sorted(module for index, module in indexes.items() if _number(dev / f"accel/accel{index}") in numbers))


def _number(path: Path) -> int | None:
    """Return the number of a device file of the node; None for anything else."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_rdev if stat.S_ISCHR(found.st_mode) else None


def read_facts(
    indexes: Mapping[int, int], proc: Path = Path("/proc"), dev: Path = Path("/dev"), sys: Path = Path("/sys")
) -> Facts:
    """Return who has one of these cards open, which cards the driver offers, and which modules and verbs are there.

    indexes: the module id of each card by its device index. What cannot be read is unknown.
    """
    modules = text_of(proc / "modules").splitlines()
    states = card_states(sys)
    return Facts(
        cards=tuple(sorted(indexes.values())) or None,
        visible=tuple(sorted(offered(states))) if states else None,
        holders=tuple(_in_words(indexes, proc, dev)),
        modules=frozenset(line.split()[0] for line in modules if line.strip()) or None,
        infiniband=(dev / "infiniband").is_dir(),
    )


def _in_words(indexes: Mapping[int, int], proc: Path, dev: Path) -> Iterator[str]:
    init = text_of(proc / "1/cgroup")
    for holder in read_open(proc, dev):
        if holder.index in indexes:
            unit, container = owner_of(holder.cgroup, init)
            where = f" in container {container[:12]}" if container else f" of {unit}" if unit else ""
            yield f"{holder.name} (pid {holder.pid}){where} has module {indexes[holder.index]}"


def account_of(process: Path) -> str | None:
    """Return the name of a process's user, or its number if the node has no name for it."""
    try:
        uid = process.stat().st_uid
    except OSError:
        return None
    try:
        return printable(pwd.getpwuid(uid).pw_name)
    except KeyError:
        return f"user {uid}"


def _numbers(dev: Path) -> dict[str, int]:
    """Return the number of each device file of the node's cards, by its path."""
    found = {f"/dev/accel/{file.name}": _number(file) for file in sorted((dev / "accel").glob("accel*"))}
    return {path: number for path, number in found.items() if number is not None}


def _open_cards(process: Path, numbers: Mapping[str, int]) -> Iterator[int]:
    """Yield the index of each card a process has open.

    A container may call any device a card, and a card by the name of another: what counts is the number, where the
    node has a file of that name.
    """
    try:
        descriptors = list((process / "fd").iterdir())
    except OSError:
        # The process has ended, or belongs to another user and this is not root, which is reported as a finding.
        return
    for descriptor in descriptors:
        try:
            opened, seen = str(descriptor.readlink()), descriptor.stat()
        except OSError:
            # Closed between the listing and the look.
            continue
        index = device_index(opened)
        if index is None or not stat.S_ISCHR(seen.st_mode):
            continue
        if numbers.get(opened.removesuffix(" (deleted)"), seen.st_rdev) == seen.st_rdev:
            yield index
        else:
            yield from (
                other
                for path, number in numbers.items()
                if number == seen.st_rdev
                if (other := device_index(path)) is not None
            )
