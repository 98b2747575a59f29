"""Hostile values end as a refused value or as exactly one argument, never as anything else."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
from ansible.module_utils.gaudi.base.places import normal
from ansible.module_utils.gaudi.base.values import BORROWER
from ansible.module_utils.gaudi.planning.many import plan_all
from ansible.module_utils.gaudi.request.options import OPTIONS
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.golden.serving_cases import vendor

NASTY = [
    "; rm -rf /",
    "$(reboot)",
    "`id`",
    "a\nb",
    "a\0b",
    "a\rb",
    "100%",
    "%n%i",
    "${HOME}",
    "--api-key=x",
    "-tp",
    "../../etc/shadow",
    "/models/../etc",
    "a'b\"c",
    "a:b",
    "a,b",
    "\u2028",
    "\ud800",
    "x" * (1 << 20),
    "",
    " ",
    "&& true",
    "| tee",
    "> /dev/sda",
    "{{ lookup('pipe', 'id') }}",
    "NaN",
    "1e309",
    "-1",
    "٣",
]
values = st.one_of(
    st.sampled_from(NASTY),
    st.text(max_size=40),
    st.integers(),
    st.floats(allow_nan=True, allow_infinity=True),
    st.booleans(),
    st.none(),
    st.lists(st.one_of(st.text(max_size=8), st.integers(-5, 300)), max_size=4),
    st.dictionaries(st.text(max_size=8), st.one_of(st.text(max_size=8), st.integers()), max_size=3),
)
RELEASES = ["1.16", "1.18", "1.21", "1.22", "1.22-2025.11", "deepseek-r1", "deepseek-r1-2025.11"]
RELEASES += ["1.23", "1.24.1"]


def check(plan: dict[str, Any]) -> None:
    """A refusal is one short line; a plan is one line a value and keeps the command line's shape."""
    if "refused" in plan:
        assert len(plan["refused"]) < 2000
        assert plan["refused"].isprintable()
        assert plan["refused"].endswith(".")
        return
    words = [*plan["arguments"], *plan["cpu_binding"], *plan["environment"], *plan["environment"].values()]
    words += [mount[side] for mount in plan["container"]["mounts"] for side in ("source", "target")]
    words += list(plan["container"]["environment"].values())
    for word in words:
        assert isinstance(word, str)
        assert not set(word) & {"\n", "\r", "\0"}
        word.encode()
    for mount in plan["container"]["mounts"]:
        for side in ("source", "target"):
            assert mount[side].startswith("/")
            assert not set(mount[side]) & set(':,"\\')
            assert ".." not in mount[side].split("/")
    assert plan["arguments"][:3] == ["python3", "-m", "vllm.entrypoints.openai.api_server"]
    json.dumps(plan)


EDGES = [("x" * (1 << 20), "1.22"), ("a\nb", "1.22"), ("$(reboot)", "1.21"), ("100%", "deepseek-r1")]


def test_every_option_with_the_worst_values(subtests: pytest.Subtests) -> None:
    for option, (value, release) in itertools.product(OPTIONS, EDGES):
        with subtests.test(option=option, value=value[:20]):
            check(vendor.plan_request(release, {"weights": "/models/QwQ-32B", option: value}))


@settings(max_examples=500, deadline=None)
@given(option=st.sampled_from(sorted(OPTIONS)), value=values, release=st.sampled_from(RELEASES))
def test_any_option_with_any_value(option: str, value: Any, release: str) -> None:
    check(vendor.plan_request(release, {"weights": "/models/QwQ-32B", option: value}))


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=60), st.sampled_from(RELEASES))
def test_a_weights_path_is_one_argument(name: str, release: str) -> None:
    path = f"/models/{name}"
    plan = vendor.plan_request(release, {"weights": path})
    check(plan)
    if "refused" not in plan:
        place = plan["arguments"].index("--model")
        assert plan["arguments"][place + 1] == normal(path)
        assert plan["arguments"].count("--model") == 1


@pytest.mark.parametrize("hostile", ["; rm -rf /", "$(reboot)", "`id`", "100%", "a b", "&& true", "|", "> x", "*"])
def test_what_a_shell_would_run_stays_a_part_of_a_path(hostile: str) -> None:
    plan = vendor.plan_request("1.22", {"weights": f"/models/{hostile}"})
    assert "refused" not in plan
    assert f"/models/{hostile}" in plan["arguments"]


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60))
def test_an_extra_argument_stays_one(value: str) -> None:
    plan = vendor.plan_request("1.22", {"weights": "/models/QwQ-32B", "extra_args": ["--rope-scaling", value]})
    check(plan)
    if "refused" not in plan:
        assert plan["arguments"][-2:] == ["--rope-scaling", value]


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60), st.text(max_size=60))
def test_a_variable_stays_one(name: str, value: str) -> None:
    plan = vendor.plan_request("1.22", {"weights": "/models/QwQ-32B", "extra_environment": {name: value}})
    check(plan)
    if "refused" not in plan and name in plan["environment"]:
        assert plan["environment"][name] == value


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.one_of(st.text(max_size=12), st.sampled_from(["max_num_seq", "gpu"])), values, min_size=1))
def test_an_unknown_option_is_refused_by_name(options: dict[str, Any]) -> None:
    unknown = {name: value for name, value in options.items() if name not in OPTIONS}
    plan = vendor.plan_request("1.22", {"weights": "/models/QwQ-32B", **unknown})
    check(plan)
    if unknown:
        assert "does not know" in plan["refused"]


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.sampled_from(["model_type", "num_attention_heads", "hidden_size", "x"]), values))
def test_any_model_config(config: dict[str, Any]) -> None:
    check(vendor.plan_request("1.22", {"weights": "/models/QwQ-32B", "model_config": config}))


@pytest.mark.parametrize(
    "variable",
    ["LD_PRELOAD", "PATH", "PYTHONPATH", "BASH_ENV", "VLLM_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY"],
)
def test_some_variables_are_no_settings(variable: str) -> None:
    plan = vendor.plan_request("1.22", {"weights": "/models/QwQ-32B", "extra_environment": {variable: "x"}})
    assert variable in plan["refused"]


@pytest.mark.parametrize("argument", ["--api-key", "--api_key=x", "--hf-token", "--model", "--port=1", "-tp", "-q"])
def test_some_arguments_are_not_for_extra_args(argument: str) -> None:
    plan = vendor.plan_request("1.18", {"weights": "/models/QwQ-32B", "extra_args": [argument, "x"]})
    assert "extra_args" in plan["refused"]


# Every option that takes free text, with a value that is right: what is put in its place must stay in its place.
TEXTS: dict[str, Any] = {
    "instance": "chat",
    "weights": "/models/right",
    "served_model_name": "right",
    "quantization_config": "/calib/right.json",
    "recipe_cache": "/data/right",
    "recipe_cache.directory": "/data/right",
    "host": "right.example",
    "extra_args": "right",
    "extra_environment": "right",
    "bucketing_file": "/data/right.txt",
}
# Options that take text of a fixed form, or none at all: no hostile word is one of theirs.
FORMS = {"model", "dtype", "ipc", "kv_cache_dtype", "graph_prompt_strategy", "graph_decode_strategy", "node_address"}
FORMS |= {"open_without_keys", "network_interface", "share_card_with", "modules", "model_config", "partial_warmup"}
FORMS |= {"bucketing_strategy", "speculative_config", "structured_outputs_config", "lora_modules"}
FORMS |= {"reasoning_parser", "tool_call_parser", "quantization", "limit_mm_per_prompt", "mm_processor_kwargs"}
NUMBERS = {"tensor_parallel_size", "max_model_len", "input_range", "output_range", "max_num_seqs", "block_size", "port"}
NUMBERS |= {"max_num_batched_tokens", "max_num_prefill_seqs", "max_seq_len_to_capture", "gpu_memory_utilization"}
NUMBERS |= {"data_parallel_size", "max_lora_rank", "max_loras", "num_gpu_blocks_override"}
NUMBERS |= {"padding_limit", "scheduler_steps", "graph_reserved_mem", "graph_prompt_ratio"}
SWITCHES = {"skip_warmup", "profile", "zero_padding", "fused_sdpa", "fp32_softmax", "enforce_eager", "lazy_mode"}
SWITCHES |= {"exponential_bucketing", "log_step_graph_compilation", "log_step_graph_compilation_all"}
SWITCHES |= {"log_step_cpu_fallbacks", "log_step_cpu_fallbacks_all", "metrics_gc_details", "trust_remote_code"}
SWITCHES |= {"guarded", "async_scheduling", "contiguous_pa", "enable_chunked_prefill", "enable_expert_parallel"}
SWITCHES |= {"enable_lora", "enable_prefix_caching"}


def with_text(option: str, text: str) -> dict[str, Any]:
    """A request whose option says a text."""
    request: dict[str, Any] = {"weights": "/models/QwQ-32B"}
    if option == "recipe_cache.directory":
        return {**request, "recipe_cache": {"directory": text}}
    if option == "extra_args":
        return {**request, "extra_args": ["--rope-theta", text]}
    if option == "extra_environment":
        return {**request, "extra_environment": {"VLLM_LOGGING_LEVEL": text}}
    return {**request, option: text}


def words_of(plan: dict[str, Any]) -> list[str]:
    """Everything of a plan that reaches a program, in order."""
    container = plan["container"]
    return [
        *plan["arguments"],
        *plan["cpu_binding"],
        *(word for pair in plan["environment"].items() for word in pair),
        *(word for pair in container["environment"].items() for word in pair),
        *(mount[side] for mount in container["mounts"] for side in ("source", "target")),
        str(container["name"]),
        plan["image"],
    ]


def test_every_option_is_of_one_kind() -> None:
    texts = {option.partition(".")[0] for option in TEXTS}
    assert texts | FORMS | NUMBERS | SWITCHES == set(OPTIONS)
    assert sum(map(len, (texts, FORMS, NUMBERS, SWITCHES))) == len(OPTIONS)


hostile = st.one_of(
    st.sampled_from(NASTY),
    st.sampled_from(NASTY).map(lambda text: f"/models/{text}"),
    st.sampled_from(NASTY).map(lambda text: f"right{text}right"),
    st.text(alphabet=st.sampled_from(" ;|&$`'\"\\%{}()<>*?!#~=-/.:,\n\r\t\0\x1b\u202eab"), max_size=30),
    st.text(max_size=30),
)


@pytest.mark.parametrize("option", TEXTS)
@settings(max_examples=60, deadline=None)
@given(text=hostile, release=st.sampled_from(RELEASES))
def test_a_hostile_text_stays_in_its_place(option: str, text: str, release: str) -> None:
    right = vendor.plan_request(release, with_text(option, TEXTS[option]))
    plan = vendor.plan_request(release, with_text(option, text))
    check(plan)
    if "refused" in plan or "refused" in right:
        return
    before, after = words_of(right), words_of(plan)
    said = normal(text) if text.startswith("/") else text
    if option.startswith("recipe_cache") and not text:
        # No cache: one variable and one mount less.
        assert len(after) < len(before)
        return
    # As many words as with the right text, and only those differ that say it.
    assert len(after) == len(before)
    folder = said.rpartition("/")[0]
    for old, new in zip(before, after, strict=True):
        if old != new:
            assert said in new or folder == new or said.rpartition("/")[2] in new, (old, new)


def test_no_instance_has_the_name_under_which_a_check_borrows_cards() -> None:
    assert f"not {BORROWER}" in vendor.plan_request("1.22", with_text("instance", BORROWER))["refused"]
    assert "refused" not in vendor.plan_request("1.22", with_text("instance", f"{BORROWER}-2"))


WORDS = ["; rm -rf /", "a\nb", "$(reboot)", "100%", "x" * (1 << 20), "\x1b[31m", "%n", "`id`"]
SHAPES: list[Callable[[str], Any]] = [str, lambda text: [text], lambda text: {text: text}]


def takes_none(option: str, value: Any) -> None:
    plan = vendor.plan_request("1.22", {"weights": "/models/QwQ-32B", option: value})
    check(plan)
    # The only mapping among them describes a model: keys that nobody knows are part of any config.json.
    assert "refused" in plan or (option == "model_config" and isinstance(value, dict))


def test_an_option_without_free_text_takes_no_hostile_one(subtests: pytest.Subtests) -> None:
    for option, shape in itertools.product(sorted(FORMS | NUMBERS | SWITCHES), SHAPES):
        with subtests.test(option=option):
            takes_none(option, shape(WORDS[0]))


@settings(max_examples=200, deadline=None)
@given(
    option=st.sampled_from(sorted(FORMS | NUMBERS | SWITCHES)),
    text=st.sampled_from(WORDS),
    shape=st.sampled_from(SHAPES),
)
def test_such_an_option_takes_no_other_hostile_text(option: str, text: str, shape: Callable[[str], Any]) -> None:
    takes_none(option, shape(text))


@settings(max_examples=100, deadline=None)
@given(registry=hostile, root=hostile)
def test_what_comes_with_the_request_stays_in_its_place_as_well(registry: str, root: str) -> None:
    (plan,) = plan_all(
        [{"model": "qwq-32b"}],
        vendor.catalogue("1.22", "qwq-32b"),
        vendor.topology("oam8"),
        weights_root=root,
        image_registry=registry,
    )
    check(plan)
    if "refused" not in plan:
        assert plan["image"].startswith(f"{registry or 'vault.habana.ai'}/gaudi-docker/")
        assert plan["image"].isascii()
        assert not set(plan["image"]) & set(" ;|&$`'\"%\n")
        assert plan["arguments"][plan["arguments"].index("--model") + 1] == f"{normal(root).rstrip('/')}/QwQ-32B"


@pytest.mark.parametrize("name", ["mirror.example", "mirror.example:5000", "mirror.example:5000/a/b_c", "10.0.0.5"])
def test_a_mirror_is_a_name_with_a_port_and_a_path(name: str) -> None:
    (plan,) = plan_all(
        [{"model": "qwq-32b"}],
        vendor.catalogue("1.22", "qwq-32b"),
        vendor.topology("oam8"),
        weights_root="/data/models",
        image_registry=name,
    )
    assert plan["image"].startswith(f"{name}/gaudi-docker/")
