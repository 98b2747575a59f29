"""The program that holds the digests of all plans: what it names, makes and writes."""

from __future__ import annotations

import copy

import pytest

from plugin_utils import releases
from tests.golden import canonical_plans

LIST = canonical_plans.LIST.read_text(encoding="utf-8")
SERVED, REFUSED = "qwen3-8b 1.22 HL-225", "qwen3-8b 1.16 HL-225"


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
    written = canonical_plans.rewritten(stale, {name: {"x": 1}})
    assert written == canonical_plans.digests({name: {"x": 1}}) + "".join(others)


def test_a_changed_an_added_and_a_removed_plan_are_named() -> None:
    before = {"a": "1", "b": "2", "c": "3"}
    assert canonical_plans.differing(before, {"a": "1", "b": "9", "d": "4"}) == ["b", "c", "d"]


def test_digest_of_a_plan_covers_all_but_its_text_in_any_order() -> None:
    ((name, plan),) = canonical_plans.plans(among={SERVED})
    assert canonical_plans.listed(LIST)[name] == canonical_plans.digest(plan)
    reworded = {**plan, "explain": [], "warnings": [*plan["warnings"], "w"]}
    assert canonical_plans.digest(dict(reversed(reworded.items()))) == canonical_plans.digest(plan)
    for key in plan.keys() - {"explain", "warnings"}:
        assert canonical_plans.digest({**plan, key: "changed"}) != canonical_plans.digest(plan), key


@pytest.mark.parametrize("key", ["arguments", "environment", "container"])
def test_digest_of_a_plan_changes_with_one_value_inside(key: str) -> None:
    ((_, plan),) = canonical_plans.plans(among={SERVED})
    changed = copy.deepcopy(plan)
    if key == "arguments":
        changed["arguments"][-1] += "0"
    elif key == "environment":
        changed["environment"][next(iter(plan["environment"]))] += "0"
    else:
        changed["container"]["mounts"][0]["target"] += "0"
    assert canonical_plans.digest(changed) != canonical_plans.digest(plan)


def test_digest_of_a_refusal_covers_its_id_alone() -> None:
    ((name, refused),) = canonical_plans.plans(among={REFUSED})
    assert canonical_plans.listed(LIST)[name] == canonical_plans.digest(refused)
    assert canonical_plans.digest({**refused, "refused": "reworded"}) == canonical_plans.digest(refused)
    assert canonical_plans.digest({**refused, "refused_id": "another_id"}) != canonical_plans.digest(refused)
