"""Command lines of servers, and what of them is fetched from a hub."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible.module_utils.gaudi.base import command_line
from ansible.module_utils.gaudi.base.command_line import hub_ids, options, plugins_in, runs_code, trusts_code
from ansible.module_utils.gaudi.serving.known_settings import HARMLESS_OPTIONS
from ansible.module_utils.gaudi.serving.openness import TRUSTED_WITH_VALUE
from hypothesis import given
from hypothesis import strategies as st

from tests.golden.plan_checks import entry
from tests.unit.planning.test_releases import RELEASES

SERVER = ["python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "/data/models/Big"]


def plan(*words: str, **environment: str) -> dict[str, Any]:
    return {"arguments": [*SERVER, *words], "environment": environment}


def test_options_have_their_values_in_order_whatever_their_spelling() -> None:
    words = ["vllm", "serve", "x", "--served_model_name", "a", "/b", "--seed=1", "-tp", "2", "--x.y_z", "-1", "--x={}"]
    assert options(words) == {
        "": ["vllm", "serve", "x"],
        "--served-model-name": ["a", "/b"],
        "--seed": ["1"],
        "--tensor-parallel-size": ["2"],
        "--x": [".y_z", "-1", "{}"],
    }


def test_a_value_may_follow_a_short_name_of_one_letter_at_once() -> None:
    assert options(["--seed", "1", "-O3"]) == {"": [], "--seed": ["1"], "--compilation-config": ["3"]}
    assert options(['-O{"level": 3}', "-n2"]) == {"": [], "--compilation-config": ['{"level": 3}'], "--nnodes": ["2"]}


@pytest.mark.parametrize("release", RELEASES)
def test_every_short_name_of_a_release_has_a_long_one(release: str) -> None:
    short = [name for name in entry(release).arguments if not name.startswith("--")]
    for name in short:
        _, *found = options([name, "1"])
        assert [each[:2] for each in found] == ["--"]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--model", "owner/name"], ["owner/name"]),
        (["--model=s3://bucket/x"], ["s3://bucket/x"]),
        (["--tokenizer", "owner/tokens"], ["owner/tokens"]),
        (["--hf_config_path=owner/config"], ["owner/config"]),
        (["--generation-config", "owner/generation"], ["owner/generation"]),
        (["--speculative-config", '{"method": "eagle3", "model": "owner/draft"}'], ["owner/draft"]),
        (["--speculative-config.model", "owner/draft"], ["owner/draft"]),
        (["-sc", '{"model": "owner/draft"}'], ["owner/draft"]),
        (["-sc.model", "owner/draft"], ["owner/draft"]),
        (['-sc={"tokenizer": "owner/tokens"}'], ["owner/tokens"]),
        (["--speculative-model", "owner/draft"], ["owner/draft"]),
        (["--spec-model=owner/draft"], ["owner/draft"]),
        (["--lora-modules", "a=/data/a", "b=owner/b", '{"name": "c", "path": "owner/c"}'], ["owner/b", "owner/c"]),
        (["--default-mm-loras", '{"image": "owner/pictures"}'], ["owner/pictures"]),
        (["--qlora-adapter-name-or-path", "owner/q"], ["owner/q"]),
        (["--models", "/data/models/One", "owner/two"], ["owner/two"]),
        (["--hf-overrides", '{"text_model_id": "owner/llm", "audio_model_id": "/data/w"}'], ["owner/llm"]),
        (["--hf-overrides.audio_model_id", "owner/sounds"], ["owner/sounds"]),
        (["--speculative-config", '{"method": "ngram", "model": "[ngram]", "num_speculative_tokens": 3}'], []),
        (["--speculative-config", '{"model": "/data/models/Draft"}'], []),
        (["--served-model-name", "owner/name", "--generation-config", "vllm", "--lora-modules", "a=/data/a"], []),
    ],
)
def test_what_the_server_fetches_by_itself_is_found(words: list[str], found: list[str]) -> None:
    assert hub_ids(plan(*words)) == found


def test_hub_ids_are_found_in_the_environment_and_behind_serve() -> None:
    assert hub_ids(plan(VLLM_LORA_RESOLVER_HF_REPO_LIST="owner/a,owner/b")) == ["owner/a", "owner/b"]
    assert hub_ids({"arguments": ["vllm", "serve", "owner/name", "--seed", "1"]}) == ["owner/name"]
    assert hub_ids({"arguments": ["vllm", "serve", "/data/models/Big"]}) == []


@pytest.mark.parametrize("word", ["--trust-remote-code", "--trust_remote_code", "--trust-remote-code=true"])
def test_every_spelling_lets_code_run(word: str) -> None:
    assert runs_code(plan(word))
    assert not runs_code(plan("--served-model-name", "trust-remote-code"))


PLUGIN = "/models/x/parser.py"


@pytest.mark.parametrize(
    "words",
    [
        ["--tool-parser-plugin", PLUGIN],
        [f"--tool_parser_plugin={PLUGIN}"],
        ["--reasoning-parser-plugin", PLUGIN],
        ["--structured-outputs-config", json.dumps({"reasoning_parser_plugin": PLUGIN})],
        ["--structured-outputs-config.reasoning_parser_plugin", PLUGIN],
        ["--tool-parser-plugin", "x/parser.py"],
        ["--tool-parser-plugin", "/elsewhere/../models/x/parser.py"],
    ],
)
def test_a_plugin_beside_the_weights_is_code_of_them(words: list[str]) -> None:
    mount = {"source": "/data/x", "target": "/models/x", "read_only": True}
    container = {"mounts": [mount], "working_directory": "/models"}
    made = {"arguments": words, "requires": {"weights_path": "/data/x"}, "container": container}
    assert (runs_code(made), trusts_code(made), plugins_in(made)) == (True, False, ["/data/x"])
    # In another directory of the node it is that of the site; one of the image is in none.
    assert not runs_code({**made, "requires": {"weights_path": "/data/y"}})
    assert plugins_in({**made, "container": {**container, "mounts": []}}) == []


def test_each_option_of_a_plugin_counts_as_one_that_opens_something() -> None:
    assert set(command_line.PLUGINS) <= set(TRUSTED_WITH_VALUE)
    assert not set(command_line.PLUGINS_IN_JSON) & HARMLESS_OPTIONS


@given(st.none() | st.integers() | st.text() | st.lists(st.text() | st.integers() | st.none()))
def test_any_arguments_are_read(arguments: Any) -> None:
    assert isinstance(options(arguments), dict)
    assert all(isinstance(found, str) for found in hub_ids({"arguments": arguments, "environment": arguments}))
