"""Hostile values end as a refused value or as exactly one argument, never as anything else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible.module_utils.gaudi.places import normal
from ansible.module_utils.gaudi.request import OPTIONS
from hypothesis import example, given, settings
from hypothesis import strategies as st

from . import vendor

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


@pytest.mark.parametrize("option", OPTIONS)
@settings(max_examples=25, deadline=None)
@given(value=values, release=st.sampled_from(RELEASES))
@example(value="x" * (1 << 20), release="1.22")
@example(value="a\nb", release="1.22")
@example(value="$(reboot)", release="1.21")
@example(value="100%", release="deepseek-r1")
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
