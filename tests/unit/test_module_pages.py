"""The page ansible-doc shows of each module: whole, true, and made of what a task can say."""

from __future__ import annotations

import ast
import functools
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from doc_fragments import attributes
from tests.unit.sources import tree

ROOT = Path(__file__).resolve().parents[2]
MOST_LINES_OF_MAIN = 25
NAMES = sorted(path.stem for path in (ROOT / "library").glob("*.py"))
TYPES: Mapping[str, type | tuple[type, ...]] = {
    "str": str,
    "path": str,
    "int": int,
    "float": (int, float),
    "bool": bool,
    "list": list,
    "dict": dict,
    "raw": object,
}


@functools.cache
def block(name: str, kind: str) -> Any:
    return yaml.load(getattr(importlib.import_module(f"library.{name}"), kind), Loader=yaml.CSafeLoader)


def attributes_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a page, with those of the fragment that it extends."""
    shared: dict[str, Any] = {}
    if "extends_documentation_fragment" in document:
        fragment = document["extends_documentation_fragment"].removeprefix("attributes.")
        text = getattr(attributes.ModuleDocFragment, fragment.upper())
        shared = yaml.load(text, Loader=yaml.CSafeLoader)["attributes"]
    return {**shared, **document.get("attributes", {})}


def nested(entries: Mapping[str, Any], inner: str, place: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every option or return value with its place, nested ones too."""
    for name, entry in (entries or {}).items():
        yield f"{place}{name}", entry
        yield from nested(entry.get(inner, {}), inner, f"{place}{name}.")


def fits(value: object, kind: str) -> bool:
    """Whether a value is of a documented type; a template may become anything, and null is "not known"."""
    return value is None or (isinstance(value, str) and "{{" in value) or isinstance(value, TYPES[kind])


def faults_of_page(name: str) -> Iterator[str]:
    document = block(name, "DOCUMENTATION")
    if document["module"] != name or not document["short_description"]:
        yield "its name or short_description"
    for place, option in nested(document["options"] or {}, "suboptions"):
        if not option.get("description"):
            yield f"{place} has no description"
        if option.get("type") not in TYPES or (option["type"] == "list") != ("elements" in option):
            yield f"{place} has no type, or a list no elements"
    supported = attributes_of(document)
    if not {"check_mode", "diff_mode", "platform"} <= supported.keys():
        yield "attributes do not say what it supports (check_mode, diff_mode, platform)"
    for attribute, said in supported.items():
        if not set(said) <= {"description", "support", "platforms"}:
            yield f"{attribute}: a comma may have cut its sentence"


def test_options_say_what_they_are() -> None:
    assert len(NAMES) > 40
    assert not [f"{name}: {fault}" for name in NAMES for fault in faults_of_page(name)]


def taken(name: str) -> Mapping[str, Mapping[str, Any]]:
    """The options that a task can say: those of the action of the same name, where it has some of its own."""
    if (ROOT / "action_plugins" / f"{name}.py").exists():
        action = importlib.import_module(f"action_plugins.{name}")
        spec = getattr(action, "ARGUMENT_SPEC", None) or getattr(action.ActionModule, "SPEC", None)
        if spec is not None:
            return dict(spec)
    return dict(importlib.import_module(f"library.{name}").ARGUMENT_SPEC)


def compared(name: str, option: str, about: Mapping[str, Any]) -> dict[str, Any]:
    """What page and module have to agree on."""
    # What is taken as it is, to be refused in our own words, is documented as what it has to be.
    raw = taken(name).get(option, {}).get("type") == "raw"
    parts = ("default", "required", "choices", *(() if raw else ("type", "elements")))
    return {part: about[part] for part in parts if part in about}


def test_documented_options_are_those_that_are_taken() -> None:
    offenders = []
    for name in NAMES:
        documented, spec = block(name, "DOCUMENTATION")["options"] or {}, taken(name)
        offenders += [f"{name}: {option} is on one side alone" for option in documented.keys() ^ spec.keys()]
        offenders += [
            f"{name}: {option} is documented as {compared(name, option, documented[option])}, "
            f"and taken as {compared(name, option, spec[option])}"
            for option in documented.keys() & spec.keys()
            if compared(name, option, documented[option]) != compared(name, option, spec[option])
        ]
    assert not offenders


def faults_of_examples(name: str) -> Iterator[str]:
    options = block(name, "DOCUMENTATION")["options"] or {}
    required = {option for option, said in options.items() if said.get("required")}
    used = [task[name] or {} for task in block(name, "EXAMPLES") if name in task]
    if not used:
        yield "no example"
    for arguments in used:
        yield from (f"{option} is no option" for option in arguments.keys() - options.keys())
        yield from (f"an example lacks {option}" for option in required - arguments.keys())
        for option in arguments.keys() & options.keys():
            if not fits(arguments[option], options[option]["type"]):
                yield f"{option}: {arguments[option]!r} is no {options[option]['type']}"


def test_examples_use_what_is_documented() -> None:
    assert not [f"{name}: {fault}" for name in NAMES for fault in faults_of_examples(name)]


def lines_of_main(name: str) -> list[int]:
    """The length of main(): of one, or of none where an action does it all and there is a page alone."""
    mains = [
        node
        for node in tree(ROOT / "library" / f"{name}.py").body
        if isinstance(node, ast.FunctionDef) and node.name == "main"
    ]
    return [(main.end_lineno or 0) - main.lineno + 1 for main in mains]


def test_main_reads_decides_and_acts_in_few_lines() -> None:
    """What a module decides is a function that is tried without Ansible (CONTRIBUTING.md)."""
    lines = {name: lines_of_main(name) for name in NAMES}
    alone = {name for name in NAMES if (ROOT / "action_plugins" / f"{name}.py").exists()}
    assert not [name for name, found in lines.items() if len(found) != 1 and name not in alone]
    assert {name: found for name, found in lines.items() if any(each > MOST_LINES_OF_MAIN for each in found)} == {}


def faults_of_results(name: str) -> Iterator[str]:
    for place, value in nested(block(name, "RETURN"), "contains"):
        if not value.get("description"):
            yield f"{place} has no description"
        if "sample" not in value and "contains" not in value:
            yield f"{place} has no sample"
        if not fits(value.get("sample"), value["type"]):
            yield f"{place}: {value.get('sample')!r} is no {value['type']}"


def test_what_is_returned_has_a_true_sample() -> None:
    assert not [f"{name}: {fault}" for name in NAMES for fault in faults_of_results(name)]


def test_the_pages_are_shown_whole() -> None:
    """ansible-doc reads C(...), M(...) and "x::y" as markup, and may swallow what stands beside it."""
    run = subprocess.run(
        [str(Path(sys.executable).parent / "ansible-doc"), "-t", "module", "-M", str(ROOT / "library"), *NAMES],
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "COLUMNS": "100"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stderr == ""
    # Names are bold, whatever the terminal.
    shown = re.sub(r"\x1b\[[0-9;]*m", "", run.stdout)
    pages = re.split(r"^> MODULE ", shown, flags=re.MULTILINE)[1:]
    assert len(pages) == len(NAMES)
    for name, text in zip(NAMES, pages, strict=True):
        # Wrapped anywhere, and indented.
        plain = "".join(text.split())
        for place, value in nested(block(name, "RETURN"), "contains"):
            sample = value.get("sample")
            if isinstance(sample, str) and "\n" not in sample and "'" not in sample:
                assert f"sample:{''.join(sample.split())}" in plain.replace("'", ""), f"{name}: {place}"
        for place, _ in nested(block(name, "DOCUMENTATION")["options"] or {}, "suboptions"):
            assert re.search(rf"^ +{re.escape(place.rpartition('.')[2])} ", text, re.MULTILINE), f"{name}: {place}"
