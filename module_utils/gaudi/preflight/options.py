"""The options of all roles: whether a value is of its type, and what a name that nobody knows was meant to be.

An option is an entry of a role's ``meta/argument_specs.yml``, with the ``range`` that the role's ``meta/ranges.yml``
gives it: the lowest and the highest value of a number. Values are judged as Ansible judges them: "8" is a whole
number, "yes" is true, a text is a list of its parts, but no list of mappings. The value of an option with ``no_log`` is
in no sentence.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from ..base.checks import question, shown
from .checks import Problem

# Variables of the site that several roles read.
SHARED = "gaudi_"

# How much of two names has to be the same, beginning behind the role's name, for one to be meant by the other.
NEAR = 0.8

# Options of earlier releases, each with the one that is set in its place. An entry goes with the next release.
RENAMED: Mapping[str, str] = {"preflight_host_nics_verified": "fabric_check_host_nics"}

_WHOLE = re.compile(r"\s*[+-]?[0-9]+\s*\Z", re.ASCII)
_NUMBER = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*\Z", re.ASCII)
_SWITCHES = {"y", "yes", "on", "1", "true", "t", "n", "no", "off", "0", "false", "f"}
# A mapping as text: JSON, or key=value.
_MAPPING = re.compile(r"\s*\{.*\}\s*\Z|[^=]+=", re.DOTALL)


def _is_whole(value: object) -> bool:
    if isinstance(value, (bool, float)):
        return isinstance(value, float) and value.is_integer()
    return isinstance(value, int) or (isinstance(value, str) and _WHOLE.match(value) is not None)


def _is_number(value: object) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, (int, float)) or (isinstance(value, str) and _NUMBER.match(value) is not None)


def _is_text(value: object) -> bool:
    return isinstance(value, (str, int, float))


# Each type with what tells it, and with what it is called in a sentence.
TYPES: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "str": (_is_text, "text"),
    "path": (_is_text, "a path"),
    "int": (_is_whole, "a whole number"),
    "float": (_is_number, "a number"),
    "bool": (lambda value: isinstance(value, (bool, int, str)) and str(value).lower() in _SWITCHES, "true or false"),
    "list": (lambda value: isinstance(value, (list, tuple, str)), "a list"),
    "dict": (
        lambda value: isinstance(value, Mapping) or (isinstance(value, str) and _MAPPING.match(value) is not None),
        "a mapping",
    ),
    "raw": (lambda value: True, "anything"),
}


def merged(specs: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """All options of all entry points of several argument_specs, by name.

    A variable of the site may be in several. Where one of them has the type raw, its role says itself what is wrong.
    """
    found: dict[str, Mapping[str, Any]] = {}
    for spec in specs:
        for entry in spec["argument_specs"].values():
            for name, option in entry.get("options", {}).items():
                if found.get(name, {}).get("type") != "raw":
                    found[name] = option
    return found


def ranged(
    options: Mapping[str, Mapping[str, Any]], ranges: Mapping[str, Sequence[float]]
) -> dict[str, Mapping[str, Any]]:
    """The same options, those that are numbers with their ranges."""
    return {
        name: {**option, "range": ranges[name]} if name in ranges else dict(option) for name, option in options.items()
    }


def secret(option: Mapping[str, Any]) -> bool:
    """Whether a value may hold something that nobody may see."""
    return bool(option.get("no_log")) or any(secret(inner) for inner in option.get("options", {}).values())


def shareable(option: Mapping[str, Any], value: Any) -> Any:
    """A value without the secrets in it; None for one that is a secret itself."""
    if option.get("no_log"):
        return None
    inner = option.get("options", {})
    if not inner:
        return value
    if isinstance(value, (list, tuple)):
        return [shareable(option, item) for item in value]
    if isinstance(value, Mapping):
        return {key: item for key, item in value.items() if key in inner and not secret(inner[key])}
    return None


def faults(name: str, option: Mapping[str, Any], value: object) -> list[str]:
    """A sentence for everything in a value that is not as its option asks for. ``name`` is what the value is called."""
    if value is None:
        if option.get("default") is None and not option.get("required"):
            return []
        wanted = "" if option["type"] == "raw" else f", but must be {form(option)}"
        return [f"{name} is null{wanted}. Give it a value, or leave it out."]
    if not _right(option, value):
        if secret(option):
            return [f"{name} must be {form(option)}, and is not. Its value is not shown: it may hold a secret."]
        return [f"{name} is {shown(value)}, but must be {form(option)}."]
    if isinstance(value, (list, tuple)) and option.get("elements", "raw") != "raw":
        item = {**option, "type": option["elements"], "elements": "raw", "required": True}
        return [said for place, each in enumerate(value) for said in faults(f"{name}[{place}]", item, each)]
    if isinstance(value, Mapping) and option.get("options"):
        return _inner_faults(name, option["options"], value)
    return []


def _right(option: Mapping[str, Any], value: object) -> bool:
    choices = option.get("choices")
    if isinstance(value, str) and (option.get("elements") == "dict" or option.get("options")):
        # Modules make mappings of it; roles that read their keys do not.
        return False
    if not TYPES[option["type"]][0](value) or (choices and str(value) not in map(str, choices)):
        return False
    lowest, highest = option.get("range", (None, None))
    return lowest is None or lowest <= float(str(value)) <= highest


def form(option: Mapping[str, Any]) -> str:
    """What is right, as it follows "must be"."""
    if option.get("choices"):
        return f"one of {', '.join(str(choice) for choice in option['choices'])}"
    words = TYPES[option["type"]][1]
    if "range" in option:
        words += " from {} to {}".format(*option["range"])
    elements = option.get("elements", "raw")
    return words if elements == "raw" else f"{words}, each entry {TYPES[elements][1]}"


def _inner_faults(name: str, options: Mapping[str, Mapping[str, Any]], value: Mapping[Any, object]) -> list[str]:
    found = [f"{name} lacks {key}." for key in options if options[key].get("required") and key not in value]
    for key, each in value.items():
        if key in options:
            found += faults(f"{name}.{key}", options[key], each)
        else:
            near = difflib.get_close_matches(str(key), options, n=1, cutoff=NEAR)
            found.append(f"{name} has the unknown key {shown(key)}.{question(near)} Known: {', '.join(options)}.")
    return found


def unknown(
    names: Iterable[str], options: Collection[str], results: Collection[str], roles: Iterable[str]
) -> tuple[list[Problem], list[str]]:
    """What is wrong with names that look like an option of ours and are none, and what a person should know of them.

    A name is taken for ours where it begins with a role's name or with ``gaudi_``, or nearly so. Where a known one is
    near, it was meant; nothing would read what stands there. ``results`` are the names under which roles leave
    something.
    """
    problems, findings = [], []
    prefixes = sorted([f"{role}_" for role in roles] + [SHARED], key=len, reverse=True)
    for name in sorted(set(names) - {*options, *results}):
        if name in RENAMED:
            said = f"{name} is of an earlier release, and nothing reads it any more. Set {RENAMED[name]} in its place."
            problems.append(Problem("unknown_variable", said))
            continue
        begun = _begun(name, prefixes)
        if begun is None:
            continue
        prefix, ending = begun
        endings = [option[len(prefix) :] for option in options if option.startswith(prefix)]
        near = difflib.get_close_matches(ending, endings, n=1, cutoff=NEAR)
        if near:
            said = f"There is no variable {name}, so nothing reads it.{question([prefix + near[0]])} Correct the name."
            problems.append(Problem("unknown_variable", said))
        else:
            findings.append(
                f"{name} is set, but there is no such variable. Is the name right? If it is yours, no role reads it."
            )
    return problems, findings


def _begun(name: str, prefixes: Sequence[str]) -> tuple[str, str] | None:
    """The prefix of ours that a name begins with, or was meant to, and the rest of the name; None for any other name.

    Who mistypes a word seldom does so in its first letter; with that ``audit_`` is not taken for ``gaudi_``.
    """
    for prefix in prefixes:
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    for place, letter in enumerate(name):
        if letter == "_" and place:
            head = name[: place + 1]
            alike = [prefix for prefix in prefixes if prefix[0] == head[0]]
            for prefix in difflib.get_close_matches(head, alike, n=1, cutoff=NEAR):
                return prefix, name[place + 1 :]
    return None
