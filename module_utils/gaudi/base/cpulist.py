"""CPU lists as the Linux kernel writes them: ``0-39,80-119``.

Every range counts: with SMT the second range holds the siblings, with sub-NUMA clustering or a
hot-removed CPU there are three and more. ``hl-smi topo -c -N`` writes a blank after the comma,
``/sys/bus/pci/devices/*/local_cpulist`` does not; both are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

# The largest NR_CPUS an x86-64 or arm64 distribution kernel is built with (MAXSMP) is 8192.
MAX_CPU = 8191

# Characters of foreign output that a message quotes.
_SHOWN = 80

_RANGE = re.compile(r"([0-9]{1,5})(?:\s*-\s*([0-9]{1,5}))?")


def shown(text: str) -> str:
    """Quote a piece of output for a message, shortened."""
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "...")


def parse_ranges(text: str) -> tuple[tuple[int, int], ...]:
    """Return the ranges of a CPU list as (first, last), ascending, touching ranges joined.

    An empty list (a memory-only NUMA node) is no range. Raises ValueError, with the text, for anything
    that is not a CPU list, for a range that runs backwards and for a CPU above MAX_CPU.
    """
    stripped = text.strip()
    if not stripped:
        return ()
    ranges: list[tuple[int, int]] = []
    for part in stripped.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise ValueError(f"not a CPU list such as 0-39,80-119: {shown(text)}")
        first = int(match.group(1))
        last = first if match.group(2) is None else int(match.group(2))
        if last < first:
            raise ValueError(f"a CPU range runs backwards ({first}-{last}) in {shown(text)}")
        if last > MAX_CPU:
            raise ValueError(f"CPU {last} is above {MAX_CPU}, the largest a kernel can have, in {shown(text)}")
        ranges.append((first, last))
    joined: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return tuple(joined)


def format_cpulist(cpus: Iterable[int]) -> str:
    """Return CPU numbers as the kernel writes them: ascending ranges, no blanks, ``""`` for none.

    Raises ValueError for a number that no CPU can have.
    """
    ordered = sorted(set(cpus))
    if ordered and not (ordered[0] >= 0 and ordered[-1] <= MAX_CPU):
        raise ValueError(f"CPU numbers go from 0 to {MAX_CPU}, not {ordered[0]} to {ordered[-1]}")
    ranges: list[tuple[int, int]] = []
    for cpu in ordered:
        if ranges and cpu == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], cpu)
        else:
            ranges.append((cpu, cpu))
    return format_ranges(ranges)


def format_ranges(ranges: Iterable[tuple[int, int]]) -> str:
    """Return ranges (first, last) as text, in the order given: ``0-39,80-119``."""
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def normalise_cpulist(text: str) -> str:
    """Return a CPU list in the kernel's own form, so that two spellings of one list compare equal."""
    return format_ranges(parse_ranges(text))
