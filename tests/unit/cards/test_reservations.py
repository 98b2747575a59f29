"""Reservations: who may have which card, decided from text, request and topology."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.cards import reservations
from ansible.module_utils.gaudi.cards.document import build_topology
from ansible.module_utils.gaudi.cards.reservations import (
    check_request,
    free,
    holders,
    parse_reservations,
    rebuild,
    render_reservations,
    reserve,
)
from ansible.module_utils.gaudi.cards.users import new_user
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.cards.nodes import MODULES, failed, sources

NOW = "2026-11-21T03:04:05+00:00"
LATER = "2026-11-22T00:00:00+00:00"


def card(module_id: int, serial: str | None = "") -> dict[str, Any]:
    """A card as a plan names it; the serial number is the node's unless another is given."""
    return {"module_id": module_id, "serial": f"AM5001613{MODULES.index(module_id)}" if serial == "" else serial}


def node(**users: list[dict[str, Any]]) -> dict[str, Any]:
    """A healthy node; m3=[user] puts a user on module 3."""
    topology: dict[str, Any] = build_topology(sources())
    for key, value in users.items():
        topology["cards"][int(key[1:])]["users"] = [{**new_user(), **user} for user in value]
    return topology


def refusal(*arguments: Any) -> str:
    with pytest.raises(Refusal) as refused:
        reserve(*arguments)
    return str(refused.value)


def test_taking_and_freeing() -> None:
    first = reserve({}, "qwq-32b", [card(1), card(0)], node(), NOW)
    assert first == {"qwq-32b": {"cards": [card(0), card(1)], "since": NOW}}
    second = reserve(first, "qwen3-8b", [card(2)], node(), LATER)
    assert holders(second) == {0: "qwq-32b", 1: "qwq-32b", 2: "qwen3-8b"}
    assert free(second, "qwq-32b") == {"qwen3-8b": {"cards": [card(2)], "since": LATER}}
    assert free(first, "nobody") == first
    assert first == {"qwq-32b": {"cards": [card(0), card(1)], "since": NOW}}, "the input was changed"


def test_asking_again_for_the_same_changes_nothing() -> None:
    held = reserve({}, "qwq-32b", [card(0), card(1)], node(), NOW)
    assert reserve(held, "qwq-32b", [card(1), card(0)], node(), LATER) == held


def test_after_a_reboot_the_indexes_may_be_others_and_the_cards_stay() -> None:
    held = reserve({}, "qwq-32b", [card(0), card(1)], node(), NOW)
    rebooted = node()
    for number, one in enumerate(rebooted["cards"]):
        one["index"] = number
    after = parse_reservations(render_reservations(held))
    assert reserve(after, "qwq-32b", [card(0), card(1)], rebooted, LATER) == held
    assert "reserved by qwq-32b" in refusal(after, "qwen3-8b", [card(1)], rebooted, LATER)


def test_what_is_not_asked_for_any_more_is_free() -> None:
    held = reserve({}, "qwq-32b", [card(0), card(1)], node(), NOW)
    moved = reserve(held, "qwq-32b", [card(1), card(5)], node(), LATER)
    assert moved == {"qwq-32b": {"cards": [card(1), card(5)], "since": LATER}}


def test_a_card_of_another_instance_is_refused_by_its_name() -> None:
    held = reserve({}, "qwq-32b", [card(0)], node(), NOW)
    assert refusal(held, "qwen3-8b", [card(1), card(0)], node(), LATER) == (
        f"qwen3-8b cannot have module 0 (accel3, 0000:4d:00.0): it is reserved by qwq-32b since {NOW}. "
        "Choose another card, or take qwq-32b off this node first: "
        "playbooks/remove.yml --limit NODE -e instance=qwq-32b"
    )


def test_a_reserved_card_that_moved_to_another_slot_is_still_reserved() -> None:
    held = {"qwq-32b": {"cards": [{"module_id": 6, "serial": card(0)["serial"]}], "since": NOW}}
    assert "reserved by qwq-32b" in refusal(held, "qwen3-8b", [card(0)], node(), LATER)


@pytest.mark.parametrize(
    ("user", "words"),
    [
        ({"pid": 4242, "name": "python3"}, "it is in use by pid 4242 python3. Stop that first"),
        ({"pid": 1, "name": "x", "unit": "vllm-other.service"}, "in use by vllm-other.service (pid 1 x)"),
        ({"pid": 1, "name": "x", "container": "4f1d", "container_name": "tgi"}, "in use by container tgi (pid 1 x)"),
        ({}, "in use by a process that cannot be seen"),
    ],
)
def test_a_card_in_use_is_refused_with_its_user(user: dict[str, Any], words: str) -> None:
    assert words in refusal({}, "qwen3-8b", [card(3)], node(m3=[user]), NOW)


def test_a_stranger_on_a_card_that_is_held_is_refused_all_the_same() -> None:
    held = reserve({}, "qwen3-8b", [card(3)], node(), NOW)
    assert "pid 4242" in refusal(held, "qwen3-8b", [card(3)], node(m3=[{"pid": 4242, "name": "python3"}]), NOW)
    named = {"pid": 1, "name": "x", "container": "4f1d", "container_name": "tgi"}
    assert "container tgi" in refusal(held, "qwen3-8b", [card(3)], node(m3=[named]), NOW)


@pytest.mark.parametrize(
    "user",
    [
        {"pid": 1, "name": "python3", "unit": "vllm-qwen3-8b.service"},
        {"pid": 1, "name": "python3", "container": "4f1d", "container_name": "vllm-qwen3-8b"},
    ],
)
def test_the_instance_itself_may_stay(user: dict[str, Any]) -> None:
    assert "qwen3-8b" in reserve({}, "qwen3-8b", [card(3)], node(m3=[user]), NOW)


@pytest.mark.parametrize("user", [{"pid": 1, "name": "python3", "container": "4f1d"}, {}])
def test_whom_nobody_can_name_may_stay_on_a_card_that_is_held(user: dict[str, Any]) -> None:
    held = reserve({}, "qwen3-8b", [card(3)], node(), NOW)
    assert reserve(held, "qwen3-8b", [card(3)], node(m3=[user]), LATER) == held
    assert "in use by" in refusal({}, "qwen3-8b", [card(3)], node(m3=[user]), NOW)
    assert "in use by" in refusal(held, "other", [card(3)], node(m3=[user]), NOW).replace("reserved by", "in use by")


def test_another_serial_number_is_another_card() -> None:
    assert refusal({}, "qwen3-8b", [card(3, "AM1")], node(), NOW) == (
        "qwen3-8b was planned for the card with serial AM1 as module 3 (accel0, 0000:33:00.0), but the card there has "
        "AM50016130. Cards were exchanged or moved: plan the instance again."
    )
    topology = node()
    topology["cards"][3]["serial"] = None
    assert "has no serial that can be read" in refusal({}, "qwen3-8b", [card(3)], topology, NOW)


def test_without_a_serial_number_the_one_that_is_seen_is_written_down() -> None:
    assert reserve({}, "qwen3-8b", [{"module_id": 3}], node(), NOW)["qwen3-8b"]["cards"] == [card(3)]


def test_a_card_that_is_not_there() -> None:
    words = refusal({}, "qwen3-8b", [card(3), {"module_id": 9, "serial": None}], node(), NOW)
    assert "asks for module 9, which is not on this node (modules seen: 0, 1, 2, 3, 4, 5, 6, 7)" in words


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (sources({"": failed("no")}, accel=()), "its use is not known. No habanalabs driver is loaded"),
        (sources(seen=None), "its use is not known. hl-smi is not installed"),
        (sources(uid=1000), "its use is not known. The topology was read by user id 1000"),
    ],
)
def test_no_card_is_given_away_blindly(given: Any, words: str) -> None:
    assert words in refusal({}, "qwen3-8b", [{"module_id": 3}], build_topology(given), NOW)


@pytest.mark.parametrize("name", ["a", "qwen3-8b", "0", "a" * 48, "a-" * 23 + "ab"])
def test_names(name: str) -> None:
    check_request(name, [card(0)], "present")


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a_b", "a/b", "a\n", "a b", "a" * 49, "../x", "é"])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(Refusal, match="An instance's name has at most 48"):
        check_request(name, [], "absent")


def test_requests_that_can_never_be_granted() -> None:
    with pytest.raises(Refusal, match="asks for no card"):
        check_request("a", [], "present")
    check_request("a", [], "absent")
    with pytest.raises(Refusal, match="asks for module 0 twice"):
        check_request("a", [card(1), card(0), card(0)], "present")


def test_the_file() -> None:
    held = reserve({}, "qwq-32b", [card(0), card(1)], node(), NOW)
    text = render_reservations(held)
    assert parse_reservations(text) == held
    assert text.endswith("}\n")


@pytest.mark.parametrize(
    "text",
    [
        # A cut-off file gives no card away.
        "",
        "\n",
        "x",
        "[]",
        "{}",
        '{"schema": 2, "reservations": {}}',
        '{"schema": 1}',
        '{"schema": 1, "reservations": []}',
        '{"schema": 1, "reservations": {"A": {"cards": [], "since": "x"}}}',
        '{"schema": 1, "reservations": {"a": {"cards": []}}}',
        '{"schema": 1, "reservations": {"a": {"cards": [{"module_id": "0", "serial": "x"}], "since": "x"}}}',
        '{"schema": 1, "reservations": {"a": {"cards": [{"module_id": 0}], "since": "x"}}}',
        '{"schema": 1, "reservations": {"a"',
    ],
)
def test_a_file_of_somebody_else_is_not_taken_for_empty(text: str) -> None:
    with pytest.raises(ValueError, match=r"^it "):
        parse_reservations(text)


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        assert isinstance(parse_reservations(text), dict)
    except ValueError as error:
        assert len(str(error)) < 300


REQUESTS = st.lists(
    st.tuples(st.sampled_from("abcd"), st.sets(st.integers(0, 7), max_size=4), st.sampled_from("+-")), max_size=20
)


@given(REQUESTS)
def test_no_history_of_requests_gives_one_card_to_two(history: list[tuple[str, set[int], str]]) -> None:
    topology = node()
    held: reservations.Reservations = {}
    for name, modules, sign in history:
        try:
            after = (
                reserve(held, name, [card(m) for m in sorted(modules)], topology, NOW)
                if sign == "+"
                else free(held, name)
            )
        except Refusal:
            continue
        modules_held = [one["module_id"] for reservation in after.values() for one in reservation["cards"]]
        assert len(modules_held) == len(set(modules_held))
        assert all(after[other] == held[other] for other in held if other != name)
        held = parse_reservations(render_reservations(after))


def test_damaged_reservations_are_made_up_for_from_plans() -> None:
    plans: dict[str, dict[str, Any]] = {
        "b": {"modules": [{"module_id": 3, "serial": "AN3"}, {"module_id": 2}]},
        "a": {"modules": [{"module_id": 0, "serial": "AN0"}]},
    }
    assert rebuild(plans, NOW) == {
        "a": {"cards": [{"module_id": 0, "serial": "AN0"}], "since": NOW},
        "b": {"cards": [{"module_id": 2, "serial": None}, {"module_id": 3, "serial": "AN3"}], "since": NOW},
    }
    assert parse_reservations(render_reservations(rebuild(plans, NOW))) == rebuild(plans, NOW)


def test_two_plans_for_one_card_are_refused_with_both_names() -> None:
    plans: dict[str, dict[str, Any]] = {"a": {"modules": [{"module_id": 0}]}, "b": {"modules": [{"module_id": 0}]}}
    said = r"the plans of a and b both name module 0\..* -e instance=a, or -e instance=b$"
    with pytest.raises(Refusal, match=said) as refused:
        rebuild(plans, NOW)
    assert refused.value.id == "cards_claimed_twice"


def test_cards_that_are_given_up_change_hands_one_instance_after_the_other() -> None:
    held = reserve(reserve({}, "a", [card(0), card(2)], node(), NOW), "b", [card(1)], node(), NOW)
    assert "reserved by b" in refusal(held, "a", [card(1)], node(), LATER)
    first = reserve(held, "a", [card(1), card(2)], node(), LATER, ["a", "b"])
    assert holders(first) == {1: "a", 2: "a"}
    assert "b" not in first
    assert holders(reserve(first, "b", [card(0)], node(), LATER, ["a", "b"])) == {0: "b", 1: "a", 2: "a"}


def test_an_instance_that_gives_one_card_up_keeps_the_others() -> None:
    held = reserve({}, "b", [card(1), card(2)], node(), NOW)
    assert holders(reserve(held, "a", [card(1)], node(), LATER, ["b"])) == {1: "a", 2: "b"}


def test_a_user_that_gives_a_card_up_must_have_gone_unless_that_is_foreseen() -> None:
    running = node(m1=[{"pid": 7, "container_name": "vllm-b"}])
    held = reserve({}, "b", [card(1)], node(), NOW)
    assert "in use by" in refusal(held, "a", [card(1)], running, LATER, ["b"])
    assert holders(reserve(held, "a", [card(1)], running, LATER, ["b"], True)) == {1: "a"}
    stranger = node(m1=[{"pid": 7, "name": "python3"}])
    assert "in use by" in refusal(held, "a", [card(1)], stranger, LATER, ["b"], True)
