"""Read and write cards.lock under a lock; a damaged file is rebuilt from the plans on the node."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..base import paths
from ..base.documents import Damaged
from ..base.refusal import Refusal
from ..base.values import BORROWER
from ..cards.reservations import Reservations, again, free, lend, parse_reservations, rebuild, render_reservations
from .documents import make_room, read, read_json
from .files import take_turn, write_text
from .folders import of_instances

FILE = "cards.lock"
# Seconds to wait for the lock. It is held for less than a second, and a waiting supervisor has its watchdog.
PATIENCE = 30.0
# Whoever borrows cards holds this lock; the kernel releases it when the process ends, even by a kill.
MEASURING = Path(paths.ACCEPTANCE_LOCK).name


@dataclass(frozen=True)
class StoredReservations:
    """The reservations; ``damage`` says why they were rebuilt, as a sentence without a full stop."""

    reservations: Reservations
    damage: str = ""


def read_reservations(path: Path, plans: Path, now: str, leaving: str = "") -> StoredReservations:
    """Read cards.lock; no reservations without the file. Cards that an interrupted check had borrowed count as free.

    plans: the directory with a directory for each instance. If a plan is damaged too, the cards that its container was
    started with count, from the supervisor's state.json. now: ISO 8601, the date of rebuilt reservations. leaving: an
    instance that is being removed; its plan is left out of a rebuild. Raises Refusal if the file is damaged and the
    owners of cards cannot be determined.
    """
    try:
        found = read(path, parse_reservations) or {}
        return StoredReservations(found if is_held(path.with_name(MEASURING)) else free(found, BORROWER))
    except Damaged as damage:
        try:
            rebuilt = rebuild(_plans(plans, path.parent / "instances", leaving), now)
        except (Damaged, Refusal) as unclear:
            why = str(unclear)
            if isinstance(unclear, Damaged):
                instance = Path(unclear.path).parent.name
                why += f". Remove it, then set it up again: playbooks/remove.yml --limit NODE -e instance={instance}"
            raise Refusal(
                "reservations_damaged", f"{damage}, and it cannot be rebuilt from the plans, because {why}"
            ) from unclear
        names = ", ".join(sorted(rebuilt)) or "no instance"
        return StoredReservations(rebuilt, f"{damage}; who has which card is taken from the plans of {names}")


def is_held(lock: Path) -> bool:
    """Whether a process has a lock file locked."""
    try:
        handle = os.open(lock, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


# The parts of a plan and of state.json that are read here.
_CARDS = [{"module_id": int, "serial?": (str, type(None))}]
_PLAN = {"instance?": str, "modules": _CARDS}
_STATE = {"cards": _CARDS}


def _plans(plans: Path, states: Path, leaving: str) -> dict[str, dict[str, Any]]:
    """Return the plans of all instances but ``leaving``. Raises Damaged for one that cannot be read or replaced."""
    found = {}
    for folder in of_instances(plans):
        if folder.name != leaving:
            try:
                plan = read_json(folder / "plan.json", _PLAN)
            except Damaged as damage:
                plan = _started_with(states / folder.name / "state.json", damage)
            if plan is not None and plan.get("instance", folder.name) == folder.name:
                found[folder.name] = plan
    return found


def _started_with(state: Path, damage: Damaged) -> dict[str, Any]:
    """The cards that a container was started with, as a plan has them. Raises the plan's damage without a record."""
    try:
        written = read_json(state, _STATE)
    except Damaged:
        written = None
    if not written or not written["cards"]:
        raise damage
    return {"modules": written["cards"]}


@contextlib.contextmanager
def turn(state: Path, check_mode: bool = False) -> Iterator[None]:
    """Hold the lock of the reservations. Check mode creates no lock file; without one there is nothing to wait for.

    state: the directory that they lie in. Raises Refusal if the lock's path is not a regular file, or if another
    process keeps the lock.
    """
    guard_file = state / f"{FILE}.guard"
    if check_mode and not guard_file.exists():
        yield
        return
    if not check_mode:
        state.mkdir(mode=0o755, parents=True, exist_ok=True)
    try:
        guard = os.open(guard_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except IsADirectoryError:
        damage = Damaged(str(guard_file), "it is a directory")
        raise Refusal("lock_damaged", f"{damage}. Move it away, then run this again. Nothing was changed.") from None
    try:
        take_turn(guard, guard_file, PATIENCE)
        yield
    finally:
        os.close(guard)


def reserve_again(
    state: Path,
    plans: Path,
    instance: str,
    cards: Sequence[Mapping[str, Any]],
    now: str,
    check_mode: bool = False,
) -> None:
    """Have an instance hold the cards of a former plan again, and no others.

    Raises Refusal where another instance has one, and OSError where that cannot be written. Check mode writes nothing.
    """
    path = state / FILE
    with turn(state, check_mode):
        before = read_reservations(path, plans, now).reservations
        after = again(before, instance, cards, now)
        if after != before and not check_mode:
            make_room(path)
            write_text(path, render_reservations(after), mode=0o600)


def release(state: Path, plans: Path, instance: str, now: str) -> None:
    """Free the cards of an instance that has ended. Raises Refusal, and OSError where that cannot be written."""
    path = state / FILE
    with turn(state):
        before = read_reservations(path, plans, now, instance).reservations
        after = free(before, instance)
        if after != before:
            make_room(path)
            write_text(path, render_reservations(after), mode=0o600)


@contextlib.contextmanager
def borrowed(state: Path, plans: Path, name: str, cards: Sequence[Mapping[str, Any]], now: str) -> Iterator[None]:
    """Reserve those of these cards that nobody has, under a name, and free them again however the block ends.

    What an interrupted run left under the name is replaced. Raises Refusal as ``turn`` and ``read_reservations`` do.
    """
    path = state / FILE
    with turn(state):
        before = read_reservations(path, plans, now).reservations
        after = lend(before, name, cards, now)
        if after != before:
            make_room(path)
            write_text(path, render_reservations(after), mode=0o600)
    try:
        yield
    finally:
        release(state, plans, name, now)
