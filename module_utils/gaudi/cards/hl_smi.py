"""Parse the output of hl-smi, lspci and the firmware.

Pure: text in, frozen values out. A parser returns a value or raises ValueError with the offending text in quotes; it
never guesses, and unknown text from another release does not stop it. Seen by these parsers: hl-smi 1.12 to 1.23 (both
layouts of the summary table, see parse_table) on HL-205, HL-225, HL-288E, HL-325 and HL-325L. The recorded samples are
in tests/unit/cards/recorded. No output of hl-smi 1.24, or of HL-288 and HL-338, was available: they are tested with the
other samples under their names.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..base.cpulist import normalise_cpulist, shown

# Queried first: all releases since 1.12 have these four fields, and one unknown field fails the whole call.
IDENTITY_FIELDS = ("index", "module_id", "bus_id", "name")
# Queried together; if a release rejects the set, one by one.
DETAIL_FIELDS = ("serial", "uuid", "driver_version", "memory.total", "memory.used", "temperature.aip")

# Cell values that mean "not known" in hl-smi's output.
_UNKNOWN = frozenset({"", "n/a", "na", "[n/a]", "none", "unknown", "not available", "[not supported]", "-"})

# Longest number accepted as an index, module id, NUMA node or pid.
_MAX_DIGITS = 9

_BUS_ID = re.compile(r"(?:([0-9a-fA-F]{4,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])")


@dataclass(frozen=True)
class FirmwareVersion:
    """A firmware or tool version string, split: ``hl-gaudi2-1.18.0-fw-53.1.1-sec-9``."""

    text: str
    release: str
    firmware: str | None
    security: int | None


@dataclass(frozen=True)
class TableCard:
    """One card of the summary table. Memory in MiB, temperature in degrees Celsius."""

    index: int
    name: str
    bus_id: str
    temperature_c: int | None
    memory_used_mib: int | None
    memory_total_mib: int | None


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
    boot_fit: str | None
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
    """One line of ``lspci -d 1da3:``."""

    bus_id: str
    revision: str | None


def known(text: str) -> str | None:
    """Return a cell without blanks, or None if hl-smi says "not known" (see _UNKNOWN)."""
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
    a number in another unit is not the number asked for. Of ``98.304`` nobody can tell whether the point separates
    thousands, as some languages write them.
    """
    value = known(text)
    if value is None:
        return None
    match = re.fullmatch(r"([+-]?[0-9]{1,18})(?:\.(?![0-9]{3}(?![0-9]))[0-9]{1,9})?\s*([^\s0-9.]*)", value)
    if match is None or match.group(2).lower() not in {"", *(unit.lower() for unit in units)}:
        wanted = " or ".join(units)
        raise ValueError(f"not a number{' in ' + wanted if wanted else ''}: {shown(text)}")
    return int(match.group(1))


def parse_mib(text: str) -> int | None:
    """Return an amount of memory in MiB; None for ``N/A``. ``-L`` writes MB for the same number."""
    return parse_amount(text, ("MiB", "MB"))


def parse_celsius(text: str) -> int | None:
    """Return a temperature in degrees Celsius; None for ``N/A``. Plausibility is checked in cards/findings.py."""
    return parse_amount(text, ("C",))


def parse_csv(text: str, fields: Sequence[str]) -> list[dict[str, str | None]]:
    """Return the rows of ``hl-smi -Q <fields> -f csv[,noheader][,nounits]`` by field name.

    A header is the first row with a cell that is a field's name, in any case; ``memory.used [MiB]`` names the field
    memory.used. Columns may come in any order, with others between them. What stands above a header, such as a warning,
    is skipped, and so is a sentence below it. Values keep their unit (parse_mib, parse_celsius read them); ``N/A`` is
    None. Raises ValueError for a header without a wanted field and for a row with another number of cells.
    """
    try:
        table = [[cell.strip() for cell in row] for row in csv.reader(text.lstrip("\ufeff").splitlines()) if row]
    except csv.Error as error:
        raise ValueError(f"hl-smi printed no CSV ({error}): {shown(text)}") from error
    table = [row for row in table if any(row)]
    columns = list(fields)
    header = next((place for place, row in enumerate(table) if any(_field_name(cell) in fields for cell in row)), None)
    if header is not None:
        columns = [_field_name(cell) for cell in table[header]]
        missing = [field for field in fields if field not in columns]
        if missing:
            raise ValueError(f"hl-smi printed no column {', '.join(missing)}: {shown(', '.join(columns))}")
        table = [
            row for row in table[header + 1 :] if len(columns) == 1 or len(row) > 1 or not _SENTENCE.search(row[0])
        ]
    rows: list[dict[str, str | None]] = []
    for row in table:
        if len(row) != len(columns):
            raise ValueError(f"hl-smi printed {len(row)} cells for {len(columns)} fields: {shown(', '.join(row))}")
        cells = dict(zip(columns, row))
        rows.append({field: known(cells[field]) for field in fields})
    return rows


_SENTENCE = re.compile(r"[A-Za-z]\S* +\S")


def _field_name(header: str) -> str:
    """Return ``memory.used`` for ``memory.used [MiB]``."""
    return re.split(r"[\[(]", header, maxsplit=1)[0].strip().lower()


_CPUS = r"[0-9]+(?:\s*-\s*[0-9]+)?(?:\s*,\s*[0-9]+(?:\s*-\s*[0-9]+)?)*"
_NUMA = r"-?[0-9]+|[Nn]/[Aa]"
# Patterns of a row's cells by the name of their column; a column of another name is one word.
_TOPO_CELLS: Mapping[str, str] = {
    "modid": r"(?P<module>[0-9]+)",
    "cpu affinity": rf"(?P<cpus>{_CPUS}|[Nn]/[Aa])",
    "numa affinity": rf"(?P<numa>{_NUMA})",
}
_TOPO_COLUMN = re.compile(r"cpu affinity|numa affinity|\S+", re.IGNORECASE)


def parse_topo(text: str) -> tuple[Affinity, ...]:
    """Return the rows of ``hl-smi topo -c -N`` (or ``-c``, or ``-N``), keyed by module id.

    The header says which columns there are, and in which order. A CPU list holds a blank after each comma with SMT and
    none without. A NUMA node of -1 (the kernel's "not known") is None. A line that begins with a word is no row. Raises
    ValueError for a missing header or a row that cannot be read.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    header = next((number for number, line in enumerate(lines) if line.split()[0].lower() == "modid"), None)
    if header is None:
        raise ValueError(f"hl-smi topo printed no 'modID' header: {shown(text)}")
    columns = [name.lower() for name in _TOPO_COLUMN.findall(lines[header])]
    if len(set(columns)) < len(columns) or not {"cpu affinity", "numa affinity"} & set(columns):
        raise ValueError(f"hl-smi topo printed neither CPU nor NUMA affinity: {shown(lines[header])}")
    pattern = re.compile(r"\s*" + r"\s+".join(_TOPO_CELLS.get(name, r"\S+") for name in columns) + r"\s*")
    rows: dict[int, Affinity] = {}
    for line in lines[header + 1 :]:
        if not line.strip("- \t") or _SENTENCE.match(line.strip()):
            continue
        match = pattern.fullmatch(line)
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
    """Return a whole number. Raises ValueError for more than _MAX_DIGITS digits; Python's own limit is far higher."""
    if len(text) > _MAX_DIGITS:
        raise ValueError(f"a number too large to be true: {shown(text)}")
    return int(text)


_VERSION = re.compile(
    r"hl(?:-gaudi[0-9]?[a-z]?)?-(?P<release>[0-9]+\.[0-9]+\.[0-9]+)-fw-(?P<fw>[0-9]+(?:\.[0-9]+)*)(?:-sec-(?P<sec>[0-9]{1,4}))?"
)
_RELEASE = re.compile(r"\s*([0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,4})(?![0-9.])")


def parse_version(text: str) -> FirmwareVersion:
    """Return the version inside a firmware or tool line.

    ``Preboot version hl-gaudi2-1.18.0-fw-53.1.1-sec-9 (Oct 02 2024 - 11:52:39)`` is release 1.18.0,
    firmware 53.1.1, security level 9; ``hl-1.22.1-fw-61.4.2.1`` is the tool's own. Raises ValueError
    where there is none.
    """
    match = _VERSION.search(text)
    if match is None:
        raise ValueError(f"no version such as hl-1.22.1-fw-61.4.2.1 in {shown(text)}")
    security = match.group("sec")
    return FirmwareVersion(
        match.group(), match.group("release"), match.group("fw"), None if security is None else int(security)
    )


def release_of(text: str) -> str:
    """Return the release of a driver version: ``1.22.1`` of ``1.22.1-97ec1a4``.

    Releases are what two versions are compared by: until 1.22 the parts of one driver carried
    different hashes. Raises ValueError where the text does not start with a release.
    """
    match = _RELEASE.match(text)
    if match is None:
        raise ValueError(f"no release such as 1.22.1 at the start of {shown(text)}")
    return match.group(1)


_TABLE_VERSION = re.compile(r"\|\s*(HL-SMI Version|Driver Version|Nic Driver Version):\s*(\S+)\s*(?:\|\s*)?")
_TABLE_CARD = re.compile(r"\|\s*([0-9]{1,4})\s+(\S+(?: \S+){0,3})\s+\S+\s*\|\s*(\S+)\s+\S+\s*\|\s*\S+\s*(?:\|\s*)?")
_TABLE_VALUES = re.compile(
    r"\|\s*\S+\s+(?P<temperature>\S+)\s+\S+\s+\S+\s+/\s+\S+\s*"
    r"\|\s*(?P<used>\S+)\s+/\s+(?P<total>\S+)\s*\|\s*\S+\s+\S+?\s*(?:\|\s*)?"
)
_TABLE_PROCESS = re.compile(r"\|\s*([0-9]{1,4})\s+([0-9]{1,9})\s+\S+\s+(\S|\S.*?\S)\s+([0-9]+\s*MiB|N/A)\s*(?:\|\s*)?")


def parse_table(text: str) -> Table:
    """Parse the summary table of plain ``hl-smi``, in the layout up to 1.18 and in the one from 1.20 on.

    The layouts differ in the name of the last column, in blanks (``84W / 600W |``, ``88W /  600W  |``) and in the line
    of the network driver. Rows are split by words, because 131072MiB overflows the old layout's column. Values that are
    ``N/A``, or unreadable for a lost card, are None; a truncated table gives the cards it shows. Raises ValueError if
    there is no such table.
    """
    versions: dict[str, str] = {}
    cards: list[TableCard] = []
    processes: list[TableProcess] = []
    lines = [line.strip() for line in text.splitlines()]
    for number, line in enumerate(lines):
        if version := _TABLE_VERSION.fullmatch(line):
            versions[version.group(1)] = version.group(2)
        elif card := _TABLE_CARD.fullmatch(line):
            if _BUS_ID.fullmatch(card.group(3)):
                below = lines[number + 1] if number + 1 < len(lines) else ""
                cards.append(_table_card(card, _TABLE_VALUES.fullmatch(below)))
        elif process := _TABLE_PROCESS.fullmatch(line):
            index, pid, name, memory = process.groups()
            processes.append(TableProcess(int(index), int(pid), name, _lenient(parse_mib, memory)))
    if "HL-SMI Version" not in versions:
        raise ValueError(f"hl-smi printed no table with a version: {shown(text)}")
    return Table(
        hl_smi_version=versions["HL-SMI Version"],
        driver_version=known(versions.get("Driver Version", "")),
        nic_driver_version=known(versions.get("Nic Driver Version", "")),
        cards=tuple(cards),
        processes=tuple(processes),
    )


def _table_card(card: re.Match[str], values: re.Match[str] | None) -> TableCard:
    """Return the card of two table lines; the second line may be unreadable."""
    cells = {} if values is None else values.groupdict()

    def cell(name: str, *units: str) -> int | None:
        return _lenient(lambda text: parse_amount(text, units), cells.get(name, ""))

    return TableCard(
        index=int(card.group(1)),
        name=card.group(2),
        bus_id=parse_bus_id(card.group(3)),
        temperature_c=cell("temperature", "C"),
        memory_used_mib=cell("used", "MiB"),
        memory_total_mib=cell("total", "MiB"),
    )


def _lenient(parse: Callable[[str], int | None], text: str) -> int | None:
    """Return the parsed value, or None: one unreadable cell must not fail the whole table."""
    try:
        return parse(text)
    except ValueError:
        return None


_LIST_CARD = re.compile(r"\s*\[\s*([0-9]{1,4})\s*\]\s+AIP\s+\(\S+\)\s+(\S+)\s*")


def parse_list(text: str) -> tuple[ListedCard, ...]:
    """Return the devices of ``hl-smi -L`` (or ``-q``), with or without ``-i``.

    Raises ValueError where no device block starts: hl-smi printed something else.
    """
    blocks: list[tuple[int, str, dict[str, str]]] = []
    section = ""
    for line in text.splitlines():
        if start := _LIST_CARD.fullmatch(line):
            blocks.append((int(start.group(1)), parse_bus_id(start.group(2)), {}))
            section = ""
            continue
        label, colon, value = line.partition(":")
        if not colon:
            section = label.strip()
        elif blocks:
            # The first label of a name counts: "Total" belongs to "Memory Usage", later ones to other sections.
            blocks[-1][2].setdefault(label.strip(), value.strip())
            blocks[-1][2].setdefault(f"{section}/{label.strip()}", value.strip())
    if not blocks:
        raise ValueError(f"hl-smi -L printed no device: {shown(text)}")
    return tuple(_listed_card(index, bus_id, facts) for index, bus_id, facts in blocks)


def _listed_card(index: int, bus_id: str, facts: Mapping[str, str]) -> ListedCard:
    """Return the card of one block's labels and values."""
    pending = known(facts.get("Replaced Rows/Pending", ""))
    state = known(facts.get("Module status", ""))
    firmware = _VERSION.search(facts.get("Firmware [SPI] Version", ""))
    boot_fit = _VERSION.search(facts.get("Firmware [FIT] Version", ""))
    return ListedCard(
        index=index,
        bus_id=bus_id,
        name=known(facts.get("Product Name", "")),
        serial=known(facts.get("Serial Number", "")),
        uuid=known(facts.get("AIP UUID", "")),
        module_id=_lenient(parse_amount, facts.get("Module ID", "")),
        state=None if state is None else state.lower(),
        firmware=None if firmware is None else firmware.group(),
        boot_fit=None if boot_fit is None else boot_fit.group(),
        memory_total_mib=_lenient(parse_mib, facts.get("Memory Usage/Total", "")),
        memory_used_mib=_lenient(parse_mib, facts.get("Memory Usage/Used", "")),
        rows_pending=None if pending is None else pending.lower() == "yes",
    )


def parse_fw_versions(text: str) -> dict[int, dict[str, str]]:
    """Return the components of ``hl-smi --fw-versions`` by index: ``{0: {"preboot": "hl-gaudi2-..."}}``.

    Raises ValueError where no device block starts.
    """
    components: dict[int, dict[str, str]] = {}
    index: int | None = None
    section = ""
    for line in text.splitlines():
        if start := _LIST_CARD.fullmatch(line):
            index = int(start.group(1))
            components[index] = {}
            continue
        label, colon, value = line.partition(":")
        if not colon:
            section = label.strip() or section
        elif index is not None and label.strip() == "component":
            components[index].setdefault(section, value.strip())
    if index is None:
        raise ValueError(f"hl-smi --fw-versions printed no device: {shown(text)}")
    return components


_PORT = re.compile(r"port\s+([0-9]{1,3})\s*:\s*(\S+)", re.IGNORECASE)


def _ports(text: str, words: Collection[str]) -> dict[int, str]:
    """Parse ``port N: WORD`` lines, without those of N/A; a text that is not empty must have at least one."""
    ports: dict[int, str] = {}
    for line in text.splitlines():
        match = _PORT.fullmatch(line.strip())
        if match is None:
            if line.strip().lower().startswith("port"):
                raise ValueError(f"hl-smi printed a port that cannot be read: {shown(line)}")
            continue
        word = match.group(2).lower()
        if word in _UNKNOWN:
            continue
        if word not in words:
            raise ValueError(f"hl-smi says {shown(word)} of a port where {' or '.join(words)} is known")
        ports[int(match.group(1))] = word
    if not ports and text.strip():
        raise ValueError(f"hl-smi printed no port: {shown(text)}")
    return ports


def parse_links(text: str) -> dict[int, bool]:
    """Return for each port of ``hl-smi -n link -i <address>`` whether its link is up.

    Without ``-P`` hl-smi lists the internal ports only; an empty text means a card without internal ports. Raises
    ValueError for a word other than UP or DOWN.
    """
    return {port: word == "up" for port, word in _ports(text, ("up", "down")).items()}


def parse_ports(text: str) -> dict[int, str]:
    """Return for each port of ``hl-smi -n ports -i <address>`` ``internal`` or ``external``."""
    return _ports(text, ("internal", "external"))


_LSPCI = re.compile(r"(?P<bus>\S+)\s+\S.*")
_NO_DEVICE = re.compile(r"\s+[A-Za-z][A-Za-z /]*:\s|(?:pcilib|lspci): ")
_LSPCI_REVISION = re.compile(r"\(rev ([0-9a-fA-F]{1,2})\)")


def parse_lspci(text: str) -> tuple[PciDevice, ...]:
    """Return the devices of ``lspci -d 1da3:`` in any of its forms (plain, -n, -nn, -D).

    What stands below a device (-k, -v), and a complaint of lspci, is skipped. Raises ValueError for any other line
    without an address.
    """
    devices = []
    for line in text.splitlines():
        if not line.strip() or _NO_DEVICE.match(line):
            continue
        match = _LSPCI.fullmatch(line.strip())
        if match is None:
            raise ValueError(f"lspci printed a line that cannot be read: {shown(line)}")
        revision = _LSPCI_REVISION.search(line)
        devices.append(
            PciDevice(
                bus_id=parse_bus_id(match.group("bus")),
                revision=None if revision is None else revision.group(1).lower(),
            )
        )
    return tuple(devices)
