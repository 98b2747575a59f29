"""PCIe nodes: a model gets cards that the link check measures and its verdict lets start, or one true refusal."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Sequence
from typing import Any

import pytest
from ansible.module_utils.gaudi.cards.given import topology_from_case
from ansible.module_utils.gaudi.catalogue.entries import ModelEntry
from ansible.module_utils.gaudi.fabric.classes import judge
from ansible.module_utils.gaudi.fabric.nics import HostNics
from ansible.module_utils.gaudi.fabric.output import RunOutput
from ansible.module_utils.gaudi.fabric.runs import DemoRun, requested_tests, runs_for
from ansible.module_utils.gaudi.fabric.verdict import Needs, Policy, VerdictSubject, may_start, new_verdict
from ansible.module_utils.gaudi.planning.many import Catalogue, plan_all
from hypothesis import given, settings
from hypothesis import strategies as st

from plugin_utils import releases
from tests.golden import canonical_plans
from tests.golden.serving_cases import vendor
from tests.unit.cards.test_placement import node
from tests.unit.fabric.made import fabric, failed, printed

PCIE = ("HL-288", "HL-288E", "HL-338")
EXAMPLES = sorted((vendor.ROOT / "docs" / "examples" / "topologies").glob("hl-[23]?8*.yml"))
# Topologies of the cases by name; the others are one of these with something missing.
CASES = [
    name
    for name in vendor.CASES["topologies"]
    if vendor.topology(name)["cards"][0]["name"] in PCIE and not name.startswith("{")
]
LARGE = 300 * 10**9


@functools.cache
def entry(model: str) -> ModelEntry:
    return ModelEntry.from_mapping(canonical_plans.load(canonical_plans.CATALOG / "models" / f"{model}.yml"))


@functools.cache
def catalogue(release: str) -> Catalogue:
    cards = canonical_plans.load(canonical_plans.CATALOG / "cards.yml")
    return Catalogue.from_mappings(releases.read(release), {}, cards)


def reached(run: DemoRun) -> RunOutput:
    """What hccl_demo prints on sound cards: two groups of HL-338 are joined by nothing but host NICs."""
    if run.over_host_nics:
        return printed(run, 40.0)
    groups = {module // 4 for module in run.modules}
    return printed(run, 200.0 if len(groups) == 1 else 18.0) if len(groups) == 1 or run.over_host else failed()


def starts(plan: dict[str, Any], topology: dict[str, Any], *, host_nics: bool) -> str:
    """The id of what a verdict of this node, with all its cards measured, answers to an instance."""
    links = fabric(topology["cards"][0]["name"])
    modules = [card["module_id"] for card in topology["cards"]]
    runs = runs_for(links, modules, requested_tests(None, links), host_nics=host_nics)
    made_of = VerdictSubject({str(module): f"AM{module}" for module in modules}, "1", "1", "1", "1", "1", "1")
    verdict = new_verdict(
        node="n",
        time="t",
        made_of=made_of,
        faults=(),
        nics=HostNics("1.22.0", "verbs", "/usr/lib/x.so", True, ()) if host_nics else None,
        results=judge([(run, reached(run)) for run in runs], links, (), ()),
        located=(),
    )
    chosen = tuple(card["module_id"] for card in plan["modules"])
    return may_start(verdict, made_of, Needs("i", chosen, plan["requires"]["host_nics"]), Policy()).id


def check(model: str, release: str, topology: dict[str, Any], *, host_nics: bool) -> None:
    """A plan starts, or what is missing is missing."""
    name = topology["cards"][0]["name"]
    free = [card["module_id"] for card in topology["cards"] if not card["users"]]
    most = max((sum(module // 4 == group for module in free) for group in (0, 1)), default=0)
    found = dataclasses.replace(catalogue(release), models={model: entry(model)})
    (plan,) = plan_all([{"model": model, "instance": "i"}], found, topology, weights_root="/w", host_nics=host_nics)
    if "refused" in plan:
        if plan["refused_id"] == "cards_not_joined":
            assert name == "HL-338"
            assert not host_nics
            asked = re.search(r" asks for ([0-9]+) cards", plan["refused"])
            assert asked is not None
            assert int(asked[1]) > most
        return
    answer = starts(plan, topology, host_nics=host_nics)
    if answer == "fabric_no_host_nics":
        assert not host_nics
        architecture = entry(model).architecture
        assert architecture is not None
        assert (architecture.parameters or 0) > LARGE
        assert any("300 B" in warning for warning in plan["warnings"])
    else:
        assert answer == ("fabric_one_card" if len(plan["modules"]) == 1 else "fabric_accepted")
    groups = {card["module_id"] // 4 for card in plan["modules"]}
    if len(plan["modules"]) <= most:
        assert len(groups) == 1, "cards of one group come first"


def served(model: str) -> Sequence[str]:
    """The releases that a model is known to be served with; one of the plugin for others."""
    validated = entry(model).validated
    return entry(model).releases or (validated.releases if validated else ("1.24.1",))


@pytest.mark.parametrize("host_nics", [False, True])
@pytest.mark.parametrize(("turn", "name"), enumerate([*CASES, *(path.name for path in EXAMPLES)]))
def test_each_model_starts_on_a_described_node_or_is_refused_rightly(turn: int, name: str, host_nics: bool) -> None:
    """On each node every fifth model, another one from node to node."""
    path = {path.name: path for path in EXAMPLES}.get(name)
    topology = topology_from_case(canonical_plans.load(path)) if path else vendor.topology(name)
    for model in canonical_plans.models()[turn % 5 :: 5]:
        check(model, served(model)[0], topology, host_nics=host_nics)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_each_model_starts_on_any_node_or_is_refused_rightly(data: st.DataObject) -> None:
    modules = sorted(data.draw(st.sets(st.integers(0, 7), min_size=1), "modules"))
    second = data.draw(st.sets(st.sampled_from(modules)), "on the second socket")
    busy = data.draw(st.sets(st.sampled_from(modules), max_size=3), "in use")
    layout = [([m for m in modules if m not in second], "0-39,80-119"), (sorted(second), "40-79,120-159")]
    topology = node([socket for socket in layout if socket[0]], {module: {} for module in busy})
    card = data.draw(st.sampled_from(PCIE), "card")
    for each in topology["cards"]:
        each["name"] = card
    model = data.draw(st.sampled_from(canonical_plans.models()), "model")
    release = data.draw(st.sampled_from(served(model)), "release")
    check(model, release, topology, host_nics=data.draw(st.booleans(), "host NICs"))
