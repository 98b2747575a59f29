"""What a refusal advises is followed: the request that says so is planned."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.gaudi.cards.given import given_topology
from ansible.module_utils.gaudi.planning.many import plan_all

from plugin_utils import releases
from plugin_utils.yaml_files import load_yaml
from tests.golden.serving_cases import vendor

MACHINES = Path(__file__).resolve().parents[3] / "docs" / "examples" / "topologies"
HL_225, HL_338 = "hl-225-two-sockets", "hl-338-two-quads"
SET = re.compile(r"set (\w+) to (\d+(?:, \d+)*(?: or \d+)?|true)", re.IGNORECASE)
LEFT_OUT = re.compile(r"leave (\w+) out", re.IGNORECASE)
# Refusals that another number of cards, or a shorter length, may help against.
HELPED = {
    "batch_below_longest_request",
    "cards_not_joined",
    "expert_width_not_divisible",
    "fits_on_no_cards",
    "heads_not_divisible",
    "kv_cache_too_small",
    "max_model_len_beyond_model",
    "max_model_len_beyond_node",
    "measured_for_other_cards",
    "more_cards_than_heads",
    "scales_not_divisible",
    "too_few_cards",
    "too_few_free_cards",
    "weights_too_large",
}


@functools.lru_cache
def machine(name: str) -> Any:
    return given_topology(load_yaml(MACHINES / f"{name}.yml", name))


def plan(release: str, where: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a request, which may have the node's option for host NICs."""
    asked = {name: value for name, value in request.items() if name != "fabric_check_host_nics"}
    found: list[dict[str, Any]] = plan_all(
        [asked],
        vendor.catalogue(release, asked.get("model")),
        machine(where),
        weights_root="/data/models",
        host_nics=bool(request.get("fabric_check_host_nics")),
    )
    return found[0]


def advised(sentence: str) -> list[dict[str, Any]]:
    """The options of each alternative that a sentence advises; each of several numbers is one."""
    found = []
    for alternative in re.split(r", or (?=[a-z])", sentence):
        said: dict[str, list[Any]] = {name: [None] for name in LEFT_OUT.findall(alternative)}
        for name, value in SET.findall(alternative):
            said[name] = [True] if value == "true" else [int(number) for number in re.findall(r"\d+", value)]
        if "fabric_check_host_nics: true" in alternative:
            said["fabric_check_host_nics"] = [True]
        found += [dict(zip(said, values, strict=True)) for values in itertools.product(*said.values()) if said]
    return found


def dead_ends(release: str, where: str, request: Mapping[str, Any]) -> list[str]:
    """What is wrong with the advice of the answer to a request: none where some would help, or one that does not."""
    answer = plan(release, where, request)
    if answer.get("refused_id") not in HELPED:
        return []
    wrong = []
    for options in advised(answer["refused"]):
        followed = plan(release, where, {**request, **options})
        if "refused" in followed:
            wrong.append(
                f"{request} on {release}, {where}: {answer['refused']}\n  with {options}: {followed['refused']}"
            )
    return wrong


def test_the_advice_to_a_model_of_the_catalogue_leads_to_a_plan() -> None:
    wrong = []
    for place, model in enumerate(sorted(vendor.MODELS)):
        for turn, release in enumerate(releases.names()):
            if (place + turn) % 8 == 0:
                wrong += dead_ends(release, HL_338, {"model": model})
                wrong += dead_ends(release, HL_225, {"model": model, "tensor_parallel_size": 1 + turn % 8})
    assert wrong == []


LLAMA = {"model": "llama-2-7b"}
SHORT = "Set max_model_len to 4096"


@pytest.mark.parametrize(
    ("release", "where", "request_", "words"),
    [
        # Four cards do not hold it, and eight are joined by host NICs alone.
        ("1.24.1", HL_338, {"model": "deepseek-r1-0528"}, "Have host NICs configured and measured"),
        ("1.24.1", HL_338, {"model": "deepseek-r1-0528", "tensor_parallel_size": 4}, "to 8 and have host NICs"),
        ("1.24.1", HL_338, {"weights": "/w/x", "modules": [2, 3, 4]}, "4 and leave modules out, or have"),
        ("1.24.1", HL_338, {"model": "qwen3-8b", "modules": [3, 4]}, "to 1, 2 or 4 and leave modules out, or have"),
        ("1.16", HL_338, {"model": "llama-2-70b"}, "Set tensor_parallel_size to 2 or 4, or have host NICs"),
        # The default length of the release is beyond the model.
        ("1.22-2025.11", HL_225, LLAMA, f"{SHORT}."),
        ("1.22", HL_225, {**LLAMA, "input_range": [64, 4096], "output_range": [64, 2048]}, f"{SHORT} and leave input"),
        ("1.16", HL_225, {"model": "meta-llama-3.1-70b"}, "to 4 or 8, or set max_model_len to 65536"),
        ("1.22", HL_225, {"model": "qwen3-coder-480b-a35b-instruct-fp8", "tensor_parallel_size": 4}, "to 8."),
        ("1.24.1", HL_225, {"model": "qwen3-8b", "tensor_parallel_size": 16}, "Or set tensor_parallel_size to 1, 2, 4"),
    ],
)
def test_the_advice_of_a_refusal_is_followed(release: str, where: str, request_: Mapping[str, Any], words: str) -> None:
    assert words in plan(release, where, request_)["refused"]
    assert advised(plan(release, where, request_)["refused"]) != []
    assert dead_ends(release, where, request_) == []


@pytest.mark.parametrize(
    ("release", "model", "words"),
    [
        ("1.22", "meta-llama-3.1-405b", "It needs more or larger cards than one node has."),
        ("deepseek-r1", "gte-modernbert-base", "No number of cards, no shorter max_model_len and no host NICs help"),
    ],
)
def test_where_nothing_helps_the_refusal_says_so(release: str, model: str, words: str) -> None:
    sentence = plan(release, HL_225, {"model": model})["refused"]
    assert words in sentence
    assert sentence.endswith("Use another release.")
    assert advised(sentence) == []
