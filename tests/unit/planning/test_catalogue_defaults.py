"""What the catalogue's own entries come to where a manual is silent or careless."""

from __future__ import annotations

import pytest

from tests.golden import canonical_plans
from tests.golden.serving_cases import vendor

RELEASES_OF = {model: vendor.content("models", model).get("releases") or ["1.22"] for model in sorted(vendor.MODELS)}


def test_every_model_listens_to_everybody_where_it_is_asked_to() -> None:
    """That it does not by itself holds of every plan: tests/golden/test_every_plan.py."""
    found = {}
    for model in sorted(vendor.MODELS):
        asked = vendor.plan_request(RELEASES_OF[model][0], {"model": model, "instance": "x", "host": "0.0.0.0"})
        found[model] = (asked["listen"]["host"], [words for words in asked["warnings"] if "every address" in words])
    assert {model: said for model, said in found.items() if said != ("0.0.0.0", [])} == {}


@pytest.mark.parametrize("release", ["deepseek-r1", "deepseek-r1-2025.11"])
def test_what_a_script_opens_to_everybody_is_on_loopback(release: str) -> None:
    plan = vendor.plan_request(release, {"weights": "/models/DeepSeek-R1"})
    assert plan["listen"].items() >= {"host": "127.0.0.1", "port": 8688}.items()


@pytest.mark.parametrize("release", ["deepseek-r1", "deepseek-r1-2025.11"])
def test_a_release_with_a_number_of_its_own_takes_that_for_every_model(release: str) -> None:
    """The number in a model's file, or the fewest cards, are for releases that leave the choice."""
    for asked in ({}, {"tensor_parallel_size": "auto"}):
        plan = vendor.plan_request(release, {"model": "bge-m3", **asked})
        assert len(plan["modules"]) == 8
    assert vendor.plan_request(release, {"model": "bge-m3", "tensor_parallel_size": 1})["refused_id"] == (
        "card_count_fixed"
    )


# Those of the vendor's document; a further one may be warmed up otherwise.
POOLING = (
    "bge-large-zh-v1.5",
    "bge-m3",
    "bge-reranker-large",
    "bge-reranker-v2-m3",
    "gte-modernbert-base",
    "gte-reranker-modernbert-base",
)


def test_prompt_batches_that_are_warmed_up_can_occur(subtests: pytest.Subtests) -> None:
    for model in POOLING:
        with subtests.test(model=model):
            plan = vendor.plan_request("1.22", {"model": model, "instance": "x"})
            assert plan["environment"]["VLLM_PROMPT_BS_BUCKET_MAX"] == "8"
            assert vendor.options(plan["arguments"])["--max-num-prefill-seqs"] == "8"
            assert plan["buckets"]["prompt_bs"][-1] == 8
            assert not any("VLLM_PROMPT_BS_BUCKET_MAX" in sentence for sentence in plan["warnings"])


def test_batches_beyond_the_prefill_limit_are_said() -> None:
    request = {"weights": "/models/x", "extra_environment": {"VLLM_PROMPT_BS_BUCKET_MAX": "8"}}
    plan = vendor.plan_request("1.22", request)
    assert any("VLLM_PROMPT_BS_BUCKET_MAX is 8" in sentence for sentence in plan["warnings"])
    plan = vendor.plan_request("1.22", {**request, "max_num_prefill_seqs": 8})
    assert not any("VLLM_PROMPT_BS_BUCKET_MAX" in sentence for sentence in plan["warnings"])


RANGES = {"input_range": [800, 4096], "output_range": [800, 2048]}


@pytest.mark.parametrize("release", ["1.22", "1.22-2025.11"])
def test_ranges_that_fill_the_length_they_make_are_said(release: str) -> None:
    """As in the manual's own command for QwQ-32B: 4096 + 2048 is 48 blocks to the token."""
    exact = vendor.plan_request(release, {"weights": "/models/QwQ-32B", **RANGES})
    assert any("chat template" in sentence and "6144" in sentence for sentence in exact["warnings"])
    loose = vendor.plan_request(release, {"weights": "/models/QwQ-32B", **RANGES, "output_range": [800, 2000]})
    assert not any("chat template" in sentence for sentence in loose["warnings"])


@pytest.mark.parametrize("release", ["1.21", "1.22", "1.22-2025.11"])
@pytest.mark.parametrize("asked", [{}, {"max_model_len": 4096}])
def test_a_length_of_the_defaults_has_one_advice(release: str, asked: dict[str, int]) -> None:
    """One sentence to raise it and one to lower it leave a reader with neither."""
    for weights in ("/models/QwQ-32B", "/models/x"):
        plan = vendor.plan_request(release, {"weights": weights, **asked})
        assert len([sentence for sentence in plan["warnings"] if sentence.startswith("max_model_len")]) <= 1


@pytest.mark.parametrize("release", ["deepseek-r1", "deepseek-r1-2025.11"])
def test_a_padding_limit_counts_on_the_deepseek_releases(release: str) -> None:
    """The extension that goes with the fork's commit reads it (pull request 379)."""
    graphs = [
        vendor.plan_request(release, {"weights": "/models/DeepSeek-R1", "padding_limit": limit})["buckets"]["graphs"]
        for limit in (0, 0.1, 0.25, 0.5)
    ]
    assert graphs == sorted(set(graphs), reverse=True)


@pytest.mark.parametrize(
    ("length", "seq", "block"),
    [
        # Inside the block of the shortest input: that whole block.
        (100, "128", "128"),
        (4, "128", "128"),
        (128, "128", "128"),
        # As the script has it, with a warning where it is no whole block.
        (4000, "4000", "128"),
        (4096, "4096", "128"),
    ],
)
def test_a_partial_warm_up_of_short_requests(length: int, seq: str, block: str) -> None:
    request = {"weights": "/models/QwQ-32B", "partial_warmup": {"max_num_seqs": 1, "max_seq_len": length}}
    plan = vendor.plan_request("1.21", request)
    assert plan["environment"]["VLLM_PROMPT_SEQ_BUCKET_MAX"] == seq
    assert plan["environment"]["VLLM_DECODE_BLOCK_BUCKET_MAX"] == block
    assert plan["buckets"]["prompt_seq"][-1] == int(seq) // 128 * 128
    warned = any("partial_warmup.max_seq_len" in sentence for sentence in plan["warnings"])
    assert warned == (int(seq) % 128 != 0)


def test_a_partial_warm_up_below_the_shortest_input_is_refused_by_its_own_name() -> None:
    request = {
        "weights": "/models/QwQ-32B",
        "input_range": [4096, 16384],
        "partial_warmup": {"max_num_seqs": 1, "max_seq_len": 2048},
    }
    refused = vendor.plan_request("1.21", request)["refused"]
    assert "partial_warmup.max_seq_len is 2048" in refused
    assert "4096" in refused
    assert "VLLM_" not in refused
    # Blocks never end below the fewest a shortest input takes.
    tight = {**request, "input_range": [16385, 20480], "output_range": [1, 1], "max_model_len": 20608}
    tight = {**tight, "max_num_batched_tokens": 20608, "partial_warmup": {"max_num_seqs": 1, "max_seq_len": 16385}}
    environment = vendor.plan_request("1.21", tight)["environment"]
    assert environment["VLLM_DECODE_BLOCK_BUCKET_MAX"] == environment["VLLM_DECODE_BLOCK_BUCKET_MIN"] == "256"


def long_inputs(release: str, **options: object) -> list[str]:
    plan = vendor.plan_request(release, {"weights": "/models/QwQ-32B", **options})
    assert "refused" not in plan, plan
    return [sentence for sentence in plan["warnings"] if "compile at run time" in sentence]


@pytest.mark.parametrize(("model", "graphs"), [("llama-2-7b", 75), ("mistral-7b-instruct-v0.3", 224)])
def test_1_18_warms_up_what_the_pinned_server_does_by_itself(model: str, graphs: int) -> None:
    """Counted with _setup_buckets and generate_*_buckets of vllm-fork 84922944d for the plan's KV blocks."""
    ((_, plan),) = canonical_plans.plans(model, {f"{model} 1.18 HL-225"})
    assert plan["buckets"]["graphs"] == graphs
    assert not [name for name in plan["environment"] if "_BUCKET_" in name]
    (sentence,) = [sentence for sentence in plan["warnings"] if "compile at run time" in sentence]
    assert "VLLM_PROMPT_SEQ_BUCKET_MAX" in sentence
    assert "VLLM_DECODE_BLOCK_BUCKET_MAX" in sentence


def test_1_18_warns_of_nothing_where_the_longest_prompt_has_a_bucket() -> None:
    wide = {"extra_environment": {"VLLM_PROMPT_SEQ_BUCKET_MAX": "8192"}}
    assert long_inputs("1.18", max_model_len=8192, max_num_batched_tokens=8192, **wide) == []
    assert long_inputs("1.18", max_model_len=1024) == []


def test_inputs_that_no_bucket_holds_are_said() -> None:
    # The manual's own command: 8192 tokens are taken, inputs of 1152 warmed up.
    sizes = {"max_model_len": 8192, "max_num_batched_tokens": 8192}
    ranges = {"input_range": [800, 1024], "output_range": [400, 512]}
    (sentence,) = long_inputs("1.21", **sizes, **ranges)
    assert "8192" in sentence
    assert "1152" in sentence
    variable = {"extra_environment": {"VLLM_PROMPT_SEQ_BUCKET_MAX": "2048"}}
    (sentence,) = long_inputs("1.22", max_model_len=16384, **variable)
    assert "2048" in sentence


@pytest.mark.parametrize("release", ["1.22", "1.22-2025.11"])
def test_a_length_made_of_the_ranges_takes_no_longer_inputs(release: str) -> None:
    assert long_inputs(release, **RANGES) == []
    assert long_inputs(release, max_model_len=8192) == []


@pytest.mark.parametrize("release", ["deepseek-r1", "deepseek-r1-2025.11"])
def test_a_server_that_warms_up_its_whole_length_has_none(release: str) -> None:
    assert long_inputs(release, max_model_len=8192, max_num_batched_tokens=8192) == []


def test_another_way_of_building_is_planned_with_its_own_numbers() -> None:
    model = {"model": "llama-2-7b"}
    own = vendor.plan_request("1.18", model, image={"build": True})
    upstream = vendor.plan_request("1.18", model, image={"build": True, "way": "upstream"})
    assert own["memory"]["graphs_gib"] > 3 * upstream["memory"]["graphs_gib"]
    assert (own["buckets"]["decode_bs"][0], upstream["buckets"]["decode_bs"][:3]) == (32, [1, 2, 4])
    assert not [words for words in own["warnings"] if "serving_image_way" in words]
    assert [words for words in upstream["warnings"] if "main, 2025-03-24" in words]
    main = vendor.plan_request("1.22", {"model": "qwen3-8b"}, image={"build": True, "way": "habana_main"})
    assert [words for words in main["warnings"] if "habana_main" in words]


@pytest.mark.parametrize(
    ("release", "way", "variable", "read"),
    [
        ("1.22", "habana_main", "VLLM_ZERO_PADDING", False),
        ("1.22", "habana_main", "VLLM_MERGED_PREFILL", True),
        ("1.18", "upstream", "VLLM_INSTANCE_ID", False),
    ],
)
def test_another_way_has_the_variables_of_its_own_pins(release: str, way: str, variable: str, *, read: bool) -> None:
    model = "qwen3-8b" if release == "1.22" else "llama-2-7b"
    for asked in ({}, {"extra_environment": {variable: "true"}}):
        other = vendor.plan_request(release, {"model": model, **asked}, image={"build": True, "way": way})
        assert (variable in other["environment"]) is (read and bool(asked))
        said = any(variable in words for words in other["warnings"])
        assert said is (bool(asked) and not read)


def test_another_way_has_the_arguments_of_its_own_pins() -> None:
    asked = {"model": "llama-2-7b", "extra_args": ["--weights-load-device", "cpu"]}
    assert "refused" not in vendor.plan_request("1.18", asked, image={"build": True})
    other = vendor.plan_request("1.18", asked, image={"build": True, "way": "upstream"})
    assert "--weights-load-device" in other["refused"]
    guessing = {"model": "llama-2-7b", "extra_args": ["--speculative-model", "[ngram]"]}
    assert (
        "--speculative-model"
        in vendor.plan_request("1.18", guessing, image={"build": True, "way": "upstream"})["refused"]
    )


def test_another_way_has_the_classes_of_its_own_pins() -> None:
    config = {**vendor.content("models", "qwen2.5-vl-7b-instruct")["architecture"], "model_type": "qwen2_5_vl"}
    request = {
        "weights": "/models/x",
        "model_config": {**config, "architectures": ["Qwen2_5_VLForConditionalGeneration"]},
    }
    asked = {**request, "max_model_len": 8192}
    own = vendor.plan_request("1.18", asked, image={"build": True})
    assert own["refused_id"] == "unsupported_architecture"
    assert "refused" not in vendor.plan_request("1.18", asked, image={"build": True, "way": "upstream"})
    mamba = {"weights": "/models/x", "model_config": {"architectures": ["MambaForCausalLM"], "model_type": "mamba"}}
    ended = vendor.plan_request("1.18", mamba, image={"build": True, "way": "upstream"})
    assert "vllm._C" in ended["refused"]
    shown = {"model": "qwen3-vl-32b-instruct", "tensor_parallel_size": 4}
    main = vendor.plan_request("1.22", shown, image={"build": True, "way": "habana_main"})
    assert any("no class of its own" in words for words in main["warnings"])
