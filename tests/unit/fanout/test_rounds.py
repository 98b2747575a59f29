"""Who takes weights from whom."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.gaudi.fanout import rounds
from ansible.module_utils.gaudi.node import weight_folders as weights_folders
from hypothesis import given
from hypothesis import strategies as st

SUPPLY = Path(__file__).resolve().parents[3] / "roles/weights_supply/tasks"


def node(
    name: str, has: bool = False, needs: bool = True, site: str = "one", storage: str = "", **more: bool
) -> rounds.WeightsNode:
    flags = {"gives": True, **more}
    return rounds.WeightsNode(name, site, storage or f"node:{name}", has=has, needs=needs, **flags)


def play(nodes: list[rounds.WeightsNode], lost: frozenset[str] = frozenset()) -> tuple[list[rounds.WeightsNode], int]:
    """Play rounds to the end; nodes in ``lost`` vanish in their first round. Returns who is left, and the rounds.

    Whoever is behind a lost node in its chain gets nothing in that round.
    """
    attempt = 0
    while True:
        fetching, chains = rounds.fetchers(nodes), rounds.chains(nodes, attempt)
        if not fetching and not chains:
            return nodes, attempt
        named = [name for chain in chains for name in chain]
        assert len(set(named)) == len(named), "a node serves one at a time, and takes from one"
        has = {node.name for node in nodes if node.has}
        assert all(chain[0] in has and not has & set(chain[1:]) for chain in chains)
        done = set(fetching)
        for chain in chains:
            for peer, receiver in pairwise(chain):
                if {peer, receiver} & lost:
                    break
                done.add(receiver)
        nodes = [replace(node, has=node.has or node.name in done) for node in nodes if node.name not in lost]
        attempt += 1
        assert attempt < 3 * len(nodes) + 3


@pytest.mark.parametrize("count", [1, 2, 3, 8, 64])
def test_n_nodes_cost_one_fetch_and_one_round(count: int) -> None:
    nodes = [node(f"n{number:02}") for number in range(count)]
    assert rounds.fetchers(nodes) == ["n00"]
    after, attempts = play(nodes)
    assert all(node.has for node in after)
    assert attempts == (1 if count == 1 else 2)


def test_nobody_fetches_where_a_node_has_it() -> None:
    nodes = [node("a"), node("b", has=True, needs=False)]
    assert rounds.fetchers(nodes) == []
    assert rounds.chains(nodes, 0) == [["b", "a"]]


def test_every_site_fetches_once() -> None:
    nodes = [node("a"), node("b"), node("c", site="two"), node("d", site="two"), node("e", needs=False, site="three")]
    assert rounds.fetchers(nodes) == ["a", "c"]
    after, attempts = play(nodes)
    assert [node.name for node in after if node.has] == ["a", "b", "c", "d"]
    assert attempts == 2


def test_of_nodes_that_share_storage_one_writes() -> None:
    nodes = [node(name, storage="nfs4 filer:/models") for name in "abc"] + [node("d")]
    assert [node.name for node in rounds.writers(nodes)] == ["a", "d"]
    nodes[0] = replace(nodes[0], has=True)
    # All three have it now, and two of them would read the same disk.
    assert rounds.chains(nodes, 0) == [["a", "d"]]


def test_every_seed_begins_a_chain() -> None:
    nodes = [node(name, has=name in "ab") for name in "abcdefg"]
    assert rounds.chains(nodes, 0) == [["a", "c", "e", "g"], ["b", "d", "f"]]


def test_a_node_that_cannot_give_ends_its_chain() -> None:
    nodes = [node("a", has=True), node("b", gives=False), node("c"), node("d", gives=False)]
    assert rounds.chains(nodes, 0) == [["a", "c", "b"]]
    after, attempts = play(nodes)
    assert all(node.has for node in after)
    assert attempts == 2


def test_a_lost_node_stops_nobody_else() -> None:
    after, _ = play([node(f"n{number}") for number in range(8)], lost=frozenset({"n1"}))
    assert sorted(node.name for node in after if node.has) == ["n0", *(f"n{number}" for number in range(2, 8))]


def test_a_refusal_from_outside_is_tried_by_one_other_node_and_no_more() -> None:
    nodes = [node("a", refused=True), node("b"), node("c")]
    assert rounds.fetchers(nodes) == ["b"]
    nodes[1] = replace(nodes[1], refused=True)
    assert rounds.fetchers(nodes) == []


def test_who_was_refused_outside_still_takes() -> None:
    assert rounds.chains([node("a", refused=True), node("b", has=True)], 0) == [["b", "a"]]


def test_a_node_that_cannot_give_is_passed_over() -> None:
    nodes = [node("a", has=True, gives=False), node("b")]
    assert rounds.chains(nodes, 0) == []
    assert rounds.fetchers(nodes) == ["b"]


def test_a_neighbour_that_has_verified_its_copy_comes_first() -> None:
    nodes = [node("a", has=True), node("b", has=True, verified=True), node("c")]
    assert [rounds.chains(nodes, attempt) for attempt in range(2)] == [[["b", "c"]]] * 2
    assert rounds.fetchers(nodes) == []
    # One that gives no more, or what is not as recorded: then the other neighbour, and only then from outside.
    nodes[1] = replace(nodes[1], gives=False)
    assert rounds.chains(nodes, 0) == [["a", "c"]]
    nodes[0] = replace(nodes[0], gives=False)
    assert (rounds.chains(nodes, 0), rounds.fetchers(nodes)) == ([], ["c"])


def test_what_one_node_has_verified_is_verified_for_all_that_share_it() -> None:
    shared = [node("a", has=True, storage="s"), node("b", has=True, storage="s", verified=True)]
    assert rounds.chains([*shared, node("c", has=True), node("d")], 0) == [["a", "d"]]


def said(**words: Any) -> dict[str, Any]:
    return {"site": "one", "shared": None, "fstype": "ext4", "source": "/dev/sda1"} | words


def test_storage_is_the_nodes_own_unless_it_is_known_to_be_shared() -> None:
    nfs = {"fstype": "nfs4", "source": "filer:/m"}
    assert rounds.storage("a", said()) != rounds.storage("b", said())
    assert rounds.storage("a", said(**nfs)) == rounds.storage("b", said(**nfs, site="two"))
    assert rounds.storage("a", said(**nfs, shared=False)) != rounds.storage("b", said(**nfs, shared=False))
    assert rounds.storage("a", said(shared=True)) == rounds.weights_storage(said(shared=True, fstype="xfs"), "b")


def test_a_round_as_the_role_asks_for_it() -> None:
    words = {"needs": True, "gives": True, "refused": False, "verified": False}
    nodes = {"a": said(has=True, **words), "b": said(has=False, **words), "c": said(has=False, **words)}
    assert rounds.weights_round(nodes, 2) == {
        "attempt": 2,
        "fetch": [],
        "alone": [],
        "take": {"b": {"peer": "a", "seed": "a"}, "c": {"peer": "b", "seed": "a"}},
        "give": ["a", "b"],
        "receivers": ["b", "c"],
    }


def test_who_may_take_is_made_ready_and_nobody_else() -> None:
    alone, shared = node("a"), [node(name, site="two", storage="nfs4 filer:/m") for name in "bc"]
    assert rounds.receivers([alone, *shared]) == []
    assert rounds.receivers([alone, node("d", has=True)]) == ["a"]


def test_who_fetches_alone_is_told_apart_since_nobody_waits_for_why() -> None:
    words = {"needs": True, "gives": True, "refused": False, "verified": False}
    one, two = said(has=False, **words), said(has=False, **words, site="two")
    assert rounds.weights_round({"a": one, "b": one, "c": two}, 0)["fetch"] == ["a", "c"]
    assert rounds.weights_round({"a": one, "b": one, "c": two}, 0)["alone"] == ["c"]
    # Of two that share a storage one writes, and the other one needs it.
    assert rounds.weights_round({"a": {**one, "shared": True}, "b": {**one, "shared": True}}, 0)["alone"] == []
    assert rounds.weights_round({"a": one, "b": {**one, "needs": False}}, 0)["alone"] == ["a"]


def test_one_node_converts_for_all_of_a_storage() -> None:
    nodes = {
        "a": None,
        "b": said(shared=True, target="x"),
        "c": said(shared=True, target="x"),
        "d": said(shared=True, target="y"),
        "e": said(target="x"),
    }
    assert {name: rounds.weights_writer(nodes, name) for name in "bcde"} == {"b": "b", "c": "b", "d": "d", "e": "e"}


def test_a_broken_seed_is_not_asked_twice_in_a_row() -> None:
    nodes = [node("a", has=True), node("b", has=True), node("c")]
    assert [rounds.chains(nodes, attempt) for attempt in range(3)] == [[["a", "c"]], [["b", "c"]], [["a", "c"]]]


def test_nobody_waits_behind_a_broken_node_twice_in_a_row() -> None:
    nodes = [node("a", has=True), node("b"), node("c"), node("d")]
    assert rounds.chains(nodes, 0) == [["a", "b", "c", "d"]]
    assert rounds.chains(nodes, 1) == [["a", "c", "d", "b"]]


def test_the_file_system_of_a_path() -> None:
    text = (
        "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
        "40 22 0:40 / /data rw shared:1 - nfs4 filer:/data rw\n"
        "41 22 0:41 / /data\\040two rw - xfs /dev/sdb rw\n"
        "42 22 0:42 / /data\\011two rw - xfs /dev/sdc rw\n"
    )
    assert weights_folders.mounted(text, "/data/models") == ("nfs4", "filer:/data")
    assert weights_folders.mounted(text, "/data two/models") == ("xfs", "/dev/sdb")
    assert weights_folders.mounted(text, "/data\ttwo/models") == ("xfs", "/dev/sdc")
    assert weights_folders.mounted(text, "/database") == ("ext4", "/dev/sda1")


@given(
    st.lists(
        st.tuples(st.sampled_from("xy"), st.sampled_from(["", "s", "t"]), st.booleans(), st.booleans()), max_size=12
    )
)
def test_whoever_needs_it_gets_it(wishes: list[tuple[str, str, bool, bool]]) -> None:
    nodes = [
        node(f"n{number}", has, needs, site, f"{site}{storage}" if storage else "")
        for number, (site, storage, has, needs) in enumerate(wishes)
    ]
    after, _ = play(nodes)
    full = {node.storage for node in after if node.has}
    assert all(node.storage in full for node in after if node.needs)


def test_a_recheck_reports_what_it_finds_instead_of_failing() -> None:
    """What is damaged is repaired next; a job that fails at it ends the run before."""
    (_say, read, _look) = yaml.safe_load((SUPPLY / "recheck.yml").read_text(encoding="utf-8"))
    assert read["block"][0]["vars"]["model_weights_recheck"] is True
