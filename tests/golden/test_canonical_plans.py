"""The program that holds the digests of all plans: what it names, makes and writes."""

from __future__ import annotations

from plugin_utils import releases
from tests.golden import canonical_plans

LIST = canonical_plans.LIST.read_text(encoding="utf-8")


def test_the_list_has_a_line_for_every_plan_and_no_other() -> None:
    assert list(canonical_plans.listed(LIST)) == canonical_plans.names()


def test_the_plans_of_one_model_are_asked_for_by_its_name() -> None:
    made = canonical_plans.listed(canonical_plans.digests(dict(canonical_plans.plans("qwen3-8b"))))
    assert canonical_plans.differing(canonical_plans.listed(LIST, "qwen3-8b"), made) == []
    assert {name.split()[1] for name in made} == set(releases.names())


def test_some_plans_are_written_and_the_lines_of_the_others_stay() -> None:
    first, *others = LIST.splitlines(keepends=True)
    name = first.split("  ", 1)[1].strip()
    stale = f"0  {name}\n{''.join(others)}1  model-that-went 1.22 HL-225\n"
    written = canonical_plans.rewritten(stale, {name: "a plan"})
    assert written == canonical_plans.digests({name: "a plan"}) + "".join(others)


def test_a_changed_an_added_and_a_removed_plan_are_named() -> None:
    before = {"a": "1", "b": "2", "c": "3"}
    assert canonical_plans.differing(before, {"a": "1", "b": "9", "d": "4"}) == ["b", "c", "d"]


def test_a_plan_is_taken_whole_and_in_any_order() -> None:
    one, other = {"x": 1, "warnings": ["w"]}, {"warnings": ["w"], "x": 1}
    assert canonical_plans.digests({"a": one}) == canonical_plans.digests({"a": other})
    assert canonical_plans.digests({"a": one}) != canonical_plans.digests({"a": {"x": 1, "warnings": ["v"]}})
