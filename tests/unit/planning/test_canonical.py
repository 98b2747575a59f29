"""No plan of the catalogue changes without saying so."""

from __future__ import annotations

from tests import canonical_plans


def test_every_plan_is_the_one_in_the_list() -> None:
    """Where it is meant to change: python -m tests.canonical_plans --against HEAD, then --write, and say why."""
    listed = canonical_plans.listed(canonical_plans.LIST.read_text(encoding="utf-8"))
    made = canonical_plans.listed(canonical_plans.digests(dict(canonical_plans.plans())))
    assert canonical_plans.differing(listed, made) == []


def test_a_changed_an_added_and_a_removed_plan_are_named() -> None:
    before = {"a": "1", "b": "2", "c": "3"}
    assert canonical_plans.differing(before, {"a": "1", "b": "9", "d": "4"}) == ["b", "c", "d"]


def test_a_plan_is_taken_whole_and_in_any_order() -> None:
    one, other = {"x": 1, "warnings": ["w"]}, {"warnings": ["w"], "x": 1}
    assert canonical_plans.digests({"a": one}) == canonical_plans.digests({"a": other})
    assert canonical_plans.digests({"a": one}) != canonical_plans.digests({"a": {"x": 1, "warnings": ["v"]}})
