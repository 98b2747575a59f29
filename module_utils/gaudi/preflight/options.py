"""Check the options of all roles: types and ranges of values, and names that are misspelled.

An option is an entry of a role's ``meta/argument_specs.yml``, with the ``range`` from the role's ``meta/ranges.yml``:
the lowest and the highest value of a number. Values are converted as Ansible converts them: "8" is a whole number,
"yes" is true, a text is a list of its parts but not a list of mappings. The value of an option with ``no_log`` is never
quoted.
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

# Similarity that two names need, apart from the role's prefix, for one to count as a misspelling of the other.
NEAR = 0.8

# Options of earlier releases, each with its replacement. An entry is deleted with the next release.
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


# For each type: how it is recognised, and its name in a sentence.
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
    """Merge all options of all entry points of several argument_specs, by name.

    A site variable may be in several specs. If one of them has the type raw, its role checks the value itself.
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
    """Whether a value may contain a secret."""
    return bool(option.get("no_log")) or any(secret(inner) for inner in option.get("options", {}).values())


def shareable(option: Mapping[str, Any], value: Any) -> Any:
    """Return a value without its secrets; None if it is a secret itself."""
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
    """Return a sentence for everything in a value that its option does not allow. ``name``: the value's name in it."""
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
        # Modules convert this text into mappings; roles that read the keys do not.
        return False
    if not TYPES[option["type"]][0](value) or (choices and str(value) not in map(str, choices)):
        return False
    lowest, highest = option.get("range", (None, None))
    return lowest is None or lowest <= float(str(value)) <= highest


def form(option: Mapping[str, Any]) -> str:
    """Return the expected form, to follow "must be"."""
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
    names: Iterable[str],
    options: Collection[str],
    results: Collection[str],
    roles: Iterable[str],
    reported_by_another: Callable[[str], bool] = lambda _name: False,
) -> tuple[list[Problem], list[str]]:
    """Return problems and findings for unknown names that look like our options.

    A name counts as ours if it begins with a role's name or with ``gaudi_``, or nearly so. If a known name is similar,
    that one was meant, and the value would have no effect. ``results``: names under which roles publish results.
    ``reported_by_another``: whether another host has the finding for a name.
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
        elif not reported_by_another(name):
            findings.append(
                f"{name} is set, but there is no such variable. Is the name right? If it is yours, no role reads it."
            )
    return problems, findings


def _begun(name: str, prefixes: Sequence[str]) -> tuple[str, str] | None:
    """Return the prefix of ours that a name begins with, possibly misspelled, and the rest; None for any other name.

    A misspelling rarely changes the first letter, so ``audit_`` does not count as ``gaudi_``.
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
