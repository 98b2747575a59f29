"""The page ansible-doc shows of each module: whole, true, and made of what a task can say."""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

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


def block(name: str, kind: str) -> Any:
    return yaml.safe_load(getattr(importlib.import_module(f"library.{name}"), kind))


def nested(entries: Mapping[str, Any], inner: str, place: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every option or return value with its place, nested ones too."""
    for name, entry in (entries or {}).items():
        yield f"{place}{name}", entry
        yield from nested(entry.get(inner, {}), inner, f"{place}{name}.")


def fits(value: object, kind: str) -> bool:
    """Whether a value is of a documented type; a template may become anything, and null is "not known"."""
    return value is None or (isinstance(value, str) and "{{" in value) or isinstance(value, TYPES[kind])


@pytest.mark.parametrize("name", NAMES)
def test_options_say_what_they_are(name: str) -> None:
    document = block(name, "DOCUMENTATION")
    assert document["module"] == name
    assert document["short_description"]
    for place, option in nested(document["options"] or {}, "suboptions"):
        assert option["description"], place
        assert option["type"] in TYPES, place
        assert (option["type"] == "list") == ("elements" in option), place
    assert "attributes" in document, "say what the module supports (check_mode, diff_mode, platform)"
    for attribute, said in document["attributes"].items():
        assert set(said) <= {"description", "support", "platforms"}, f"{attribute}: a comma may have cut its sentence"


def taken(name: str) -> Mapping[str, Mapping[str, Any]]:
    """The options that a task can say: those of the action of the same name, where it has some of its own."""
    if (ROOT / "action_plugins" / f"{name}.py").exists():
        action = importlib.import_module(f"action_plugins.{name}")
        spec = getattr(action, "ARGUMENT_SPEC", None) or getattr(action.ActionModule, "SPEC", None)
        if spec is not None:
            return dict(spec)
    return dict(importlib.import_module(f"library.{name}").ARGUMENT_SPEC)


@pytest.mark.parametrize("name", NAMES)
def test_documented_options_are_those_that_are_taken(name: str) -> None:
    documented = block(name, "DOCUMENTATION")["options"] or {}

    spec = taken(name)

    def said(options: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
        # What is taken as it is, to be refused in our own words, is documented as what it has to be.
        raw = {option for option, about in spec.items() if about.get("type") == "raw"}
        parts = {
            option: ("default", "required", "choices", *(() if option in raw else ("type", "elements")))
            for option in options
        }
        return {
            option: {part: about[part] for part in parts[option] if part in about} for option, about in options.items()
        }

    assert said(documented) == said(spec)


@pytest.mark.parametrize("name", NAMES)
def test_examples_use_what_is_documented(name: str) -> None:
    options = block(name, "DOCUMENTATION")["options"] or {}
    used = [task[name] or {} for task in block(name, "EXAMPLES") if name in task]
    assert used
    for arguments in used:
        assert set(arguments) <= set(options)
        assert {option for option, said in options.items() if said.get("required")} <= set(arguments)
        for option, value in arguments.items():
            assert fits(value, options[option]["type"]), f"{option}: {value!r} is no {options[option]['type']}"


@pytest.mark.parametrize("name", NAMES)
def test_main_reads_decides_and_acts_in_few_lines(name: str) -> None:
    """What a module decides is a function that is tried without Ansible (CONTRIBUTING.md)."""
    tree = ast.parse((ROOT / "library" / f"{name}.py").read_text(encoding="utf-8"))
    # What an action does all by itself has a page here, and nothing that runs.
    mains = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "main"]
    assert len(mains) == 1 or (ROOT / "action_plugins" / f"{name}.py").exists()
    assert all((main.end_lineno or 0) - main.lineno + 1 <= MOST_LINES_OF_MAIN for main in mains)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_returned_has_a_true_sample(name: str) -> None:
    for place, value in nested(block(name, "RETURN"), "contains"):
        assert value["description"], place
        assert "sample" in value or "contains" in value, place
        assert fits(value.get("sample"), value["type"]), f"{place}: {value.get('sample')!r} is no {value['type']}"


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
