"""Whole pieces of low memory for the driver: before a start the kernel is asked to put its free memory together."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from gaudi.faults import words
from gaudi.host.low_memory import free_pieces

from .reporter import Reporter
from .systemd import say

# Seconds that a start waits for the kernel: on a host with terabytes in use it may move memory for minutes.
TIMEOUT = 300.0
# Pages of files, and the kernel's directory entries and inodes, which cannot be moved: what the owner dropped whose
# servers then started. Only what the disk has already is dropped, so that nothing is written and nothing is lost.
ALL_CACHES = 3


def prepare(pieces: int, proc: Path, reporter: Reporter, *, drop_caches: bool) -> None:
    """Compact the host's memory, and where pieces stay short drop caches, if the site allows it. Ends no start.

    pieces: how many are enough, one for each card. The number that a context takes is not published.
    """
    before = _pieces(proc)
    done = {"compacted": _ask(proc, reporter, "compact_memory", 1), "dropped": False}
    after = _pieces(proc)
    if after is not None and after < pieces and drop_caches:
        done["dropped"] = _ask(proc, reporter, "drop_caches", ALL_CACHES) and _ask(proc, reporter, "compact_memory", 1)
        after = _pieces(proc)
    reporter.note(low_memory={"pieces": pieces, "before": before, "after": after, **done})
    counted = f"low memory has {after} free pieces of 4 MiB (before: {before}; enough: {pieces})"
    clauses = [
        *(["compacted memory"] if done["compacted"] else []),
        *(["dropped caches, so that files are read from disk again"] if done["dropped"] else []),
        *([] if after is None else [counted]),
    ]
    if clauses:
        say(f"{clauses[0][0].upper()}{'; '.join(clauses)[1:]}.")
    if after is not None and after < pieces:
        say(words.remedy("low-memory-fragmented", "dropped" if done["dropped"] else "short"), 4)


def _pieces(proc: Path) -> int | None:
    """How many free pieces there are; None where the kernel does not tell."""
    path = proc / "buddyinfo"
    try:
        return free_pieces(path.read_text(encoding="ascii", errors="replace"), os.sysconf("SC_PAGE_SIZE"))
    except OSError:
        return None


def _ask(proc: Path, reporter: Reporter, name: str, value: int) -> bool:
    """Write a number to a file of /proc/sys/vm, and wait for the kernel to be done; whether it is. Raises Stopped."""
    path = proc / "sys/vm" / name
    failed: list[OSError] = []

    def write() -> None:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(descriptor, f"{value}\n".encode("ascii"))
            finally:
                os.close(descriptor)
        except OSError as error:
            failed.append(error)

    # The write returns when the work is done. Meanwhile systemd hears that we are alive.
    work = threading.Thread(target=write, daemon=True)
    reporter.extend(TIMEOUT)
    reporter.publish("checking", f"waiting for the kernel ({name})")
    work.start()
    deadline = time.monotonic() + TIMEOUT
    while work.is_alive() and time.monotonic() < deadline:
        reporter.ping_in_time()
        work.join(reporter.within_watchdog(0.5))
        reporter.wait(0)
    if work.is_alive():
        say(f"{path}: the kernel is not done after {TIMEOUT:g} s. The start goes on.", 4)
    elif failed:
        say(f"{path} cannot be written ({failed[0].strerror}). The start goes on.", 4)
    return not work.is_alive() and not failed
