"""Memory that cards still have in use before a server starts, and who has it. Pure: hl-smi's answer is given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .findings import IDLE_MEMORY_MIB
from .hl_smi import parse_csv, parse_mib
from .users import describe_user

FIELDS = ("module_id", "memory.used")


def still_held(table: str, modules: Iterable[int]) -> dict[int, int]:
    """Return MiB in use by module id, of those of these cards that have more in use than an idle one.

    table: what ``hl-smi -Q`` prints for FIELDS. A card whose memory is not known counts as free: some systems show N/A,
    and what a server lacks it says itself.
    """
    wanted = set(modules)
    try:
        rows = parse_csv(table, FIELDS)
        found = {int(row["module_id"] or -1): parse_mib(row["memory.used"] or "N/A") for row in rows}
    except ValueError:
        return {}
    in_use = {module: used for module, used in sorted(found.items()) if used is not None and module in wanted}
    return {module: used for module, used in in_use.items() if used > IDLE_MEMORY_MIB}


def describe_held(held: Mapping[int, int], users: Iterable[Mapping[str, Any]]) -> str:
    """Return in a sentence's beginning what is in use and by whom; users: those of these cards, each once."""
    cards = ", ".join(f"module {module} has {used} MiB" for module, used in held.items())
    names = list(dict.fromkeys(map(describe_user, users)))
    return f"{cards} in use, held by {', '.join(names) or 'no process that this node sees'}"
