"""The same request on other releases: the names in a refusal's advice."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.catalogue.entries import CardType, ModelEntry, ReleaseEntry
from ansible.module_utils.gaudi.planning.elsewhere import (
    asks_for_another,
    with_releases,
)
from ansible.module_utils.gaudi.planning.many import Catalogue, plan_all
from ansible.module_utils.gaudi.planning.support import every_release
from ansible.module_utils.gaudi.request.node import Node

from plugin_utils import releases
from tests.golden import canonical_plans
from tests.golden.serving_cases import vendor
from tests.unit.model.test_kernels import DELTA, MISTRAL, QWEN, SPARSE
from tests.unit.model.test_schemes import INT8

ENTRIES = {name: ModelEntry.from_mapping(vendor.content("models", name)) for name in vendor.MODELS}
ROOT = Path(__file__).resolve().parents[3]
KNOWN = [ReleaseEntry.from_mapping(releases.read(name)) for name in releases.names()]
CARDS = CardType.table(vendor.content("", "cards"))


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


SERVE = re.compile(r"[Ss]erve ([a-z0-9][a-z0-9.-]*[a-z0-9])")


def with_weights(model: str, release: str, beside: Sequence[str]) -> str:
    """The refusal of a catalogue model on Gaudi 3 by a call that knows these models beside it."""
    catalogue = Catalogue.from_mappings(
        releases.read(release),
        {name: vendor.content("models", name) for name in (model, *beside)},
        vendor.content("", "cards"),
    )
    topology = canonical_plans.topology("HL-325")
    (answer,) = plan_all([{"model": model}], catalogue, topology, weights_root="/data/models")
    return str(answer.get("refused", ""))


@pytest.mark.parametrize("release", ["1.22", "1.22-2025.11"])
@pytest.mark.parametrize("size", ["20b", "120b"])
def test_other_weights_of_a_model_are_named_where_they_are_served(size: str, release: str) -> None:
    other = f"gpt-oss-{size}-bf16"
    said = with_weights(f"gpt-oss-{size}", release, [other, "qwen3-8b"])
    assert f"Serve {other}, or use another release." in said
    assert with_weights(other, release, []) == ""
    # Of every release, too.
    answers = every_release(
        {"model": f"gpt-oss-{size}"}, KNOWN, ENTRIES, CARDS, Node(topology=canonical_plans.topology("HL-325"))
    )
    (found,) = [answer for answer in answers if answer.release == release]
    assert found.because.endswith(f"Serve {other}.")


def test_a_model_that_a_file_advises_is_served(subtests: pytest.Subtests) -> None:
    for model, entry in sorted(ENTRIES.items()):
        for release, reason in entry.unsupported.items():
            for named_model in ENTRIES.keys() & SERVE.findall(reason):
                with subtests.test(model=model, release=release):
                    assert with_weights(named_model, release, []) == ""


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
