"""Documents of a node: what fits a form, and how what does not is named."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.module_utils.gaudi.base import documents

CARDS = {"cards": [{"module_id": int, "serial?": str}], "schema": int}


def test_a_document_of_the_form_is_read() -> None:
    text = '{"schema": 1, "cards": [{"module_id": 0}, {"module_id": 1, "serial": "A"}], "more": null}'
    assert documents.parse(text, CARDS, 1)["cards"][1] == {"module_id": 1, "serial": "A"}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "it is empty"),
        (" \n", "it is empty"),
        ("\0" * 40, "it is empty"),
        ('{"schema": 1,\n "cards": [', "it is cut off or no JSON (line 2: Expecting value)"),
        ("garbage", "it is cut off or no JSON (line 1: Expecting value)"),
        ("7", "it holds a number where a mapping is to be"),
        ("true", "it holds a truth value where a mapping is to be"),
        ("null", "it holds null where a mapping is to be"),
        ("[]", "it holds a list where a mapping is to be"),
        ('"words"', "it holds a text where a mapping is to be"),
        ("[" * 200_000, "it is nested too deeply"),
        ('{"a":' * 40 + "1" + "}" * 40, "it is nested too deeply"),
        ('{"a": Infinity}', "it holds a number that is too large"),
        ('{"a": [NaN]}', "it holds a number that is too large"),
        ('{"a": 1e400}', "it holds a number that is too large"),
        ('{"a": {"b": -1%s}}' % ("0" * 400), "it holds a number that is too large"),
        ('{"a": 1%s}' % ("0" * 5000), "it holds a number that is too large"),
        ('{"cards": []}', "it is of schema None; this release reads schema 1"),
        ('{"schema": 2, "cards": []}', "it is of schema 2; this release reads schema 1"),
        ('{"schema": 1}', "it has no cards, or of another type"),
        ('{"schema": 1, "cards": {}}', "it has no cards, or of another type"),
        ('{"schema": 1, "cards": [{"module_id": "0"}]}', "it has no cards.0.module_id, or of another type"),
        ('{"schema": 1, "cards": [{"module_id": true}]}', "it has no cards.0.module_id, or of another type"),
        ('{"schema": 1, "cards": [{"module_id": 0, "serial": 5}]}', "it has no cards.0.serial, or of another type"),
    ],
)
def test_anything_else_is_named(text: str, what: str) -> None:
    with pytest.raises(ValueError) as raised:
        documents.parse(text, CARDS, 1)
    assert str(raised.value) == what


def test_a_file_of_a_model_may_have_infinite_numbers() -> None:
    """time_step_limit of Mamba's configurations is one."""
    found = documents.parse('{"time_step_limit": [0.0, Infinity]}', of_model=True)
    assert found["time_step_limit"][1] == float("inf")


@pytest.mark.parametrize(
    ("value", "form", "misfit"),
    [
        ({"a": 1, "b": 2}, {str: int}, None),
        ({"a": 1, "b": "2"}, {str: int}, "b"),
        ([1, "x"], [int], "1"),
        (None, (str, type(None)), None),
        (1.5, (int, float), None),
        ("x", dict, "."),
        ("x", [int], "."),
        ("x", {"a": int}, "."),
    ],
)
def test_the_first_misfit_is_named(value: Any, form: Any, misfit: str | None) -> None:
    assert documents.misfit(value, form) == misfit


def test_damaged_names_the_file() -> None:
    assert str(documents.Damaged("/x/plan.json", "it is empty")) == "/x/plan.json is damaged: it is empty"
