"""A family of releases is one value: nothing outside its package asks which one a release is of."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.families.base import Family
from ansible.module_utils.gaudi.families.registry import FAMILIES
from ansible.module_utils.gaudi.image.recipe import OF_KIND
from ansible.module_utils.gaudi.planning.many import Catalogue

from tests.golden.serving_cases import vendor

BRAIN = vendor.ROOT / "module_utils" / "gaudi"
# The key of a release file is read here, and looked up in the package.
READS_THE_KEY = BRAIN / "catalogue" / "entries.py"
# The repositories that servers are made of; an image is built from them, so that its package may name them, too.
REPOSITORIES = {name for names in OF_KIND.values() for name in names if name.startswith("vllm_")}
BUILDS = BRAIN / "image"


def product() -> list[Path]:
    """The product's Python outside the package of families."""
    rooms = ("module_utils", "action_plugins", "filter_plugins", "library", "plugin_utils", "roles")
    files = [file for room in rooms for file in (vendor.ROOT / room).rglob("*.py")]
    return sorted(file for file in files if file.parent.name != "families" and file != READS_THE_KEY)


def questions(tree: ast.AST) -> Iterator[str]:
    """Where a program asks a release for its family, or compares something with the name of a family or a kind."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "rules":
            yield f"line {node.lineno}: .rules"
        elif isinstance(node, ast.Compare):
            for word in ast.walk(node):
                if (
                    isinstance(word, ast.Constant)
                    and isinstance(word.value, str)
                    and word.value in {*FAMILIES, *OF_KIND}
                ):
                    yield f"line {node.lineno}: compared with {word.value}"
        elif isinstance(node, ast.Constant) and node.value in REPOSITORIES:
            yield f"line {node.lineno}: {node.value}"


def test_only_families_know_which_family_a_release_is_of() -> None:
    files = [file for file in product() if file.parent != BUILDS]
    assert len(files) > 50
    found = {str(file.relative_to(vendor.ROOT)): list(questions(ast.parse(file.read_text()))) for file in files}
    assert {file: lines for file, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "asks",
    [
        'release.rules == "x"',
        'a in ("1.21", "b")',
        "f(wish.release.rules)",
        '"vllm_gaudi" in release.pins',
        'pins.get("vllm_hpu_extension")',
        'build.kind != "plugin"',
    ],
)
def test_a_question_is_found(asks: str) -> None:
    assert list(questions(ast.parse(asks)))


def test_each_family_has_a_file_and_releases() -> None:
    shared = {"__init__", "base", "registry", "formulas", "shared"}
    # Parts of a family that have files of their own.
    shared |= {"features", "plugin_warmup"}
    files = {file.stem for file in (BRAIN / "families").glob("*.py")} - shared
    assert len(files) == len(FAMILIES)
    used = {vendor.content("releases", path.stem)["rules"] for path in (vendor.CATALOG / "releases").glob("*.yml")}
    assert used == set(FAMILIES)
    assert all(isinstance(family, Family) and family.name == name for name, family in FAMILIES.items())


def test_an_unknown_family_is_refused_with_those_that_there_are() -> None:
    content = {**vendor.content("releases", "1.22"), "rules": "9.99"}
    known = ", ".join(sorted(FAMILIES))
    with pytest.raises(Refusal, match=f"^catalog/releases/1.22.yml: rules must be one of {known}, not '9.99'.$"):
        Catalogue.from_mappings(content, {}, vendor.content("", "cards"))
