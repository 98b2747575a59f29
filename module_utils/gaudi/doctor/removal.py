"""Remove from a record what names a site, its people and its hardware: each value gets a placeholder such as host-1.

The same value has the same placeholder in all texts of a record, so that relations stay visible. Secrets are
masked on the node, by bundle.py. Addresses of PCI devices stay, and so do words that thousands of sites use.
"""

from __future__ import annotations

import ipaddress
import itertools
import re
import string
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .bundle import MASKED, NOT_SHOWN

HOST, DOMAIN, USER, ADDRESS, MAC, SERIAL, UUID = "host", "domain", "user", "address", "mac", "serial", "uuid"
KINDS = (HOST, DOMAIN, USER, ADDRESS, MAC, SERIAL, UUID)
NAMES = (HOST, DOMAIN, USER)
"""Kinds that are replaced as whole words; the others anywhere."""
MOST_GIVEN, MOST_NUMBERS = 4096, 512
"""Values that a node may name of each kind, those of NAMES and the others: /etc/hosts of a cluster has thousands."""
MOST_LEARNED = 2000
"""Values that the texts of one node may show beside those, and values of any kind in one text: each of them is looked
for at every letter of the text, so that more would take hours."""
TOO_MANY = "(left out: it has more names and numbers than a record can remove)\n"
LONGEST_GIVEN = 255
MOST_SHOWN = 100
"""Words that stay and are named."""
SHORTEST_NUMBER = 5
"""Characters. A shorter serial is a usual word of every text."""

# What is on every system, or in the words of this project and of placeholders: it tells nothing of a site, and texts
# would be spoilt without it.
USUAL = frozenset(
    (
        *KINDS,
        *("admin", "administrator", "ansible", "centos", "cloud", "core", "debian", "default", "docker", "ec2-user"),
        *("example", "gaudi", "gaudi2", "gaudi3", "gpu", "habana", "hpu", "hugepages", "intel", "kernel", "linux"),
        *("internal", "invalid", "ip6-allnodes", "ip6-allrouters", "ip6-localhost", "ip6-loopback", "lan", "local"),
        *("localdomain", "localhost", "model", "models", "node", "none", "ops", "root", "serial", "server", "service"),
        *("system", "systemd", "test", "ubuntu", "unknown", "vllm"),
    )
)
# Hosts that anybody may use, with all below them.
_PUBLIC = (
    *("habana.ai", "huggingface.co", "hf.co", "github.com", "githubusercontent.com", "ghcr.io", "pypi.org"),
    *("pythonhosted.org", "pytorch.org", "python.org", "docker.io", "docker.com", "quay.io", "ubuntu.com"),
    *("debian.org", "redhat.com", "fedoraproject.org", "kernel.org", "modelscope.cn", "intel.com", "freedesktop.org"),
)

_WINDOWS = r"\b[A-Z]:[\\/]{1,4}(?:Users|Documents and Settings)[\\/]{1,4}"
# The host of a mail or ssh address; what systemd writes behind @ ends with the kind of a unit.
_UNITS = "service|socket|target|timer|mount|automount|slice|scope|path|device|swap"
_OF_PUBLIC = rf"(?:[\w-]{{1,63}}\.){{0,8}}(?:{'|'.join(map(re.escape, _PUBLIC))})(?![\w.-])"
_NAME_OF_HOST = rf"(?!{_OF_PUBLIC})(?:[A-Za-z0-9][\w-]{{0,62}}\.){{1,8}}(?!(?:{_UNITS})\b)[A-Za-z]{{2,24}}(?![\w.-])"

# A serial in running text has a digit, and is no speed of a console.
_OF_TEXT = r"(?=[\w.-]{0,63}\d)(?!tty|\d{1,6}(?![\w-]))([A-Za-z0-9][\w.-]{4,63})"
_MANY = re.compile(r"\bserials?(?:[ _-]?numbers?)?[ :]{1,3}((?:[\w.-]{5,64}(?: ?[,;/&] ?| and ))+[\w.-]{5,64})", re.I)
# Serials and names that no node gave, by what stands around them.
_LEARNED = (
    (SERIAL, re.compile(r"serial(?:[ _-]?(?:number|num|no)|#)?[\"']?\s{0,40}[:=]\s{0,8}[\"']?([\w.-]{5,64})", re.I)),
    (SERIAL, re.compile(r"\b(?:S/?N|(?:service|asset)[ _-]?tag)[\"']?\s{0,8}[:=]\s{0,8}[\"']?([\w.-]{5,64})", re.I)),
    (
        SERIAL,
        re.compile(rf"\bserials?(?:[ _-]?(?:numbers?|num|no)\.?)?(?: is| was)? {{1,3}}[#(\"']{{0,2}}{_OF_TEXT}", re.I),
    ),
    (SERIAL, re.compile(rf"\b(?:S/?N|(?:service|asset|chassis)[ _-]?tag)(?: is| was)? {{1,3}}#?{_OF_TEXT}", re.I)),
    # The form of a card's serial.
    (SERIAL, re.compile(r"(?<!\w)(AM\d{8})(?!\w)", re.I)),
    # Names of disks below /dev/disk/by-id, and of iSCSI.
    (
        SERIAL,
        re.compile(r"\b(?:ata|nvme|scsi|usb)-[\w.-]{1,120}?_([A-Z0-9]{8,32})(?:[-_](?:part)?\d{1,3})?(?![\w-])", re.I),
    ),
    (SERIAL, re.compile(r"\b(?:wwn-0x|scsi-3|0x)(5[0-9a-f]{15})(?![0-9a-f])", re.I)),
    (SERIAL, re.compile(r"\biqn\.\d{4}-\d\d\.[\w.-]{1,200}:([\w.:-]{5,128})", re.I)),
    (SERIAL, re.compile(r"\b(?:eui|naa|nvme)\.([0-9a-f]{16,64}(?:-[\w-]{1,128})?)", re.I)),
    # The form of hl-smi's column uuid: 01P0-HL2080A0-15-TF8A81-09-07-06.
    (UUID, re.compile(r"(?<![\w-])([0-9A-Z]{4}-HL[0-9A-Z]{4,10}(?:-[0-9A-Z]{2,8}){3,6})(?![\w-])")),
    (UUID, re.compile(r"(?<![0-9a-z])([0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12})(?![0-9a-z])", re.I)),
    # Of a file system or a partition in any form, and of LVM.
    (UUID, re.compile(r"\b(?:PART)?UUID=[\"']?([0-9A-Za-z-]{8,64})", re.I)),
    (UUID, re.compile(r"(?<![\w-])([A-Za-z0-9]{6}(?:-[A-Za-z0-9]{4}){5}-[A-Za-z0-9]{6})(?![\w-])")),
    # What systemd calls the machine and its boots.
    (UUID, re.compile(r"(?:machine|boot)[ _-]?id[\"']?\s{0,8}[:=]\s{0,8}[\"']?([0-9a-f]{32})", re.I)),
    # A MAC address or a GUID without separators, and an interface that is named by one.
    (
        MAC,
        re.compile(
            r"\b(?:(?:(?:mac|hw)(?:[ _-]?addr(?:ess)?)?|ether|lladdr|guid)[\"']?\s{0,8}[:=]?\s{0,8}[\"']?(?:0x)?"
            r"|(?:en|wl|ib)x)([0-9a-f]{12}(?:[0-9a-f]{4})?)(?![0-9a-f])",
            re.I,
        ),
    ),
    # Also on the Mac that a run was started from, whose output may be part of the record.
    (USER, re.compile(r"/(?:home|Users)/([A-Za-z][\w.-]{0,63})")),
    # On Windows a name may have blanks.
    (USER, re.compile(rf"{_WINDOWS}([^\\/:*?\"'<>|\r\n]{{1,64}}?)(?=[\\/\"'\r\n]|$)", re.I | re.M)),
    (USER, re.compile(rf"{_WINDOWS}([\w.-]{{1,64}})", re.I)),
    # What shells and sudo tell.
    (
        USER,
        re.compile(
            r"\b(?:LOGNAME|USERNAME|SUDO_USER|USER|ansible_user)[\"']?\s{0,3}[:=]\s{0,3}[\"']?([A-Za-z][\w.-]{0,63})"
        ),
    ),
    (USER, re.compile(r"\b[eg]?[ug]id=\d{1,10}\(([A-Za-z][\w.-]{0,63})\)")),
    (USER, re.compile(r"(?<![\w.+-])([A-Za-z_][\w.-]{0,31})@[A-Za-z][\w-]{0,62}(?: |:)[~/]")),
    (HOST, re.compile(r"(?<![\w.+-])[A-Za-z_][\w.-]{0,31}@([A-Za-z][\w-]{0,62})(?: |:)[~/]")),
    (USER, re.compile(r"(?:\bAccepted [\w-]{1,40} for|\bfor (?:invalid )?user) ([A-Za-z][\w.-]{0,63})")),
    # The name of a person before a mail address.
    (USER, re.compile(rf"([A-Z][\w.'-]{{1,40}}(?: [A-Z][\w.'-]{{0,40}}){{1,3}}) <[\w.+-]{{1,64}}@{_NAME_OF_HOST}>")),
    (USER, re.compile(rf"(?<![\w.+-])([A-Za-z][\w.+-]{{0,63}})@{_NAME_OF_HOST}")),
    (HOST, re.compile(rf"(?<![\w.+-])[A-Za-z][\w.+-]{{0,63}}@({_NAME_OF_HOST})")),
    # The account before it may be masked by now.
    (HOST, re.compile(r"://(?:[^/\s\"'@]{1,200}@|\(taken out\)@)?([A-Za-z0-9][A-Za-z0-9.-]{0,252})")),
    # What ssh, git and curl say of a host that they do not reach.
    (HOST, re.compile(r"\b(?:connect to host|resolve host(?:name)?:?) ([A-Za-z0-9][A-Za-z0-9.-]{0,252})", re.I)),
    # A registry in front of an image's name.
    (HOST, re.compile(r"(?<![\w./@:-])((?:[a-z0-9-]{1,63}\.){1,8}[a-z]{2,63})(?::\d{1,5})?/[\w./-]{1,200}[:@]\w")),
)
_DOTTED = re.compile(r"(?<![\w.-])(?:[\w-]{1,63}\.){1,12}[\w-]{1,63}(?!\w)")
_WORD = re.compile(r"[a-z0-9]+")
# Pairs or groups of four: of Ethernet, of InfiniBand, and GUIDs.
_MAC = re.compile(
    r"(?<![\w:.-])(?:[0-9a-f]{2}([:-])[0-9a-f]{2}(?:\1[0-9a-f]{2}){4,18}|[0-9a-f]{4}([.:])[0-9a-f]{4}(?:\2[0-9a-f]{4}){1,2})"
    r"(?!\w|[.:-][0-9a-f])",
    re.I,
)
_SEPARATOR = re.compile("[.:-]")
_IPV4 = re.compile(r"(?<![\w.])(?<!fw-)(?<!hl-)\d{1,3}(?:\.\d{1,3}){3}(?![\w]|\.\d)")
_IPV6 = re.compile(r"(?<![\w:.])[0-9a-f]{0,4}(?::[0-9a-f]{0,4}){2,8}(?:\.\d{1,3}){0,3}(?![\w:])", re.I)
_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
# Stand around the number of a placeholder while texts are worked on. No printable text has them.
_OPEN, _CLOSE = "\ue000", "\ue001"
_PLACE = re.compile(f"{_OPEN}(\\d+){_CLOSE}")
_Span = tuple[int, int, str, str]
"""Where a value stands in a text: begin, end, kind, value."""


@dataclass
class _Placeholders:
    """Placeholders by value, with how often each was put in."""

    named: dict[tuple[str, str], str] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    order: dict[str, int] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)

    def next(self, kind: str) -> str:
        self.numbers[kind] = self.numbers.get(kind, 0) + 1
        return f"{kind}-{self.numbers[kind]}"

    def name(self, kind: str, value: str) -> str:
        """Return the placeholder of a value, the same each time."""
        key = kind, value.translate(_LOWER)
        if key not in self.named:
            self.named[key] = self.next(kind)
        return self.named[key]

    def put(self, kind: str, value: str) -> str:
        """Return what stands in a text for a value until all is removed, and count it."""
        placeholder = self.name(kind, value)
        self.times[placeholder] = self.times.get(placeholder, 0) + 1
        return f"{_OPEN}{self.order.setdefault(placeholder, len(self.order))}{_CLOSE}"

    def shown(self, text: str) -> str:
        """Put the placeholders in."""
        placeholders = list(self.order)
        return _PLACE.sub(lambda place: placeholders[int(place[1])], text)


@dataclass(frozen=True)
class RemovalResult:
    """What came of it: the texts, what was removed (kind, placeholder, times), and the given words that stay."""

    texts: list[str]
    table: list[dict[str, Any]]
    stays: list[str]


def names_of(report: object) -> dict[str, list[str]]:
    """Return the values that a node names, by kind. It may report anything: what is no short text is left out.

    Of each kind at most one more than is removed, by which too_many() knows it.
    """
    found: dict[str, list[str]] = {}
    for kind in KINDS:
        values = report.get(kind, []) if isinstance(report, Mapping) else []
        texts = [each.strip() for each in values if isinstance(each, str)] if isinstance(values, list) else []
        kept = dict.fromkeys(each for each in texts if each and len(each) <= LONGEST_GIVEN and each.isprintable())
        found[kind] = list(kept)[: _most(kind) + 1]
    return found


def too_many(names: Mapping[str, Sequence[str]]) -> bool:
    """Whether a node names more than is removed, so that nothing that it sent may be in a record."""
    return any(len(values) > _most(kind) for kind, values in names.items())


def _most(kind: str) -> int:
    return MOST_GIVEN if kind in NAMES else MOST_NUMBERS


def remove(
    texts: Sequence[str], nodes: Sequence[Mapping[str, Sequence[str]]], senders: Sequence[int] = ()
) -> RemovalResult:
    """Remove names, addresses, serials and UUIDs from printable texts.

    nodes: what each node gave, by kind. All hosts of one node are one, and get its number. senders: who sent each text,
    as a number of any kind; without it one node sent all. What one node sends leaves no text of another one out.
    """
    found, stays = _Placeholders(), set[str]()
    values = _given(nodes, found, stays)
    lower = (value.translate(_LOWER) for node in nodes for value in node.get(DOMAIN, ()))
    domains = {value.strip(".") for value in lower if _tells(DOMAIN, value)}
    kept, left = list[str](), dict[int, int]()
    for sender, text in zip(senders or [0] * len(texts), texts):
        learned = {value: kind for kind, value in _learned(text, domains) if value not in values}
        if len(learned) > left.setdefault(sender, MOST_LEARNED):
            kept.append(TOO_MANY)
            continue
        left[sender] -= len(learned)
        values.update(learned)
        kept.append(text)
    words = {value: frozenset(_WORD.findall(value)) for value in values}
    texts = [found.shown(_cleaned(text, values, words, found)) for text in kept]
    return RemovalResult(texts, _table(found, texts), sorted(stays))


def _given(nodes: Sequence[Mapping[str, Sequence[str]]], found: _Placeholders, stays: set[str]) -> dict[str, str]:
    """Return the kinds of the values that nodes gave, in lower case, and add those that tell nothing to ``stays``."""
    values, placed = dict[str, str](), dict[tuple[str, str], str]()
    for node in nodes:
        own = found.next(HOST)
        given = ((kind, value) for kind in KINDS for value in sorted(node.get(kind, ()), key=len))
        for kind, value in given:
            low = value.translate(_LOWER)
            if _is_address(value):
                continue
            if not _tells(kind, low):
                stays.add(value)
                continue
            # Numbers are removed anywhere, so one that another node calls a name stays a number.
            if low not in values or kind not in NAMES:
                values[low] = kind
            if kind == HOST:
                placed.setdefault((HOST, low), own)
    found.named.update(placed)
    return values


def _tells(kind: str, value: str) -> bool:
    """Whether a value tells something of a site."""
    if kind == DOMAIN and "." not in value:
        return False
    if kind in NAMES:
        return len(value) > 1 and value not in USUAL and not value.isdecimal() and bool(re.search(r"[a-z0-9]", value))
    return (len(value) >= SHORTEST_NUMBER and len(set(value)) > 1 and bool(re.search(r"\d", value))) or len(value) >= 12


def _is_address(value: str) -> bool:
    return bool(_MAC.fullmatch(value)) or _ip(value) is not None


def _ip(value: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(value)
    except ValueError:
        return None


def _learned(text: str, domains: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield values that only their surroundings show, and hosts below a domain that was given, in lower case."""
    # A log has the same values in many lines; each is judged once for a pattern.
    shown = ((kind, value) for kind, pattern in _LEARNED for value in dict.fromkeys(pattern.findall(text)))
    dotted = dict.fromkeys(_DOTTED.findall(text)) if domains else ()
    below = ((HOST, host) for name in dotted for host in _below(name.translate(_LOWER), domains))
    many = ((SERIAL, each) for listed in _MANY.findall(text) for each in re.findall(rf"(?<![\w.-]){_OF_TEXT}", listed))
    for kind, value in itertools.chain(shown, below, many):
        plain = value.rstrip(".-").translate(_LOWER)
        if kind == HOST and (_is_address(plain) or _is_public(plain)):
            continue
        if kind == MAC and _is_empty(plain):
            continue
        # "Serial Number: not available" is none.
        if _tells(kind, plain) and (kind in (*NAMES, MAC) or re.search(r"\d", plain)):
            yield kind, plain


def _below(name: str, domains: Collection[str]) -> Iterator[str]:
    """Yield the part of a dotted name that is a host below a domain."""
    labels = name.split(".")
    for end in range(2, len(labels) + 1):
        if any(".".join(labels[start:end]) in domains for start in range(1, end)):
            yield ".".join(labels[:end])


def _is_public(host: str) -> bool:
    return host in USUAL or any(host == public or host.endswith(f".{public}") for public in _PUBLIC)


def _cleaned(text: str, values: Mapping[str, str], words: Mapping[str, frozenset[str]], found: _Placeholders) -> str:
    """Return a text without the known values, their kinds by value, and without addresses. words: those of a value."""
    low = text.translate(_LOWER)
    numbers = {value: kind for value, kind in values.items() if kind not in NAMES and value in low}
    if len(numbers) > MOST_LEARNED:
        return TOO_MANY
    spans = [*_known(low, numbers), *_addresses(text)]
    # A name also ends where a number begins that is removed.
    alone = _blanked(low, spans)
    there = {*_WORD.findall(low), *_WORD.findall(alone)}
    names = {
        value: kind
        for value, kind in values.items()
        if kind in NAMES and words[value] <= there and (value in low or value in alone)
    }
    if len(numbers) + len(names) > MOST_LEARNED:
        return TOO_MANY
    spans += [*_known(low, names), *_known(alone, names)]
    parts, position = list[str](), 0
    for start, end, kind, value in _merged(sorted(spans, key=lambda span: span[0])):
        parts += [text[position:start], found.put(kind, value)]
        position = end
    return "".join([*parts, text[position:]])


def _blanked(text: str, spans: Iterable[_Span]) -> str:
    """Return a text, as long as before, with blanks where values stand."""
    parts, position = list[str](), 0
    for start, end, _, _ in _merged(sorted(spans, key=lambda span: span[0])):
        parts += [text[position:start], " " * (end - start)]
        position = end
    return "".join([*parts, text[position:]])


def _known(low: str, values: Mapping[str, str]) -> Iterator[_Span]:
    """Yield where known values stand in a text, at each letter the longest one. low: the text in lower case."""
    names, numbers = list[str](), list[str]()
    for value in sorted(values, key=len, reverse=True):
        (names if values[value] in NAMES else numbers).append(re.escape(value))
    patterns = []
    if numbers:
        patterns.append(f"(?=({'|'.join(numbers)}))")
    if names:
        patterns.append(f"(?<![a-z0-9])(?=((?:{'|'.join(names)})(?![a-z0-9])))")
    for pattern in patterns:
        for match in re.finditer(pattern, low):
            yield (*match.span(1), values[match[1]], match[1])


def _addresses(text: str) -> Iterator[_Span]:
    """Yield where addresses stand in a text, but for those that every machine has."""
    for match in _MAC.finditer(text):
        if not _is_empty(match[0]):
            yield (*match.span(), MAC, _SEPARATOR.sub("", match[0]))
    for pattern in (_IPV6, _IPV4):
        for match in pattern.finditer(text):
            address = _ip(match[0])
            if address is not None and not (address.is_loopback or address.is_unspecified):
                yield (*match.span(), ADDRESS, str(address))


def _merged(spans: Iterable[_Span]) -> Iterator[_Span]:
    """Yield spans, those that overlap as one with the longest's value: no part of a value may stay.

    They are sorted by their begin; of two that are the same, the first counts.
    """
    last: _Span | None = None
    longest = 0
    for start, end, kind, value in spans:
        if last is None or start >= last[1]:
            if last is not None:
                yield last
            last, longest = (start, end, kind, value), end - start
            continue
        kept = (kind, value) if end - start > longest else last[2:]
        last, longest = (last[0], max(end, last[1]), *kept), max(longest, end - start)
    if last is not None:
        yield last


def _is_empty(mac: str) -> bool:
    return set(_SEPARATOR.sub("", mac.lower())) in ({"0"}, {"f"})


def _table(found: _Placeholders, texts: Sequence[str]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for kind in KINDS:
        of_kind = [(each, times) for each, times in found.times.items() if each.rpartition("-")[0] == kind]
        rows += [{"kind": kind, "placeholder": each, "times": times} for each, times in sorted(of_kind, key=_number)]
    for masked in (MASKED, NOT_SHOWN):
        if times := sum(text.count(masked) for text in texts):
            rows.append({"kind": "secret", "placeholder": masked, "times": times})
    return rows


def _number(row: tuple[str, int]) -> int:
    return int(row[0].rpartition("-")[2])


def report(removed: RemovalResult) -> list[str]:
    """Return what was removed as lines for people: counts and placeholders, no values but the words that stay."""
    lines = []
    for kind in (*KINDS, "secret"):
        rows = [row for row in removed.table if row["kind"] == kind]
        if rows:
            shown = ", ".join(f"{row['placeholder']} ({row['times']})" for row in rows)
            lines.append(f"{kind:<8} {sum(row['times'] for row in rows):>6}  {shown}")
    if removed.stays:
        more = f" and {len(removed.stays) - MOST_SHOWN} more" if len(removed.stays) > MOST_SHOWN else ""
        shown = ", ".join(removed.stays[:MOST_SHOWN])
        lines.append(f"Not removed, because these are common words or too short: {shown}{more}")
    return lines or ["Nothing was removed."]
