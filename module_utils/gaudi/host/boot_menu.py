"""GRUB's menu: which entry boots next, from grub.cfg, the environment block and GRUB_DEFAULT, as GRUB decides."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from . import grub
from .shell import plain

_DEFAULT = re.compile(r"^\s*set default=(?P<quote>[\"']?)(?P<value>.*?)(?P=quote)\s*$", re.MULTILINE)
# The options of menuentry and submenu that have a value (grub/docs, menuentry); the id's is written by a variable.
_WITH_VALUE = ("--class", "--users", "--hotkey", "--source")
_WITH_ID = ("--id", "$menuentry_id_option", "${menuentry_id_option}")
_LOADERS = ("linux", "linux16", "linuxefi")
_SIGNATURE = "# GRUB Environment Block\n"
_IMAGE = "vmlinuz-"
# Submenus in submenus; grub-mkconfig writes one level.
_DEEPEST = 16
# A ">" between the parts of a path; in a title it is written twice (menuentry_eq in grub-core/normal/menu.c).
_SEPARATOR = re.compile(r"(?<!>)>(?!>)")


@dataclass(frozen=True)
class MenuEntry:
    """An entry of the menu, or a submenu with its entries.

    ``kernel``: path of the image that it boots; "" for a submenu and for anything but a Linux kernel.
    """

    title: str
    id: str = ""
    kernel: str = ""
    entries: tuple[MenuEntry, ...] = ()
    submenu: bool = False

    @property
    def release(self) -> str:
        """The kernel's release, such as 6.8.0-45-generic; "" where the image's name has none."""
        return self.kernel.partition(_IMAGE)[2]


def parse_menu(config: str) -> tuple[MenuEntry, ...]:
    """Return the menu of a grub.cfg.

    Entries of conditional blocks count as shown: those of grub-mkconfig stand behind the kernels (30_uefi-firmware).
    """
    return tuple(_menu(iter(config.splitlines()), _DEEPEST))


def _menu(lines: Iterator[str], depth: int) -> list[MenuEntry]:
    """Read the entries up to the brace that closes this block; submenus at most so deep."""
    found: list[MenuEntry] = []
    for line in lines:
        word = line.split(maxsplit=1)[:1]
        if line.strip() == "}":
            break
        if word == ["submenu"] and depth:
            title, identity = _names(line)
            found.append(MenuEntry(title, identity, entries=tuple(_menu(lines, depth - 1)), submenu=True))
        elif word == ["menuentry"]:
            title, identity = _names(line)
            found.append(MenuEntry(title, identity, kernel=_kernel(lines)))
        elif word == ["function"]:
            _kernel(lines)
    return found


def _names(line: str) -> tuple[str, str]:
    """Return title and id of an entry's first line; two empty strings where its quotes do not match."""
    title, identity, takes = "", "", ""
    try:
        words = shlex.split(line.rstrip().rstrip("{"))[1:]
    except ValueError:
        return "", ""
    for word in words:
        if takes:
            identity = word if takes == "id" else identity
            takes = ""
        elif word in _WITH_ID:
            takes = "id"
        elif word in _WITH_VALUE:
            takes = "value"
        elif not title and not word.startswith("--"):
            title = word
    return title, identity


def _kernel(lines: Iterator[str]) -> str:
    """Return the image that an entry's commands load, and read up to its closing brace."""
    kernel = ""
    for line in lines:
        words = line.split()
        if words == ["}"]:
            break
        if len(words) > 1 and words[0] in _LOADERS:
            kernel = words[1]
    return kernel


def parse_environment(block: str) -> dict[str, str]:
    """Return the variables of GRUB's environment block (grubenv); none where it is damaged, as GRUB reads none then."""
    if not block.startswith(_SIGNATURE):
        return {}
    pairs = re.findall(r"^([^#=\n][^=\n]*)=((?:[^\\\n]|\\[\s\S])*)$", block, re.MULTILINE)
    return {name: re.sub(r"\\([\s\S])", r"\1", value) for name, value in pairs}


def default_of(config: str, environment: Mapping[str, str]) -> str:
    """Return what a grub.cfg chooses: a number, a title, an id, or a path of them; "0" where it chooses nothing.

    ``next_entry`` of the environment is for one boot, and comes first in a generated file.
    """
    chosen = "0"
    for match in _DEFAULT.finditer(config):
        if match["value"] == "${next_entry}":
            if environment.get("next_entry"):
                return environment["next_entry"]
        else:
            chosen = match["value"]
    return chosen.replace("${saved_entry}", environment.get("saved_entry", "")) or "0"


def of_files(files: Sequence[tuple[str, str]], environment: Mapping[str, str]) -> tuple[str, str] | None:
    """Return what the next grub.cfg will choose, and the place that says so; None where a shell works it out.

    files: /etc/default/grub and its drop-ins, path and text. As in /etc/grub.d/00_header, nothing stands for 0.
    """
    text = grub.evaluate(files).get("GRUB_DEFAULT", ())
    value = plain(text)
    if "`" in value or "$(" in value:
        return None
    chosen = environment.get("saved_entry", "") if value == "saved" else value
    return chosen or "0", str(text[0][1]) if text else ""


def chosen_entry(entries: Sequence[MenuEntry], default: str) -> MenuEntry | None:
    """Return the entry that boots; None if there is none.

    GRUB takes the first entry where the default names none, and the first of a submenu where the path ends there.
    """
    if not entries:
        return None
    separator = _SEPARATOR.search(default)
    first, rest = (default[: separator.start()], default[separator.end() :]) if separator else (default, "")
    entry = _named(entries, first.replace(">>", ">")) or entries[0]
    return chosen_entry(entry.entries, rest) if entry.submenu else entry


def _named(entries: Sequence[MenuEntry], name: str) -> MenuEntry | None:
    """Return the entry of a number, title or id."""
    if name.isdigit():
        return entries[int(name)] if int(name) < len(entries) else None
    return next((entry for entry in entries if name and name in (entry.title, entry.id)), None)


def path_to(entries: Sequence[MenuEntry], kernel: str) -> str:
    """Return the default that boots a kernel, whatever other kernels come; "" if no entry does.

    The simple entry at the top boots the newest kernel, so an entry that names its kernel is taken where there is one.
    An entry without an id whose title a shell would evaluate is never taken.
    """
    paths = sorted(filter(_quotable, _paths(entries, kernel)), key=lambda path: kernel not in path)
    return paths[0] if paths else ""


def _quotable(path: str) -> bool:
    """Whether a shell reads a path between double quotes as it is: update-grub has a shell read its defaults."""
    return not set(path) & set('"$`\\\n')


def _paths(entries: Sequence[MenuEntry], kernel: str) -> Iterator[str]:
    for entry in entries:
        name = (entry.id or entry.title).replace(">", ">>")
        if entry.submenu:
            yield from (f"{name}>{path}" for path in _paths(entry.entries, kernel))
        elif entry.release == kernel and "-recovery-" not in entry.id and "(recovery mode)" not in entry.title:
            yield name


def of_grubby(listing: str, name: str) -> str:
    """Return the image of the entry with a number, title or id in ``grubby --info=ALL``; "" if none has it."""
    for block in re.split(r"^(?=index=)", listing, flags=re.MULTILINE):
        fields = dict(re.findall(r'^(\w+)="?(.*?)"?$', block, re.MULTILINE))
        if name and name in (fields.get("index"), fields.get("title"), fields.get("id")):
            return str(fields.get("kernel", ""))
    return ""
