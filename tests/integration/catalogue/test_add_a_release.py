"""docs/add-a-release.md, followed to the letter in a copy of the checkout."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.gaudi.catalogue.extends import extended

from plugin_utils import releases
from plugin_utils.catalogue_files import findings
from tests.integration.catalogue import walk
from tests.unit.catalogue.documentation import ROOT

TEXT = (ROOT / "docs" / "add-a-release.md").read_text(encoding="utf-8")
# "Write ``path``...:" and the block below it.
FILES = dict(re.findall(r"^Write `([^`]+)`.*?\n```\w+\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL))
COMMANDS = re.findall(r"^```sh\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
RELEASE, SURFACE, FAMILY = (
    "catalog/releases/1.22-own.yml",
    "simulator/images/serving/surface/1.22-own.json",
    "module_utils/gaudi/families/r125.py",
)
GUESSED, GUESSED_SURFACE = "catalog/releases/1.24.2.yml", "simulator/images/serving/surface/1.24.2.json"
REGISTRY = "module_utils/gaudi/families/registry.py"
# Of what the document has a person run only what a release more can change.
EVERY = "test_releases.py or test_release_schema.py"
NARROWED = f"-k '1.22-own or test_the_list or test_families or {EVERY}'"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return walk.copy_of_checkout(tmp_path, FILES)


def run(checkout: Path, command: str) -> subprocess.CompletedProcess[str]:
    return walk.run(checkout, COMMANDS[0], command, NARROWED)


def write(checkout: Path, name: str, content: str | None = None) -> None:
    (checkout / name).write_text(FILES[name] if content is None else content, encoding="utf-8")


def with_parents(name: str, text: str) -> Any:
    """What a release file says with what it takes from the releases that it extends."""
    known = {other: releases.own(other) for other in releases.names()}
    return extended(name, {*known, name}, {**known, name: yaml.safe_load(text)}.__getitem__).content


def test_the_document_has_five_files_and_four_steps_of_commands() -> None:
    assert list(FILES) == [RELEASE, SURFACE, GUESSED, GUESSED_SURFACE, FAMILY]
    assert len(COMMANDS) == 4


def test_followed_to_the_letter_it_ends_green(checkout: Path) -> None:
    _, look, check, _ = COMMANDS
    write(checkout, RELEASE)
    shown = run(checkout, look)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "refused" not in shown.stdout
    assert "VLLM_OWN_SCHEDULER" in shown.stdout

    # Without the surface, and without the list of plans, the checks say so.
    missing = run(
        checkout,
        "python -m pytest -q tests/golden/test_canonical_plans.py tests/golden/test_every_plan.py",
    )
    assert "test_canonical_plans.py" in missing.stdout
    assert "surface/1.22-own.json" in missing.stdout

    write(checkout, SURFACE)
    checked = run(checkout, check)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    lint = run(checkout, f"yamllint --strict {RELEASE}")
    assert lint.returncode == 0, lint.stdout + lint.stderr


def test_a_mistake_is_shown_as_the_document_says() -> None:
    whole = with_parents("1.22-own", FILES[RELEASE].replace("max_num_seqs", "max_num_seq"))
    (promised,) = re.findall(r"^ {4}catalog/releases/1.22-own.yml: (.*)$", TEXT, re.MULTILINE)
    (found,) = findings("release", whole)
    assert found.startswith(promised)


def test_a_family_is_a_file_an_import_and_an_entry(checkout: Path) -> None:
    unknown = FILES[RELEASE].replace("constants:", 'rules: "1.25"\nconstants:')
    (refused,) = findings("release", with_parents("1.22-own", unknown))
    assert 'rules is "1.25"' in refused

    write(checkout, RELEASE, unknown)
    write(checkout, FAMILY)
    (line,) = re.findall(r"^Add to `[^`]+registry.py`:\n\n```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    registry = (ROOT / REGISTRY).read_text(encoding="utf-8")
    entered = registry.replace("from .r122 import", f"{line}from .r122 import").replace("R122, ", "R122, R125, ")
    write(checkout, REGISTRY, entered)
    shown = run(checkout, COMMANDS[1])
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "refused" not in shown.stdout
    checked = run(checkout, "python -m pytest -q tests/unit/families/test_families.py")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_release_of_which_only_a_wheel_is_known_can_be_planned_with(checkout: Path) -> None:
    whole = with_parents("1.24.2", FILES[GUESSED])
    assert findings("release", whole) == []
    assert whole["software"]["driver"] == whole["image"]["tag"] == "1.24.2-481"
    # Nothing of the software before it is left in what is said of its images.
    assert "1.24.1" not in json.dumps([whole["image"], whole.get("ready_images")])

    write(checkout, GUESSED)
    write(checkout, GUESSED_SURFACE)
    shown = run(checkout, COMMANDS[3])
    assert shown.returncode == 0, shown.stdout + shown.stderr
    said = " ".join(shown.stdout.split())
    assert "release 1.24.2" in said
    assert "gaudi-serving/vllm:1.24.2-" in said
    # The list of plans is the other walk's; a release of vLLM with its plugin takes longest to plan.
    checks = COMMANDS[2].partition("\n")[2]
    checked = walk.run(
        checkout,
        COMMANDS[0],
        checks,
        "-k '1.24.2 and not test_every_plan or test_releases.py or test_release_schema.py'",
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "passed" in checked.stdout
    lint = run(checkout, f"yamllint --strict {GUESSED}")
    assert lint.returncode == 0, lint.stdout + lint.stderr
