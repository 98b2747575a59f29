"""The answer of every release: whether it serves a model, on how many cards, and with which options."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.catalogue.entries import CardType, ModelEntry, ReleaseEntry
from ansible.module_utils.gaudi.model.size import loaded_bytes, parameters
from ansible.module_utils.gaudi.planning.elsewhere import asks_for_another
from ansible.module_utils.gaudi.planning.many import plan_all
from ansible.module_utils.gaudi.planning.support import NO_CLASS, ReleaseSupport, alike, as_text, every_release
from ansible.module_utils.gaudi.request.node import Node

from action_plugins.model_support import DESCRIBED, MACHINES, topologies
from plugin_utils import releases
from tests.golden.serving_cases import vendor
from tests.unit.model.test_kernels import MISTRAL, SPARSE
from tests.unit.model.test_schemes import INT8

ENTRIES = {name: ModelEntry.from_mapping(vendor.content("models", name)) for name in vendor.MODELS}
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


def answers(request: dict[str, Any], where: str = "oam8", card: str = "HL-225") -> dict[str, ReleaseSupport]:
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
    assert found["1.24.1"].options == {"max_model_len": 32768}
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
        assert found[release].options == {"max_model_len": positions}


def test_a_reason_that_no_length_helps_against_is_the_answer() -> None:
    config = {**MISTRAL, "max_position_embeddings": 8192, "quantization_config": {**AWQ, "bits": 8}}
    assert "8 bits" in answers({"weights": "/data/models/x", "model_config": config})["1.21"].because


def test_packed_weights_of_the_catalogue_need_a_release_that_reads_them() -> None:
    assert "mxfp4" in answers({"model": "gpt-oss-20b"}, card="HL-325")["1.22"].because


def test_a_model_that_names_no_class_is_not_called_supported_without_a_word() -> None:
    config = {key: value for key, value in LLAMA.items() if key not in ("architectures", "quantization_config")}
    assert NO_CLASS in answers({"weights": "/data/models/x", "model_config": config})["1.24.1"].notes
    assert NO_CLASS in answers({"model": "bielik-11b-v2.6-instruct"})["1.24.1"].notes
    assert NO_CLASS not in answers({"model": "qwen3-8b"})["1.24.1"].notes


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
        # Weights in bfloat16 are no remedy where the release does not know the model.
        assert found[release].refused_id == "unsupported_architecture"
    known = answers(
        {"weights": "/data/models/x", "model_config": {**LLAMA, "quantization_config": {"quant_method": "fp8"}}}
    )
    for release in ("1.16", "1.18"):
        assert "quantisation is not supported" in known[release].because
        assert "1.2" not in known[release].because


def test_a_release_that_always_takes_eight_cards_advises_no_other_number() -> None:
    config = {**LLAMA, "quantization_config": None, "num_attention_heads": 12, "num_key_value_heads": 4}
    request = {"weights": "/data/models/x", "model_config": config}
    found = answers(request)["deepseek-r1"]
    assert found.refused_id == "heads_not_divisible"
    assert "Use " not in found.because
    assert found.because.endswith("always takes 8 cards.")
    # A number is advised where a request says it.
    assert answers({**request, "tensor_parallel_size": 8})["1.22"].because.endswith("to 2 or 4.")


def test_a_model_is_validated_on_the_cards_that_the_list_names() -> None:
    request = {"model": "qwen2.5-14b-instruct"}
    assert {answer.status for answer in answers(request, card="HL-325").values()} >= {"validated", "planned only"}
    assert answers(request, card="HL-325")["1.24.1"].status == "validated"
    # What is known of other cards says nothing of these.
    gaudi2 = answers(request)["1.24.1"]
    assert gaudi2.status == "planned only"
    assert gaudi2.because.endswith("on gaudi3 alone")


def page(request: dict[str, Any], *kinds: str) -> list[str]:
    """The page for machines with these cards."""
    return as_text([answer for kind in kinds for answer in answers(request, card=kind).values()])


def test_the_page_is_a_table_with_numbered_notes() -> None:
    lines = page({"weights": "/data/models/x", "model_config": SPARSE}, "HL-225", "HL-325")
    table = [line for line in lines if not line.startswith("[")]
    assert table[1].split() == ["release", "answer", "cards", "reason"]
    rows = {re.split("  +", line)[0]: re.split("  +", line)[1:] for line in table[2:] if not line.startswith(" ")}
    assert sorted(name for names in rows for name in names.split(", ")) == sorted(releases.names())
    (refused,) = [row for names, row in rows.items() if "1.24" in names.split(", ")]
    assert refused[:2] == ["not supported", "-"]
    assert refused[2].startswith("unsupported feature [")
    number = refused[2].partition("[")[2].rstrip("]")
    assert [line for line in lines if line.startswith(f"[{number}] ") and "index_topk" in line]
    (planned,) = [row for names, row in rows.items() if "1.24.1" in names.split(", ")]
    assert planned[0] == "planned only"
    assert planned[1].endswith(" any")


def test_the_page_is_short_for_every_model_of_the_catalogue(subtests: pytest.Subtests) -> None:
    for model in ("llama-4-scout-17b-16e-instruct", "deepseek-r1-0528", "qwen3-8b", "granite-4.0-h-small"):
        with subtests.test(model=model):
            lines = page({"model": model}, "HL-225", "HL-288E", "HL-325", "HL-338")
            table = [line for line in lines if not line.startswith("[")]
            assert len(table) <= 2 + 3 * len(releases.names())
            assert max(map(len, table)) <= 140
            notes = [line.partition("] ")[2] for line in lines if line.startswith("[")]
            assert len(set(notes)) == len(notes) <= 10
            # Nor is a sentence repeated for the name of each card.
            unnamed = [re.sub(r"HL-\w+(, HL-\w+)*:? ?", "", note) for note in notes]
            assert len(set(unnamed)) == len(notes)
            assert not [line for line in lines if "this release this" in line.lower()]


CODE = {
    **MISTRAL,
    "model_type": "phi4mm",
    "architectures": ["Phi4MMForCausalLM"],
    "auto_map": {"AutoConfig": "configuration_phi4mm.Phi4MMConfig"},
    "intermediate_size": 14336,
    "sliding_window": None,
}
# One card has no room for them, and eight cut a block of 128 rows in two.
EXPERTS = {
    **MISTRAL,
    "model_type": "qwen3_moe",
    "architectures": ["Qwen3MoeForCausalLM"],
    "sliding_window": None,
    "num_key_value_heads": 8,
    "num_hidden_layers": 94,
    "num_experts": 512,
    "moe_intermediate_size": 768,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}


@pytest.mark.parametrize(
    ("request_", "release", "card", "options"),
    [
        # The catalogue's own length does not fit into the batch of the release's script.
        ({"model": "llama-4-scout-17b-16e-instruct"}, "1.21", "HL-225", {"max_model_len": 16384}),
        ({"model_config": CODE}, "1.24.1", "HL-225", {"trust_remote_code": True}),
        (
            {"model_config": {**CODE, "max_position_embeddings": 8192}},
            "1.21",
            "HL-225",
            {"trust_remote_code": True, "max_model_len": 8192},
        ),
        ({"model_config": EXPERTS}, "1.24.1", "HL-225", {"enable_expert_parallel": True}),
        ({"model": "deepseek-r1-0528"}, "1.24.1", "HL-338", {"fabric_check_host_nics": True}),
    ],
)
def test_what_is_missing_is_named_and_not_called_unsupported(
    request_: dict[str, Any], release: str, card: str, options: dict[str, object]
) -> None:
    asked = request_ if "model" in request_ else {"weights": "/data/models/x", **request_}
    found = answers(asked, card=card)[release]
    assert (found.status in ("planned only", "reported"), found.options) == (True, options), found
    told = [line for line in page(asked, card) if all(f"{name}: " in line for name in options)]
    assert told


def test_what_a_request_decides_is_not_decided_for_it() -> None:
    asked = {"weights": "/data/models/x", "model_config": CODE}
    denied = answers({**asked, "trust_remote_code": False})["1.24.1"]
    assert (denied.status, denied.options) == ("not supported", {})
    long = answers({"model": "llama-4-scout-17b-16e-instruct", "max_model_len": 131072})["1.21"]
    assert (long.refused_id, long.options) == ("batch_below_longest_request", {})


def test_a_model_of_unknown_size_takes_the_cards_of_its_file() -> None:
    for card in ("HL-225", "HL-338"):
        assert answers({"model": "llama-4-scout-17b-16e-instruct"}, card=card)["1.24.1"].cards == 4


def test_what_is_known_of_a_model_is_told_once() -> None:
    """A model that was validated with other cards is not called unvalidated beside that."""
    for card, status in (("HL-225", "planned only"), ("HL-325", "validated")):
        found = answers({"model": "llama-4-scout-17b-16e-instruct"}, card=card)["1.24.1"]
        assert found.status == status
        assert ("gaudi3 alone" in found.because) is (card == "HL-225")
        assert not [note for note in found.notes if "validated" in note or "Nobody is known" in note]


@pytest.mark.parametrize(
    ("model", "release", "status", "cards", "least"),
    [
        ("qwen2.5-72b-instruct", "1.24.1", "validated", 4, 2),
        ("gpt-oss-120b", "1.24.1", "validated", 4, 2),
        ("qwen2.5-14b-instruct", "1.24.1", "validated", 1, None),
        # The number of the manual's command, and those that a README lists.
        ("qwq-32b", "1.22", "reported", 2, 1),
        ("qwen2-72b-instruct", "1.22", "reported", 4, 2),
        ("qwen2.5-72b-instruct", "1.22", "reported", 8, 2),
        ("qwen2.5-72b-instruct", "1.16", "planned only", 2, None),
        # On eight cards that nothing but host NICs joins nobody has served it.
        ("qwen3-235b-a22b", "1.24.1", "reported", 8, 4),
    ],
)
def test_the_number_of_cards_is_the_one_that_is_known(
    model: str, release: str, status: str, cards: int, least: int | None
) -> None:
    found = answers({"model": model}, card="HL-325")[release]
    assert (found.status, found.cards, found.least) == (status, cards, least), found
    (line,) = [
        line for line in page({"model": model}, "HL-325") if re.match(rf"(\S+, )*{re.escape(release)}(,| )", line)
    ]
    assert f"{cards} any" in line
    assert ("at least" in line) is (least is not None)


def test_cards_that_no_link_joins_are_not_those_that_a_model_is_known_on() -> None:
    found = answers({"model": "qwen3-235b-a22b"}, card="HL-338")["1.24.1"]
    assert (found.status, found.cards, found.options) == ("planned only", 4, {})
    assert "8 cards" in found.because


def test_what_was_validated_in_another_data_type_is_not_called_validated() -> None:
    found = answers({"model": "deepseek-r1-distill-llama-70b"}, card="HL-325")["1.24.1"]
    assert found.status == "planned only"
    assert "fp8" in found.because


def test_host_nics_that_a_start_needs_are_named() -> None:
    found = {card: answers({"model": "deepseek-r1-0528"}, card=card)["deepseek-r1"] for card in ("HL-225", "HL-288E")}
    assert found["HL-225"].options == {}
    assert found["HL-288E"].options == {"fabric_check_host_nics": True}
    # The row has it: no note is needed.
    assert not [note for answer in found.values() for note in answer.notes if "host NICs" in note]


NODES = [topologies(str(MACHINES / f"{name}.yml"))[0] for name in DESCRIBED]


def test_a_plan_of_what_a_row_says_is_what_the_row_says(subtests: pytest.Subtests) -> None:
    """Of each fifth model on one machine: with the row's number of cards and options, and nothing else."""
    for place, (model, entry) in enumerate(sorted(ENTRIES.items())[::5]):
        topology = NODES[place % len(NODES)]
        for answer in every_release({"model": model}, KNOWN, ENTRIES, CARDS, Node(topology=topology)):
            catalogue = dataclasses.replace(vendor.catalogue(answer.release), models={model: entry})
            nics = bool(answer.options.get("fabric_check_host_nics"))
            said = {name: value for name, value in answer.options.items() if name != "fabric_check_host_nics"}
            number = {} if answer.cards is None else {"tensor_parallel_size": answer.cards}
            with subtests.test(model=model, release=answer.release, cards=answer.cards_of):
                (made,) = plan_all(
                    [{"model": model, **said, **number}], catalogue, topology, weights_root="/w", host_nics=nics
                )
                assert ("refused" in made) is (answer.status == "not supported"), (answer, made.get("refused"))
                if "refused" not in made:
                    assert len(made["modules"]) == answer.cards
                    # A start needs nothing that the row does not name.
                    assert made["requires"]["host_nics"] is nics


def test_a_size_that_is_not_known_leaves_the_number_of_cards_open() -> None:
    config = {key: value for key, value in MISTRAL.items() if key != "vocab_size"}
    for card in ("HL-225", "HL-338"):
        answer = answers({"weights": "/data/models/x", "model_config": config}, card=card)["1.24.1"]
        assert (answer.status, answer.cards) == ("planned only" if card == "HL-225" else "validated", None)
    assert [line for line in page({"weights": "/data/models/x", "model_config": config}, "HL-225") if " ? any" in line]


@pytest.mark.parametrize("config", [{**MISTRAL, "intermediate_size": 14336}, DEEPSEEK])
def test_the_weights_of_a_config_are_counted(config: dict[str, Any]) -> None:
    counted = parameters(config)
    assert counted is not None
    billions = {"mistral": 7.25, "deepseek_v3": 671}[str(config["model_type"])]
    assert sum(counted) / 1e9 == pytest.approx(billions, rel=0.02)


def test_figures_that_no_number_holds_leave_the_size_unknown() -> None:
    assert loaded_bytes({**DEEPSEEK, "hidden_size": 10**400}) is None


def test_the_action_answers_for_a_file(tmp_path: Path) -> None:
    from action_plugins import model_support

    file = tmp_path / "Model" / "config.json"
    file.parent.mkdir()
    file.write_text(json.dumps(SPARSE), encoding="utf-8")
    found = model_support.answers_for("", str(file), "")
    assert {answer.release for answer in found} == set(releases.names())
    assert {"HL-225", "HL-288E", "HL-325L", "HL-338"} == {answer.cards_of for answer in found}
    adapter = tmp_path / "adapter.json"
    adapter.write_text('{"peft_type": "LORA", "r": 16}', encoding="utf-8")
    for model, config, refusal in (
        ("", "", "no_model_to_compare"),
        ("", str(adapter), "config_unreadable"),
        ("qwen3-8b", str(file), "no_model_to_compare"),
        ("", str(tmp_path / "none.json"), "config_unreadable"),
        ("no-such-model", "", "not_in_catalogue"),
    ):
        with pytest.raises(Refusal) as caught:
            model_support.answers_for(model, config, "")
        assert caught.value.id == refusal
