"""Refusals: one class, an id that programs compare beside the sentence that people read."""

from __future__ import annotations

import ast
import re
from collections import defaultdict

import pytest
from ansible.module_utils.gaudi.base.refusal import Refusal

from tests.unit.base.refusals import CLASSES, DOCUMENT, HOME, RefusalPlace, programs, sites, table, table_in
from tests.unit.base.refusing import ends, handlers, refusing, without_id
from tests.unit.sources import nodes

ID = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")

# Ids that several files give, each for the same thing. Any other id belongs to one file.
SHARED = {
    "begun_with_other_options": "half a conversion that these options do not continue",
    "boot_full": "no space for the initramfs of a kernel",
    "engine_is_rootless": "an engine that a user other than root runs",
    "packages_not_offered": "packages that no package repository of the node has",
    "card_counts_differ": "two numbers of cards that must be the same are not",
    "config_unreadable": "a model's config.json",
    "control_character": "text that is not one line",
    "converted_before": "weights that were converted before",
    "empty": "a value that must say something says nothing",
    "file_in_the_way": "something else in the place of a file of ours, or no way to write it",
    "file_too_large": "a file of more bytes than any right one has",
    "file_unreadable": "a file that the system does not let anybody read",
    "folder_gone": "a peer that has no longer what it was to give",
    "image_record_damaged": "the record of images",
    "index_unreadable": "an index of shards",
    "max_model_len_beyond_model": "longer requests than a model takes",
    "measurements_missing": "some of the measurement files of a set",
    "missing_key": "a key that must be there",
    "module_twice": "one card named twice",
    "no_room": "the free space of a file system",
    "no_such_instance": "a name that no instance of the node has",
    "no_such_module": "a module id that no card of the node has",
    "no_such_suite": "a repository without the suite, or none at its address",
    "not_a_file": "a name that stands for no file",
    "not_a_json_object": "JSON that is no object",
    "not_a_kernel_setting": "a name of sysctl",
    "not_a_list": "the type of a value",
    "not_a_mapping": "the type of a value",
    "not_a_number": "the type of a value",
    "not_a_pair": "a value of two parts",
    "not_a_whole_number": "the type of a value",
    "not_a_regular_file": "a pipe, a device or a folder in the place of a file",
    "not_as_recorded": "files of a peer that differ from its record",
    "not_in_catalogue": "a model or release without a file in the catalogue",
    "not_offered": "a part of the vendor's manuals that this project has not",
    "not_safetensors": "a file of weights without a proper header",
    "not_serving": "an instance that does not answer now",
    "not_text": "the type of a value",
    "not_the_conversion": "a converted tensor that differs from its source",
    "not_there": "a file that is not there",
    "not_yaml": "text that is no YAML",
    "nothing_to_convert": "weights without anything a converter works on",
    "out_of_range": "a number outside its limits",
    "range_backwards": "a lowest number above the highest",
    "record_damaged": "a JSON file that is there and does not hold what it must",
    "repository_behind_proxy": "a proxy that keeps packages from the node",
    "repository_down": "a repository that does not answer",
    "request_unreadable": "the request of a job",
    "reservations_damaged": "the file of reservations",
    "serial_changed": "another card in the place of one that is known",
    "shards_missing": "shards that an index names",
    "source_changed": "weights that changed while they were converted",
    "source_gone": "weights that are no longer there for their conversion to go on",
    "staging_not_ours": "somebody else's folder in the place of work in progress",
    "system_error": "what the system says of a file",
    "too_many_entries": "the length of a list or mapping",
    "unknown_choice": "a word outside the few that are allowed",
    "unknown_key": "a key that nobody reads",
    "unknown_to_release": "an argument or variable that the release's server has not",
    "unsupported_speculation": "a method of guessing tokens that the release or the model cannot do",
    "weights_too_large": "weights and the memory of a card",
    "wrong_catalogue_file": "the content of a file in the catalogue",
    "wrong_form": "text that does not look as it must",
}


def test_a_refusal_is_its_sentence_to_people_and_its_id_to_programs() -> None:
    refusal = Refusal("no_cards", "No card was found.")
    assert (refusal.id, str(refusal)) == ("no_cards", "No card was found.")
    assert refusal.as_keys() == {"refused": "No card was found.", "refused_id": "no_cards"}


def test_a_refusal_has_cause_and_remedy_apart() -> None:
    refusal = Refusal("no_cards", "No card was found.", "Install one.").about("chat")
    assert (refusal.cause, refusal.remedy) == ("chat: No card was found.", "Install one.")
    assert str(refusal) == "chat: No card was found. Install one."
    assert Refusal.from_keys(refusal.as_keys()).args == refusal.args


def test_a_refusal_keeps_its_id_when_it_is_passed_on() -> None:
    refusal = Refusal("no_cards", "No card was found.")
    assert refusal.about("chat").as_keys() == {"refused": "chat: No card was found.", "refused_id": "no_cards"}
    assert Refusal.from_keys({"instance": "chat", **refusal.as_keys()}).args == refusal.args


def test_there_is_one_class() -> None:
    """And the converters' own, derived from it, for what is wrong in a result and can be made again."""
    classes = [
        (file, node.name)
        for file, tree in programs()
        for node in nodes(tree)
        if isinstance(node, ast.ClassDef)
        if "refus" in node.name.lower()
        or node.name in CLASSES
        or {ast.unparse(base) for base in node.bases} & {*CLASSES}
    ]
    assert classes == [(HOME, "Refusal"), ("roles/fp8_weights/files/gaudi_fp8/refusals.py", "WrongResult")]


def passed_on(id_: ast.expr) -> bool:
    """Whether the id is that of another refusal: refusal.id, or what a worker's answer says."""
    return (isinstance(id_, ast.Attribute) and id_.attr == "id") or (
        isinstance(id_, ast.Subscript) and ast.unparse(id_.slice) == "'refused_id'"
    )


def written_out(site: RefusalPlace) -> bool:
    """Whether a place gives an id, a cause and perhaps a remedy: the id a literal, or that of another refusal."""
    literal = site.id is not None and ID.fullmatch(site.id) is not None
    return len(site.arguments) in (2, 3) and (literal or passed_on(site.arguments[0]))


def test_an_id_is_written_out_where_it_is_given() -> None:
    assert len(sites()) > 600
    assert not [
        f"{site.file}:{site.line}: {[*map(ast.unparse, site.arguments)]}" for site in sites() if not written_out(site)
    ]


def test_an_id_of_several_files_means_the_same_in_all() -> None:
    files = defaultdict(set)
    for site in sites():
        files[site.id].add(site.file)
    several = {id_ for id_, found in files.items() if id_ is not None and len(found) > 1}
    assert several == set(SHARED), "say in SHARED what the id stands for, or give what is wrong an id of its own"


MODULE = """
from ansible.module_utils.gaudi.engine import daemon

def main(module):
    try:
        daemon.parse(text, path)
    except {caught} as error:
        module.fail_json({said})
"""


@pytest.fixture(scope="module")
def refuse() -> set[str]:
    """The functions that refuse."""
    return refusing()


def test_a_module_that_ends_with_a_refusal_gives_its_id(refuse: set[str]) -> None:
    ending = [call for file, tree in programs() for handler in handlers(file, tree, refuse) for call in ends(handler)]
    assert len(ending) >= 3
    assert not [place for file, tree in programs() for place in without_id(file, tree, refuse)]


@pytest.mark.parametrize(
    "caught", ["Refusal", "(OSError, Refusal)", "ValueError", "(OSError, ValueError)", "Exception"]
)
def test_a_module_that_keeps_an_id_to_itself_is_found(refuse: set[str], caught: str) -> None:
    kept = ast.parse(MODULE.format(caught=caught, said="msg=str(error)"))
    assert without_id("library/x.py", kept, refuse) == ["library/x.py:8"]
    given = ast.parse(MODULE.format(caught=caught, said="msg=str(error), refused_id=error.id"))
    assert without_id("library/x.py", given, refuse) == []


def test_an_error_that_is_no_refusal_needs_no_id(refuse: set[str]) -> None:
    other = MODULE.replace("daemon.parse(text, path)", "int(text)")
    assert without_id("library/x.py", ast.parse(other.format(caught="ValueError", said="msg=''")), refuse) == []


def test_a_document_with_a_sentence_is_written_with_its_id() -> None:
    """as_keys writes both; nobody else writes the sentence alone."""
    alone = [
        f"{file}:{node.lineno}"
        for file, tree in programs()
        if file != HOME
        for node in nodes(tree)
        if isinstance(node, ast.Dict)
        if "refused" in {key.value for key in node.keys if isinstance(key, ast.Constant)}
    ]
    assert not alone


def test_the_table_in_the_documentation_is_the_code() -> None:
    found = table_in(DOCUMENT.read_text(encoding="utf-8"))
    assert found == table(), "docs/refusals.md: replace its table; python -m tests.unit.base.refusals"
