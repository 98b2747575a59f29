"""GRUB's settings: read the shell files of /etc/default as GRUB does, and what will really boot.

``grub-mkconfig`` sources /etc/default/grub and then /etc/default/grub.d/*.cfg with a shell. This reads the
part of the shell language such files are written in, and keeps for every character where it came from,
so that a conflicting argument is reported with its file and line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..base.refusal import Refusal
from . import files as host_files
from .shell import Text, TextPosition, plain, statements, value

DEFAULT = "GRUB_CMDLINE_LINUX_DEFAULT"
ALWAYS = "GRUB_CMDLINE_LINUX"

_ASSIGNMENT = re.compile(r"(?:export[ \t]+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)=")
_SECTION = re.compile(r"### (?P<edge>BEGIN|END) /etc/grub\.d/(?P<script>\S+) ###")
# Control flow, other files, and expansions in the two variables: kept as text, although the shell evaluates them.
_BEYOND = re.compile(
    r"(?:if|elif|case|for|while|until|eval|source|\.)[ \t]"
    r"|(?:export[ \t]+)?GRUB_CMDLINE_LINUX(?:_DEFAULT)?(?:\+=|=.*(?:`|\$\(|\$\{[A-Za-z0-9_]*[^A-Za-z0-9_}]))",
    re.DOTALL,
)
_STRAY_SPACE = re.compile(r"(?P<name>GRUB_[A-Z0-9_]+)[ \t]+=")


@dataclass(frozen=True)
class Word:
    """One argument of the kernel command line with its file and line."""

    text: str
    place: TextPosition


@dataclass(frozen=True)
class BootEntry:
    """One boot entry: its kernel and the arguments that it passes."""

    title: str
    kernel: str
    arguments: tuple[str, ...]
    line: int


def drop_in_arguments(text: str) -> list[str]:
    """Return the arguments in a drop-in of ours."""
    return [word.text for word in words(evaluate([("", text)]), DEFAULT)]


def replaced(files: Sequence[tuple[str, str]], path: str, text: str | None) -> list[tuple[str, str]]:
    """Return GRUB's files in its reading order, with this text as the drop-in; with None, without the drop-in."""
    others = [(there, content) for there, content in files if there != path]
    if text is None:
        return others
    before = [file for file in others if not file[0].endswith(".cfg") or file[0] < path]
    return [*before, (path, text), *others[len(before) :]]


def evaluate(files: Iterable[tuple[str, str]]) -> dict[str, Text]:
    """Return the value of every variable that the files set, evaluated in this order like a shell.

    ``files`` are (path, text). A command substitution stays as written, as its output is unknown. Raises Refusal, with
    file and line, for text that a shell could not parse.
    """
    values: dict[str, Text] = {}
    for _place, name, text in _assignments(files, values):
        values[name] = text
    return values


def taken_away(files: Iterable[tuple[str, str]], own_path: str) -> TextPosition | None:
    """Return where a file after our drop-in overwrites the command line without ours; None if none does."""
    values: dict[str, Text] = {}
    ours, place = False, None
    for where, name, text in _assignments(files, values):
        values[name] = text
        if name == DEFAULT:
            had, ours = ours, any(origin.path == own_path for _, origin in text)
            place = None if ours else where if had else place
    return place


def unread(files: Iterable[tuple[str, str]]) -> list[TextPosition]:
    """Return the first place in each file with shell code that is not evaluated here, which arguments may depend on."""
    found: dict[str, TextPosition] = {}
    for path, text in files:
        for statement in statements(path, text):
            if _BEYOND.match(plain(statement)):
                found.setdefault(path, statement[0][1])
    return list(found.values())


def _assignments(
    files: Iterable[tuple[str, str]], values: Mapping[str, Text]
) -> Iterator[tuple[TextPosition, str, Text]]:
    """Yield every assignment in file order: place, name, and its value with the values so far."""
    for path, text in files:
        for statement in statements(path, text):
            written = plain(statement)
            stray = _STRAY_SPACE.match(written)
            if stray:
                raise Refusal(
                    "space_before_equals",
                    f"{statement[0][1]}: there is a space before '=' after {stray['name']}, "
                    "so the shell takes it for a command. Remove the space.",
                )
            match = _ASSIGNMENT.match(written)
            if match:
                yield statement[0][1], match["name"], value(statement[match.end() :], values)


def words(values: Mapping[str, Text], name: str) -> list[Word]:
    """Split a variable into arguments as the kernel does: at spaces that are not in double quotes."""
    found: list[Word] = []
    current = ""
    place: TextPosition | None = None
    quoted = False
    for character, origin in values.get(name, ()):
        if character == '"':
            quoted = not quoted
        if character.isspace() and not quoted:
            if place is not None:
                found.append(Word(current, place))
            current, place = "", None
            continue
        current += character
        place = place or origin
    if place is not None:
        found.append(Word(current, place))
    return found


def command_line(values: Mapping[str, Text]) -> list[Word]:
    """Return the arguments of a normal boot entry, in the order in which GRUB writes them (/etc/grub.d/10_linux)."""
    return [*words(values, ALWAYS), *words(values, DEFAULT)]


def render(arguments: Sequence[str]) -> str:
    """Return the text of our drop-in, which appends these arguments to the existing ones."""
    return (
        f"{host_files.MARK}\n"
        "# Changes made here are overwritten; playbooks/untune_host.yml takes the file away.\n"
        f'{DEFAULT}="${DEFAULT} {" ".join(arguments)}"\n'
    )


def parse_config(text: str) -> list[BootEntry]:
    """Return the entries of a generated grub.cfg that boot this system: those that /etc/grub.d/10_linux wrote.

    Recovery entries, which have fewer arguments, are left out; their ids mark them in every language. Entries of other
    scripts (40_custom, os-prober, memtest) have their own arguments.
    """
    found: list[BootEntry] = []
    title, own, recovery = "", False, False
    for number, line in enumerate(text.splitlines(), start=1):
        parts = line.split()
        section = _SECTION.match(line)
        if section:
            own = section["edge"] == "BEGIN" and section["script"].partition("_")[2].startswith("linux")
        elif parts and parts[0] == "menuentry":
            recovery = "-recovery-" in line
            title = line.split("'")[1] if "'" in line else " ".join(parts[1:])
        elif len(parts) > 1 and parts[0] in ("linux", "linux16", "linuxefi") and own and not recovery:
            found.append(BootEntry(title, parts[1], tuple(parts[2:]), number))
    return found


def parse_grubby(text: str) -> list[BootEntry]:
    """Parse ``grubby --info=ALL``: one block for each kernel, values in double quotes."""
    found: list[BootEntry] = []
    kernel, arguments, start = "", None, 0
    for number, line in enumerate([*text.splitlines(), "index=end"], start=1):
        name, _, value = line.partition("=")
        if name == "index":
            if kernel and arguments is not None:
                found.append(BootEntry(kernel, kernel, tuple(arguments.split()), start))
            kernel, arguments, start = "", None, number
        elif name == "kernel":
            kernel = value.strip().strip('"')
        elif name == "args":
            arguments = value.strip()[1:-1] if value.strip().startswith('"') else value.strip()
    return found
