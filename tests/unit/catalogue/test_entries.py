"""The controller's side: files, names and requests that are wrong end as a sentence that says what would be right."""

from __future__ import annotations

import copy
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.weights.how_to_get import how_to_get
from hypothesis import example, given, settings
from hypothesis import strategies as st

from action_plugins import serving_plan
from plugin_utils import catalogue_files, releases, yaml_files
from plugin_utils.catalogue_files import close_matches, findings, load_checked, names, near_models, resolve
from plugin_utils.yaml_files import load_yaml

ROOT = Path(__file__).resolve().parents[3]
QWEN = yaml.safe_load((ROOT / "catalog/models/qwen3-8b.yml").read_text(encoding="utf-8"))
RELEASE = yaml.safe_load((ROOT / "catalog/releases/1.22.yml").read_text(encoding="utf-8"))
CARDS = yaml.safe_load((ROOT / "catalog/cards.yml").read_text(encoding="utf-8"))


def changed(document: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A copy with keys of dotted (here: double underscore) names set; a value of ... removes the key."""
    result = copy.deepcopy(document)
    for name, value in changes.items():
        *path, last = name.split("__")
        inner = result
        for part in path:
            inner = inner[part]
        if value is ...:
            del inner[last]
        else:
            inner[last] = value
    return result


@pytest.fixture
def catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A catalogue of one's own to spoil."""
    shutil.copytree(ROOT / "catalog", tmp_path / "catalog")
    monkeypatch.setattr(catalogue_files, "CATALOG", tmp_path / "catalog")
    return tmp_path / "catalog"


@pytest.mark.parametrize("folder", ["models", "releases"])
def test_every_file_of_the_catalogue_is_right(folder: str) -> None:
    for name in names(folder):
        load_checked(folder.removesuffix("s"), resolve(folder, folder, name))


def test_the_card_types_are_right() -> None:
    load_checked("cards", catalogue_files.CATALOG / "cards.yml")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dtype": ...}, ["lacks the key dtype", "how the weights are stored"]),
        ({"validated": {"releases": ["1.22"]}}, ["validated lacks the key generations"]),
        ({"unsupported_generations": {"HL-225": "no"}}, ["a generation of cards such as gaudi3"]),
        ({"directroy": "x"}, ['unknown key "directroy"', "Did you mean directory?", "Known: architecture,"]),
        ({"defaults__tensor_paralel_size": 2}, ["defaults has", "Did you mean tensor_parallel_size"]),
        ({"defaults__modules": [0, 1]}, ['defaults has the unknown key "modules"']),
        ({"defaults__port": 80}, ["defaults.port is 80", "at least 1024"]),
        ({"defaults__port": "30001"}, ['defaults.port is "30001"', "of type integer"]),
        ({"defaults__dtype": "float16"}, ['defaults.dtype is "float16"', "one of auto, bfloat16"]),
        ({"defaults__input_range": [1]}, ["defaults.input_range is [1]", "two whole numbers, the smaller first"]),
        ({"defaults__input_range": [1, "2"]}, ["defaults.input_range[1]", "a whole number from 1"]),
        ({"defaults__gpu_memory_utilization": 1.5}, ["a share from 0 to 1, at most 1"]),
        ({"defaults__extra_environment": {"A": 5}}, ["defaults.extra_environment.A is 5", "one line of text"]),
        ({"defaults__extra_environment": {"A\nB": "5"}}, ["an environment variable's name"]),
        ({"defaults__extra_args": ["--x\n"]}, ["defaults.extra_args[0]", "one line of text"]),
        ({"directory": "../../etc"}, ['directory is "../../etc"', "without a slash"]),
        ({"directory": "a;rm -rf /"}, ["one directory name below the weights root"]),
        ({"name": "Qwen3 8B"}, ["name is", "lower case letters"]),
        ({"releases": [1.22]}, ["releases[0] is 1.22", 'as text: "1.22", not 1.22']),
        ({"repositories__huggingface__revision": "main"}, ["a commit id of 40 hexadecimal digits"]),
        ({"repositories__pirate": {"repository": "a/b"}}, ['unknown key "pirate"', "huggingface"]),
        ({"architecture__num_attention_heads": 0}, ["architecture.num_attention_heads is 0", "a whole number from 1"]),
        ({"architecture": []}, ["architecture is []", "config.json"]),
        ({"sources": []}, ["sources is []", "where the values come from"]),
        ({"notes": ["x" * 5000]}, ["notes[0]", "at most 1000 characters"]),
    ],
)
def test_a_wrong_model_file_is_told_what_would_be_right(changes: dict[str, Any], words: list[str]) -> None:
    text = " ".join(findings("model", changed(QWEN, **changes)))
    for word in words:
        assert word in text
    assert len(text) < 1500


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"pins__vllm_fork__commit": "aice/v1.22.0"}, ["pins.vllm_fork.commit", "never a branch"]),
        ({"image__tag": "latest"}, ["image.tag", "never latest"]),
        ({"image__digest": "abc"}, ["image.digest", "sha256:"]),
        ({"fork_directory": "opt"}, ["fork_directory", "an absolute path"]),
        ({"environment__PT_HPU_LAZY_MODE": 1}, ["environment.PT_HPU_LAZY_MODE is 1", "in quotes"]),
        ({"rules": "1.23"}, ["rules", "one of vllm-defaults"]),
        ({"variables": ...}, ["lacks the key variables"]),
        ({"imgae": {}}, ["Did you mean image?"]),
    ],
)
def test_a_wrong_release_file_is_told_what_would_be_right(changes: dict[str, Any], words: list[str]) -> None:
    text = " ".join(findings("release", changed(RELEASE, **changes)))
    for word in words:
        assert word in text


def test_a_wrong_card_type_is_told_what_would_be_right() -> None:
    name = next(iter(CARDS["cards"]))
    assert "memory_mib" in " ".join(findings("cards", changed(CARDS, **{f"cards__{name}__memory_mib": "96 GB"})))
    assert "Did you mean pci_ids?" in " ".join(findings("cards", changed(CARDS, **{f"cards__{name}__pci_id": "x"})))
    assert findings("cards", {}) == [
        "the file lacks the key compute (what cards are asked to compute, and how exact it has to be).",
        "the file lacks the key cards (card types by name).",
    ]


@pytest.mark.parametrize("key", sorted(QWEN))
def test_required_keys_are_missed_and_only_those(key: str) -> None:
    optional = {"release_defaults", "architecture", "architectures", "weights_bytes", "notes", "check"}
    assert bool(findings("model", changed(QWEN, **{key: ...}))) == (key not in optional)


def test_the_file_is_named_and_the_findings_are_few(catalogue: Path) -> None:
    path = catalogue / "models" / "qwen3-8b.yml"
    broken = {f"key_{number}": 1 for number in range(30)}
    path.write_text(yaml.safe_dump({**broken, "defaults": {"port": 1}}), encoding="utf-8")
    with pytest.raises(Refusal, match=r"^catalog/models/qwen3-8b\.yml: .*and \d more\)$"):
        load_checked("model", path)


def test_a_file_is_called_what_its_name_says(catalogue: Path) -> None:
    shutil.copy(catalogue / "models" / "qwen3-8b.yml", catalogue / "models" / "other.yml")
    with pytest.raises(Refusal, match="name is qwen3-8b, but must be the file's own name, other"):
        load_checked("model", catalogue / "models" / "other.yml")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a: [1", "not valid YAML"),
        (b"a: 1\na: 2\n", r"\(line 2\).*the key a stands there twice"),
        (b"a: !!python/object/apply:os.system [id]\n", "not valid YAML"),
        (b"\xff\xfe\x00", "not valid YAML"),
        (b"[" * 100000, "not valid YAML"),
        (b"a" * (yaml_files.MAX_FILE + 1), "the limit is"),
    ],
)
def test_a_file_that_is_no_yaml(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "x.yml"
    path.write_bytes(content)
    with pytest.raises(Refusal, match=f"(?s)^catalog/x.yml.*{words}"):
        load_yaml(path, "catalog/x.yml")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="cannot be read: No such file"):
        load_yaml(tmp_path / "x.yml", "catalog/x.yml")


@pytest.mark.parametrize(
    ("name", "hint"),
    [("qwen3-8", "Did you mean qwen3-8b"), ("QwQ-32B", "Did you mean qwq-32b"), ("deepseek-r1", "deepseek-r1-0528")],
)
def test_an_unknown_model_is_answered_with_near_names(name: str, hint: str) -> None:
    with pytest.raises(Refusal, match=f"There is no model .*{hint}"):
        resolve("models", "model", name)


@pytest.mark.parametrize(
    ("name", "of_hub"),
    [
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", True),
        # One that is near a model's may be meant as it is.
        ("someone/qwen3-8b-tuned", True),
        ("Qwen/Qwen3-8B", False),
        ("qwen3-9b", False),
    ],
)
def test_an_unknown_id_of_a_hub_is_answered_with_the_options_that_take_it(name: str, *, of_hub: bool) -> None:
    with pytest.raises(Refusal) as caught:
        resolve("models", "model", name)
    for option in ("weights", "model_config=FILE", "docs/models.md"):
        assert (option in str(caught.value)) is of_hub


def test_an_unknown_release_is_answered_with_all_names() -> None:
    with pytest.raises(Refusal, match=r"There is no release \"9\" in catalog/releases\. Known: 1\.16, 1\.18"):
        resolve("releases", "release", "9")


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("1.16.0", "1.16"),
        ("1.18.0", "1.18"),
        ("1.21.3", "1.21"),
        ("1.21.3-57", "1.21"),
        ("v1.22.2", "1.22"),
        ("v1.22", "1.22"),
        ("v1.24", "1.24"),
        ("1.24.0", "1.24"),
        ("v1.24.1", "1.24.1"),
        ("1.24.1-482", "1.24.1"),
        ("deepseek-r1", "deepseek-r1"),
    ],
)
def test_a_version_as_the_manuals_print_it_names_its_release(version: str, name: str) -> None:
    assert resolve("releases", "release", version).stem == releases.named(version) == name


@pytest.mark.parametrize("version", ["1.21.4", "1.24.1-581", "1.24.2", "v", "", "../1.22", "1.22.2-32-1"])
def test_a_version_of_no_release_stays_as_it_is(version: str) -> None:
    assert releases.named(version) == version


@pytest.mark.parametrize("name", ["../releases/1.22", "/etc/passwd", "qwen3-8b\n", "", "x" * 100000, None, 1.22, ["a"]])
def test_a_hostile_name_is_no_path(name: object) -> None:
    with pytest.raises(Refusal, match="There is no model") as caught:
        resolve("models", "model", name)
    assert len(str(caught.value)) < 1500
    assert "docs/models.md lists them" in str(caught.value) or "Did you mean" in str(caught.value)


@settings(max_examples=200)
@given(st.text(max_size=200))
def test_any_text_is_a_known_name_or_a_sentence(name: str) -> None:
    if name in names("models"):
        assert resolve("models", "model", name).stem == name
        return
    with pytest.raises(Refusal) as caught:
        resolve("models", "model", name)
    assert "\n" not in str(caught.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=10,
)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(["model", "release", "cards"]), JSON, st.sampled_from(sorted(QWEN)))
@example("model", {"\n": None}, "release_defaults")
def test_whatever_stands_in_a_file_becomes_sentences(kind: str, value: Any, key: str) -> None:
    for document in (value, {**QWEN, key: value} if kind == "model" else value):
        for text in findings(kind, document):
            assert text.endswith(".")
            assert "\n" not in text


def test_requests_from_the_command_line_are_text() -> None:
    assert serving_plan.request_list('[{"model": "qwen3-8b"}]') == [{"model": "qwen3-8b"}]
    assert serving_plan.request_list("[{model: qwen3-8b}]") == [{"model": "qwen3-8b"}]
    assert serving_plan.request_list({"model": "qwen3-8b"}) == [{"model": "qwen3-8b"}]
    for wrong in ("qwen3-8b", "[{", 5, None, "!!python/name:os.system"):
        with pytest.raises(Refusal, match="requests"):
            serving_plan.request_list(wrong)


def test_a_topology_file_may_be_a_modules_result(tmp_path: Path) -> None:
    document = {"schema": 1, "cards": [{"module_id": 3, "name": "HL-225"}]}
    # Tabs, as some tools indent JSON with, are no YAML.
    for content in (json.dumps(document, indent="\t"), json.dumps({"changed": False, "topology": document})):
        path = tmp_path / "node.json"
        path.write_text(content, encoding="utf-8")
        assert [card["module_id"] for card in serving_plan.read_topology(str(path))["cards"]] == [3]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[1]", "must be a mapping of names to values, not [1]."),
        ("", "must be a mapping of names to values, not null."),
        ("{}", "It is empty, but what hl-smi prints was expected"),
        ('{"cards": [], "cards": []}', "is not valid YAML: the key cards stands there twice."),
        ("cards: []\ncards: []", " (line 2) is not valid YAML: the key cards stands there twice."),
        ("cards: [&a {module_id: 1}, *a]", " (line 1) is not valid YAML: the alias *a is not read here"),
        ("cards: [{module_id: 1, colour: red}]", "cards[0] does not know 'colour'."),
        ("cards: [{module_id: 1, name: null, index: none}]", "cards[0].index must be a whole number"),
        (
            "cards: [{module_id: 1, name: 2024-99-99, index: " + "9" * 5000 + "}]",
            "is not valid YAML: Exceeds the limit",
        ),
        ("\x00\x01", "is not valid YAML: special characters are not allowed."),
    ],
)
def test_what_is_wrong_with_a_topology_file_is_said_with_its_name(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "node.yml"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(Refusal) as caught:
        serving_plan.read_topology(str(path))
    assert str(caught.value).startswith(f"The topology file {path}")
    assert words in str(caught.value)
    assert len(str(caught.value)) < 600


def test_what_is_no_file_to_read(tmp_path: Path) -> None:
    def refused(name: object) -> str:
        with pytest.raises(Refusal) as caught:
            serving_plan.read_topology(str(name))
        return str(caught.value)

    assert refused(tmp_path / "absent.yml").endswith("absent.yml cannot be read: No such file or directory.")
    assert refused(tmp_path).endswith(" is a directory, not a file.")
    assert refused("/dev/zero") == "The topology file /dev/zero is a pipe or a device, not a file."
    os.mkfifo(tmp_path / "pipe")
    assert refused(tmp_path / "pipe").endswith("pipe is a pipe or a device, not a file.")
    large = tmp_path / "large.yml"
    with large.open("wb") as stream:
        stream.truncate(100 << 20)
    assert refused(large).endswith("has 104857600 bytes, the limit is 1048576. Is it the right file?")
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    assert refused(tmp_path / "binary").endswith("is not valid YAML: it is not text in UTF-8.")
    for name in ("", "a\0b"):
        assert "topology_file is not the name of a file" in refused(name)
    assert "cannot be read" in refused("~nobody-of-that-name/x.yml")
    assert len(refused("x" * 1_000_000)) < 300


def test_missing_weights_come_with_the_command_that_gets_them() -> None:
    text = how_to_get(QWEN, "/data/models/Qwen3-8B")
    assert text.startswith("Set gaudi_weights_fetch: true to have them brought in the same run, or get them with: ")
    revision = QWEN["repositories"]["huggingface"]["revision"]
    assert "ansible-playbook playbooks/fetch_weights.yml -e model=qwen3-8b" in text
    assert f"hf download Qwen/Qwen3-8B --revision {revision} --local-dir /data/models/Qwen3-8B, or" in text
    assert "modelscope download Qwen/Qwen3-8B --local_dir" in text


def test_converted_weights_are_fetched_under_their_published_name() -> None:
    entry = load_checked("model", resolve("models", "model", "deepseek-r1-0528"))
    text = how_to_get(entry, "/data/models/DeepSeek-R1-0528-G2")
    assert "--local-dir /data/models/DeepSeek-R1-0528," in text
    converted = "Then convert /data/models/DeepSeek-R1-0528 to /data/models/DeepSeek-R1-0528-G2"
    assert f"{converted} with playbooks/convert_weights.yml" in text


def test_measurement_files_are_fetched_or_made() -> None:
    entry = load_checked("model", resolve("models", "model", "deepseek-r1-0528"))
    text = how_to_get(entry, "/data/models/DeepSeek-R1-0528-G2")
    directory = "/data/models/ds-r1-0528-default-pile-g2-0529"
    assert f"hf download Yi30/ds-r1-0528-default-pile-g2-0529 --local-dir {directory}." in text
    entry = load_checked("model", resolve("models", "model", "qwen3-coder-480b-a35b-instruct-fp8"))
    text = how_to_get(entry, f"/data/models/{entry['directory']}")
    assert text.endswith("playbooks/calibrate.yml -e model=qwen3-coder-480b-a35b-instruct-fp8 makes them.")


def test_weights_that_are_published_nowhere() -> None:
    assert "published nowhere" in how_to_get({**QWEN, "repositories": {}}, "/data/models/x")


def test_near_names() -> None:
    assert close_matches("prot", ["port", "host"]) == " Did you mean port?"
    assert close_matches("zzz", ["port", "host"]) == ""


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        # Hub ids, of this model alone, in any case.
        ("Qwen/Qwen3-8B", ["qwen3-8b"]),
        ("openai/GPT-oss-20b", ["gpt-oss-20b"]),
        ("deepseek-ai/DeepSeek-R1", ["deepseek-r1-671b"]),
        # The id of the repository that the hub gave the model later.
        ("meta-llama/Llama-3.1-8B-Instruct", ["meta-llama-3.1-8b-instruct"]),
        # Names with other letters, and parts of names.
        ("qwen3_8b", ["qwen3-8b"]),
        ("qwen2.5-7b-instrct", ["qwen2.5-7b-instruct", "qwen2.5-72b-instruct", "qwen2.5-vl-7b-instruct"]),
        ("Llama-4-Scout", ["llama-4-scout-17b-16e-instruct"]),
        ("llama3.1-8b", ["meta-llama-3.1-8b", "meta-llama-3.1-8b-instruct"]),
        ("mixtral-8x7b", ["mixtral-8x7b-v0.1", "mixtral-8x7b-instruct-v0.1"]),
        ("mistralai/Phi-Nothing", []),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", []),
        ("zzz", []),
        ("", []),
    ],
)
def test_a_model_of_another_name_is_found(given: str, meant: list[str]) -> None:
    assert near_models(given) == meant


@pytest.mark.parametrize("given", ["qwen", "llama", "gpt-oss", "mistral", "3"])
def test_at_most_three_models_are_suggested(given: str) -> None:
    assert len(near_models(given)) <= 3
    with pytest.raises(Refusal) as caught:
        resolve("models", "model", given)
    assert str(caught.value).count(" or ") <= 2


def test_every_hub_id_of_the_catalogue_means_its_model() -> None:
    for name in names("models"):
        for repository in load_checked("model", resolve("models", "model", name)).get("repositories", {}).values():
            near = near_models(repository["repository"])
            assert name in near or len(near) == 3, repository
