"""Limits of pictures, films and sounds: options with types, written as each release's own parser takes them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from plugin_utils import releases
from tests.golden.serving_cases import vendor

LIMITS = {"image": 5, "video": 0}
PROCESSOR = {"max_pixels": 1003520, "fps": 2.0, "size": {"shortest_edge": 28}}


def pairs(value: str) -> dict[str, int]:
    """The parser of the DeepSeek branch (nullable_kvs of its arg_utils.py)."""
    found = {}
    for item in value.split(","):
        name, count = (part.lower().strip() for part in item.split("="))
        found[name] = int(count)
    return found


PARSERS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("1.21", "1.22", "1.22-2025.11", "1.23", "1.24", "1.24.1"), json.loads),
    **dict.fromkeys(("deepseek-r1", "deepseek-r1-2025.11"), pairs),
}
WITHOUT = ("1.16", "1.18")


def plan(release: str, **options: Any) -> dict[str, Any]:
    return vendor.plan_request(release, {"weights": "/models/x", **options})


def argument(answer: dict[str, Any], name: str) -> str:
    assert "refused" not in answer, answer["refused"]
    words: list[str] = answer["arguments"]
    return words[words.index(name) + 1]


def test_every_release_takes_them_or_does_not() -> None:
    assert {*PARSERS, *WITHOUT} == set(releases.names())


@pytest.mark.parametrize("release", sorted(PARSERS))
def test_they_are_written_as_the_release_parses_them(release: str) -> None:
    answer = plan(release, limit_mm_per_prompt=LIMITS, mm_processor_kwargs=PROCESSOR)
    assert PARSERS[release](argument(answer, "--limit-mm-per-prompt")) == LIMITS
    assert json.loads(argument(answer, "--mm-processor-kwargs")) == PROCESSOR
    assert answer["ask"] == {"media": {"image": 5}}


@pytest.mark.parametrize("release", WITHOUT)
@pytest.mark.parametrize("option", ["limit_mm_per_prompt", "mm_processor_kwargs"])
def test_a_release_without_them_refuses_them(release: str, option: str) -> None:
    answer = plan(release, **{option: {"image": 1}})
    assert answer["refused_id"] == "without_effect"
    assert answer["refused"].startswith(f"x: {option} ")


LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
FORKS = ("1.21", "1.22", "1.22-2025.11", "deepseek-r1", "deepseek-r1-2025.11")


@pytest.mark.parametrize("release", FORKS)
@pytest.mark.parametrize(
    "asked",
    [
        {"limit_mm_per_prompt": {"image": 1}},
        {"mm_processor_kwargs": {"max_pixels": 1003520}},
        {"extra_args": ["--limit-mm-per-prompt", "image=1"]},
    ],
)
def test_a_model_of_text_alone_takes_none_of_them_on_a_fork(release: str, asked: dict[str, Any]) -> None:
    answer = plan(release, model_config=LLAMA, **asked)
    assert answer["refused_id"] == "text_alone", answer.get("refused", answer.get("warnings"))
    shown = {"model_type": "qwen2_vl", "architectures": ["Qwen2VLForConditionalGeneration"]}
    assert "refused" not in plan(release, model_config=shown, **asked)


def test_a_text_model_of_the_catalogue_takes_none_of_them() -> None:
    asked = {"model": "qwen3-8b", "limit_mm_per_prompt": {"image": 1}}
    assert vendor.plan_request("1.22", asked)["refused_id"] == "text_alone"


@pytest.mark.parametrize("release", ["1.23", "1.24", "1.24.1"])
def test_the_plugins_server_leaves_them_alone_for_text(release: str) -> None:
    assert "refused" not in plan(release, model_config=LLAMA, limit_mm_per_prompt={"image": 1})


def test_classes_for_media_are_classes_of_the_release() -> None:
    for release in releases.names():
        entry = vendor.catalogue(release).release
        refused = entry.refused_architectures.keys()
        assert entry.multimodal_architectures <= entry.architectures | refused
        assert bool(entry.multimodal_architectures) is (release in FORKS)


def test_they_replace_those_of_the_model() -> None:
    name = "qwen2-vl-7b-instruct"
    own = vendor.plan_request("1.22", {"model": name})
    assert json.loads(argument(own, "--limit-mm-per-prompt")) == {"image": 5, "video": 5}
    asked = vendor.plan_request("1.22", {"model": name, "limit_mm_per_prompt": {"image": 2}})
    assert json.loads(argument(asked, "--limit-mm-per-prompt")) == {"image": 2}
    assert argument(asked, "--mm-processor-kwargs") == argument(own, "--mm-processor-kwargs")
    assert asked["arguments"].count("--limit-mm-per-prompt") == 1


def test_what_they_need_of_an_image_follows_them() -> None:
    parts = {}
    for limits in ({"image": 1}, {"audio": 1}, {"video": 1}):
        request = {"weights": "/models/x", "limit_mm_per_prompt": limits}
        answer = vendor.plan_request("1.22", request, image={"ref": "site/vllm:1"})
        parts[str(limits)] = tuple(answer["requires"]["image"])
    model = vendor.plan_request("1.22", {"model": "qwen2-audio-7b-instruct"}, image={"ref": "site/vllm:1"})
    assert parts[str({"audio": 1})] == tuple(model["requires"]["image"])
    assert parts[str({"audio": 1})] != parts[str({"image": 1})]


@pytest.mark.parametrize(
    "options",
    [
        {"limit_mm_per_prompt": "image=5"},
        {"limit_mm_per_prompt": {"image": "x"}},
        {"limit_mm_per_prompt": {"image": -1}},
        {"limit_mm_per_prompt": {"pictures": 5}},
        {"limit_mm_per_prompt": {}},
        {"mm_processor_kwargs": [1]},
        {"mm_processor_kwargs": {"max pixels": 1}},
        {"mm_processor_kwargs": {"max_pixels": float("nan")}},
        {"mm_processor_kwargs": {"size": {"a": {"b": {"c": {"d": {"e": 1}}}}}}},
    ],
)
@pytest.mark.parametrize("release", ["1.21", "1.22", "deepseek-r1", "1.24.1"])
def test_other_types_are_refused_by_the_options_name(release: str, options: dict[str, Any]) -> None:
    answer = plan(release, **options)
    assert next(iter(options)) in answer["refused"]


@pytest.mark.parametrize("release", sorted(PARSERS))
@pytest.mark.parametrize("words", [["--limit-mm-per-prompt", "video=x"], ["--mm_processor_kwargs={max_pixels"]])
def test_further_arguments_that_its_parser_would_end_with_are_refused(release: str, words: list[str]) -> None:
    assert plan(release, extra_args=words)["refused_id"] == "wrong_argument_value"


@pytest.mark.parametrize("release", ["1.22", "1.22-2025.11"])
def test_a_plan_for_pictures_says_where_it_differs_from_the_manual(release: str) -> None:
    def said(**options: Any) -> list[str]:
        answer = vendor.plan_request(release, {"model": "qwen2-vl-7b-instruct", **options})
        return [warning for warning in answer["warnings"] if "exponential_bucketing" in warning]

    (warning,) = said()
    for word in ("max_num_seqs 128", "max_num_prefill_seqs 1", "max_model_len 32768"):
        assert word in warning
    assert said(exponential_bucketing=True) == []
    answer = vendor.plan_request(release, {"model": "qwen2.5-7b-instruct"})
    assert not any("exponential_bucketing" in warning for warning in answer["warnings"])
