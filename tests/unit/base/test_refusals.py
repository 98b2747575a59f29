"""Refusals: one class, an id that programs compare beside the sentence that people read."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator

import pytest
from ansible.module_utils.gaudi.base.refusal import Refusal

from tests.unit.base.refusals import DOCUMENT, HOME, Site, programs, sites, table, table_in

SITES = sites()
ID = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")

# Ids that several files give, each for the same thing. Any other id belongs to one file.
SHARED = {
    "card_counts_differ": "two numbers of cards that must be the same are not",
    "config_unreadable": "a model's config.json",
    "control_character": "text that is not one line",
    "empty": "a value that must say something says nothing",
    "file_too_large": "a file of more bytes than any right one has",
    "file_unreadable": "a file that the system does not let anybody read",
    "max_model_len_beyond_model": "longer requests than a model takes",
    "missing_key": "a key that must be there",
    "module_twice": "one card named twice",
    "no_such_module": "a module id that no card of the node has",
    "not_a_json_object": "JSON that is no object",
    "not_a_kernel_setting": "a name of sysctl",
    "not_a_list": "the type of a value",
    "not_a_mapping": "the type of a value",
    "not_a_number": "the type of a value",
    "not_a_pair": "a value of two parts",
    "not_a_whole_number": "the type of a value",
    "not_in_catalogue": "a model or release without a file in the catalogue",
    "not_offered": "a part of the vendor's manuals that this project has not",
    "not_text": "the type of a value",
    "out_of_range": "a number outside its limits",
    "range_backwards": "a lowest number above the highest",
    "reservations_damaged": "the file of reservations",
    "serial_changed": "another card in the place of one that is known",
    "too_many_entries": "the length of a list or mapping",
    "unknown_choice": "a word outside the few that are allowed",
    "unknown_key": "a key that nobody reads",
    "unknown_to_release": "an argument or variable that the release's server has not",
    "weights_too_large": "weights and the memory of a card",
    "wrong_catalogue_file": "the content of a file in the catalogue",
    "wrong_form": "text that does not look as it must",
}


def test_a_refusal_is_its_sentence_to_people_and_its_id_to_programs() -> None:
    refusal = Refusal("no_cards", "No card was found.")
    assert (refusal.id, str(refusal)) == ("no_cards", "No card was found.")
    assert refusal.as_keys() == {"refused": "No card was found.", "refused_id": "no_cards"}


def test_a_refusal_keeps_its_id_when_it_is_passed_on() -> None:
    refusal = Refusal("no_cards", "No card was found.")
    assert refusal.about("chat").as_keys() == {"refused": "chat: No card was found.", "refused_id": "no_cards"}
    assert Refusal.from_keys({"instance": "chat", **refusal.as_keys()}).args == refusal.args


def test_there_is_one_class() -> None:
    classes = [
        file
        for file, tree in programs()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and "refus" in node.name.lower()
    ]
    assert classes == [HOME]


@pytest.mark.parametrize("site", SITES, ids=lambda site: f"{site.file}:{site.line}")
def test_an_id_is_written_out_where_it_is_given(site: Site) -> None:
    assert len(site.arguments) == 2
    passed_on = isinstance(site.arguments[0], ast.Attribute) and site.arguments[0].attr == "id"
    assert passed_on or (site.id is not None and ID.fullmatch(site.id)), ast.unparse(site.arguments[0])


def test_an_id_of_several_files_means_the_same_in_all() -> None:
    files = defaultdict(set)
    for site in SITES:
        files[site.id].add(site.file)
    several = {id_ for id_, found in files.items() if id_ is not None and len(found) > 1}
    assert several == set(SHARED), "say in SHARED what the id stands for, or give what is wrong an id of its own"


def handlers() -> Iterator[tuple[str, ast.ExceptHandler]]:
    """Every place that catches a refusal by its class."""
    for file, tree in programs():
        for node in ast.walk(tree):
            if isinstance(node, ast.ExceptHandler) and isinstance(node.type, ast.Name) and node.type.id == "Refusal":
                yield file, node


def test_a_module_that_ends_with_a_refusal_gives_its_id() -> None:
    calls = [
        (file, call)
        for file, handler in handlers()
        for call in ast.walk(handler)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "fail_json"
    ]
    assert len(calls) >= 3
    assert not [file for file, call in calls if "refused_id" not in {word.arg for word in call.keywords}]


def test_a_document_with_a_sentence_is_written_with_its_id() -> None:
    """as_keys writes both; nobody else writes the sentence alone."""
    alone = [
        f"{file}:{node.lineno}"
        for file, tree in programs()
        if file != HOME
        for node in ast.walk(tree)
        if isinstance(node, ast.Dict)
        if "refused" in {key.value for key in node.keys if isinstance(key, ast.Constant)}
    ]
    assert not alone


def test_the_table_in_the_documentation_is_the_code() -> None:
    found = table_in(DOCUMENT.read_text(encoding="utf-8"))
    assert found == table(), "docs/refusals.md: replace its table; python -m tests.unit.base.refusals"
