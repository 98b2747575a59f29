"""Draw a node as text: a box for each NUMA node, a line for each card, and who uses it."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from ..base.printable import printable
from .users import describe_user, is_own

# A terminal of 100 columns, less the eight by which Ansible indents a text that it shows.
WIDTH = 92
_MIB_PER_GIB = 1024
# Minimum width of the last column, which otherwise takes the rest of the line.
_MIN_LAST = 16

Rows = list[list[str]]


def describe_node(topology: Mapping[str, Any], holders: Mapping[int, str] | None = None) -> str:
    """Return a topology document as text of at most WIDTH columns, without a newline at the end.

    holders: the instance that each module is reserved or planned for. Columns without any value are left out (a
    topology from a file has no serial numbers). Findings follow below the boxes.
    """
    cards = topology["cards"]
    lines = textwrap.wrap(_headline(topology), WIDTH, subsequent_indent="  ")
    header, rows = _table(cards, holders or {})
    for place in sorted(
        {_place(card) for card in cards}, key=lambda place: (place[0] is None, place[0] or 0, place[1])
    ):
        inside = [row for card, row in zip(cards, rows) if _place(card) == place]
        lines += ["", *_box(_title(*place), header, inside)]
    if topology["findings"]:
        lines.append("")
    for finding in sorted(topology["findings"], key=lambda one: _SEVERITIES.get(one["severity"], len(_SEVERITIES))):
        text = printable(f"{finding['severity']}: {finding['message']}")
        lines += textwrap.wrap(text, WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    return "\n".join(line.rstrip() for line in lines)


_SEVERITIES = {"error": 0, "warning": 1, "info": 2}


def _headline(topology: Mapping[str, Any]) -> str:
    """Return what the node has, in one sentence: ``8 x HL-225 (96 GiB), driver 1.22.1-97ec1a4, eth0 10.20.0.11/24``."""
    kinds: dict[str, int] = {}
    for card in topology["cards"]:
        memory = f" ({card['memory_total_mib'] / _MIB_PER_GIB:.0f} GiB)" if card["memory_total_mib"] else ""
        kind = f"{card['name'] or 'unnamed card'}{memory}"
        kinds[kind] = kinds.get(kind, 0) + 1
    parts = [f"{count} x {kind}" for kind, count in kinds.items()] or ["no card"]
    parts += [f"driver {topology['driver_version']}"] * bool(topology["driver_version"])
    parts += [f"hl-smi {topology['hl_smi_version']}"] * bool(topology["hl_smi_version"])
    # Loopback and container bridges exist on every node and do not reach other nodes.
    nowhere = ("lo", "docker", "br-", "veth", "virbr")
    parts += [f"{name} {address}" for name, address in topology["addresses"] if not name.startswith(nowhere)]
    return printable(", ".join(parts))


def _place(card: Mapping[str, Any]) -> tuple[int | None, str]:
    """Return the key by which cards share a box: NUMA node and CPUs."""
    return card["numa_node"], card["cpus"]


def _title(numa_node: int | None, cpus: str) -> str:
    """Return the heading of a box."""
    node = "no NUMA node" if numa_node is None else f"NUMA node {numa_node}"
    # Blanks after the commas let a long list break over lines.
    return printable(f"{node}, CPUs {cpus.replace(',', ', ')}" if cpus else f"{node}, CPUs not known")


def _table(cards: Sequence[Mapping[str, Any]], holders: Mapping[int, str]) -> tuple[list[str], Rows]:
    """Return the headings of all columns with a value, and a row of cells for each card."""
    columns = {
        "module": [_known(card["module_id"]) for card in cards],
        "accel": [_known(card["index"]) for card in cards],
        "address": [_known(card["bus_id"]) for card in cards],
        "serial": [_known(card["serial"]) for card in cards],
        "used GiB": [_gib(card["memory_used_mib"]) for card in cards],
        "temp": [_known(card["temperature_c"], " C") for card in cards],
        "links": [_links(card) for card in cards],
    }
    shown = {name: cells for name, cells in columns.items() if any(cells)}
    width = {name: max(len(name), *(len(cell) for cell in cells)) for name, cells in shown.items()}
    right = {"module", "accel", "used GiB", "temp", "links"}

    def aligned(name: str, cell: str) -> str:
        return (cell or "?").rjust(width[name]) if name in right else (cell or "?").ljust(width[name])

    header = [name.rjust(width[name]) if name in right else name.ljust(width[name]) for name in shown]
    rows = [[aligned(name, cells[number]) for name, cells in shown.items()] for number in range(len(cards))]
    owners = [_owners(card, holders.get(card["module_id"])) for card in cards]
    return [*header, "who has it"], [[*row, owner] for row, owner in zip(rows, owners)]


def _known(value: object, unit: str = "") -> str:
    """Return a value as a cell; unknown is empty."""
    return "" if value is None else printable(f"{value}{unit}")


def _gib(mib: int | None) -> str:
    """Return an amount of MiB in GiB."""
    return "" if mib is None else f"{mib / _MIB_PER_GIB:.1f}"


def _links(card: Mapping[str, Any]) -> str:
    """Return how many internal links are up."""
    return "" if card["links_total"] is None else f"{card['links_up']}/{card['links_total']}"


def _owners(card: Mapping[str, Any], holder: str | None) -> str:
    """Return who has a card (reserving instance, its processes, or "free"), and its state if not operational."""
    processes: dict[str, list[Mapping[str, Any]]] = {}
    for user in card["users"]:
        owner = user["container_name"] or user["container"] or user["unit"] or ""
        processes.setdefault(owner, []).append(user)
    parts = [card["state"]] * (card["state"] not in (None, "operational"))
    # A running instance already appears under the name of its unit or container.
    if holder is not None and not any(is_own(user, holder) for user in card["users"]):
        parts.append(f"for {holder}")
    for owner, users in processes.items():
        # A server runs at least one process for each card; the count is enough.
        parts += [f"{owner}, {len(users)} processes"] if owner and len(users) > 1 else map(_in_short, users)
    return printable("; ".join(parts)) or "free"


def _in_short(user: Mapping[str, Any]) -> str:
    """Return a user as briefly as the picture needs it."""
    owner = user["container_name"] or user["container"] or user["unit"]
    if owner and user["pid"] is not None:
        return f"{owner}, pid {user['pid']}"
    return describe_user(user) if user["pid"] is not None or owner else "in use"


def _box(title: str, header: list[str], rows: Rows) -> list[str]:
    """Return the lines of a box around a table; what is too long for the last column goes on below."""
    inner = WIDTH - 4
    last = max(inner - sum(len(cell) + 2 for cell in header[:-1]), _MIN_LAST)
    first, *more = textwrap.wrap(title, inner - 2)
    lines = [*more, "  ".join(header)]
    for row in rows:
        words = textwrap.wrap(row[-1], last, break_on_hyphens=False) or [""]
        indent = " " * sum(len(cell) + 2 for cell in row[:-1])
        lines += ["  ".join([*row[:-1], words[0]]), *(indent + line for line in words[1:])]
    body = [f"| {line.ljust(inner)} |" for line in lines]
    return [f"+- {first} ".ljust(WIDTH - 1, "-") + "+", *body, "+" + "-" * (WIDTH - 2) + "+"]
