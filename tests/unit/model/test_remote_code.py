"""Code beside the weights: run where the server needs it and somebody said so, refused by its option otherwise."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.catalogue.entries import ModelEntry
from ansible.module_utils.gaudi.model.headers import Weights
from ansible.module_utils.gaudi.model.remote_code import (
    BESIDE_LIMIT,
    CONFIG_LIMIT,
    Code,
    ForeignCode,
    code_of,
    config_in,
    foreign_code,
)
from ansible.module_utils.gaudi.node.report.weights import read_weights
from ansible.module_utils.gaudi.planning.many import plan_all
from ansible.module_utils.gaudi.serving.plan import kept_offline
from hypothesis import given
from hypothesis import strategies as st

from tests.golden.plan_checks import entry
from tests.golden.serving_cases import vendor
from tests.unit.planning.test_refusals import plan, sentence, warned
from tests.unit.planning.test_releases import RELEASES
from tests.unit.request.test_options import check

DEEPSEEK = {
    "model_type": "deepseek_v3",
    "architectures": ["DeepseekV3ForCausalLM"],
    "auto_map": {
        "AutoConfig": "configuration_deepseek.DeepseekV3Config",
        "AutoModel": "modeling_deepseek.DeepseekV3Model",
        "AutoModelForCausalLM": "modeling_deepseek.DeepseekV3ForCausalLM",
    },
}
STRANGE = {
    "model_type": "strange",
    "architectures": ["StrangeForCausalLM"],
    "auto_map": {"AutoConfig": "configuration_strange.StrangeConfig"},
}
FLAG = "--trust-remote-code"
# Without a Transformers backend, and with it.
OLD = ("1.16", "1.18")
NEW = [release for release in RELEASES if release not in OLD]


def lying(config: dict[str, Any]) -> Weights:
    """Weights on the node, with this config.json."""
    return Weights(bytes=1 << 30, parameters={"BF16": 1 << 29}, code=code_of(config))


def test_what_a_config_json_asks_for() -> None:
    files = ("configuration_deepseek.py", "modeling_deepseek.py")
    assert code_of(DEEPSEEK) == Code(files, "deepseek_v3", ("DeepseekV3ForCausalLM",))
    assert code_of({**DEEPSEEK, "auto_map": {}}).files == ()
    assert code_of({"model_type": "qwen3"}) == Code((), "qwen3", ())
    other = {"auto_map": {"AutoConfig": "somebody/else--configuration_x.X"}}
    assert code_of(other) == Code(("somebody/else--configuration_x.py",), None, ())


@pytest.mark.parametrize("release", OLD)
@pytest.mark.parametrize("permission", [{}, {"trust_remote_code": True}, {"trust_remote_code": False}])
@pytest.mark.parametrize("code", [{}, {"auto_map": STRANGE["auto_map"]}])
def test_a_release_without_transformers_backend_needs_a_class_of_its_own(
    release: str, permission: dict[str, Any], code: dict[str, Any]
) -> None:
    config = {"model_type": "llama", "architectures": STRANGE["architectures"], **code}
    for known in ({"files": lying(config)}, {"model_config": config}):
        answer = plan(release, **known, **permission)
        assert answer["refused_id"] == "unsupported_architecture"
        assert "no Transformers backend" in answer["refused"]
    llama = {**config, "architectures": ["LlamaForCausalLM"]}
    assert "refused" not in plan(release, files=lying(llama), **permission)


@pytest.mark.parametrize("release", NEW)
def test_code_that_nobody_spoke_of_is_refused_by_its_option(release: str) -> None:
    words = ["configuration_strange.py", f"release {release} has no class of its own for model_type 'strange'"]
    sentence(*words, "StrangeForCausalLM", "set trust_remote_code to true", release=release, files=lying(STRANGE))


@pytest.mark.parametrize(
    ("release", "name"),
    [
        ("1.23", "KimiK25ForConditionalGeneration"),
        ("1.23", "Llama_Nemotron_Nano_VL"),
        ("1.24.1", "LlavaOnevision2ForConditionalGeneration"),
    ],
)
@pytest.mark.parametrize("code", [{}, {"auto_map": STRANGE["auto_map"]}])
def test_a_class_of_the_release_that_runs_code_of_the_weights_needs_permission(
    release: str, name: str, code: dict[str, Any]
) -> None:
    files = lying({"model_type": "llama", "architectures": [name], **code})
    undecided = plan(release, files=files)
    assert undecided["refused_id"] == "remote_code_undecided"
    assert f"{release} runs code that comes with the weights for the architecture '{name}'" in undecided["refused"]
    assert plan(release, files=files, trust_remote_code=False)["refused_id"] == "remote_code_forbidden"
    assert FLAG in plan(release, files=files, trust_remote_code=True)["arguments"]


def test_what_a_request_says_counts() -> None:
    yes = plan(files=lying(STRANGE), trust_remote_code=True)
    assert FLAG in yes["arguments"]
    assert not warned(yes, "auto_map")
    no = {"files": lying(STRANGE), "trust_remote_code": False}
    sentence("configuration_strange.py", "trust_remote_code is false", "set trust_remote_code to true", **no)


@pytest.mark.parametrize("release", NEW)
def test_an_unknown_class_without_code_is_a_warning(release: str) -> None:
    plain = {"model_type": "llama", "architectures": STRANGE["architectures"]}
    words = ("the architecture 'StrangeForCausalLM'", f"release {release} has no class", "may not start")
    assert warned(plan(release, files=lying(plain)), *words)
    assert warned(plan(release, model_config=plain), *words)
    llama = {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
    assert not warned(plan(release, files=lying(llama)), "has no class")
    assert not warned(plan(release, files=lying({})), "has no class")


def test_a_config_json_that_lies_there_is_not_called_unknown() -> None:
    there = plan(files=lying({"model_type": "llama", "architectures": ["LlamaForCausalLM"]}))
    assert not warned(there, "Nothing is known")
    assert warned(there, "Of config.json beside 'something' only the classes it names are read", "model_config")
    assert warned(plan(files=Weights(bytes=1 << 30)), "Nothing is known of 'something' but its name")


@pytest.mark.parametrize("value", ["yes", "true", "True"])
def test_a_flag_said_twice_is_told_so(value: str) -> None:
    sentence(f"trust_remote_code is '{value}': both say the same", extra_args=[FLAG], trust_remote_code=value)
    sentence("trust_remote_code is false. Keep one", extra_args=[FLAG], trust_remote_code=False)


@pytest.mark.parametrize(
    ("release", "missing"),
    [
        ("1.21", None),
        ("1.22", None),
        # Its vLLM has the model's class, but neither it nor its transformers (below 4.49) a configuration.
        ("deepseek-r1", "model_type 'deepseek_v3'"),
        ("deepseek-r1-2025.11", "model_type 'deepseek_v3'"),
    ],
)
def test_classes_of_the_releases_own_need_no_code(release: str, missing: str | None) -> None:
    if missing is None:
        answer = plan(release, files=lying(DEEPSEEK))
        assert "refused" not in answer, answer
        assert FLAG not in answer["arguments"]
        assert not warned(answer, "auto_map")
        return
    sentence(f"no class of its own for {missing}.", release=release, files=lying(DEEPSEEK))


def test_a_known_configuration_of_an_unknown_class_needs_its_code() -> None:
    llama = {**STRANGE, "model_type": "llama"}
    sentence("no class of its own for the architecture 'StrangeForCausalLM'.", files=lying(llama))
    sentence("the architecture (none is named).", files=lying({**llama, "architectures": None}))


def test_a_models_file_speaks_for_its_model() -> None:
    done = Weights(bytes=1 << 30, parameters={"F8_E4M3": 1 << 30}, converted=True, code=code_of(DEEPSEEK))
    answer = plan("deepseek-r1", model="deepseek-r1-0528", files=done)
    assert FLAG in answer["arguments"]
    # A false of the catalogue is no wish: what lies there is other than the file describes.
    sentence("qwen3-8b", "trust_remote_code", model="qwen3-8b", files=lying(STRANGE))
    assert FLAG in plan(model="qwen3-8b", files=lying(STRANGE), trust_remote_code=True)["arguments"]


def test_a_config_json_that_is_given_counts_where_no_weights_are() -> None:
    sentence("trust_remote_code", "configuration_strange.py", model_config=STRANGE, max_model_len=4096)
    # What lies on the node is what the server reads.
    plain = Weights(bytes=1 << 30, parameters={"BF16": 1 << 29})
    assert "refused" not in plan(model_config=STRANGE, files=plain)


def test_the_module_reads_it_beside_the_weights(tmp_path: Path) -> None:
    empty = read_weights(str(tmp_path))
    assert empty is not None
    assert empty.code is None
    config = tmp_path / "config.json"
    config.write_text(json.dumps(STRANGE), encoding="utf-8")
    read = read_weights(str(tmp_path))
    assert read is not None
    assert read.code == code_of(STRANGE)
    config.write_bytes(b" " * (CONFIG_LIMIT + 1))
    with pytest.raises(Refusal, match=r"config\.json is larger than 1 MiB"):
        read_weights(str(tmp_path))


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff\xfe", b"[" * 100000, b"7"])
def test_a_config_json_nobody_can_read_is_refused(content: bytes) -> None:
    with pytest.raises(Refusal, match=r"^config\.json cannot be read"):
        config_in(content)


LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
FOREIGN = "other/repo--evil.Evil"


def beside(folder: Path, name: str, content: object) -> Weights:
    """Weights of a known class, with this file beside config.json, as the module reads them."""
    (folder / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    (folder / name).write_text(json.dumps(content), encoding="utf-8")
    read: Weights | None = read_weights(str(folder))
    assert read is not None
    return read


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", {**LLAMA, "auto_map": {"AutoModel": FOREIGN}}),
        ("config.json", {**LLAMA, "text_config": {"auto_map": {"AutoConfig": FOREIGN}}}),
        ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["own.Tokenizer", FOREIGN]}}),
        # The form of old tokenizers.
        ("tokenizer_config.json", {"auto_map": [FOREIGN, None]}),
        ("processor_config.json", {"auto_map": {"AutoProcessor": FOREIGN}}),
        ("preprocessor_config.json", {"auto_map": {"AutoImageProcessor": FOREIGN}}),
        ("video_preprocessor_config.json", {"auto_map": {"AutoVideoProcessor": FOREIGN}}),
        ("generation_config.json", {"auto_map": {"AutoConfig": FOREIGN}}),
    ],
)
def test_code_of_another_repository_is_refused_whoever_pins_the_file_that_names_it(
    tmp_path: Path, name: str, content: object
) -> None:
    """Pins hold the files beside the weights; the server would fetch these from a hub, at their newest commit."""
    files = beside(tmp_path, name, content)
    said = ["another repository", f"{name}: {FOREIGN}", "pin it (playbooks/pin.yml)", "trust_remote_code to false"]
    sentence(*said, files=files, trust_remote_code=True)
    for release in ("1.21", "1.22"):
        sentence(*said[:2], release=release, files=files, trust_remote_code=True)
    # Code that may not run is not fetched either.
    assert "another repository" not in plan(files=files, trust_remote_code=False).get("refused", "")


OTHER_MODELS = [
    {"speculators_config": {"verifier": {"name_or_path": "evil/with-code", "architectures": []}}},
    {"text_model_id": "evil/with-code"},
    {"audio_model_id": "evil/with-code"},
    {"text_config": {"text_model_id": "evil/with-code"}},
]


@pytest.mark.parametrize("named", OTHER_MODELS)
@pytest.mark.parametrize("release", ["1.21", "1.24"])
def test_weights_that_name_another_model_run_no_code(tmp_path: Path, named: dict[str, Any], release: str) -> None:
    """The server would serve that model, or load it as well, at its newest commit and with the same permission."""
    files = beside(tmp_path, "config.json", {**LLAMA, **named})
    said = ["another model", "evil/with-code", "trust_remote_code to false"]
    sentence(*said, release=release, files=files, trust_remote_code=True)
    without = plan(release, files=files)
    assert warned(without, *said[:2], "HF_HUB_OFFLINE=1")
    assert kept_offline(without)


@pytest.mark.parametrize("path", ["/data/models/Own", "", None, 7])
def test_weights_that_name_no_model_of_a_hub_may_run_their_code(tmp_path: Path, path: object) -> None:
    named = {"speculators_config": {"verifier": {"name_or_path": path}}, "text_model_id": path}
    files = beside(tmp_path, "config.json", {**LLAMA, **named, "_name_or_path": "owner/llama"})
    answer = plan("1.24", files=files, trust_remote_code=True)
    assert FLAG in answer["arguments"]
    assert not warned(answer, "another model")


def test_a_model_that_guesses_may_name_the_one_it_guesses_for(tmp_path: Path) -> None:
    named = {"speculators_config": {"verifier": {"name_or_path": "owner/llama"}}}
    (tmp_path / "draft").mkdir()
    guesses = beside(tmp_path / "draft", "config.json", {**LLAMA, **named})
    own = beside(tmp_path, "config.json", LLAMA)
    speculative = {"method": "eagle3", "model": "/data/own/Draft", "num_speculative_tokens": 3}
    (answer,) = plan_all(
        [
            vendor.said_openly(
                {"weights": "/data/own/Llama", "speculative_config": speculative, "trust_remote_code": True}
            )
        ],
        vendor.catalogue("1.24", None),
        vendor.topology("oam8"),
        weights_root="/data/models",
        read_weights=lambda path: guesses if path == "/data/own/Draft" else own,
    )
    assert FLAG in answer["arguments"]


@pytest.mark.parametrize("request_", [{"model": "qwen3-8b"}, {"weights": "/data/own/Llama"}])
@pytest.mark.parametrize("permission", [{"extra_args": [FLAG]}, {"trust_remote_code": True}])
def test_weights_without_a_single_program_may_name_none_of_another_repository(
    tmp_path: Path, request_: dict[str, str], permission: dict[str, Any]
) -> None:
    """Every file may be pinned: of the catalogue's model config.json alone decides, and it names the code."""
    files = beside(tmp_path, "config.json", {**LLAMA, "auto_map": {"AutoModelForCausalLM": "evil/other--modeling.X"}})
    sentence("another repository", "evil/other--modeling.X", files=files, **request_, **permission)


@pytest.mark.parametrize("release", RELEASES)
def test_overrides_of_a_configuration_name_no_code_of_another_repository(release: str) -> None:
    overrides = json.dumps({"auto_map": {"AutoModelForCausalLM": FOREIGN}})
    given_ = {"release": release, "trust_remote_code": True, "extra_args": ["--hf-overrides", overrides]}
    if "--hf-overrides" in entry(release).arguments:
        sentence("another repository", f"--hf-overrides: {FOREIGN}", **given_)


def test_a_model_that_guesses_names_no_code_of_another_repository(tmp_path: Path) -> None:
    foreign = beside(tmp_path, "config.json", {**LLAMA, "auto_map": {"AutoModelForCausalLM": FOREIGN}})
    draft = {"method": "draft_model", "model": "/data/own/Draft", "num_speculative_tokens": 3}

    def planned(**options: Any) -> dict[str, Any]:
        answers: list[dict[str, Any]] = plan_all(
            [vendor.said_openly({"weights": "/data/own/Llama", "speculative_config": draft, **options})],
            vendor.catalogue("1.24", None),
            vendor.topology("oam8"),
            weights_root="/data/models",
            read_weights=lambda path: foreign if path == draft["model"] else lying(LLAMA),
        )
        return answers[0]

    assert f"/data/own/Draft/config.json: {FOREIGN}" in planned(trust_remote_code=True)["refused"]
    assert "another repository" not in planned().get("refused", "")


def test_a_models_file_that_allows_code_allows_none_of_another_repository(tmp_path: Path) -> None:
    files = beside(tmp_path, "tokenizer_config.json", {"auto_map": {"AutoTokenizer": [None, FOREIGN]}})
    done = Weights(bytes=1 << 30, parameters={"F8_E4M3": 1 << 30}, converted=True, code=code_of(DEEPSEEK))
    assert "refused" not in plan("deepseek-r1", model="deepseek-r1-0528", files=done)
    foreign = replace(done, foreign=files.foreign)
    sentence("another repository", release="deepseek-r1", model="deepseek-r1-0528", files=foreign)


@pytest.mark.parametrize("content", [b"{", b"[" * 100000, b'{"a": 1}' + b" " * BESIDE_LIMIT])
def test_a_file_that_may_name_code_and_cannot_be_read_is_refused_where_code_runs(
    tmp_path: Path, content: bytes
) -> None:
    beside(tmp_path, "tokenizer_config.json", {})
    (tmp_path / "tokenizer_config.json").write_bytes(content)
    files = read_weights(str(tmp_path))
    sentence("tokenizer_config.json", "cannot be read", "Fetch", files=files, trust_remote_code=True)
    assert "refused" not in plan(files=files)


def test_code_beside_the_weights_is_no_code_of_another_repository(tmp_path: Path) -> None:
    own = {"auto_map": {"AutoTokenizer": ["tokenization_own.Own", None]}, "chat_template": "a--b.c"}
    files = beside(tmp_path, "tokenizer_config.json", own)
    assert files.foreign == ForeignCode()
    assert FLAG in plan(files=files, trust_remote_code=True)["arguments"]


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=200),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=9), inner, max_size=5),
)


@given(st.dictionaries(st.text(max_size=9), junk, max_size=30) | junk, junk, junk)
def test_any_auto_map_is_a_plan_or_one_short_line(named: Any, model_type: Any, architectures: Any) -> None:
    config = {"auto_map": named, "model_type": model_type, "architectures": architectures}
    foreign = foreign_code({"config.json": json.dumps(config).encode()})
    check(plan(files=Weights(code=code_of(config), foreign=foreign), trust_remote_code=True))
    check(plan(files=Weights(code=code_of(config))))


def test_a_release_says_what_it_has_classes_for(subtests: pytest.Subtests) -> None:
    for release in RELEASES:
        with subtests.test(release=release):
            read = entry(release)
            assert {"LlamaForCausalLM", "MixtralForCausalLM", "Qwen2ForCausalLM"} <= read.architectures
            assert {"llama", "mixtral", "qwen2", "xlm-roberta"} <= read.model_types
            said = " ".join(read.sources)
            assert "architectures:" in said
            assert "model_types:" in said


def test_code_is_off_unless_a_file_says_otherwise() -> None:
    content = {key: value for key, value in vendor.content("models", "qwen3-8b").items() if key != "trust_remote_code"}
    assert ModelEntry.from_mapping(content).trust_remote_code is False
