"""Catalogue, playbooks and the table in the documentation belong together; none may be ahead of the others."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.catalogue.documentation import PLAYBOOKS, ROOT, cards, models, playbook_name, table, table_in

MODELS = models()
NAMES = sorted(MODELS)

# The models of the manuals, and the cards the manuals' own commands and lists give them. A further model needs no
# line here.
CARDS = {
    "bge-large-zh-v1.5": 1,
    "bge-m3": 1,
    "bge-reranker-large": 1,
    "bge-reranker-v2-m3": 1,
    "deepseek-r1-0528": 8,
    "deepseek-r1-671b": 8,
    "deepseek-r1-distill-llama-70b": 4,
    "deepseek-r1-distill-llama-8b": 1,
    "deepseek-r1-distill-qwen-32b": 2,
    "gte-modernbert-base": 1,
    "gte-reranker-modernbert-base": 1,
    "llama-2-70b": 8,
    "llama-2-70b-chat": 8,
    "llama-2-7b": 1,
    "llama-2-7b-chat": 1,
    "mistral-7b-instruct-v0.3": 1,
    "mixtral-8x7b-instruct-v0.1": 2,
    "qwen2-72b-instruct": 4,
    "qwen2-audio-7b-instruct": 1,
    "qwen2-vl-7b-instruct": 1,
    "qwen2.5-7b-instruct": 1,
    "qwen2.5-omni-7b": 1,
    "qwen2.5-vl-7b-instruct": 1,
    "qwen3-8b": 2,
    "qwen3-coder-480b-a35b-instruct-fp8": 8,
    "qwen3-vl-30b-a3b-instruct": 1,
    "qwen3-vl-30b-a3b-instruct-fp8-g2-dynamic": 1,
    "qwq-32b": 2,
    "qwq-32b-long-context": 8,
}


def load_play(path: Path) -> list[dict[str, Any]]:
    plays = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(plays, list)
    return plays


def test_every_model_of_the_manuals_is_there() -> None:
    assert sorted(set(CARDS) - set(NAMES)) == []


@pytest.mark.parametrize("name", NAMES)
def test_every_model_has_its_playbook(name: str) -> None:
    path = PLAYBOOKS / playbook_name(name)
    assert path.is_file(), f"playbooks/{playbook_name(name)} is missing"
    (play,) = load_play(path)
    assert play["ansible.builtin.import_playbook"] == "serve.yml"
    assert play["vars"]["serve_model"] == name
    # Only a release the inventory's default could not stand in for is written down, and then the entry's best.
    releases = MODELS[name].get("releases", ["1.22"])
    assert play["vars"].get("gaudi_release") == (None if "1.22" in releases else releases[0]), (
        f"playbooks/{playbook_name(name)}: gaudi_release is the first of the model's releases, and is left out "
        "where 1.22 is one of them"
    )


def test_every_playbook_has_its_model() -> None:
    named = {playbook_name(name) for name in NAMES}
    assert {path.name for path in PLAYBOOKS.glob("serve_*.yml")} == named


def test_the_table_in_the_documentation_is_the_catalogue() -> None:
    text = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    assert table_in(text) == table(MODELS), (
        "docs/models.md: replace its table; python -m tests.unit.catalogue.documentation"
    )


@pytest.mark.parametrize(("name", "number"), sorted(CARDS.items()))
def test_card_counts_are_those_of_the_manuals(name: str, number: int) -> None:
    assert cards(MODELS[name]) == number


@pytest.mark.parametrize("name", NAMES)
def test_cards_divide_the_heads(name: str) -> None:
    shape, number = MODELS[name]["architecture"], cards(MODELS[name])
    assert shape["num_attention_heads"] % number == 0
    assert number <= shape["num_key_value_heads"]


@pytest.mark.parametrize("name", NAMES)
def test_every_model_says_where_its_values_come_from(name: str) -> None:
    named = " ".join(source.partition(":")[0] for source in MODELS[name]["sources"])
    for key in ("options", "architecture", "weights_bytes"):
        assert key in named, f'catalog/models/{name}.yml: sources lacks a line such as "{key}: where it comes from"'


@pytest.mark.parametrize("name", sorted(CARDS))
def test_models_of_the_manuals_name_the_manual_and_the_published_configuration(name: str) -> None:
    sources = " ".join(MODELS[name]["sources"])
    assert re.search(r"options: (manual v1\.\d\d|scripts/docs)", sources)
    assert "architecture: config.json of" in sources


@pytest.mark.parametrize("name", NAMES)
def test_every_instance_name_a_playbook_makes_is_one(name: str) -> None:
    instance = re.sub(r"[^a-z0-9]+", "-", name)
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,46}[a-z0-9])?", instance)


def test_multimodal_models_carry_what_the_document_says() -> None:
    for name in ("qwen2-vl-7b-instruct", "qwen2.5-vl-7b-instruct", "qwen2.5-omni-7b", "qwen3-vl-30b-a3b-instruct"):
        entry = MODELS[name]
        assert entry["limit_mm_per_prompt"]["image"] == entry["limit_mm_per_prompt"]["video"] == 5
        assert entry["mm_processor_kwargs"]["max_pixels"] == 1003520
        assert entry["defaults"]["graph_reserved_mem"] == 0.5
        assert entry["defaults"]["extra_environment"]["VLLM_IMAGE_FETCH_TIMEOUT"] == "5"
        assert any("gpu_memory_utilization" in note for note in entry["notes"])


def test_a_coder_model_has_no_reasoning_parser() -> None:
    assert "reasoning_parser" not in MODELS["qwen3-coder-480b-a35b-instruct-fp8"]
    assert MODELS["deepseek-r1-0528"]["reasoning_parser"] == "deepseek_r1"
