"""Models whose config.json nobody has read, and cards that a model is known to fail on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible.module_utils.gaudi.catalogue.entries import ModelEntry
from ansible.module_utils.gaudi.model.headers import weights_from
from ansible.module_utils.gaudi.planning.many import Catalogue, plan_all
from ansible.module_utils.gaudi.weights.source_plan import published, room

from tests.golden.serving_cases import vendor

QWQ: dict[str, Any] = vendor.content("models", "qwq-32b")
BARE = {key: value for key, value in QWQ.items() if key not in ("architecture", "weights_bytes")}
VALIDATED = {"releases": ["1.22"], "generations": ["gaudi3"], "tensor_parallel_size": [2], "dtype": ["bfloat16"]}
# What matters of the model's own config.json.
CONFIG = {
    "model_type": "qwen2",
    "architectures": ["Qwen2ForCausalLM"],
    **{key: value for key, value in QWQ["architecture"].items() if key not in ("parameters", "model_type")},
}


def plan(entry: dict[str, Any], card: str = "HL-225", release: str = "1.22", **options: Any) -> dict[str, Any]:
    known = vendor.content("releases", release)
    found = Catalogue.from_mappings(known, {"qwq-32b": entry}, vendor.content("", "cards"))
    topology = json.loads(json.dumps(vendor.topology("oam8")).replace("HL-225", card))
    (answer,) = plan_all([{"model": "qwq-32b", **options}], found, topology, weights_root="/data/models")
    return answer


def test_a_model_without_figures_is_planned_with_its_config_json() -> None:
    bare, whole = plan(BARE, model_config=CONFIG), plan(QWQ)
    assert bare["buckets"] == whole["buckets"]
    assert bare["arguments"] == whole["arguments"]
    assert bare["requires"]["weights_bytes"] is None
    (unknown,) = (sentence for sentence in bare["warnings"] if "not known" in sentence)
    assert unknown.startswith("The size of the weights is not known")
    assert plan(BARE, model_config=CONFIG, tensor_parallel_size=3)["refused_id"] == "heads_not_divisible"


def test_weights_on_the_node_bring_their_config_json() -> None:
    found = Catalogue.from_mappings(vendor.content("releases", "1.22"), {"qwq-32b": BARE}, vendor.content("", "cards"))
    there = weights_from({}, None, config=json.dumps(CONFIG).encode())

    def read(path: str) -> Any:
        return there if path == "/data/models/QwQ-32B" else None

    (answer,) = plan_all(
        [{"model": "qwq-32b"}], found, vendor.topology("oam8"), weights_root="/data/models", read_weights=read
    )
    assert answer["arguments"] == plan(QWQ)["arguments"]
    assert not any("figures" in sentence for sentence in answer["warnings"])


def test_without_its_config_json_the_plan_says_what_it_needs() -> None:
    (sentence,) = (sentence for sentence in plan(BARE)["warnings"] if "no figures of qwq-32b" in sentence)
    assert sentence.endswith("as model_config, or plan again once its weights are on the node.")
    assert not any("figures" in sentence for sentence in plan(BARE, model_config=CONFIG)["warnings"])


def test_weights_of_unknown_size_take_no_room_that_is_known() -> None:
    fetch = published(BARE)
    assert fetch["bytes"] == 0
    assert room({"fetch": fetch, "convert": None}, begun=0) == 0


def test_cards_that_a_model_fails_on_are_refused() -> None:
    entry = {**QWQ, "unsupported_generations": {"gaudi2": "its kernels are those of Gaudi3."}}
    answer = plan(entry)
    assert answer["refused_id"] == "unsupported_generation"
    assert (
        answer["refused"] == "qwq-32b: qwq-32b is not served on HL-225 cards (gaudi2): its kernels are those of Gaudi3."
    )
    assert "refused" not in plan(entry, "HL-325L")


def test_weights_in_mxfp4_are_counted_as_bfloat16() -> None:
    parameters = QWQ["architecture"]["parameters"]
    packed = {**QWQ, "dtype": "mxfp4", "weights_bytes": parameters // 2}
    made = (plan(model, release="1.24.1") for model in (packed, QWQ))
    assert len({answer["memory"]["weights_gib_per_card"] for answer in made}) == 1


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("validated", {"releases": ["1.22"]}, "key tensor_parallel_size is missing"),
        ("validated", {**VALIDATED, "tensor_parallel_size": [0]}, "tensor_parallel_size is 0, the limits are 1 to 64"),
        ("unsupported_generations", {"gaudi2": 2}, "gaudi2"),
    ],
)
def test_wrong_words_about_cards_are_refused(key: str, value: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ModelEntry.from_mapping({**QWQ, key: value})
