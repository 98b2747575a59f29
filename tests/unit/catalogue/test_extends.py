"""A release file that extends another: resolved in one place, checked as a whole, the right file in each message."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.catalogue.extends import extended

from plugin_utils import brain, catalogue_files, releases
from plugin_utils.catalogue_files import load_checked

FILES = {
    "old": {"name": "old", "list": [1, 2], "deep": {"a": {"x": 1, "y": 2}, "b": None}, "gone": 5},
    "new": {"extends": "old", "name": "new", "list": [3], "deep": {"a": {"y": 3, "z": 4}}, "gone": None},
    "newest": {"extends": "new", "name": "newest", "deep": {"a": {"x": None}, "c": {"e": 1}}},
    "self": {"extends": "self"},
    "one": {"extends": "two"},
    "two": {"extends": "one"},
    "typo": {"extends": "odl"},
    "number": {"extends": 1.22},
    "text": "a text",
    "mistyped": {"extends": "new", "lits": None},
    "deeper": {"extends": "new", "deep": {"a": {"w": 1, "v": None}}},
    "beneath": {"extends": "new", "deep": {"c": {"d": None}}},
    "of-text": {"extends": "text"},
}
MISTYPED = "catalog/releases/mistyped.yml: lits is null, which removes a key, but the file that it extends has"


def whole(name: str) -> Any:
    return extended(name, FILES, FILES.__getitem__)


def test_keys_are_added_replaced_and_removed() -> None:
    assert whole("old").content == FILES["old"]
    assert whole("new").content == {"name": "new", "list": [3], "deep": {"a": {"x": 1, "y": 3, "z": 4}, "b": None}}
    assert whole("newest").content["deep"] == {"a": {"y": 3, "z": 4}, "b": None, "c": {"e": 1}}


def test_nothing_is_changed_in_the_file_that_is_extended() -> None:
    before = yaml.safe_dump(FILES)
    whole("newest")
    assert yaml.safe_dump(FILES) == before


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("self", "catalog/releases/self.yml: extends is 'self', which extends it in turn (self -> self)."),
        ("one", "catalog/releases/two.yml: extends is 'one', which extends it in turn (one -> two -> one)."),
        ("typo", "catalog/releases/typo.yml: extends is 'odl', which has no file in catalog/releases. Known: "),
        ("number", "catalog/releases/number.yml: extends is 1.22, which has no file"),
        ("mistyped", f"{MISTYPED} none of that name. Did you mean list? Correct it, or leave it out."),
        ("deeper", "catalog/releases/deeper.yml: deep.a.v is null, which removes a key, but"),
        ("beneath", "catalog/releases/beneath.yml: deep.c.d is null, which removes a key, but"),
        ("of-text", "catalog/releases/text.yml must be a mapping"),
    ],
)
def test_what_cannot_be_extended_is_refused_with_its_file(name: str, words: str) -> None:
    with pytest.raises(Refusal) as refused:
        whole(name)
    assert str(refused.value).startswith(words)


@pytest.mark.parametrize(
    ("path", "file"),
    [
        (["name"], "newest"),
        (["list", 0], "new"),
        (["list", 1], "old"),
        (["deep", "a", "x"], "newest"),
        (["deep", "a", "z"], "new"),
        (["gone"], "new"),
        (["nowhere"], "newest"),
    ],
)
def test_the_file_a_key_stands_in(path: list[str | int], file: str) -> None:
    assert whole("newest").file_with(path) == f"catalog/releases/{file}.yml"


@pytest.fixture
def catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the catalogue that the action reads."""
    shutil.copytree(brain.ROOT / "catalog", tmp_path / "catalog")
    monkeypatch.setattr(catalogue_files, "CATALOG", tmp_path / "catalog")
    return tmp_path / "catalog" / "releases"


def change(file: Path, old: str, new: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert text.count(old) == 1
    file.write_text(text.replace(old, new), encoding="utf-8")


@pytest.mark.parametrize(
    ("file", "old", "new", "words"),
    [
        ("1.22", "max_num_seqs: 128", "max_num_seqs: many", "releases/1.22.yml: constants.max_num_seqs is"),
        ("1.22-2025.11", 'default_rule: "length"', 'default_rule: "both"', "2025.11.yml: constants.default_rule is"),
        ("1.22", "seed: 2025", "sead: 2025", 'releases/1.22.yml: constants has the unknown key "sead"'),
        ("1.22-2025.11", 'network: "listen-outside"', "port: null", "2025.11.yml: constants lacks the key port"),
        ("1.22-2025.11", 'name: "1.22-2025.11"\n', "", "2025.11.yml: name is None, but must be the file's own name"),
        ("1.22-2025.11", 'extends: "1.22"', 'extends: "9.99"', "2025.11.yml: extends is '9.99', which has no file"),
        ("1.22", "rules:", 'extends: "1.22-2025.11"\nrules:', "1.22.yml: extends is '1.22-2025.11', which extends it"),
    ],
)
def test_a_message_names_the_file_where_the_key_stands(
    catalogue: Path, file: str, old: str, new: str, words: str
) -> None:
    change(catalogue / f"{file}.yml", old, new)
    with pytest.raises(Refusal) as refused:
        load_checked("release", catalogue / "1.22-2025.11.yml")
    assert words in str(refused.value)


def test_the_action_and_the_other_programs_read_the_same(subtests: pytest.Subtests) -> None:
    for name in releases.names():
        with subtests.test(name=name):
            assert load_checked("release", releases.FOLDER / f"{name}.yml") == releases.read(name)


def test_what_is_read_is_the_readers_own_and_what_the_file_says_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releases, "FOLDER", tmp_path)
    (tmp_path / "9.9.yml").write_text("constants: {seed: 1}", encoding="utf-8")
    releases.own("9.9")["constants"]["seed"] = 2
    assert releases.own("9.9") == {"constants": {"seed": 1}}
    (tmp_path / "9.9.yml").write_text("constants: {seed: 3}", encoding="utf-8")
    assert releases.own("9.9") == {"constants": {"seed": 3}}


def test_releases_that_differ_in_a_few_keys_say_only_these() -> None:
    for name, base in (("1.22-2025.11", "1.22"), ("deepseek-r1-2025.11", "deepseek-r1")):
        assert releases.own(name)["extends"] == base
        assert "model_types" not in releases.own(name)


def test_nobody_reads_a_release_as_it_stands_in_its_file() -> None:
    """Half a release has no software and no image: whoever needs one takes it from the action's result."""
    for room in ("roles", "playbooks"):
        for file in (brain.ROOT / room).rglob("*.yml"):
            text = file.read_text(encoding="utf-8")
            assert not re.search(r"include_vars:[^\n]*\n?[^\n]*release", text), file
