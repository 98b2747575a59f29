"""Query hl-smi in a fixed order and combine its answers.

Pure but for the callable ``ask(arguments)``, which runs hl-smi and returns its answer. One unknown field fails a whole
``-Q`` call on an older release. So the identity fields are queried first, then the details together, and one by one if
that fails. Facts that no query returns come from ``-L`` and from the summary table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Optional, TypeVar

from ..base.cpulist import shown
from .hl_smi import (
    DETAIL_FIELDS,
    IDENTITY_FIELDS,
    Affinity,
    ListedCard,
    Table,
    parse_amount,
    parse_bus_id,
    parse_celsius,
    parse_csv,
    parse_fw_versions,
    parse_links,
    parse_list,
    parse_mib,
    parse_table,
    parse_topo,
)

# Exit status of coreutils' timeout when it stopped the command.
TIMED_OUT = 124


@dataclass(frozen=True)
class CommandResult:
    """The result of a command: its exit status and its output."""

    status: int
    stdout: str
    stderr: str


_NOT_ASKED = CommandResult(TIMED_OUT, "", "")


@dataclass(frozen=True)
class SeenCard:
    """A card as hl-smi sees it. Memory in MiB, temperature in degrees Celsius as printed."""

    index: int | None = None
    module_id: int | None = None
    bus_id: str | None = None
    name: str | None = None
    serial: str | None = None
    uuid: str | None = None
    driver_version: str | None = None
    memory_total_mib: int | None = None
    memory_used_mib: int | None = None
    temperature_c: int | None = None
    state: str | None = None
    firmware: str | None = None
    boot_fit: str | None = None
    rows_pending: bool | None = None
    links: Mapping[int, bool] | None = None


@dataclass(frozen=True)
class HlSmiReport:
    """Everything that hl-smi said. failure is its error message if no call succeeded."""

    cards: tuple[SeenCard, ...] = ()
    table: Table | None = None
    affinity: Mapping[int, Affinity] = field(default_factory=dict)
    failure: str | None = None
    timed_out: bool = False
    complaints: tuple[str, ...] = ()


Ask = Callable[[Sequence[str]], CommandResult]
T = TypeVar("T")


def query_hl_smi(ask: Ask, *, links: bool = True) -> HlSmiReport:
    """Query hl-smi for everything that the topology needs; links=False skips the calls per card.

    Never raises. A call that fails or cannot be parsed leaves its facts unknown and adds a complaint; if no call
    succeeds, ``failure`` says why.
    """
    complaints: list[str] = []
    ask = _until_it_hangs(ask)
    summary = ask(())
    table = _read((), summary, parse_table, complaints)
    cards = _queried(ask, complaints)
    if not cards and table is None:
        return HlSmiReport(failure=_words(summary), timed_out=summary.status == TIMED_OUT)
    listed = _ask(ask, ("-L",), parse_list, complaints) or ()
    if not cards:
        cards = [SeenCard(index=card.index, bus_id=card.bus_id) for card in listed or (table.cards if table else ())]
    cards = [_completed(card, listed, table) for card in cards]
    if any(card.firmware is None for card in cards):
        # Only newer releases have this call, and -L usually gives the same facts, so a failure is not reported.
        components = _ask(ask, ("--fw-versions",), parse_fw_versions, []) or {}
        cards = [_with_firmware(card, components) for card in cards]
    if links:
        cards = [_with_links(ask, card, complaints) for card in cards]
    topo = _ask(ask, ("topo", "-c", "-N"), parse_topo, complaints) or ()
    return HlSmiReport(tuple(cards), table, {row.module_id: row for row in topo}, complaints=tuple(complaints))


def _until_it_hangs(ask: Ask) -> Ask:
    """Wrap ``ask`` so that hl-smi is not called again after one call timed out.

    A card in reset can block every call; a dozen blocked calls would take a quarter of an hour.
    """
    hung: list[CommandResult] = []

    def answer(arguments: Sequence[str]) -> CommandResult:
        if hung:
            return _NOT_ASKED
        given = ask(arguments)
        hung.extend([given] * (given.status == TIMED_OUT))
        return given

    return answer


def _words(answer: CommandResult) -> str:
    """Return the message of a failed call, or that it printed nothing."""
    said = " ".join((answer.stderr.strip() or answer.stdout.strip()).split())
    return f"status {answer.status}, it said {shown(said)}" if said else f"status {answer.status}, it said nothing"


def _ask(ask: Ask, arguments: Sequence[str], parse: Callable[[str], T], complaints: list[str]) -> T | None:
    """Return what one call answers; None, and a complaint, where it fails or cannot be read."""
    return _read(arguments, ask(arguments), parse, complaints)


def _read(
    arguments: Sequence[str], answer: CommandResult, parse: Callable[[str], T], complaints: list[str]
) -> T | None:
    """Return what an answer holds; None, and a complaint, where it is a failure or cannot be read."""
    call = " ".join(["hl-smi", *arguments])
    if answer is _NOT_ASKED:
        return None
    if answer.status == TIMED_OUT:
        complaints.append(f"{call} did not answer in time, and hl-smi was asked nothing more")
        return None
    if answer.status != 0:
        complaints.append(f"{call} failed: {_words(answer)}")
        return None
    try:
        return parse(answer.stdout)
    except ValueError as error:
        complaints.append(f"{call} answered what cannot be read: {error}")
        return None


Row = dict[str, Optional[str]]


def _query(ask: Ask, fields: Sequence[str], complaints: list[str]) -> list[Row] | None:
    """Return the rows of one -Q call."""
    return _ask(ask, ("-Q", ",".join(fields), "-f", "csv"), lambda text: parse_csv(text, fields), complaints)


def _queried(ask: Ask, complaints: list[str]) -> list[SeenCard]:
    """Return the cards of the -Q calls; none if even the identity query fails."""
    rows = _query(ask, IDENTITY_FIELDS, complaints) or []
    details: dict[str | None, Row] = {}
    together = _query(ask, ("index", *DETAIL_FIELDS), []) if rows else []
    answers = (
        [together] if together is not None else [_query(ask, ("index", name), complaints) for name in DETAIL_FIELDS]
    )
    for answer in answers:
        for row in answer or []:
            details.setdefault(row["index"], {}).update(row)
    return [_seen_card({**(details.get(row["index"], {}) if row["index"] else {}), **row}, complaints) for row in rows]


def _seen_card(row: Mapping[str, str | None], complaints: list[str]) -> SeenCard:
    """Return the card of a row; a cell that cannot be read is unknown, with a complaint."""

    def cell(name: str, parse: Callable[[str], T]) -> T | None:
        text = row.get(name)
        try:
            return None if text is None else parse(text)
        except ValueError as error:
            complaints.append(f"hl-smi gives as {name} of card {row.get('index')} what cannot be read: {error}")
            return None

    return SeenCard(
        index=cell("index", parse_amount),
        module_id=cell("module_id", parse_amount),
        bus_id=cell("bus_id", parse_bus_id),
        name=row.get("name"),
        serial=row.get("serial"),
        uuid=row.get("uuid"),
        driver_version=row.get("driver_version"),
        memory_total_mib=cell("memory.total", parse_mib),
        memory_used_mib=cell("memory.used", parse_mib),
        temperature_c=cell("temperature.aip", parse_celsius),
    )


def _completed(card: SeenCard, listed: Sequence[ListedCard], table: Table | None) -> SeenCard:
    """Fill in facts that -Q left open, from -L, then from the summary table."""
    in_list = next((other for other in listed if _same(card, other.index, other.bus_id)), None)
    in_table = next((other for other in table.cards if _same(card, other.index, other.bus_id)), None) if table else None
    facts = {key: value for key, value in asdict(card).items() if value is not None}
    for other in (in_list, in_table):
        for key, value in asdict(other).items() if other else ():
            if key in SeenCard.__dataclass_fields__ and value is not None:
                facts.setdefault(key, value)
    if table is not None and table.driver_version is not None:
        facts.setdefault("driver_version", table.driver_version)
    return SeenCard(**facts)


def _same(card: SeenCard, index: int, bus_id: str) -> bool:
    """Tell whether a card is the one of this address or, where that is not known, of this index."""
    return card.bus_id == bus_id if card.bus_id is not None else card.index == index


def _with_firmware(card: SeenCard, components: Mapping[int, Mapping[str, str]]) -> SeenCard:
    """Return a card with its preboot firmware, where it is not known yet."""
    preboot = components.get(-1 if card.index is None else card.index, {}).get("preboot")
    return card if card.firmware is not None or preboot is None else replace(card, firmware=preboot)


def _with_links(ask: Ask, card: SeenCard, complaints: list[str]) -> SeenCard:
    """Return a card with its internal ports, up or down."""
    if card.bus_id is None:
        return card
    return replace(card, links=_ask(ask, ("-n", "link", "-i", card.bus_id), parse_links, complaints))
