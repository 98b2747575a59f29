"""Who takes weights from whom."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from ansible.module_utils.gaudi import weights_rounds
from ansible.module_utils.gaudi.weights_rounds import Place
from hypothesis import given
from hypothesis import strategies as st


def node(name: str, has: bool = False, needs: bool = True, site: str = "one", storage: str = "") -> Place:
    return Place(name, site, storage or f"node:{name}", has=has, needs=needs)


def play(places: list[Place], lost: frozenset[str] = frozenset()) -> tuple[list[Place], int]:
    """Play rounds to the end; nodes in ``lost`` vanish after the first round. Returns who is left, and the rounds."""
    seeds = weights_rounds.seeds(places)
    places = [replace(place, has=place.has or place.name in seeds) for place in places]
    rounds = 0
    while pairs := weights_rounds.pairs(places):
        assert len(set(pairs.values())) == len(pairs), "a giver serves one at a time"
        assert not set(pairs) & set(pairs.values())
        done = {taker for taker, giver in pairs.items() if giver not in lost}
        places = [replace(place, has=place.has or place.name in done) for place in places if place.name not in lost]
        rounds += 1
    return places, rounds


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 9, 64])
def test_n_nodes_cost_log_n_rounds_and_one_fetch(count: int) -> None:
    places = [node(f"n{number:02}") for number in range(count)]
    assert weights_rounds.seeds(places) == ["n00"]
    after, rounds = play(places)
    assert all(place.has for place in after)
    assert rounds == math.ceil(math.log2(count))


def test_nobody_fetches_where_a_node_has_it() -> None:
    places = [node("a"), node("b", has=True, needs=False)]
    assert weights_rounds.seeds(places) == []
    assert weights_rounds.pairs(places) == {"a": "b"}


def test_every_site_fetches_once() -> None:
    places = [node("a"), node("b"), node("c", site="two"), node("d", site="two"), node("e", needs=False, site="three")]
    assert weights_rounds.seeds(places) == ["a", "c"]
    after, rounds = play(places)
    assert [place.name for place in after if place.has] == ["a", "b", "c", "d"]
    assert rounds == 1


def test_of_nodes_that_share_storage_one_writes() -> None:
    places = [node(name, storage="nfs4:filer:/models") for name in "abc"] + [node("d")]
    assert [place.name for place in weights_rounds.writers(places)] == ["a", "d"]
    places[0] = replace(places[0], has=True)
    # All three have it now, and two of them would read the same disk.
    assert weights_rounds.pairs(places) == {"d": "a"}


def test_a_lost_node_stops_nobody_else() -> None:
    after, _ = play([node(f"n{number}") for number in range(8)], lost=frozenset({"n1"}))
    assert sorted(place.name for place in after if place.has) == ["n0", *(f"n{number}" for number in range(2, 8))]


def test_storage_is_the_nodes_own_unless_it_is_known_to_be_shared() -> None:
    identify = weights_rounds.storage_id
    assert identify("a", "ext4", "/dev/sda1", None, "one") != identify("b", "ext4", "/dev/sda1", None, "one")
    assert identify("a", "nfs4", "filer:/m", None, "one") == identify("b", "nfs4", "filer:/m", None, "two")
    assert identify("a", "nfs4", "filer:/m", False, "one") != identify("b", "nfs4", "filer:/m", False, "one")
    assert identify("a", "ext4", "/dev/sda1", True, "one") == identify("b", "xfs", "/dev/sdb", True, "one")


def test_what_one_node_does() -> None:
    places = [node("a"), node("b"), node("c", needs=False)]
    assert weights_rounds.todo(places, 0, "a") == ("fetch", None, True)
    assert weights_rounds.todo(places, 0, "b") == ("nothing", None, True)
    places[0] = replace(places[0], has=True)
    assert weights_rounds.todo(places, 0, "b") == ("take", "a", True)
    places[1] = replace(places[1], has=True)
    assert weights_rounds.todo(places, 0, "c") == ("nothing", None, False)


def test_a_broken_giver_is_not_asked_twice_in_a_row() -> None:
    places = [node("a", has=True), node("b", has=True), node("c")]
    assert [weights_rounds.pairs(places, turn)["c"] for turn in range(3)] == ["a", "b", "a"]


def test_the_file_system_of_a_path() -> None:
    text = (
        "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
        "40 22 0:40 / /data rw shared:1 - nfs4 filer:/data rw\n"
        "41 22 0:41 / /data\\040two rw - xfs /dev/sdb rw\n"
    )
    assert weights_rounds.mounted(text, "/data/models") == ("nfs4", "filer:/data")
    assert weights_rounds.mounted(text, "/data two/models") == ("xfs", "/dev/sdb")
    assert weights_rounds.mounted(text, "/database") == ("ext4", "/dev/sda1")


@given(
    st.lists(
        st.tuples(st.sampled_from("xy"), st.sampled_from(["", "s", "t"]), st.booleans(), st.booleans()), max_size=12
    )
)
def test_whoever_needs_it_gets_it(wishes: list[tuple[str, str, bool, bool]]) -> None:
    places = [
        Place(f"n{number}", site, f"{site}{storage}" if storage else f"node{number}", has=has, needs=needs)
        for number, (site, storage, has, needs) in enumerate(wishes)
    ]
    after, _ = play(places)
    full = {place.storage for place in after if place.has}
    assert all(place.storage in full for place in after if place.needs)
