"""What TuneD's active profile undoes of the host's settings (tuned.conf(5), tuned-main.conf(5); read in TuneD 2.20)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from configparser import ConfigParser, Error
from dataclasses import dataclass, field

from .state import GOVERNOR
from .sysctl import HUGEPAGES

MAIN = "/etc/tuned/tuned-main.conf"
# The first folder that has a profile counts; "profiles" is of TuneD 2.23 and later.
_FOLDERS = ("/etc/tuned/profiles", "/etc/tuned", "/usr/lib/tuned/profiles", "/usr/lib/tuned")
FILES = (MAIN, *(f"{folder}/*/tuned.conf" for folder in _FOLDERS))
"""Patterns of the files that say what a profile sets."""

TUNED = "TuneD is set to the profile"
"""What each finding about TuneD begins with."""

_OFF = ("0", "false", "no", "off")
_NO_REAPPLY = re.compile(rf"^\s*reapply_sysctl\s*=\s*({'|'.join(_OFF)})\s*$", re.MULTILINE | re.IGNORECASE)
# Files below /sys that are ours, and the value that leaves them so.
_SYSFS = ((re.compile(r"/scaling_governor$"), GOVERNOR), (re.compile(r"/cpuidle/state[^/]*/disable$"), "1"))
_SYSFS_PAGES = re.compile(r"/nr_hugepages$")
_KNOWN = ("type", "enabled", "replace", "drop")


class UnreadableProfile(Exception):
    """A profile whose effect is not known; the text says why."""


@dataclass
class _Section:
    """A section of the merged profile: the plugin, and of each option the value and its file."""

    plugin: str
    enabled: bool
    options: dict[str, tuple[str, str]] = field(default_factory=dict)


def findings(profile: str, texts: Mapping[str, str], settings: Mapping[str, str], *, cpu: bool) -> list[str]:
    """Return a warning with what the active profile would undo; none if it leaves our settings alone.

    profile: the content of /etc/tuned/active_profile. texts: of FILES, by path. settings: the kernel settings that are
    ours. cpu: whether governor and idle states are.
    """
    if not profile:
        return []
    try:
        kernel = settings if _NO_REAPPLY.search(texts.get(MAIN, "")) else {}
        undone = _undone(_merged(profile, texts), settings, kernel, cpu=cpu)
        may = f"sets {' and '.join(undone)}, and may do so after this role" if undone else ""
    except UnreadableProfile as unknown:
        may = f"may set the governor and kernel settings after this role ({unknown})"
    if not may:
        return []
    return [
        f"{TUNED} {profile}, which {may}. Choose a profile that leaves them alone, or switch TuneD off (tuned-adm off)."
    ]


def _undone(
    sections: Sequence[_Section], settings: Mapping[str, str], kernel: Mapping[str, str], *, cpu: bool
) -> list[str]:
    """Return what the sections set otherwise, with the files. Raises UnreadableProfile if that is not known.

    kernel: those of the settings that a section sysctl wins over.
    """
    undone, unknown = [], ""
    for section in sections:
        for key, (value, path) in section.options.items():
            ours = _ours(section.plugin, key, settings, kernel, cpu=cpu)
            if section.plugin == "script" and key == "script":
                unknown = f"{path} runs {value}"
            elif ours is not None and "${" in value:
                unknown = f"{path} sets {key}={value}"
            # Of several governors, the first that the processor offers counts.
            elif ours is not None and value.partition("|")[0].split() != ours.split():
                undone.append(f"{key}={value} ({path})")
    if unknown and not undone:
        raise UnreadableProfile(unknown)
    return undone


def _ours(plugin: str, key: str, settings: Mapping[str, str], kernel: Mapping[str, str], *, cpu: bool) -> str | None:
    """Return our value for an option of a section; None if the option is not ours.

    force_latency of cpu is not: it only keeps processors out of deep idle states, which are off already.
    """
    if plugin == "sysctl":
        return kernel.get(key.replace("/", "."))
    if plugin == "sysfs" and _SYSFS_PAGES.search(key):
        return settings.get(HUGEPAGES)
    if not cpu:
        return None
    if plugin == "cpu" and key == "governor":
        return GOVERNOR
    return next((value for pattern, value in _SYSFS if plugin == "sysfs" and pattern.search(key)), None)


def _merged(profiles: str, texts: Mapping[str, str]) -> list[_Section]:
    """Return the enabled sections of the active profiles with those that they include, later ones over earlier ones."""
    sections: dict[str, _Section] = {}
    for path, parser in _loaded(profiles.split(), texts, []):
        for name in parser.sections():
            given = parser[name]
            if name in ("main", "variables"):
                continue
            options = {key: (value.strip(), path) for key, value in given.items() if key not in _KNOWN}
            enabled = given.get("enabled", "1").strip().lower() not in _OFF
            if name not in sections or given.get("replace", "0").strip().lower() not in _OFF:
                sections[name] = _Section(given.get("type", name).strip(), enabled)
            sections[name].enabled = enabled
            sections[name].plugin = given.get("type", name).strip()
            for dropped in re.split(r"\s*[,;]\s*", given.get("drop", "")):
                sections[name].options.pop(dropped, None)
            sections[name].options.update(options)
    return [section for section in sections.values() if section.enabled]


def _loaded(names: Sequence[str], texts: Mapping[str, str], done: list[str]) -> Iterator[tuple[str, ConfigParser]]:
    """Yield the files of profiles, each after those that it includes. Raises UnreadableProfile.

    A file counts once, as a profile of /etc may include the one of /usr/lib with the same name.
    """
    for name in names:
        plain = name[1:] if name.startswith("-") else name
        there = [path for folder in _FOLDERS if (path := f"{folder}/{plain}/tuned.conf") in texts]
        path = next((path for path in there if path not in done), "")
        if not path:
            if there or name != plain:
                # It was read before, or need not be there.
                continue
            raise UnreadableProfile(f"there is no {plain}/tuned.conf that can be read")
        done.append(path)
        parser = ConfigParser(delimiters=("=",), inline_comment_prefixes=("#",), strict=False, interpolation=None)
        parser.optionxform = str  # type: ignore[assignment, method-assign]
        try:
            parser.read_string(texts[path], path)
        except Error as error:
            raise UnreadableProfile(f"{path} cannot be read: {type(error).__name__}") from error
        included = parser.get("main", "include", fallback="")
        if "${" in included:
            raise UnreadableProfile(f"{path} includes {included}")
        yield from _loaded([one for one in re.split(r"\s*[,;]\s*", included) if one], texts, done)
        yield path, parser
