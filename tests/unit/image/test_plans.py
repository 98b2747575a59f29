"""What a plan says of its image: where the site says nothing, what it always said."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from ansible.module_utils.gaudi.image.parts import needed
from ansible.module_utils.gaudi.planning.many import Catalogue, plan_all

from tests.golden.canonical_plans import CATALOG, topology
from tests.unit.image.made import document, entry, made


def plan(model: str, image: dict[str, object], release: str = "1.22", **options: object) -> dict[str, Any]:
    content = yaml.safe_load((CATALOG / "models" / f"{model}.yml").read_text())
    cards = yaml.safe_load((CATALOG / "cards.yml").read_text())
    catalogue = Catalogue.from_mappings(document(release), {model: content}, cards)
    request = {"model": model, "instance": "one", **options}
    return plan_all([request], catalogue, topology("HL-225"), weights_root="/data/models", image=image)[0]


def test_without_a_word_of_the_site_a_plan_is_as_it_was() -> None:
    said = plan("qwen3-8b", {})
    assert (
        said["image"] == "vault.habana.ai/gaudi-docker/1.22.2/ubuntu22.04/habanalabs/pytorch-installer-2.7.1:1.22.2-32"
    )
    assert "image" not in said["requires"]


def test_a_built_image_is_named_without_asking_anyone() -> None:
    said = plan("qwen3-8b", {"build": True})
    assert said["image"] == made(needs=("numactl",)).reference
    assert said["requires"]["image"] == ["numactl"]


@pytest.mark.parametrize(
    ("model", "needs"),
    [
        ("qwen2-vl-7b-instruct", ["numactl", "pillow_simd"]),
        ("qwen2-audio-7b-instruct", ["numactl", "audio"]),
        ("qwen2.5-omni-7b", ["numactl", "audio", "pillow_simd"]),
    ],
)
def test_a_model_brings_the_parts_that_it_needs(model: str, needs: list[str]) -> None:
    said = plan(model, {"build": True})
    assert said["requires"]["image"] == needs
    assert said["image"] == made(needs=tuple(needs)).reference


def test_every_model_of_the_catalogue_has_an_image_on_each_of_its_releases() -> None:
    lacking = []
    for path in sorted((CATALOG / "models").glob("*.yml")):
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        for name in content.get("releases") or ["1.22"]:
            needs = needed(True, content.get("limit_mm_per_prompt", {}), True, entry(name).build)
            lacking += [f"{path.stem} on {name}: {part}" for part in sorted(set(needs) - set(made(name, needs).parts))]
    assert lacking == []


@pytest.mark.parametrize("release", ["1.23", "1.24", "1.24.1"])
def test_a_model_that_sees_does_without_a_faster_part_where_the_release_has_none(release: str) -> None:
    said = plan("qwen2.5-vl-7b-instruct", {"build": True}, release)
    assert said["requires"]["image"] == ["numactl"]
    asked = plan("qwen2.5-vl-7b-instruct", {"build": True, "parts": ["pillow_simd"]}, release)
    assert asked["refused_id"] == "image_part_not_offered"


def test_a_ready_image_is_taken_as_it_is_named() -> None:
    said = plan("qwen3-8b", {"ref": "registry.example.com/gaudi/vllm:7"})
    assert said["image"] == "registry.example.com/gaudi/vllm:7"
    assert said["requires"]["image"] == ["numactl"]


def test_a_wrong_wish_is_a_refusal_of_each_request() -> None:
    assert plan("qwen3-8b", {"build": True, "parts": ["pillow"]})["refused_id"] == "unknown_image_part"


def test_a_model_that_the_site_measures_asks_for_the_program() -> None:
    coder = plan("qwen3-coder-480b-a35b-instruct-fp8", {"build": True})
    assert "inc_calibration" in coder["requires"]["image"]
    deepseek = plan("deepseek-r1-671b", {"build": True}, "deepseek-r1")
    assert "inc_calibration" not in deepseek["requires"]["image"]
