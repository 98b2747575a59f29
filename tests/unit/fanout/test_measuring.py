"""Who measures, and who takes what was measured."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.module_utils.gaudi.fanout.measuring import calibration_round


def node(state: str = "", digest: str = "w", site: str = "one", storage: str = "") -> dict[str, Any]:
    return {"digest": digest, "site": site, "storage": storage, "has": state == "has", "running": state == "running"}


@pytest.mark.parametrize(
    ("said", "measure", "take"),
    [
        ({"a": node()}, ["a"], {}),
        ({"a": node("has")}, [], {}),
        ({"b": node(), "a": node(), "c": node()}, ["a"], {"b": "a", "c": "a"}),
        ({"a": node(), "b": node("has")}, [], {"a": "b"}),
        ({"a": node(), "b": node("running")}, ["b"], {"a": "b"}),
        ({"a": node("has"), "b": node("running")}, ["b"], {}),
        ({"a": node(), "b": node(digest="other")}, ["a", "b"], {}),
        ({"a": node("has"), "b": node(site="two"), "c": node(site="two")}, ["b"], {"c": "b"}),
        ({}, [], {}),
        # Of those that share a weights root, one writes, and nobody takes from himself.
        ({"a": node(storage="nfs"), "b": node(storage="nfs")}, ["a"], {}),
        ({"a": node("has", storage="nfs"), "b": node(storage="nfs"), "c": node()}, [], {"c": "a"}),
        ({"a": node(), "b": node(storage="nfs"), "c": node(storage="nfs")}, ["a"], {"b": "a"}),
    ],
)
def test_one_node_measures_for_its_site(said: dict[str, Any], measure: list[str], take: dict[str, str]) -> None:
    # Without a word on it, every node has a disk of its own.
    own = {name: {**words, "storage": words["storage"] or name} for name, words in said.items()}
    assert calibration_round(own) == {"measure": measure, "take": take}
