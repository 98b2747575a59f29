"""What hl-smi, lspci and the firmware print, turned into values.

Pure: text in, frozen values out. A parser either understands its text or raises ValueError with the
offending piece in quotes; it never guesses and never stops on text from another release.

Seen by these parsers: hl-smi 1.12 to 1.23 (both layouts of the summary table, see parse_table) on
HL-205, HL-225, HL-288E, HL-325 and HL-325L. The recorded samples are in tests/unit/topology/recorded.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .cpulist import normalise_cpulist, shown

# Asked for first: every release since 1.12 knows these four, and one unknown field fails a whole call.
IDENTITY_FIELDS = ("index", "module_id", "bus_id", "name")
# Asked for together, then, when a release refuses the set, one by one.
DETAIL_FIELDS = ("serial", "uuid", "driver_version", "memory.total", "memory.used", "temperature.aip")

# hl-smi's ways of saying that it does not know.
_UNKNOWN = frozenset({"", "n/a", "na", "[n/a]", "none", "unknown", "not available", "[not supported]", "-"})

# No index, module id, node or pid has more digits.
_MAX_DIGITS = 9

_BUS_ID = re.compile(r"(?:([0-9a-fA-F]{4,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])")


@dataclass(frozen=True)
class Version:
    """A firmware or tool version string, split: ``hl-gaudi2-1.18.0-fw-53.1.1-sec-9``."""

    text: str
    release: str
    firmware: str | None
    security: int | None


@dataclass(frozen=True)
class TableCard:
    """One card of the summary table. Memory in MiB, temperature in degrees Celsius, power in W."""

    index: int
    name: str
    bus_id: str
    temperature_c: int | None
    power_w: int | None
    power_cap_w: int | None
    memory_used_mib: int | None
    memory_total_mib: int | None
    utilization_percent: int | None
    uncorrectable: int | None


@dataclass(frozen=True)
class TableProcess:
    """One process of the summary table. Memory in MiB."""

    index: int
    pid: int
    name: str
    memory_mib: int | None


@dataclass(frozen=True)
class Table:
    """What a plain ``hl-smi`` shows. nic_driver_version is printed from release 1.20 on."""

    hl_smi_version: str
    driver_version: str | None
    nic_driver_version: str | None
    cards: tuple[TableCard, ...]
    processes: tuple[TableProcess, ...]


@dataclass(frozen=True)
class ListedCard:
    """One block of ``hl-smi -L``. Memory in MiB (the tool writes MB and means MiB)."""

    index: int
    bus_id: str
    name: str | None
    serial: str | None
    uuid: str | None
    module_id: int | None
    state: str | None
    firmware: str | None
    memory_total_mib: int | None
    memory_used_mib: int | None
    rows_pending: bool | None


@dataclass(frozen=True)
class Affinity:
    """One row of ``hl-smi topo``: the card's CPUs in the kernel's form and its NUMA node."""

    module_id: int
    cpus: str | None
    numa_node: int | None


@dataclass(frozen=True)
class PciDevice:
    """One line of ``lspci -n -d 1da3:`` or ``lspci -nn -d 1da3:``."""

    bus_id: str
    device_id: str
    revision: str | None


def known(text: str) -> str | None:
    """Return a cell without its blanks, or None where hl-smi says that it does not know."""
    stripped = text.strip()
    return None if stripped.lower() in _UNKNOWN else stripped


def parse_bus_id(text: str) -> str:
    """Return a PCI address in full and in lower case: ``43:00.0`` is ``0000:43:00.0``.

    Raises ValueError for anything else.
    """
    match = _BUS_ID.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"not a PCI address such as 0000:43:00.0: {shown(text)}")
    domain, bus, device, function = match.groups()
    # Some tools print the domain with eight digits.
    return f"{int(domain or '0', 16):04x}:{bus}:{device}.{function}".lower()


def parse_amount(text: str, units: Iterable[str] = ()) -> int | None:
    """Return the whole number of a cell such as ``768 MiB``, ``30C`` or ``102``; None for ``N/A``.

    The unit may be absent (``nounits``) or one of units, in any case. Raises ValueError otherwise:
    a number in another unit is not the number asked for.
    """
    value = known(text)
    if value is None:
        return None
    match = re.fullmatch(r"([+-]?[0-9]{1,18})(?:\.[0-9]{1,9})?\s*([^\s0-9.]*)", value)
    if match is None or match.group(2).lower() not in {"", *(unit.lower() for unit in units)}:
        wanted = " or ".join(units)
        raise ValueError(f"not a number{' in ' + wanted if wanted else ''}: {shown(text)}")
    return int(match.group(1))


def parse_mib(text: str) -> int | None:
    """Return an amount of memory in MiB; None for ``N/A``. ``-L`` writes MB for the same number."""
    return parse_amount(text, ("MiB", "MB"))


def parse_celsius(text: str) -> int | None:
    """Return a temperature in degrees Celsius; None for ``N/A``. What is plausible is not decided here."""
    return parse_amount(text, ("C",))


def parse_csv(text: str, fields: Sequence[str]) -> list[dict[str, str | None]]:
    """Return the rows of ``hl-smi -Q <fields> -f csv[,noheader][,nounits]`` by field name.

    A header is recognised by its first cell being a field name; ``memory.used [MiB]`` names the field
    memory.used. Values keep their unit (parse_mib, parse_celsius read them); ``N/A`` is None. Raises
    ValueError for a header without a wanted field and for a row with another number of cells.
    """
    try:
        table = [[cell.strip() for cell in row] for row in csv.reader(text.splitlines()) if row]
    except csv.Error as error:
        raise ValueError(f"hl-smi printed no CSV ({error}): {shown(text)}") from error
    table = [row for row in table if any(row)]
    if not table:
        return []
    columns = list(fields)
    if _field_name(table[0][0]) in fields:
        columns = [_field_name(cell) for cell in table.pop(0)]
        missing = [field for field in fields if field not in columns]
        if missing:
            raise ValueError(f"hl-smi printed no column {', '.join(missing)}: {shown(', '.join(columns))}")
    rows: list[dict[str, str | None]] = []
    for row in table:
        if len(row) != len(columns):
            raise ValueError(
                f"hl-smi printed {len(row)} cells for {len(columns)} fields: {shown(', '.join(row))}"
            )
        cells = dict(zip(columns, row))
        rows.append({field: known(cells[field]) for field in fields})
    return rows


def _field_name(header: str) -> str:
    """Return ``memory.used`` for ``memory.used [MiB]``."""
    return header.split("[", 1)[0].strip()


_CPUS = r"[0-9]+(?:\s*-\s*[0-9]+)?(?:\s*,\s*[0-9]+(?:\s*-\s*[0-9]+)?)*"
_TOPO_ROWS: Mapping[tuple[bool, bool], re.Pattern[str]] = {
    (True, True): re.compile(
        rf"\s*(?P<module>[0-9]+)\s+(?P<cpus>{_CPUS}|[Nn]/[Aa])\s+(?P<numa>-?[0-9]+|[Nn]/[Aa])\s*"
    ),
    (True, False): re.compile(rf"\s*(?P<module>[0-9]+)\s+(?P<cpus>{_CPUS}|[Nn]/[Aa])\s*"),
    (False, True): re.compile(r"\s*(?P<module>[0-9]+)\s+(?P<numa>-?[0-9]+|[Nn]/[Aa])\s*"),
}


def parse_topo(text: str) -> tuple[Affinity, ...]:
    """Return the rows of ``hl-smi topo -c -N`` (or ``-c``, or ``-N``), keyed by module id.

    The header says which columns there are; the last word of a row is the NUMA node, because the CPU
    list holds a blank after each comma with SMT and none without. A NUMA node of -1 (the kernel's "not
    known") is None. Raises ValueError for a missing header or a row that is neither.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    header = next((number for number, line in enumerate(lines) if line.split()[0].lower() == "modid"), None)
    if header is None:
        raise ValueError(f"hl-smi topo printed no 'modID' header: {shown(text)}")
    columns = ("CPU Affinity" in lines[header], "NUMA Affinity" in lines[header])
    if columns not in _TOPO_ROWS:
        raise ValueError(f"hl-smi topo printed neither CPU nor NUMA affinity: {shown(lines[header])}")
    rows: dict[int, Affinity] = {}
    for line in lines[header + 1 :]:
        if not line.strip("- \t"):
            continue
        match = _TOPO_ROWS[columns].fullmatch(line)
        if match is None:
            raise ValueError(f"hl-smi topo printed a row that cannot be read: {shown(line)}")
        cells = match.groupdict()
        module_id = parse_number(cells["module"])
        if module_id in rows:
            raise ValueError(f"hl-smi topo printed module {module_id} twice: {shown(line)}")
        cpus = known(cells.get("cpus") or "")
        numa = known(cells.get("numa") or "")
        node = None if numa is None else parse_number(numa)
        rows[module_id] = Affinity(
            module_id=module_id,
            cpus=None if cpus is None else normalise_cpulist(cpus),
            numa_node=None if node is None or node < 0 else node,
        )
    return tuple(rows[module_id] for module_id in sorted(rows))


def parse_number(text: str) -> int:
    """Return a whole number; Python itself stops reading digits after some thousands of them."""
    if len(text) > _MAX_DIGITS:
        raise ValueError(f"a number too large to be true: {shown(text)}")
    return int(text)
