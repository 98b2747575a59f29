"""Thirty plans are written out in full; what changes of them is shown as a diff."""

from __future__ import annotations

import pytest

from plugin_utils import releases
from tests.golden import canonical_plans
from tests.golden.full_plans import plans

CASES = plans.requests()


def test_every_plan_is_the_one_in_its_file() -> None:
    """Where it is meant to change: python -m tests.golden.full_plans.plans --write, and say why."""
    found = [diff for name, case in CASES.items() if (diff := plans.differences(name, case))]
    if found:
        pytest.fail("\n".join([*found, "python -m tests.golden.full_plans.plans --write"]), pytrace=False)


def test_at_least_thirty_plans_have_a_file_each_and_there_is_no_other() -> None:
    assert len(CASES) >= 30
    assert {file.stem for file in plans.FOLDER.glob("*.txt")} == set(CASES)


def test_every_family_of_rules_and_every_card_type_has_a_plan() -> None:
    cards = set(canonical_plans.load(canonical_plans.CATALOG / "cards.yml")["cards"])
    described = {"HL-288E"}  # by its topology
    assert {case["card"] for case in CASES.values() if "card" in case} | described == cards
    rules = {release: releases.read(release)["rules"] for release in releases.names()}
    assert {rules[case["release"]] for case in CASES.values()} == set(rules.values())


def test_only_what_is_meant_to_be_refused_is() -> None:
    refused = {name for name in CASES if "refused_id: " in plans.path(name).read_text(encoding="utf-8")}
    assert refused == {name for name in CASES if name.startswith("refused-")}
