"""What differs between two plans of an instance, in words: why it restarts.

Nothing here reads a node; a value whose name looks like a secret's is never repeated.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..base.printable import printable
from ..catalogue.surface import SECRET, normal

# Characters of a value that are shown; a list of buckets would fill the screen.
_LONGEST = 60
# Differences named of the parts that only follow from others.
_MOST = 5
# These keys of a plan decide how its container runs. The other keys follow from them, and are only compared if none of
# these differs.
_RUN = ("image", "modules", "cpu_binding", "arguments", "environment", "container")
_WORDY = ("explain", "warnings")
# What stands before the first option of a command.
_PROGRAM = "program"
_NUMBER = re.compile(r"-\d")
# Names within a value: keys of JSON, NAME=, options, and parts behind a dot.
_NAMES = re.compile(r"([\w-]+)[\"']?\s*[:=]|(?:^|[\s'\"])(?:--|\.)([A-Za-z][\w.-]*)")
# Parts of many other names, so that they count at the end of one within a value only.
_SHORT = re.compile(r"(?:^|[_.])(AUTH|PWD|PASS|KEYS?)$")
# Who logs in, in an address; to the last @, since a password may hold any character.
_LOGIN = re.compile(r"(?<=://)([^\s:@/?#]*)(:.*)?@", re.DOTALL)
# The same of a proxy, whose address needs no scheme.
_PROXY = re.compile(r"^([^\s:@/?#]*)(:.*)?@", re.DOTALL)


def differences(
    before: Mapping[str, Any], after: Mapping[str, Any], environment: Mapping[str, str] | None = None
) -> list[str]:
    """What differs between two plan documents, such as ``--max-num-seqs 32 -> 64``; empty when nothing that runs does.

    ``environment`` is what the container of ``before`` was really given, where that is known.
    """
    given = _variables(before) if environment is None else environment
    found = [
        *_changes({"image": str(before.get("image"))}, {"image": str(after.get("image"))}),
        *_cards(before.get("modules", []), after.get("modules", [])),
        *_arguments(before.get("arguments", []), after.get("arguments", [])),
        *_changes(given, _variables(after)),
        *_containers(before, after),
        *_changes(_binding(before), _binding(after)),
    ]
    if found:
        return found
    derived = _changes(_worked_out(before), _worked_out(after))
    more = [f"{len(derived) - _MOST} more of the plan"] if len(derived) > _MOST else []
    return derived[:_MOST] + more


def environment_of(text: str) -> dict[str, str]:
    """The variables of an instance's environment file: NAME=value by lines, verbatim."""
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def unit_differences(before: str, after: str) -> list[str]:
    """What differs between two texts of a unit, directive by directive; comments count nothing."""
    return _changes(dict(_directives(before)), dict(_directives(after)))


def _directives(text: str) -> Iterator[tuple[str, str]]:
    seen: dict[str, int] = {}
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        name, equals, value = line.partition("=")
        if not equals or line.startswith(("#", ";")):
            continue
        seen[name] = seen.get(name, 0) + 1
        if name.startswith("Exec"):
            # Options of the supervisor, one by one.
            for option, said in _options(value.split()).items():
                yield f"unit {name}{'' if option == _PROGRAM else f' {option}'}", said
        else:
            yield f"unit {name}{f' ({seen[name]})' if seen[name] > 1 else ''}", value


def _arguments(before: Sequence[object], after: Sequence[object]) -> list[str]:
    """Options that differ; where none does, whether they stand in another order."""
    changes = _changes(_options(before), _options(after))
    moved = list(map(str, before)) != list(map(str, after))
    return changes or (["arguments in another order"] if moved else [])


def _options(command: Sequence[object]) -> dict[str, str]:
    """The values of a command's options by name, and under ``program`` what stands before them."""
    found: dict[str, list[str]] = {}
    name = _PROGRAM
    for number, token in enumerate(map(str, command)):
        # The server's own name is behind an option of Python.
        behind_program = number > 0 and (token.startswith("--") or name != _PROGRAM)
        if behind_program and token.startswith("-") and not _NUMBER.match(token):
            name, equals, value = token.partition("=")
            name = normal(name)
            found.setdefault(name, []).extend([value] if equals else [])
        else:
            found.setdefault(name, []).append(token)
    return {name: shlex.join(values) for name, values in found.items()}


def _variables(plan: Mapping[str, Any]) -> dict[str, str]:
    own = (plan.get("container") or {}).get("environment") or {}
    return {str(name): str(value) for name, value in {**plan.get("environment", {}), **own}.items()}


def _binding(plan: Mapping[str, Any]) -> dict[str, str]:
    words = shlex.join(map(str, plan.get("cpu_binding") or []))
    return {"CPU binding": words} if words else {}


def _cards(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> list[str]:
    """Cards by module id; a serial number only where another card sits in the same slot."""
    old, new = (
        {str(card["module_id"]): str(card.get("serial") or "unknown") for card in cards} for cards in (before, after)
    )
    if list(old) != list(new):
        return [f"cards {', '.join(old) or 'none'} -> {', '.join(new) or 'none'} (module ids)"]
    return [f"card {slot}: serial {old[slot]} -> {new[slot]}" for slot in old if old[slot] != new[slot]]


def _containers(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What containers are made with; where nothing differs, which of their lists are in another order."""
    changes = _changes(_container(before), _container(after))
    old, new = (
        {key: json.dumps(value, sort_keys=True) for key, value in _parts(plan).items()} for plan in (before, after)
    )
    return changes or [printable(f"container {key} in another order") for key in old if old[key] != new.get(key)]


def _parts(plan: Mapping[str, Any]) -> dict[str, Any]:
    """What the container is made with, but for its variables."""
    return {key: value for key, value in (plan.get("container") or {}).items() if key != "environment"}


def _container(plan: Mapping[str, Any]) -> dict[str, str]:
    """The same by dotted names."""
    return dict(_flat(_parts(plan), "container "))


def _flat(value: object, name: str) -> Iterator[tuple[str, str]]:
    """Every value below a mapping with its dotted name; of a list each entry, by its target or path if it has one."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(inner, f"{name}{key}" if name.endswith(" ") else f"{name}.{key}")
    elif isinstance(value, (list, tuple)):
        for entry in value:
            if isinstance(entry, Mapping):
                place = next((key for key in ("target", "path", "name") if key in entry), None)
                # By name, since a file may have its keys in another order.
                said = ", ".join(f"{key} {_word(inner)}" for key, inner in sorted(entry.items()) if key != place)
                yield f"{name} {entry[place]}" if place else f"{name} {said}", said if place else ""
            else:
                yield f"{name} {entry}", ""
    else:
        yield name, _word(value)


def _word(value: object) -> str:
    """A value as a file would spell it."""
    words = {None: "null", True: "true", False: "false"}
    return words[value] if value is None or isinstance(value, bool) else str(value)


def _worked_out(plan: Mapping[str, Any]) -> dict[str, str]:
    """What only follows from the parts that are run."""
    parts = {key: value for key, value in plan.items() if key not in (*_RUN, *_WORDY)}
    return dict(_flat(parts, "plan "))


def _changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """A phrase for each name that has another value, none any more, or one for the first time."""
    found = []
    for name in dict.fromkeys([*before, *after]):
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        secret = _is_secret(name) or any(map(_has_secret, (old, new)))
        shown_old, shown_new = ("" if secret else _shown(name, value) for value in (old, new))
        if old is None:
            found.append(f"{name}{shown_new} added")
        elif new is None:
            found.append(f"{name} removed" + (f" (was{shown_old})" if shown_old else ""))
        elif secret or shown_old == shown_new:
            found.append(f"{name} changed")
        else:
            found.append(f"{name}{shown_old or ' nothing'} ->{shown_new or ' nothing'}")
    return [printable(phrase) for phrase in found]


def _is_secret(name: str) -> bool:
    return SECRET.search(name.upper().replace("-", "_")) is not None


def _has_secret(value: str | None) -> bool:
    """Whether a value has the name of a secret in it."""
    names = [key or option for key, option in _NAMES.findall(value or "")]
    return any(_is_secret(name) or _SHORT.search(name.upper().replace("-", "_")) for name in names)


def _shown(name: str, value: str | None) -> str:
    """A value behind a blank, cut, without the password of an address; nothing for none."""
    if not value:
        return ""
    value = _LOGIN.sub(_hidden, value)
    if name.upper().endswith("_PROXY"):
        value = _PROXY.sub(_hidden, value) if "://" not in value else value
    return f" {value}" if len(value) <= _LONGEST else f" {value[:_LONGEST]}..."


def _hidden(login: re.Match[str]) -> str:
    """Who logs in; a name without a password may be a token."""
    return f"{login[1]}:***@" if login[2] else "***@"
