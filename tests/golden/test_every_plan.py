"""Plans of every model on every release: none changes unnoticed, and each is one that its server takes."""

from __future__ import annotations

import pytest

from plugin_utils import releases
from tests.golden import canonical_plans
from tests.golden.plan_checks import problems
from tests.golden.serving_cases import vendor

LIST = canonical_plans.LIST.read_text(encoding="utf-8")
SAMPLE = canonical_plans.sample()


@pytest.mark.parametrize("release", releases.names())
def test_every_plan_is_the_one_in_the_list(release: str) -> None:
    """Where it is meant to change: python -m tests.golden.canonical_plans --against HEAD, then --write, and say why.

    A sample of the list, in which each model is on each release; the program compares the whole list.
    """
    made = dict(canonical_plans.plans(release, SAMPLE))
    listed = {name: digest for name, digest in canonical_plans.listed(LIST, release).items() if name in SAMPLE}
    found = canonical_plans.differing(listed, canonical_plans.listed(canonical_plans.digests(made)))
    for name, plan in made.items():
        model, _, card = name.split()
        if "refused" not in plan:
            found += [f"{name}: {problem}" for problem in problems(release, plan)]
            hosts = (plan["listen"]["host"], vendor.options(plan["arguments"])["--host"])
            found += [f"{name} listens on {host}, which nobody asked for" for host in hosts if host != "127.0.0.1"]
        elif card == canonical_plans.card_of(model) and release in vendor.content("models", model).get("releases", []):
            found.append(f"{name} is refused, and the model is served with this release: {plan['refused']}")
    assert found == []


def test_the_sample_has_every_model_on_every_release_and_every_pair_with_a_card_type() -> None:
    models, cards = canonical_plans.models(), {name.split()[2] for name in canonical_plans.names()}
    drawn = [name.split() for name in SAMPLE]
    assert {(model, release) for model, release, _ in drawn} == {
        (model, release) for model in models for release in releases.names()
    }
    assert {(model, card) for model, _, card in drawn} == {(model, card) for model in models for card in cards}
    assert {(release, card) for _, release, card in drawn} == {
        (release, card) for release in releases.names() for card in cards
    }
