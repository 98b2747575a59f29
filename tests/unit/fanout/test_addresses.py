"""A node that other nodes cannot reach is asked for its address, where weights go from node to node."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.module_utils.gaudi.fanout.addresses import without_address

FETCH = {"directory": "Qwen3-8B", "repositories": {}, "measured_cards": 0}
CONVERT = {"source": "Qwen3-8B", "target": "Qwen3-8B-G2", "tool": "fp8_block"}
FOLDER = ["Qwen3-8B"]


def node(address: str = "", missing: Any = (), *, shared: bool = False, **own: Any) -> dict[str, Any]:
    read = {"node": {"address": address, "weights_shared": shared}, "missing_weights": list(missing)}
    plans = {"one": [{"fetch": FETCH, "convert": None}, {"fetch": FETCH, "convert": CONVERT}]}
    planned = {"preflight_serving": {"source_plans": plans}, "gaudi_weights_fetch": True}
    return {"preflight_node": read, **planned, **own}


@pytest.mark.report("N08")
def test_a_node_without_a_default_route_is_asked_for_its_address() -> None:
    for lacks, has in ((FOLDER, ()), ((), FOLDER), (FOLDER, FOLDER)):
        sentence = without_address({"a": node("10.0.0.1", has), "b": node("", lacks)}, "b", ["a", "b"])
        assert "gaudi_weights_address" in sentence
        assert "no default route of IPv4" in sentence
        assert sentence.endswith("]")
        assert "\n" not in sentence


@pytest.mark.parametrize(
    ("own", "other"),
    [
        # It has a route.
        (node("10.0.0.2", FOLDER), node("10.0.0.1")),
        (node("", FOLDER, gaudi_weights_address="storage-2"), node("10.0.0.1")),
        # Nobody lacks anything, or only a conversion.
        (node(), node("10.0.0.1")),
        (node("", ["Qwen3-8B-G2"]), node("10.0.0.1")),
        # Nobody takes from it.
        (node("", FOLDER), node("10.0.0.1", gaudi_weights_site="far")),
        (node("", FOLDER), {}),
        # One of them writes for all.
        (node("", FOLDER, shared=True), node("10.0.0.1", shared=True)),
        (node("", FOLDER, gaudi_weights_shared=True), node("10.0.0.1")),
        (node("", FOLDER, gaudi_weights_shared="yes"), node("10.0.0.1")),
    ],
)
def test_a_node_that_gives_nothing_needs_no_address(own: dict[str, Any], other: dict[str, Any]) -> None:
    assert without_address({"a": other, "b": own}, "b", ["a", "b"]) == ""


def test_a_node_alone_fetches_by_itself() -> None:
    nodes = {"a": node("10.0.0.1", FOLDER), "b": node("", FOLDER)}
    assert without_address(nodes, "b", ["b"]) == ""
    assert without_address({**nodes, "b": node("", FOLDER, gaudi_weights_shared=False)}, "b", ["a", "b"])
