"""Every model that the plugin's maintainers have validated, on the cards, sizes and data types they name."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from ansible.module_utils.gaudi.planning.many import plan_all

from plugin_utils import releases
from tests.golden.serving_cases import vendor

# docs/getting_started/validated_models.md of vllm-gaudi v0.26.0 (b059f9c9), typed here again: name in the catalogue,
# sizes of tensor parallelism, data types (B: BF16, F: FP8), generations of cards.
ROWS = """
ovis2-1b 1 B 3
ernie-4.5-vl-28b-a3b-pt 1 B 3
bielik-11b-v2.6-instruct 2 B 3
bielik-1.5b-v3.0-instruct 1 B 3
bielik-4.5b-v3.0-instruct 1 B 3
deepseek-ocr 1 B 3
deepseek-r1-distill-llama-70b 8 F 3
gemma-4-26b-a4b-it 4 B 3
gemma-4-31b-it 4 B 3
gemma-4-e4b-it 1 B 3
granite-8b-code-instruct-4k 1 B 3
gpt-oss-20b-bf16 1,2,4 B 3
gpt-oss-120b-bf16 4 B 3
minimax-m2 8 B 3
codellama-34b-instruct-hf 1 B 3
granite-3.1-8b-instruct 1 B 3
granite-3b-code-instruct-128k 1 B 3
granite-8b-code-instruct-128k 1 B 3
granite-20b-code-instruct-8k 1 B,F 2,3
granite-34b-code-instruct-8k 1 B 3
llama-4-scout-17b-16e-instruct 4,8 B 3
meta-llama-3.1-8b 1 B,F 2,3
meta-llama-3.1-8b-instruct 1 B,F 2,3
meta-llama-3.1-70b 2,4,8 B,F 2,3
meta-llama-3.1-70b-instruct 2,4,8 B,F 2,3
meta-llama-3.1-405b 8 B,F 3
meta-llama-3.1-405b-instruct 8 B,F 3
llama-3.3-70b-instruct 4,8 B,F 3
mistral-7b-instruct-v0.2 1 B 3
mistral-7b-instruct-v0.3 1 B 3
mistral-large-3-675b-instruct-2512 8 B,F 3
mistral-large-instruct-2407 4,8 B,F 2,3
mixtral-8x7b-v0.1 1,2 B,F 2,3
mixtral-8x22b-v0.1 4 B 3
gpt-oss-20b 1,2,4 B 3
gpt-oss-120b 4 B 3
qwen2-72b-instruct 8 B 2
qwen2.5-7b-instruct 1 B 3
qwen2.5-14b-instruct 1 B 3
qwen2.5-32b-instruct 1 B 3
qwen2.5-72b-instruct 4,8 B 3
qwen2.5-vl-7b-instruct 1 B 3
qwen3-0.6b 1 B 3
qwen3-30b-a3b-instruct-2507 4,8 B,F 2,3
qwen3-vl-32b-instruct 1 B,F 3
qwen3-vl-32b-thinking 1 B,F 3
qwen3-vl-235b-a22b-instruct 8 B 3
qwen3-vl-235b-a22b-instruct-fp8 4 F 3
qwen3-vl-235b-a22b-thinking 8 B 3
qwen3-vl-235b-a22b-thinking-fp8 4 F 3
qwen3.5-35b-a3b 1 B 3
qwen3.6-35b-a3b 1 B 3
granite-4.0-h-small 1 B 3
hunyuan-7b-instruct 1 B,F 3
hunyuan-a13b-instruct 1 B,F 3
"""
DTYPES = {"B": "bfloat16", "F": "fp8"}
CARDS = {"gaudi2": "HL-225", "gaudi3": "HL-325L"}
# Named for 0.26.0 alone.
ONLY_LAST = {"gemma-4-26b-a4b-it", "gemma-4-31b-it", "gemma-4-e4b-it", "qwen3.5-35b-a3b", "qwen3.6-35b-a3b"}
LISTED: dict[str, dict[str, Any]] = {
    name: {
        "releases": ["1.24.1"] if name in ONLY_LAST else ["1.24.1", "1.24", "1.23"],
        "generations": [f"gaudi{number}" for number in generations.split(",")],
        "tensor_parallel_size": [int(size) for size in sizes.split(",")],
        "dtype": [DTYPES[letter] for letter in letters.split(",")],
    }
    for name, sizes, letters, generations in (row.split() for row in ROWS.split("\n") if row)
}
PLUGIN = ("1.23", "1.24", "1.24.1")


@functools.cache
def node(card: str) -> Any:
    return json.loads(json.dumps(vendor.topology("oam8")).replace("HL-225", card))


def plan(release: str, card: str, **request: Any) -> dict[str, Any]:
    found = vendor.catalogue(release, request["model"])
    answers: list[dict[str, Any]] = plan_all([request], found, node(card), weights_root="/data/models")
    return answers[0]


def test_the_catalogue_has_every_row_and_no_other() -> None:
    assert len(LISTED) == 55
    contents = {name: vendor.content("models", name) for name in vendor.MODELS}
    assert {name: entry["validated"] for name, entry in contents.items() if "validated" in entry} == LISTED


def combinations(row: dict[str, Any]) -> Iterator[tuple[str, str, int, str]]:
    """Release, generation, size and data type: all of them on the last release, the first on those before it."""
    others = list(itertools.product(row["generations"], row["tensor_parallel_size"], row["dtype"]))
    last, *earlier = row["releases"]
    yield from ((last, *other) for other in others)
    yield from ((release, *others[0]) for release in earlier)


def test_every_validated_model_plans_on_its_cards(subtests: pytest.Subtests) -> None:
    for name, row in sorted(LISTED.items()):
        stored = vendor.content("models", name)["dtype"]
        for release, generation, size, dtype in combinations(row):
            with subtests.test(name=name, release=release, generation=generation, size=size, dtype=dtype):
                # Weights that are published in FP8 are served as they are.
                asked = {"dtype": dtype} if dtype == "fp8" and not stored.startswith("float8") else {}
                answer = plan(release, CARDS[generation], model=name, tensor_parallel_size=size, **asked)
                assert "refused" not in answer, answer
                assert len(answer["modules"]) == size
                assert [
                    words for words in answer["warnings"] if "validated" in words or "nobody is known" in words
                ] == []


@pytest.mark.parametrize("release", PLUGIN)
def test_what_was_not_validated_is_said(release: str) -> None:
    def said(card: str = "HL-325L", **request: Any) -> list[str]:
        return [words for words in plan(release, card, **request)["warnings"] if "validated by the plugin" in words]

    (never,) = said(model="qwen3-32b")
    assert never.startswith("The model Qwen3-32B is not validated by the plugin: validated_models.md of vllm-gaudi v0.")
    assert said(model="qwen2.5-14b-instruct") == []
    (cards,) = said("HL-225", model="qwen2.5-14b-instruct")
    assert cards.endswith("but not with cards gaudi2 (validated: gaudi3).")
    (size,) = said(model="qwen2.5-14b-instruct", tensor_parallel_size=2)
    assert size.endswith("but not with tensor_parallel_size 2 (validated: 1).")
    (dtype,) = said(model="qwen2.5-14b-instruct", dtype="fp8")
    assert dtype.endswith("but not with dtype fp8 (validated: bfloat16).")
    later = "The model gemma-4-31B-it is validated by the plugin's maintainers with release 1.24.1, not with "
    if release == "1.23":
        assert plan(release, "HL-325L", model="gemma-4-31b-it")["refused_id"] == "unsupported_architecture"
    else:
        assert said(model="gemma-4-31b-it") == ([] if release == "1.24.1" else [f"{later}{release}."])


@pytest.mark.parametrize("name", ["qwen3-8b", "qwen3-14b", "qwen3-32b", "qwen3-235b-a22b", "deepseek-r1-671b"])
def test_models_the_plugin_does_not_name_say_so(name: str) -> None:
    entry = vendor.content("models", name)
    assert "validated" not in entry
    assert any(note.startswith("Not validated by the plugin: no row of validated_models.md") for note in entry["notes"])


@pytest.mark.parametrize("name", ["gpt-oss-20b", "gpt-oss-120b", "gpt-oss-20b-bf16", "gpt-oss-120b-bf16"])
def test_gpt_oss_is_for_gaudi3_only(name: str) -> None:
    for release in PLUGIN:
        assert plan(release, "HL-225", model=name)["refused_id"] == "unsupported_generation"
        assert "refused" not in plan(release, "HL-325L", model=name)


def test_packed_weights_take_what_unpacked_ones_do() -> None:
    for size in ("20b", "120b"):
        packed, unpacked = (plan("1.24.1", "HL-325L", model=f"gpt-oss-{size}{end}")["memory"] for end in ("", "-bf16"))
        assert packed["weights_gib_per_card"] == unpacked["weights_gib_per_card"]


@pytest.mark.parametrize("release", ["1.21", "1.22", "1.22-2025.11", "1.24.1"])
def test_a_key_value_head_is_copied_to_several_cards(release: str) -> None:
    shape = vendor.content("models", "qwen3-30b-a3b-instruct-2507")["architecture"]
    assert shape["num_key_value_heads"] == 4
    eight = plan(release, "HL-325L", model="qwen3-30b-a3b-instruct-2507", tensor_parallel_size=8)
    assert len(eight["modules"]) == 8


@pytest.mark.parametrize("name", sorted(name for name in vendor.MODELS if name.startswith("qwen3-vl-")))
def test_pictures_keep_the_limits_of_the_manual(name: str) -> None:
    entry = vendor.content("models", name)
    assert entry["limit_mm_per_prompt"] == {"image": 5, "video": 5}
    made_on_site = "1.24.1" in entry.get("unsupported", {})
    answer = plan(
        entry["releases"][0] if made_on_site else "1.24.1", "HL-225" if made_on_site else "HL-325L", model=name
    )
    assert answer["environment"]["VLLM_IMAGE_FETCH_TIMEOUT"] == "5"
    assert answer["environment"]["VLLM_VIDEO_FETCH_TIMEOUT"] == "30"
    assert json.loads(str(vendor.options(answer["arguments"])["--limit-mm-per-prompt"])) == {"image": 5, "video": 5}


@pytest.mark.parametrize("release", PLUGIN)
@pytest.mark.parametrize(
    "options",
    [
        {"extra_args": ["--nnodes", "2"]},
        {"extra_args": ["--node-rank=1"]},
        {"extra_args": ["--pipeline-parallel-size", "2"]},
        {"extra_args": ["--data-parallel-address", "10.20.0.12"]},
        {"tensor_parallel_size": 16},
    ],
)
def test_two_nodes_are_planned_by_the_plugins_documents(release: str, options: dict[str, Any]) -> None:
    refused = plan(release, "HL-325L", model="qwen3-32b", **options)["refused"]
    assert "instance over two nodes is only planned by the plugin's documents (multi_node.md: \"will be" in refused
    assert "Use the cards of one node." in refused
    fork = plan("1.22", "HL-325L", model="qwen3-32b", **options)["refused"]
    assert "only planned" not in fork


# README_GAUDI.md of each pin: the cards of a model that it lists, one that it does not, and a manual's own.
README_CARDS = [
    ("1.16", "llama-2-70b", 8, 4),
    ("1.16", "mixtral-8x7b-instruct-v0.1", 2, 4),
    ("1.16", "mistral-7b-instruct-v0.3", 2, 8),
    ("1.18", "llama-2-7b", 8, 4),
    ("1.18", "meta-llama-3.1-8b", 2, 4),
    ("1.21", "qwen2-72b-instruct", 8, 2),
    ("1.22", "meta-llama-3.1-70b", 4, 1),
    ("1.22-2025.11", "qwen2.5-72b-instruct", 8, 4),
]


@pytest.mark.parametrize(("release", "model", "listed", "other"), README_CARDS)
def test_a_number_of_cards_that_the_readme_does_not_list_is_warned_of(
    release: str, model: str, listed: int, other: int
) -> None:
    def warned(cards: int) -> bool:
        answer = vendor.plan_request(release, {"model": model, "tensor_parallel_size": cards, "max_model_len": 2048})
        return "refused" in answer or any("The README of release" in warning for warning in answer["warnings"])

    assert not warned(listed)
    assert warned(other)


def test_the_number_of_cards_of_a_manual_is_not_warned_of() -> None:
    """The manual of 1.22 serves Qwen2-72B on four cards, its README on eight."""
    answer = vendor.plan_request("1.22", {"model": "qwen2-72b-instruct"})
    assert len(answer["modules"]) == 4
    assert not any("The README of release" in warning for warning in answer["warnings"])


def test_the_lists_name_models_of_the_catalogue() -> None:
    for release in releases.names():
        assert set(releases.read(release).get("listed_cards", {})) <= vendor.MODELS
