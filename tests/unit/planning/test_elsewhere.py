"""The same request on other releases: the names in a refusal's advice, and the answer of every release."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.catalogue.entries import CardType, ModelEntry, ReleaseEntry
from ansible.module_utils.gaudi.model.size import loaded_bytes, parameters
from ansible.module_utils.gaudi.planning.elsewhere import (
    Answer,
    alike,
    as_text,
    asks_for_another,
    every_release,
    with_releases,
)
from ansible.module_utils.gaudi.planning.many import Catalogue, plan_all
from ansible.module_utils.gaudi.request.node import Node

from plugin_utils import releases
from tests.golden.serving_cases import vendor
from tests.unit.model.test_kernels import DELTA, MISTRAL, QWEN, SPARSE
from tests.unit.model.test_schemes import INT8

ENTRIES = {name: ModelEntry.from_mapping(vendor.content("models", name)) for name in vendor.MODELS}
ROOT = Path(__file__).resolve().parents[3]
KNOWN = [ReleaseEntry.from_mapping(releases.read(name)) for name in releases.names()]
# Whole numbers of 8 bits, which 1.24 makes BF16 of.
LLAMA = {**INT8, "intermediate_size": 28672}
CARDS = CardType.table(vendor.content("", "cards"))
DEEPSEEK = {
    **{key: value for key, value in vars(ENTRIES["deepseek-r1-671b"].architecture).items() if isinstance(value, int)},
    "model_type": "deepseek_v3",
    "architectures": ["DeepseekV3ForCausalLM"],
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "first_k_dense_replace": 3,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}


def answers(request: dict[str, Any], where: str = "oam8", card: str = "HL-225") -> dict[str, Answer]:
    """The answer of each release on a machine with cards of one type."""
    topology = json.loads(json.dumps(vendor.topology(where)).replace("HL-225", card))
    found = every_release(request, KNOWN, ENTRIES, CARDS, Node(topology=topology))
    return {answer.release: answer for answer in found}


def test_every_release_answers_for_a_config(subtests: pytest.Subtests) -> None:
    found = answers({"weights": "/data/models/x", "model_config": LLAMA})
    assert list(found) == releases.names()
    planned = {"1.24", "1.24.1"}
    for release, answer in found.items():
        with subtests.test(release=release):
            assert answer.status == ("planned only" if release in planned else "not supported")
            assert bool(answer.cards) is (release in planned)
            assert answer.because
            assert not asks_for_another(answer.because)


def test_the_cards_are_the_fewest_that_hold_what_the_config_describes() -> None:
    # 70 B weights that become BF16 while they load.
    assert answers({"weights": "/data/models/x", "model_config": LLAMA})["1.24.1"].cards == 2
    assert answers({"weights": "/data/models/x", "model_config": LLAMA}, card="HL-325")["1.24.1"].cards == 2


def test_a_config_of_a_model_of_the_catalogue_has_its_record() -> None:
    assert {model.name for model in alike(DEEPSEEK, ENTRIES.values())} == {"deepseek-r1-0528", "deepseek-r1-671b"}
    found = answers({"weights": "/data/models/x", "model_config": DEEPSEEK})
    assert (found["deepseek-r1"].status, found["deepseek-r1"].cards) == ("reported", 8)
    assert found["1.24.1"].status == "planned only"
    # Longer requests than a node serves are no reason against the release.
    assert "max_model_len 32768" in found["1.24.1"].because
    assert alike({**DEEPSEEK, "num_hidden_layers": 60}, ENTRIES.values()) == []
    assert alike({**DEEPSEEK, "architectures": ["DeepseekV3ForSequenceClassification"]}, ENTRIES.values()) == []
    assert alike({**DEEPSEEK, "quantization_config": None}, ENTRIES.values()) == []


AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128}


def test_other_quantisations_are_not_what_was_validated() -> None:
    config = {**LLAMA, "quantization_config": AWQ}
    assert alike({**LLAMA, "quantization_config": None}, ENTRIES.values()) != []
    assert alike(config, ENTRIES.values()) == []
    assert answers({"weights": "/data/models/x", "model_config": config}, card="HL-325")["1.24.1"].status == (
        "planned only"
    )
    packed = {key: value for key, value in vars(ENTRIES["gpt-oss-20b"].architecture).items() if isinstance(value, int)}
    oss = {**packed, "model_type": "gpt_oss", "quantization_config": {"quant_method": "mxfp4"}}
    assert [model.name for model in alike(oss, ENTRIES.values())] == ["gpt-oss-20b"]


@pytest.mark.parametrize("positions", [8192, 2048])
def test_a_release_whose_own_length_is_too_long_is_asked_for_the_models(positions: int) -> None:
    config = {**MISTRAL, "sliding_window": None, "intermediate_size": 14336, "max_position_embeddings": positions}
    found = answers({"weights": "/data/models/x", "model_config": config})
    for release in ("1.21", "1.22-2025.11"):
        assert f"With max_model_len {positions}." in found[release].because


def test_a_reason_that_no_length_helps_against_is_the_answer() -> None:
    config = {**MISTRAL, "max_position_embeddings": 8192, "quantization_config": {**AWQ, "bits": 8}}
    assert "8 bits" in answers({"weights": "/data/models/x", "model_config": config})["1.21"].because


def test_packed_weights_of_the_catalogue_need_a_release_that_reads_them() -> None:
    assert "mxfp4" in answers({"model": "gpt-oss-20b"}, card="HL-325")["1.22"].because


def test_a_model_that_names_no_class_is_not_called_supported_without_a_word() -> None:
    config = {key: value for key, value in LLAMA.items() if key not in ("architectures", "quantization_config")}
    words = "names no architectures"
    assert words in answers({"weights": "/data/models/x", "model_config": config})["1.24.1"].because
    assert words in answers({"model": "bielik-11b-v2.6-instruct"})["1.24.1"].because
    assert words not in answers({"model": "qwen3-8b"})["1.24.1"].because


def test_of_several_models_with_its_figures_the_one_counts_that_most_is_known_of() -> None:
    config = {
        **MISTRAL,
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 128256,
        "intermediate_size": 14336,
        "max_position_embeddings": 131072,
    }
    models = alike(config, ENTRIES.values())
    assert len(models) > 1
    found = answers({"weights": "/data/models/x", "model_config": config}, card="HL-325")
    for model in models:
        alone = answers({"model": model.name}, card="HL-325")
        assert not [name for name, answer in alone.items() if answer.status == "validated" != found[name].status]


def test_a_release_without_fp8_names_no_other_that_does_not_serve_the_model() -> None:
    config = {**SPARSE, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    found = answers({"weights": "/data/models/x", "model_config": config})
    assert {found[name].status for name in ("1.16", "1.18", "1.21", "1.22")} == {"not supported"}
    for release in ("1.16", "1.18"):
        assert "quantisation is not supported" in found[release].because
        assert "1.2" not in found[release].because


def test_a_model_is_validated_on_the_cards_that_the_list_names() -> None:
    request = {"model": "qwen2.5-14b-instruct"}
    assert {answer.status for answer in answers(request, card="HL-325").values()} >= {"validated", "planned only"}
    assert answers(request, card="HL-325")["1.24.1"].status == "validated"
    gaudi2 = answers(request)["1.24.1"]
    assert gaudi2.status == "reported"


def test_the_answer_says_where_and_on_how_many_cards() -> None:
    lines = as_text(list(answers({"weights": "/data/models/x", "model_config": SPARSE}).values()))
    assert lines[0] == "HL-225:"
    assert any(line.startswith("  1.24: not supported. ") and "index_topk" in line for line in lines)
    assert any(line.startswith("  1.24.1: planned only. ") for line in lines)


def test_a_size_that_is_not_known_leaves_the_number_of_cards_open() -> None:
    config = {key: value for key, value in MISTRAL.items() if key != "vocab_size"}
    answer = answers({"weights": "/data/models/x", "model_config": config})["1.24.1"]
    assert (answer.status, answer.cards) == ("reported", None)
    assert "How many cards it takes is not known." in answer.because


@pytest.mark.parametrize("config", [{**MISTRAL, "intermediate_size": 14336}, DEEPSEEK])
def test_the_weights_of_a_config_are_counted(config: dict[str, Any]) -> None:
    counted = parameters(config)
    assert counted is not None
    billions = {"mistral": 7.25, "deepseek_v3": 671}[str(config["model_type"])]
    assert sum(counted) / 1e9 == pytest.approx(billions, rel=0.02)


def test_figures_that_no_number_holds_leave_the_size_unknown() -> None:
    assert loaded_bytes({**DEEPSEEK, "hidden_size": 10**400}) is None


def refused(release: str, config: dict[str, Any], **options: Any) -> str:
    """The refusal of weights, by a call that knows all releases."""
    (answer,) = planned(release, config, **options)
    return str(answer["refused"])


def planned(release: str, config: dict[str, Any], **options: Any) -> list[dict[str, Any]]:
    """The answer for weights, by a call that knows all releases."""
    catalogue = Catalogue.from_mappings(
        releases.read(release),
        {},
        vendor.content("", "cards"),
        [releases.read(name) for name in releases.names() if name != release],
    )
    request = {"weights": "/data/models/x", "model_config": config, **options}
    found: list[dict[str, Any]] = plan_all([request], catalogue, vendor.topology("oam8"), weights_root="/data/models")
    return found


@pytest.mark.parametrize(
    ("release", "config", "named"),
    [
        ("1.21", INT8, "use release 1.24 or 1.24.1."),
        ("1.23", DELTA, "use release 1.22, 1.22-2025.11, 1.24 or 1.24.1."),
        ("1.24", SPARSE, "use release 1.24.1."),
    ],
)
def test_advice_names_the_releases_that_plan_the_request(release: str, config: dict[str, Any], named: str) -> None:
    asked = {"tensor_parallel_size": 8, "max_model_len": 8192}
    said = refused(release, config, **asked)
    assert said.endswith(f"or {named}")
    for name in (word.strip(",.") for word in named.split() if word[0].isdigit()):
        catalogue = vendor.catalogue(name)
        request = {"weights": "/data/models/x", "model_config": config, **asked}
        (answer,) = plan_all([request], catalogue, vendor.topology("oam8"), weights_root="/data/models")
        assert "refused" not in answer


SOME_LAYERS = {**QWEN, "use_sliding_window": True, "max_window_layers": 20}


@pytest.mark.parametrize(
    ("release", "config", "named"),
    [
        # Where windows are computed as meant, or where the warning is of another release alone.
        ("1.18", MISTRAL, "or use release 1.22 or 1.22-2025.11."),
        ("1.21", MISTRAL, "or use release 1.22 or 1.22-2025.11."),
        ("1.16", SOME_LAYERS, "or use release 1.23, 1.24 or 1.24.1."),
        ("1.22", {**MISTRAL, "architectures": ["Gemma4ForCausalLM"]}, "Use release 1.24 or 1.24.1."),
        ("1.24.1", {**MISTRAL, "architectures": ["NobodysForCausalLM"]}, "the server may not start."),
    ],
)
def test_a_warning_names_the_releases_that_do_not_have_it(release: str, config: dict[str, Any], named: str) -> None:
    asked = {"max_model_len": 8192, "tensor_parallel_size": 8}
    (made,) = planned(release, config, **asked)
    assert [said for said in made["warnings"] if said.endswith(named)], made["warnings"]
    assert not any(map(asks_for_another, made["warnings"]))


def test_advice_prefers_releases_that_give_none_themselves() -> None:
    """1.16 takes these weights, and computes them otherwise than they are meant."""
    assert refused("1.18", SOME_LAYERS, max_model_len=8192).endswith("or use release 1.23, 1.24 or 1.24.1.")


# What an unnamed release may be called in advice.
UNNAMED = re.compile(r"another release|a release that knows|use release|release \S+ or later", re.IGNORECASE)


def test_advice_to_use_another_release_is_always_found(subtests: pytest.Subtests) -> None:
    listed = (ROOT / "docs" / "refusals.md").read_text(encoding="utf-8").splitlines()
    # Where a sentence of the catalogue is left out, it ends with a dot.
    sentences = [line.split(" | ")[1].replace("… Use", ". Use") for line in listed if line.startswith("| `")]
    for release in KNOWN:
        sentences += release.unsupported.values()
    for entry in ENTRIES.values():
        sentences += [*entry.unsupported.values(), *entry.unsupported_generations.values()]
    advising = [sentence for sentence in sentences if UNNAMED.search(sentence)]
    assert len(advising) > 10
    for sentence in advising:
        with subtests.test(sentence=sentence):
            # Where it is tried in a running server, no plan can name one.
            assert asks_for_another(sentence) or "try another release" in sentence


def named(model: str, release: str, where: str = "oam8") -> tuple[str, list[str]]:
    """The refusal of a catalogue model, and the releases that it names at its end."""
    catalogue = Catalogue.from_mappings(
        releases.read(release),
        {model: vendor.content("models", model)},
        vendor.content("", "cards"),
        [releases.read(name) for name in releases.names() if name != release],
    )
    (answer,) = plan_all([{"model": model}], catalogue, vendor.topology(where), weights_root="/data/models")
    said = str(answer.get("refused", ""))
    names = re.findall(r"se release ([^ ,]+(?:, [^ ,]+)*(?: or [^ ,]+)?)\.$", said)
    return said, [name for group in names for name in re.split(r", | or ", group)]


def test_every_catalogue_model_that_a_release_refuses_names_one_that_serves_it(subtests: pytest.Subtests) -> None:
    for place, (model, entry) in enumerate(sorted(ENTRIES.items())):
        for release in sorted({*entry.unsupported, *(["1.18"] if not place % 8 else [])} - set(entry.releases)):
            with subtests.test(model=model, release=release):
                said, others = named(model, release)
                assert not UNNAMED.search(said.partition("se release ")[0])
                for other in others[:2]:
                    assert named(model, other)[0] == ""


def test_advice_that_leads_nowhere_is_not_given() -> None:
    config = {**MISTRAL, "model_type": "strange", "architectures": ["StrangeForCausalLM"]}
    said = refused("1.24.1", config)
    assert said.endswith("Serve another model. No other release of the catalogue serves it on this node.")


@pytest.mark.parametrize(
    ("sentence", "named", "none"),
    [
        ("A. Serve B, or use another release.", "A. Serve B, or use release 1 or 2.", "A. Serve B."),
        ("A: B. Use another release.", "A: B. Use release 1 or 2.", "A: B."),
        ("A; or use a release that knows the model.", None, None),
        ("A, or use a release that knows the model.", "A, or use release 1 or 2.", "A."),
        ("A. Lower it.", None, None),
    ],
)
def test_the_advice_of_a_sentence_is_found(sentence: str, named: str | None, none: str | None) -> None:
    assert asks_for_another(sentence) is (named is not None or sentence.startswith("A;"))
    if named is not None:
        assert str(with_releases(Refusal("x", sentence), ["1", "2"])) == named
        assert str(with_releases(Refusal("x", sentence), [])).startswith(f"{none} No other release")


def test_the_action_answers_for_a_file(tmp_path: Path) -> None:
    from action_plugins import model_support

    file = tmp_path / "Model" / "config.json"
    file.parent.mkdir()
    file.write_text(json.dumps(SPARSE), encoding="utf-8")
    found = model_support.answers_for("", str(file), "")
    assert {answer.release for answer in found} == set(releases.names())
    assert {"HL-225", "HL-288E", "HL-325L", "HL-338"} == {answer.cards_of for answer in found}
    for model, config, refusal in (
        ("", "", "no_model_to_compare"),
        ("qwen3-8b", str(file), "no_model_to_compare"),
        ("", str(tmp_path / "none.json"), "config_unreadable"),
        ("no-such-model", "", "not_in_catalogue"),
    ):
        with pytest.raises(Refusal) as caught:
            model_support.answers_for(model, config, "")
        assert caught.value.id == refusal
