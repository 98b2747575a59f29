"""What is fetched and converted for a plan, and what of it is missing."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.module_utils.gaudi.weights import source_plan
from ansible.module_utils.gaudi.weights.how_to_get import how_to_get

from plugin_utils.catalogue_files import load_checked, resolve

ROOT = "/data/models"


def entry(name: str) -> dict[str, Any]:
    return load_checked("model", resolve("models", "model", name))


def plan(path: str, **more: Any) -> dict[str, Any]:
    return {"requires": {"weights_path": path, **more}}


def test_a_plain_model_is_fetched_and_not_converted() -> None:
    (one,) = source_plan.source_plans(plan(f"{ROOT}/Qwen3-8B"), [entry("qwq-32b"), entry("qwen3-8b")], ROOT)
    assert one["convert"] is None
    assert one["fetch"]["directory"] == "Qwen3-8B"
    assert one["fetch"]["repositories"]["huggingface"]["repository"] == "Qwen/Qwen3-8B"
    assert source_plan.origin(one["fetch"]) == "Qwen/Qwen3-8B at b968826d9c46"


def test_fp8_for_gaudi2_is_fetched_under_its_published_name_and_converted() -> None:
    measured = {"path": f"{ROOT}/ds-r1-0528-default-pile-g2-0529", "files": 24}
    model = entry("deepseek-r1-0528")
    one, measurements = source_plan.source_plans(
        plan(f"{ROOT}/DeepSeek-R1-0528-G2", measurements=measured), [model], f"{ROOT}/"
    )
    size = model["weights_bytes"]
    assert one["convert"] == {
        "source": "DeepSeek-R1-0528",
        "target": "DeepSeek-R1-0528-G2",
        "tool": "fp8_block",
        "bytes": size,
    }
    assert one["fetch"]["directory"] == "DeepSeek-R1-0528"
    assert source_plan.room(one, begun=size // 2) == 2 * size - size // 2
    assert (measurements["fetch"]["measured_cards"], measurements["convert"]) == (8, None)
    assert "the commit its main branch names now" in source_plan.origin(measurements["fetch"])


def test_dynamic_fp8_is_made_of_twice_its_bytes() -> None:
    model = entry("qwen3-vl-30b-a3b-instruct-fp8-g2-dynamic")
    (one,) = source_plan.source_plans(plan(f"{ROOT}/{model['directory']}"), [model], ROOT)
    assert one["convert"]["tool"] == "fp8_dynamic"
    assert source_plan.room(one, begun=0) == 3 * model["weights_bytes"]


def test_cards_that_take_published_weights_get_no_conversion() -> None:
    (one,) = source_plan.source_plans(plan(f"{ROOT}/DeepSeek-R1-0528"), [entry("deepseek-r1-0528")], ROOT)
    assert (one["fetch"]["directory"], one["convert"]) == ("DeepSeek-R1-0528", None)


@pytest.mark.parametrize(
    ("model", "path"),
    [
        ("qwen3-8b", "/elsewhere/Qwen3-8B"),  # the request named its own folder
        ("qwen3-8b", f"{ROOT}/My-7B"),
        ("qwen3-8b", None),
    ],
)
def test_what_no_role_can_bring_is_not_offered(model: str, path: str | None) -> None:
    assert source_plan.source_plans({"requires": {"weights_path": path}}, [entry(model)], ROOT) == []


def test_a_model_no_hub_has_is_not_offered() -> None:
    nowhere = {**entry("qwen3-8b"), "repositories": {}}
    assert source_plan.source_plan(nowhere, "Qwen3-8B") is None


def test_a_model_of_one_hub_is_offered_whatever_its_kind() -> None:
    elsewhere = {**entry("qwen3-8b"), "repositories": {"modelscope": {"repository": "Qwen/Qwen3-8B"}}}
    (one,) = source_plan.source_plans(plan(f"{ROOT}/Qwen3-8B"), [elsewhere], ROOT)
    assert source_plan.origin(one["fetch"]) == "Qwen/Qwen3-8B at the commit its master branch names now"
    assert "playbooks/fetch_weights.yml -e model=qwen3-8b" in how_to_get(elsewhere, f"{ROOT}/Qwen3-8B")


def test_models_on_the_same_card_are_brought_too() -> None:
    both = plan(f"{ROOT}/bge-m3", weights_beside=[f"{ROOT}/bge-reranker-v2-m3"])
    found = source_plan.source_plans(both, [entry("bge-m3"), entry("bge-reranker-v2-m3")], ROOT)
    assert [source_plan.served(one) for one in found] == ["bge-m3", "bge-reranker-v2-m3"]


def test_only_what_is_missing_is_done() -> None:
    (one,) = source_plan.source_plans(plan(f"{ROOT}/DeepSeek-R1-0528-G2"), [entry("deepseek-r1-0528")], ROOT)
    assert source_plan.missing(one, {"DeepSeek-R1-0528-G2"}) is None
    assert source_plan.missing(one, set()) == one
    half = source_plan.missing(one, {"DeepSeek-R1-0528"})
    assert half == {"fetch": None, "convert": one["convert"]}
    assert source_plan.room(half, 0) == one["convert"]["bytes"]
    # Only what is not there of converted weights is made again.
    assert source_plan.room(half, 0, made=one["convert"]["bytes"] - 7) == 7
    assert source_plan.served(half) == "DeepSeek-R1-0528-G2"
