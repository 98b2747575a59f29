"""Cards that an ended server still holds: their memory is waited for, and workers that outlived it are ended."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gaudi.cards.sources import Holder
from gaudi.cards.still_held import FIELDS, describe_held, still_held
from gaudi.cards.users import new_user, owner_of
from gaudi.faults import words
from gaudi.node import open_cards
from gaudi.node.files import text_of
from gaudi.serving.failure import transient
from gaudi.serving.plan import Plan

from . import clock
from .engine import run_command
from .reporter import Reporter
from .settings import Paths
from .state import SupervisorState
from .systemd import say

# Where the engine has the group of a container, by its id: with systemd's driver, and with its own. Only root makes
# groups there; a group of that name anywhere else may be a user's.
_GROUPS = ("system.slice/docker-{}.scope", "docker/{}")
# The roots of the hierarchies: the one of version 2, and some of version 1.
_ROOTS = (".", "unified", "systemd", "pids", "memory")


def end_workers(paths: Paths, instance: str, container: str) -> None:
    """Kill what is left in the control group of an instance's container that has ended; container: its full id."""
    ended = []
    for pid in _members(paths.sys, container):
        try:
            process = os.pidfd_open(pid)
        except OSError:
            continue
        try:
            # The number may have become another process's before it was opened; this one cannot be exchanged any more.
            if pid in _members(paths.sys, container):
                name = text_of(paths.proc / str(pid) / "comm").strip()
                signal.pidfd_send_signal(process, signal.SIGKILL)
                ended.append(f"pid {pid} {name}".rstrip())
        except ProcessLookupError:
            continue
        finally:
            os.close(process)
    if ended:
        say(f"Killed what outlived the container of {instance}: {', '.join(ended)}.", 4)


def _members(sys: Path, container: str) -> list[int]:
    """The processes in a container's control group, and below it."""
    if not container:
        return []
    groups = [sys / "fs/cgroup" / root / group.format(container) for root in _ROOTS for group in _GROUPS]
    files = [file for group in groups for file in group.glob("**/cgroup.procs")]
    # 0 is a process that this node does not see.
    return sorted({int(word) for file in files for word in text_of(file).split()} - {0})


def await_memory(plan: Plan, paths: Paths, state: SupervisorState, reporter: Reporter) -> None:
    """Wait until the plan's cards have their memory free. Raises Failure, with who holds it, after a while.

    The driver frees a card's memory some seconds after a server's processes have ended.
    """
    modules = [card.module_id for card in plan.cards]
    deadline = time.monotonic() + clock.MEMORY_FREE
    known = {str(state.earlier.get("container_id", "")), str(state.document.get("container_id", ""))}
    while held := _held(modules):
        for container in sorted(known):
            end_workers(paths, plan.instance, container)
        users = _users(plan, held, paths, state)
        text = describe_held(held, users)
        if time.monotonic() > deadline:
            case = "held" if users else ""
            seconds = f"{clock.MEMORY_FREE:g}"
            raise transient("card-memory-held", words.say("card-memory-held", case, held=text, seconds=seconds))
        reporter.publish("waiting", f"waiting for the memory of its cards: {text}")
        reporter.write_in_time()
        reporter.extend(clock.MEMORY_FREE)
        reporter.wait_alive(clock.POLL_STARTING)


def _held(modules: Iterable[int]) -> dict[int, int]:
    """What hl-smi says; nothing where it does not answer, which the start finds out by itself."""
    try:
        done = run_command(["hl-smi", "-Q", ",".join(FIELDS), "-f", "csv,noheader"])
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return {}
    return still_held(done.stdout, modules) if done.returncode == 0 else {}


def _users(plan: Plan, held: Iterable[int], paths: Paths, state: SupervisorState) -> list[dict[str, Any]]:
    """Who has one of these cards open, each process once."""
    indexes = dict(zip((card.module_id for card in plan.cards), (card["index"] for card in state.document["cards"])))
    wanted = {indexes[module] for module in held}
    by_pid = {holder.pid: holder for holder in open_cards.read_open(paths.proc, paths.dev) if holder.index in wanted}
    init = text_of(paths.proc / "1/cgroup")
    return [_user(holder, init) for holder in by_pid.values()]


def _user(holder: Holder, init: str) -> dict[str, Any]:
    unit, container = owner_of(holder.cgroup, init)
    known = {"pid": holder.pid, "name": holder.name, "account": holder.account, "unit": unit, "container": container}
    return {**new_user(), **known}
