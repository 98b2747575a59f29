"""docs/add-a-model.md, followed to the letter in a copy of the checkout."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from plugin_utils.catalogue_files import findings
from tests.integration.catalogue import walk
from tests.unit.catalogue.documentation import ROOT, table_in

TEXT = (ROOT / "docs" / "add-a-model.md").read_text(encoding="utf-8")
# "Write ``path``...:" and the block below it.
FILES = dict(re.findall(r"^Write `([^`]+\.yml)`[^`]*\n```yaml\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL))
COMMANDS = re.findall(r"^```sh\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
# Of what the document has a person run only what a model more can change.
NARROWED = "-k 'qwen3-4b or test_contracts'"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return walk.copy_of_checkout(tmp_path, FILES)


def run(checkout: Path, command: str) -> subprocess.CompletedProcess[str]:
    return walk.run(checkout, COMMANDS[0], command, NARROWED)


def test_the_document_has_two_files_and_three_steps_of_commands() -> None:
    assert list(FILES) == ["catalog/models/qwen3-4b.yml", "playbooks/serve_qwen3_4b.yml"]
    assert len(COMMANDS) == 3


def test_followed_to_the_letter_it_ends_green(checkout: Path) -> None:
    (entry, playbook), (_, look, check) = FILES.items(), COMMANDS
    path = checkout / entry[0]
    path.write_text(entry[1], encoding="utf-8")

    shown = run(checkout, look)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "refused" not in shown.stdout
    assert "--tensor-parallel-size 2" in shown.stdout

    # Without the playbook the checks say which one is missing.
    missing = run(checkout, "python -m pytest -q tests/unit/catalogue/test_contracts.py")
    assert missing.returncode != 0
    assert f"{playbook[0]} is missing" in missing.stdout

    (checkout / playbook[0]).write_text(playbook[1], encoding="utf-8")
    checked = run(checkout, check)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    name = yaml.safe_load(entry[1])["name"]
    assert any(f"`{name}`" in line for line in table_in((checkout / "docs/models.md").read_text(encoding="utf-8")))

    # Of what make unit finds beside the catalogue's own tests.
    for lint in (
        "python -m pytest -q tests/golden/test_canonical_plans.py -k test_the_list",
        f"yamllint --strict {entry[0]} {playbook[0]}",
        f"ansible-playbook --syntax-check {playbook[0]}",
        f"python -m pytest -q tests/unit/standins/test_plans.py -k {name}",
    ):
        answer = run(checkout, lint)
        assert answer.returncode == 0, answer.stdout + answer.stderr


def test_a_mistake_is_shown_as_the_document_says() -> None:
    name, content = next(iter(FILES.items()))
    mistaken = yaml.safe_load(content.replace("tensor_parallel_size", "tensor_paralel_size"))
    (promised,) = re.findall(rf"^ {{4}}{name}: (.*)$", TEXT, re.MULTILINE)
    (found,) = findings("model", mistaken)
    assert found.startswith(promised)


def test_the_example_leaves_out_what_nobody_looked_up() -> None:
    entry = yaml.safe_load(FILES["catalog/models/qwen3-4b.yml"])
    assert entry["repositories"] == {"huggingface": {"repository": "Qwen/Qwen3-4B"}}
    assert entry["weights_bytes"] == 2 * entry["architecture"]["parameters"]
