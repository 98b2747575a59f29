"""A server answers to its name, and to the path of its weights, by which the vendor's manuals ask."""

from __future__ import annotations

from typing import Any

import pytest

from . import vendor
from .test_releases import RELEASES

PATH = "/data/hf_models/DeepSeek-R1-0528-G2"


def names(plan: dict[str, Any]) -> list[str]:
    """What follows --served-model-name."""
    words: list[str] = plan["arguments"]
    if "--served-model-name" not in words:
        return []
    start = words.index("--served-model-name") + 1
    end = next((at for at in range(start, len(words)) if words[at].startswith("--")), len(words))
    return words[start:end]


@pytest.mark.parametrize("release", RELEASES)
def test_a_model_of_the_catalogue_is_found_by_its_path(release: str) -> None:
    for model in sorted(vendor.MODELS):
        plan = vendor.plan_request(release, {"model": model, "instance": "x"})
        if "refused" not in plan:
            assert names(plan) == [model, plan["requires"]["weights_path"]]
            assert plan["served_model_name"] == model


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ({"weights": PATH, "served_model_name": "deepseek"}, ["deepseek", PATH]),
        ({"weights": "Qwen/Qwen3-8B", "served_model_name": "qwen"}, ["qwen", "Qwen/Qwen3-8B"]),
        ({"weights": "/data/a model", "served_model_name": "a"}, ["a", "/data/a model"]),
        # Nothing to add: the path is the name already, said or not.
        ({"weights": "Qwen/Qwen3-8B", "served_model_name": "Qwen/Qwen3-8B"}, ["Qwen/Qwen3-8B"]),
        ({"weights": PATH}, []),
        # As an argument, it is the same option.
        ({"weights": PATH, "extra_args": ["--served-model-name", "x"]}, ["x", PATH]),
    ],
)
def test_the_name_comes_first_and_each_once(request_: dict[str, Any], expected: list[str]) -> None:
    plan = vendor.plan_request("1.22", request_)
    assert names(plan) == expected
    assert plan["served_model_name"] == (expected or [PATH])[0]
