"""The class that a model needs, against what each release's registry has, had once, or leaves to another plugin."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.module_utils.gaudi.model.headers import Weights
from ansible.module_utils.gaudi.model.remote_code import code_of

from tests.golden.serving_cases import vendor
from tests.unit.planning.test_refusals import LLAMA_70B, plan, warned

PLUGIN = ("1.23", "1.24", "1.24.1")
# The sizes of _PREVIOUSLY_SUPPORTED_MODELS and _OOT_SUPPORTED_MODELS of vLLM 0.17.1, 0.21.0 and 0.26.0.
FORMER = {"1.23": 10, "1.24": 10, "1.24.1": 39}


def called(name: str, **more: Any) -> dict[str, Any]:
    """A config.json that names one class."""
    return {**LLAMA_70B, "architectures": [name], **more}


def answered(release: str, name: str, **more: Any) -> dict[str, Any]:
    """The plan of weights of one class."""
    return plan(release, model_config=called(name, **more), tensor_parallel_size=8, max_model_len=8192)


@pytest.mark.parametrize("release", PLUGIN)
def test_names_that_vllm_gave_up_are_not_supported(release: str) -> None:
    entry = vendor.catalogue(release).release
    both = {**entry.refused_architectures, **entry.unverified_architectures}
    gone = [name for name, because in both.items() if "vLLM had" in because or "plugin of its own" in because]
    assert len(gone) == FORMER[release]
    assert not entry.architectures & both.keys()
    assert not entry.refused_architectures.keys() & entry.unverified_architectures.keys()


def test_a_class_that_nothing_takes_is_refused_and_one_of_the_transformers_backend_is_not() -> None:
    refused = answered("1.24.1", "QWenLMHeadModel")
    assert refused["refused_id"] == "unsupported_architecture"
    assert "until 0.23.0" in refused["refused"]
    plugin = answered("1.24.1", "BartForConditionalGeneration")
    assert "https://github.com/vllm-project/bart-plugin" in plugin["refused"]
    unverified = answered("1.24.1", "Dots1ForCausalLM")
    assert warned(unverified, "Dots1ForCausalLM", "Transformers backend")
    assert not warned(answered("1.24", "Dots1ForCausalLM"), "Dots1ForCausalLM")


def test_a_class_of_an_unknown_type_is_refused_and_one_of_a_known_type_warned_of() -> None:
    known = answered("1.22", "StrangeForCausalLM")
    assert warned(known, "no class of its own for", "may not start")
    unknown = answered("1.22", "StrangeForCausalLM", model_type="strange")
    assert unknown["refused_id"] == "unsupported_architecture"


@pytest.mark.parametrize(
    ("release", "name"),
    [
        ("1.21", "Mamba2ForCausalLM"),
        ("1.22", "NemotronHForCausalLM"),
        ("1.22", "MiniMaxText01ForCausalLM"),
        ("1.23", "JambaForCausalLM"),
        ("1.24", "KimiLinearForCausalLM"),
        ("1.24.1", "KimiLinearForCausalLM"),
        ("1.24", "DeepseekV4ForCausalLM"),
        ("1.24.1", "DeepseekV4ForCausalLM"),
        ("1.24.1", "Lfm2ForCausalLM"),
    ],
)
def test_a_class_whose_kernels_are_for_other_cards_is_refused(release: str, name: str) -> None:
    assert answered(release, name)["refused_id"] == "unsupported_architecture"


def test_code_beside_the_weights_may_bring_a_class_that_was_given_up() -> None:
    config = called("QWenLMHeadModel", auto_map={"AutoConfig": "a.A"})
    files = Weights(bytes=1 << 30, parameters={"BF16": 1 << 29}, code=code_of(config))
    assert plan("1.24.1", files=files)["refused_id"] == "unsupported_architecture"
    assert warned(plan("1.24.1", files=files, trust_remote_code=True), "QWenLMHeadModel", "until 0.23.0")


def test_every_model_names_a_class_that_each_of_its_releases_has(subtests: pytest.Subtests) -> None:
    for name in vendor.MODELS:
        entry = vendor.content("models", name)
        # Of three models nobody has read the config.json.
        assert "architectures" in entry or "architecture" not in entry, name
        validated = entry.get("validated", {}).get("releases", [])
        for release in dict.fromkeys([*entry["releases"], *validated]):
            with subtests.test(name=name, release=release):
                classes = vendor.catalogue(release).release.architectures
                assert "architectures" not in entry or classes.intersection(entry["architectures"])


def test_a_model_of_the_catalogue_is_compared_with_the_release() -> None:
    assert plan("deepseek-r1", model="qwen3-235b-a22b")["refused_id"] == "unsupported_architecture"
    assert plan("1.22", model="qwen3-235b-a22b", tensor_parallel_size=4)["refused_id"] == "weights_too_large"
