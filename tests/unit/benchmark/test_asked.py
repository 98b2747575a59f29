"""What a benchmark asks of an instance: the client of its release, with what that takes, and no more than fits."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.benchmark import asked

from plugin_utils import releases
from tests.unit.benchmark.made import DIGEST, plan, release
from tests.unit.planning.test_many import plans


def described(name: str = "1.22", *concurrency: int, **given: Any) -> dict[str, Any]:
    changes = given.pop("changes", {})
    load = asked.BenchmarkLoad(concurrency or (1, 4), **given)
    document: dict[str, Any] = asked.describe(
        plan(name, **changes), DIGEST, asked.BenchmarkClient.of_release(release(name)), load
    )
    return document


def value(words: list[str], option: str) -> str:
    return words[words.index(option) + 1]


def refused(*given: Any, **load: Any) -> tuple[str, str]:
    with pytest.raises(Refusal) as caught:
        described(*given, **load)
    return caught.value.id, str(caught.value)


@pytest.mark.parametrize("name", ["1.21", "1.22", "1.24.1"])
def test_later_releases_are_asked_with_vllm_bench_serve(name: str) -> None:
    document = described(name, 16, 1)
    assert document["program"] == "vllm"
    first, second = document["steps"]
    # From few to many, whatever was typed.
    assert (first["concurrency"], second["concurrency"]) == (1, 16)
    assert (first["requests"], second["requests"]) == (4, 64)
    words = second["arguments"]
    assert words[:2] == ["bench", "serve"]
    assert value(words, "--base-url") == "http://127.0.0.1:30001"
    assert value(words, "--max-concurrency") == "16"
    assert value(words, "--num-prompts") == "64"
    assert (value(words, "--random-input-len"), value(words, "--random-output-len")) == ("1024", "128")
    assert "--ignore-eos" in words
    assert value(words, "--tokenizer") == "/models/x"
    assert value(words, "--model") == plan(name)["served_model_name"]


@pytest.mark.parametrize("name", ["1.16", "1.18", "deepseek-r1"])
def test_earlier_ones_with_the_script_of_the_checkout_and_what_it_takes(name: str) -> None:
    document = described(name, 1, 8, input_tokens=800)
    assert document["program"] == release(name)["fork_directory"] + "/benchmarks/benchmark_serving.py"
    words = document["steps"][1]["arguments"]
    assert words[0] == "--base-url"
    several = name == "deepseek-r1"
    assert ("--max-concurrency" in words, "--ignore-eos" in words) == (several, several)
    # Without a limit a burst of as many is what is at a time.
    assert document["steps"][1]["requests"] == (32 if several else 8)
    if name == "1.16":
        assert document["own_prompts"]
        assert value(words, "--dataset-name") == "sharegpt"
        assert value(words, "--sharegpt-output-len") == "128"
        assert "--random-input-len" not in words
    else:
        assert not document["own_prompts"]
        assert value(words, "--dataset-name") == "random"


def test_every_release_of_the_catalogue_names_its_client() -> None:
    for name in releases.names():
        client = asked.BenchmarkClient.of_release(release(name))
        assert client is not None, name
        if client.program != "vllm":
            assert client.program.startswith("/"), name


def test_the_container_has_the_walls_of_the_servers_and_no_card() -> None:
    secret = {"source": "/etc/keys", "target": "/run/gaudi-serving/keys", "read_only": True}
    cache = {"source": "/data/cache", "target": "/cache", "read_only": False}
    weights = {"source": "/models/x", "target": "/models/x", "read_only": True}
    made = plan()
    box = {**made["container"], "name": "vllm-chat", "mounts": [secret, cache, weights]}
    container = described(changes={"container": box})["container"]
    assert container["name"] == "bench-chat"
    assert container["mounts"] == [weights]
    assert (container["network"], container["pids"]) == (box["network"], box["pids"])
    assert container["environment"]["HF_HUB_OFFLINE"] == "1"
    assert container["environment"]["HF_MODULES_CACHE"].startswith("/dev/null/")
    # Docker gives each container the proxies of root's ~/.docker/config.json, but for variables that it is told.
    assert {container["environment"][name] for name in ("no_proxy", "NO_PROXY")} == {"*"}
    assert "runtime" not in container
    assert not [name for name in container["environment"] if "VISIBLE" in name]


def test_lengths_fit_the_model_where_nobody_names_any() -> None:
    room = described(changes={"arguments": ["serve", "--max_model_len", "256"]})
    assert (room["input_tokens"], room["output_tokens"]) == (96, 64)
    equals = described(changes={"arguments": ["serve", "--max-model-len=8192"]})
    assert (equals["input_tokens"], equals["output_tokens"]) == (1024, 128)
    wished = described(input_tokens=100, output_tokens=20)
    assert (wished["input_tokens"], wished["output_tokens"]) == (100, 20)


def test_what_is_asked_is_said_in_a_sentence() -> None:
    assert asked.said(described("1.22", 1, 4)) == (
        "chat (/models/x, release 1.22) is asked at http://127.0.0.1:30001: 4 with 1 at a time, 16 with 4 at a time; "
        "1024 tokens of input and 128 of output each."
    )


@pytest.mark.parametrize(
    ("given", "load", "said"),
    [
        (
            ("1.22", *range(1, 258)),
            {},
            (
                "not_a_concurrency",
                "bench_concurrency names no number, more than 256, or one twice; 1,4,16 are three.",
            ),
        ),
        (("1.22", 4097), {}, ("out_of_range", "bench_concurrency has 4097; 1 to 4096 are possible.")),
        (("1.22", 0, 1), {}, ("out_of_range", "bench_concurrency has 0; 1 to 4096 are possible.")),
        (("1.22", 2, 2), {}, ("not_a_concurrency", "one twice")),
        (("1.22", 1), {"input_tokens": -1}, ("out_of_range", "bench_input_tokens has -1; 0 to 1000000")),
        (("1.22", 1), {"requests": 100_001}, ("out_of_range", "bench_requests has 100001")),
        (("1.22", 8), {"requests": 4}, ("too_few_requests", "4 requests are never 8 at a time")),
        (("1.22", 1), {"input_tokens": 4000}, ("longer_than_model", "more than the 4096 that chat has")),
        (("1.18", 1), {"requests": 4}, ("one_burst", "sends all requests at once")),
        (("1.16", 1), {"input_tokens": 1024}, ("prompts_left_out", "at most 900 with bench_input_tokens")),
        (("1.22", 1), {"changes": {"task": "embed"}}, ("no_tokens_to_measure", "answers with numbers (embed)")),
    ],
)
def test_what_cannot_be_measured_is_refused(
    given: tuple[Any, ...], load: dict[str, Any], said: tuple[str, str]
) -> None:
    found, sentence = refused(*given, **load)
    assert found == said[0]
    assert said[1] in sentence


def test_a_release_that_names_no_client_is_refused() -> None:
    with pytest.raises(Refusal, match="names no benchmark client"):
        asked.describe(plan(), DIGEST, asked.BenchmarkClient.of_release({}), asked.BenchmarkLoad((1,)))


def test_what_was_typed_is_read_as_numbers() -> None:
    assert asked.concurrencies(["1", " 16 "]) == (1, 16)
    for wrong in ("x", "1.5", "-1", "", "½"):
        with pytest.raises(Refusal, match="whole numbers such as 1,4,16 are possible") as caught:
            asked.concurrencies(["1", wrong])
        assert caught.value.id == "not_a_concurrency"
    with pytest.raises(Refusal):
        asked.BenchmarkLoad(asked.concurrencies([])).check()


@pytest.mark.parametrize("name", releases.names())
def test_the_tokenizer_of_a_hubs_weights_is_in_the_hubs_cache(name: str) -> None:
    (made,) = plans([{"instance": "chat", "weights": "Qwen/Qwen3-8B", "max_model_len": 1024}], name)
    load = asked.BenchmarkLoad((1,), input_tokens=64, output_tokens=8)
    document = asked.describe(made, DIGEST, asked.BenchmarkClient.of_release(release(name)), load)
    assert value(document["steps"][0]["arguments"], "--tokenizer") == "Qwen/Qwen3-8B"
    assert document["container"]["environment"]["HF_HOME"] in [
        item["target"] for item in document["container"]["mounts"]
    ]
