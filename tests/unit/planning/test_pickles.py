"""Releases that run what is in pickled tensors: what their servers may read of weights that nothing pins."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.gaudi.base.command_line import reads_pickles
from ansible.module_utils.gaudi.catalogue.extends import extended
from ansible.module_utils.gaudi.model.headers import Weights
from ansible.module_utils.gaudi.node.report.weights import read_weights
from ansible.module_utils.gaudi.planning.many import Catalogue, plan_all
from ansible.module_utils.gaudi.serving.openness import opened
from ansible.module_utils.gaudi.weights.record import MANIFEST

from tests.golden.serving_cases import vendor

MODEL = {"model": "llama-2-7b"}
OWN = {"weights": "/data/own/Llama-2-7b", "model_config": {"model_type": "llama", "hidden_size": 4096}}
PICKLED, FETCHED = Weights(pickled=True), Weights(pickled=True, fetched=True)
PINS = {"config.json": "0" * 64, "pytorch_model.bin": "1" * 64}


# A site's file of a release with a name of its own.
OWN_FORK = {"name": "own-fork", "extends": "1.18"}


def catalogue_of(release: str) -> Catalogue:
    """The catalogue with a release of the project, or with OWN_FORK."""
    known = {each: vendor.content("releases", each) for each in ("1.16", "1.18", "1.22")} | {"own-fork": OWN_FORK}
    models = {MODEL["model"]: vendor.content("models", MODEL["model"])}
    whole = extended(release, known, known.__getitem__).content
    return Catalogue.from_mappings(whole, models, vendor.content("", "cards"))


def plan(
    release: str, request: dict[str, Any], there: Weights | None = None, files: dict[str, str] | None = None
) -> dict[str, Any]:
    """The plan of a request; ``there``: its weights on the node, ``files``: the model's pinned checksums."""
    catalogue = catalogue_of(release)
    entry = catalogue.models[MODEL["model"]]
    pinned = {hub: replace(source, files=files or {}) for hub, source in entry.repositories.items()}
    catalogue = replace(catalogue, models={entry.name: replace(entry, repositories=pinned)})
    answers: list[dict[str, Any]] = plan_all(
        [request],
        catalogue,
        vendor.topology("oam8"),
        weights_root="/data/models",
        read_weights=(lambda _path: there) if there is not None else None,
    )
    return answers[0]


def load_formats(made: dict[str, Any]) -> list[str]:
    """The load formats of a plan that is no refusal."""
    words = made["arguments"]
    return [after for word, after in itertools.pairwise(words) if word == "--load-format"]


@pytest.mark.parametrize("release", ["1.16", "1.18", "own-fork"])
@pytest.mark.parametrize("there", [None, Weights(), Weights(fetched=True)])
@pytest.mark.parametrize("request_", [MODEL, OWN, {**OWN, "weights": "owner/Llama-2-7b"}])
def test_a_server_that_would_run_pickled_tensors_reads_safetensors_alone(
    release: str, there: Weights | None, request_: dict[str, Any]
) -> None:
    """Also of what it fetches from a hub by itself, where another server may have put pickled tensors."""
    made = plan(release, request_, there)
    assert load_formats(made) == ["safetensors"]
    assert not reads_pickles(made)


def test_later_releases_choose_the_format_themselves() -> None:
    assert load_formats(plan("1.22", OWN, FETCHED)) == []


@pytest.mark.parametrize("release", ["1.18", "own-fork"])
def test_fetched_weights_in_pickled_tensors_alone_are_refused_until_they_are_pinned(release: str) -> None:
    """A hub, a mirror or another node may have sent them in place of safetensors."""
    refused = plan(release, MODEL, FETCHED)
    assert refused["refused_id"] == "pickles_not_pinned"
    assert "playbooks/pin.yml -e model=llama-2-7b -e write=true" in refused["refused"]
    assert plan(release, OWN, FETCHED)["refused_id"] == "pickles_not_pinned"
    # A pin of other files says nothing of them, nor do pins of the model beside weights of the request.
    assert plan(release, MODEL, FETCHED, {"config.json": "0" * 64})["refused_id"] == "pickles_not_pinned"
    assert plan(release, OWN, FETCHED, PINS)["refused_id"] == "pickles_not_pinned"


def test_pinned_and_own_pickled_tensors_are_read_as_before() -> None:
    for made in (plan("1.18", MODEL, FETCHED, PINS), plan("1.18", MODEL, None, PINS), plan("1.18", OWN, PICKLED)):
        assert load_formats(made) == []
        assert reads_pickles(made)
    assert load_formats(plan("1.18", MODEL, Weights(fetched=True), PINS)) == ["safetensors"]


@pytest.mark.parametrize("there", [None, FETCHED])
def test_a_format_that_the_site_names_is_kept(there: Weights | None) -> None:
    made = plan("1.18", {**OWN, "extra_args": ["--load-format", "auto"]}, there)
    assert load_formats(made) == ["auto"]
    assert reads_pickles(made)


@pytest.mark.parametrize("release", ["1.18", "own-fork"])
def test_a_plan_that_reads_pickled_tensors_again_is_more_open(release: str) -> None:
    """So no rollback by itself restores one from before."""
    made = plan(release, OWN)
    words = made["arguments"]
    place = words.index("--load-format")
    before = {**made, "arguments": words[:place] + words[place + 2 :]}
    last = {**made, "arguments": [*words, "--load-format=auto"]}
    adapters = {**made, "arguments": [*words, "--lora-modules", "a=/data/a"]}
    # Plans do not say what the release does before the upgrade.
    without = {key: value for key, value in before.items() if key != "unpickles"}
    for more in (before, last, adapters, without):
        assert "pickled" in opened(more, made)[0]
        assert opened(made, more) == []


def test_what_a_node_reports_of_pickled_tensors(tmp_path: Path) -> None:
    def report() -> tuple[bool, bool]:
        read = read_weights(str(tmp_path))
        assert read is not None
        return read.pickled, read.fetched

    assert report() == (False, False)
    for name in ("pytorch_model.bin", "model.pt"):
        (tmp_path / name).touch()
        assert report() == (True, False)
        (tmp_path / name).unlink()
    (tmp_path / "pytorch_model.bin").touch()
    (tmp_path / ".gaudi-serving").mkdir()
    # A record that cannot be read does not make them the site's own.
    (tmp_path / ".gaudi-serving/manifest.json").write_text("{")
    assert report() == (True, True)


def test_a_folder_below_one_that_was_fetched_was_fetched(tmp_path: Path) -> None:
    """It has no record of its own; a link to it, or from there to another disk, makes it no other one."""
    own, repository = tmp_path / "own", tmp_path / "Repository"
    (repository / "deep/fp16").mkdir(parents=True)
    own.mkdir()
    (own / "linked").symlink_to(repository / "deep/fp16")
    (repository / "moved").symlink_to(own)
    (repository / MANIFEST).parent.mkdir()
    (repository / MANIFEST).write_text("{}")
    fetched = {"Repository/deep/fp16": True, "own/linked": True, "Repository/moved": True, "own": False}
    for folder, expected in fetched.items():
        (tmp_path / folder / "pytorch_model.bin").touch()
        seen = read_weights(str(tmp_path / folder))
        assert seen is not None
        assert (seen.pickled, seen.fetched) == (True, expected)
        made = plan("1.18", OWN, seen)
        assert made.get("refused_id") == ("pickles_not_pinned" if expected else None)
