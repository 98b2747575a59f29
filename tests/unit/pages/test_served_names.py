"""A server answers to its name, and to the path of its weights, by which the vendor's manuals ask."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.module_utils.gaudi.pages.page import page

from tests.golden.serving_cases import vendor
from tests.unit.planning.test_releases import RELEASES

PATH = "/data/hf_models/DeepSeek-R1-0528-G2"


def names(plan: dict[str, Any]) -> list[str]:
    """What follows --served-model-name."""
    words: list[str] = plan["arguments"]
    if "--served-model-name" not in words:
        return []
    start = words.index("--served-model-name") + 1
    end = next((at for at in range(start, len(words)) if words[at].startswith("--")), len(words))
    return words[start:end]


@pytest.mark.parametrize("turn", range(len(RELEASES)))
def test_a_model_of_the_catalogue_is_found_by_its_path(turn: int) -> None:
    """Each model on one of the releases."""
    release = RELEASES[turn]
    for model in sorted(vendor.MODELS)[turn :: len(RELEASES)]:
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


@pytest.mark.parametrize(
    ("request_", "line"),
    [
        ({"weights": PATH, "served_model_name": "deepseek"}, f"deepseek or {PATH}"),
        ({"weights": "Qwen/Qwen3-8B", "served_model_name": "Qwen/Qwen3-8B"}, "Qwen/Qwen3-8B"),
        ({"weights": PATH}, PATH),
    ],
)
def test_the_page_says_every_name(request_: dict[str, Any], line: str) -> None:
    plan = vendor.plan_request("1.22", request_)
    assert f"served as    {line}" in page([plan], vendor.topology("oam8"))


COMMIT = "ab" * 20


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "the main branch"),
        (["--revision", "main"], "the revision 'main'"),
        ([f"--revision={COMMIT}", "--revision=v1"], "the revision 'v1'"),
        (["--revision", COMMIT], None),
        ([f"--revision={COMMIT}"], None),
    ],
)
def test_weights_of_a_hub_without_a_commit_are_said_to_be_unpinned(words: list[str], said: str | None) -> None:
    warnings = vendor.plan_request("1.22", {"weights": "Qwen/Qwen3-8B", "extra_args": words})["warnings"]
    found = [line for line in warnings if "not pinned" in line]
    assert len(found) == (said is not None)
    for line in found:
        assert line.startswith("Qwen/Qwen3-8B is not pinned")
        assert f"{said} holds on the day" in line
    assert not [line for line in vendor.plan_request("1.22", {"weights": PATH})["warnings"] if "pinned" in line]
