"""Who measures, and who takes what was measured."""

from __future__ import annotations

from typing import Any

import pytest

from filter_plugins.calibration_turns import calibration_turns


def node(state: str = "", wish: str = "w", site: str = "one") -> dict[str, Any]:
    return {"wish": wish, "site": site, "has": state == "has", "running": state == "running"}


@pytest.mark.parametrize(
    ("said", "measure", "take"),
    [
        ({"a": node()}, ["a"], {}),
        ({"a": node("has")}, [], {}),
        ({"b": node(), "a": node(), "c": node()}, ["a"], {"b": "a", "c": "a"}),
        ({"a": node(), "b": node("has")}, [], {"a": "b"}),
        ({"a": node(), "b": node("running")}, ["b"], {"a": "b"}),
        ({"a": node("has"), "b": node("running")}, ["b"], {}),
        ({"a": node(), "b": node(wish="other")}, ["a", "b"], {}),
        ({"a": node("has"), "b": node(site="two"), "c": node(site="two")}, ["b"], {"c": "b"}),
        ({}, [], {}),
    ],
)
def test_one_node_measures_for_its_site(said: dict[str, Any], measure: list[str], take: dict[str, str]) -> None:
    assert calibration_turns(said) == {"measure": measure, "take": take}
