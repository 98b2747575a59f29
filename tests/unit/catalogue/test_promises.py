"""No sentence offers what does not exist, and what the manuals have and this project has not is said in one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible.module_utils.gaudi.base.absent import NEURON, OFFLINE, PARTS, TPU, TWO_NODES, MissingFeature, absent
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.preflight import checks as preflight
from ansible.module_utils.gaudi.request import options as request

from plugin_utils.catalogue_files import resolve
from tests.unit.catalogue.documentation import ROOT, models

# Where people are spoken to. What the simulator does is no promise to them: it does build images, and says so.
SPOKEN = ("action_plugins", "catalog", "docs", "filter_plugins", "inventories", "library", "module_utils", "playbooks")
WRITTEN = (path for place in (*SPOKEN, "roles") for path in (ROOT / place).rglob("*"))
FILES = [
    *sorted(path for path in WRITTEN if path.suffix in (".md", ".yml", ".py", ".j2")),
    ROOT / "README.md",
    ROOT / "site.yml",
]

# A phrase, why it must not be said, and a sentence that said it.
PROMISES = [
    (r"\b(?:or|to) (?:serve|run) (?:it )?(?:over|on) two nodes", "an instance has one node", "or serve over two nodes"),
]


def text_of(path: Path) -> str:
    """A file as a reader has it: strings joined, comments and line ends gone."""
    text = path.read_text(encoding="utf-8")
    return re.sub(r"\s+", " ", re.sub(r"\"\s*\n\s*f?\"|^\s*# ", " ", text, flags=re.M))


@pytest.mark.parametrize(("phrase", "reason", "once"), PROMISES, ids=[promise[2] for promise in PROMISES])
def test_nothing_is_offered_that_does_not_exist(phrase: str, reason: str, once: str) -> None:
    assert re.search(phrase, once), "the phrase would not be found"
    found = {str(path.relative_to(ROOT)): match[0] for path in FILES if (match := re.search(phrase, text_of(path)))}
    assert found == {}, reason


def mentioned(pattern: str) -> Iterator[tuple[str, str]]:
    for path in FILES:
        if path.name == "add-a-model.md":  # its model is an example
            continue
        for name in re.findall(pattern, path.read_text(encoding="utf-8")):
            yield name, str(path.relative_to(ROOT))


def test_playbooks_and_pages_that_are_named_are_there() -> None:
    assert len(list(mentioned(r"\bplaybooks/([a-z0-9_]+)\.yml"))) > 20
    for name, where in mentioned(r"\bplaybooks/([a-z0-9_]+)\.yml"):
        assert (ROOT / "playbooks" / f"{name}.yml").is_file(), f"{where} names playbooks/{name}.yml"
    for name, where in mentioned(r"(?<!git-lfs, )\bdocs/([a-z-]+\.md)\b"):
        assert (ROOT / "docs" / name).is_file(), f"{where} names docs/{name}"


def test_roles_that_are_named_are_there() -> None:
    roles = {path.name for path in (ROOT / "roles").iterdir()}
    named = list(mentioned(r"\brole `?([a-z0-9]+_[a-z0-9_]+)\b"))
    assert named
    for name, where in named:
        assert name in roles, f"{where} names the role {name}"


@pytest.mark.parametrize("part", PARTS, ids=[part.name for part in PARTS])
def test_the_readme_names_each_missing_part_in_one_sentence(part: MissingFeature) -> None:
    readme = re.sub(r"\s+", " ", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert f"* {part.sentence}" in readme
    assert re.findall(r"\.(?=\s|$)", part.sentence) == ["."]


def test_the_example_says_it_where_it_would_be_typed() -> None:
    example = text_of(ROOT / "inventories/example/group_vars/gaudi_nodes/main.yml")
    for words in (
        "AWS Neuron",
        "Google TPU",
        "over two nodes is not built yet",
        "ffline inference",
    ):
        assert words in example


ASKED = [
    ("nodes", None, TWO_NODES),
    ("pipeline_parallel_size", None, TWO_NODES),
    ("--data-parallel-address", "10.0.0.2", TWO_NODES),
    ("RAY_ADDRESS", "10.0.0.2:6379", TWO_NODES),
    ("offline", None, OFFLINE),
    ("offline_inference", None, OFFLINE),
    ("run-batch", None, OFFLINE),
    ("VLLM_BUILD_WITH_NEURON", "1", NEURON),
    ("--override-neuron-config", "{}", NEURON),
    ("VLLM_NEURON_FRAMEWORK", "x", NEURON),
    ("--device", "tpu", TPU),
    ("VLLM_TARGET_DEVICE", "tpu", TPU),
    ("VLLM_XLA_CACHE_PATH", "/x", TPU),
]


@pytest.mark.parametrize(("name", "value", "part"), ASKED)
def test_whoever_asks_is_told(name: str, value: str | None, part: MissingFeature) -> None:
    assert absent(name, value) == part.sentence


# Switches of the hubs' libraries, and numbers of somebody's own pipeline: they ask for nothing of the kind.
OTHERS = ["tensor_parallel_size", "node_address", "--device", "VLLM_HOST_IP", 3]
OTHERS += ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE", "BUILD_NUMBER"]


@pytest.mark.parametrize("name", OTHERS)
def test_whoever_asks_for_something_else_is_not(name: object) -> None:
    assert absent(name, "hpu") is None


def test_no_option_and_no_model_of_ours_is_taken_for_a_missing_part() -> None:
    for name in (*request.OPTIONS, *models()):
        assert absent(name, "hpu") is None, name


def test_it_is_said_of_options_releases_and_models() -> None:
    with pytest.raises(Refusal, match=re.escape(TWO_NODES.sentence)):
        request.check_options({"model": "qwen3-8b", "nodes": 2})
    for word in ("release", "model"):
        with pytest.raises(Refusal, match=re.escape(NEURON.sentence)):
            resolve(f"{word}s", word, "neuron-2.16")
    (problem,) = preflight.check_release("tpu", ["1.22"])
    assert TPU.sentence in problem.message
