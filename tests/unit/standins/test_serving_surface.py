"""The front's command line: a release's arguments and variables pass, all others are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from gaudi_simulated import surface
from hypothesis import given
from hypothesis import strategies as st

SURFACES = Path(surface.__file__).parent.parent / "surface"
RELEASES = sorted(path.stem for path in SURFACES.glob("*.json") if path.stem not in ("common", "buckets"))
R122 = surface.load(SURFACES, "1.22")

BUCKETS = [
    f"VLLM_{dimension}_BUCKET_{part}"
    for dimension in ("PROMPT_BS", "PROMPT_SEQ", "DECODE_BS", "DECODE_BLOCK")
    for part in ("MIN", "STEP", "MAX")
]


@pytest.mark.parametrize("release", RELEASES)
def test_every_release_knows_what_every_start_sets(release: str) -> None:
    known = surface.load(SURFACES, release)
    everywhere = ["HABANA_VISIBLE_DEVICES", "HABANA_VISIBLE_MODULES", "HLS_MODULE_ID", "PT_HPU_LAZY_MODE"]
    assert surface.unknown_variables(known, dict.fromkeys(everywhere, "1")) == []
    # Buckets came after 1.16.
    unknown = surface.unknown_variables(known, dict.fromkeys(BUCKETS, "1"))
    assert unknown == (sorted(BUCKETS) if release == "1.16" else [])
    surface.parse(known, ["--model", "/m", "--port", "1", "-tp", "2", "--trust-remote-code"])


def test_a_surface_says_how_its_server_warms_up() -> None:
    known = {release: surface.load(SURFACES, release) for release in RELEASES}
    assert [release for release, found in known.items() if not found.has_buckets] == ["1.16"]
    with_limits = {"1.22", "1.22-2025.11", "deepseek-r1", "deepseek-r1-2025.11"}
    assert {release for release, found in known.items() if found.reads_padding_limits} >= with_limits
    assert not known["1.18"].reads_padding_limits
    assert {known[release].warmup_lines for release in ("1.22", "1.22-2025.11")} == {"1.22"}


def test_releases_differ() -> None:
    assert surface.unknown_variables(R122, {"VLLM_PROMPT_SEQ_BUCKET_LIMIT": "0.25"}) == []
    older = surface.load(SURFACES, "1.21")
    assert surface.unknown_variables(older, {"VLLM_PROMPT_SEQ_BUCKET_LIMIT": "0.25"}) == [
        "VLLM_PROMPT_SEQ_BUCKET_LIMIT"
    ]
    assert "VLLM_EP_SIZE" in older.environment
    assert surface.unknown_variables(R122, {"VLLM_EP_SIZE": "4"}) == ["VLLM_EP_SIZE"]


@given(st.from_regex(r"\A(VLLM|PT_HPU|HABANA|HCCL)_[A-Z]{3,12}\Z"))
def test_a_variable_of_the_family_is_known_or_refused(name: str) -> None:
    assert bool(surface.unknown_variables(R122, {name: "x"})) == (name not in R122.environment)


def test_variables_of_others_are_none_of_its_business() -> None:
    assert (
        surface.unknown_variables(R122, {"PATH": "/bin", "PYTHONPATH": "/x", "HF_HOME": "/y", "OMPI_MCA_z": "1"}) == []
    )


def test_a_real_command_line_is_understood() -> None:
    command = surface.parse(
        R122,
        [
            *("--host", "127.0.0.1", "--port=30001", "--model", "/data/models/QwQ-32B", "--max_model_len", "6144"),
            *("--served-model-name", "qwq", "QwQ-32B", "--use-padding-aware-scheduling", "--dtype", "bfloat16"),
            *("--enable-expert-parallel", "--disable-log-requests", "--middleware", "a.B", "--middleware", "c.D"),
            *("--seed", "-1", "--limit-mm-per-prompt", '{"image": 5}', "--no-enable-prefix-caching", "-tp", "2"),
        ],
    )
    assert command.values["--served-model-name"] == ["qwq", "QwQ-32B"]
    assert command.values["--middleware"] == ["a.B", "c.D"]
    assert command.text("--use-padding-aware-scheduling") == "true"
    assert command.text("--enable-prefix-caching") == "false"
    assert command.number("--max-model-len", 0) == 6144
    assert command.number("--tensor-parallel-size", 1) == 2
    assert command.text("--seed") == "-1"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--bogus"], "unrecognized arguments: --bogus"),
        (["--bogus=1", "word"], "unrecognized arguments: --bogus=1 word"),
        (["--model", "/m", "word"], "unrecognized arguments: word"),
        (["--model"], "argument --model: expected one argument"),
        (["--model", "--port", "1"], "argument --model: expected one argument"),
        (["--port", "http"], "argument --port: invalid int value: 'http'"),
        (["-tp", "two"], "argument --tensor-parallel-size/-tp: invalid int value: 'two'"),
        (["--gpu-memory-utilization", "much"], "invalid float value: 'much'"),
        (["--trust-remote-code=yes"], "argument --trust-remote-code: ignored explicit argument 'yes'"),
        (["--uvicorn-log-level", "loud"], "invalid choice: 'loud'"),
        (["--max-num-prefill-seqs", "--max-num-batched-tokens", "1"], "--max-num-prefill-seqs: expected one argument"),
    ],
)
def test_what_argparse_refuses_is_refused_in_its_words(arguments: list[str], message: str) -> None:
    with pytest.raises(surface.UsageError) as refusal:
        surface.parse(R122, arguments)
    assert message in str(refusal.value)


@pytest.mark.parametrize("release", ["1.23", "1.24", "1.24.1"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--no-headless"], "unrecognized arguments: --no-headless"),
        (["--no-aggregate-engine-logging"], "unrecognized arguments: --no-aggregate-engine-logging"),
        (["--speculative-config", "ngram"], "argument --speculative-config"),
        (["--hf-overrides", "{no}"], "argument --hf-overrides: Value {no} cannot be converted to <function loads"),
        (
            ["--override-generation-config", "{'a': 1}"],
            "argument --override-generation-config: Value {'a': 1} cannot be converted to <function loads",
        ),
        (
            ["--num-gpu-blocks-override", "many"],
            "argument --num-gpu-blocks-override: Value many cannot be converted to <class 'int'>.",
        ),
        (["--kv-cache-memory-bytes", "4X"], "argument --kv-cache-memory-bytes: Value 4X cannot be converted"),
        (["--max-num-seqs", "None"], "argument --max-num-seqs: "),
    ],
)
def test_the_plugins_servers_hold_values_against_types(release: str, arguments: list[str], message: str) -> None:
    with pytest.raises(surface.UsageError) as refusal:
        surface.parse(surface.load(SURFACES, release), arguments)
    assert message in str(refusal.value)


@pytest.mark.parametrize("release", ["1.23", "1.24", "1.24.1"])
def test_the_plugins_servers_take_values_of_their_types(release: str) -> None:
    words = [
        "--hf-overrides",
        "module.function",
        "--speculative-config",
        '{"method": "ngram"}',
        "--no-enable-prefix-caching",
    ]
    words += ["--kv-cache-memory-bytes", "1.5G", "--num-gpu-blocks-override", "9", "--num-gpu-blocks-override", "None"]
    command = surface.parse(surface.load(SURFACES, release), words)
    assert command.text("--speculative-config") == '{"method": "ngram"}'
    assert command.text("--enable-prefix-caching") == "false"
    assert "--num-gpu-blocks-override" not in command.values


@given(st.lists(st.text(min_size=1, max_size=12), max_size=8))
def test_any_words_are_parsed_or_refused_and_nothing_else(words: list[str]) -> None:
    try:
        surface.parse(R122, words)
    except surface.UsageError as refusal:
        assert str(refusal)
