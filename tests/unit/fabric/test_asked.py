"""What the check measures, when that is due, and what is said of it beforehand."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.gaudi.base.paths import ACCEPTANCE_PAGE
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.catalogue.entries import CardType
from ansible.module_utils.gaudi.catalogue.fabric import Fabric
from ansible.module_utils.gaudi.fabric import asked
from ansible.module_utils.gaudi.fabric.classes import ClassifiedRun
from ansible.module_utils.gaudi.fabric.runs import seconds
from ansible.module_utils.gaudi.fabric.static import StaticFault
from ansible.module_utils.gaudi.fabric.verdict import Policy, VerdictSubject, new_verdict
from hypothesis import given
from hypothesis import strategies as st

from filter_plugins.acceptance import acceptance_image

ROOT = Path(__file__).resolve().parents[3]
CARDS = CardType.table(yaml.safe_load((ROOT / "catalog" / "cards.yml").read_text(encoding="utf-8")))
WISH: dict[str, Any] = {"tests": [], "host_nics": False, "ranks": 0}
NOW = VerdictSubject({"0": "AM1"}, "1.22.1", "fw-61", "sha256:1", None, None, "f623d69")
DOWN = StaticFault("link-down", "Module 5 has 20 of 21 links up.", (5,))
WARM = StaticFault("implausible-temperature", "Module 3 is warm.", (3,), fatal=False)


def fabric(name: str) -> Fabric:
    found = CARDS[name].fabric
    assert found is not None
    return found


def user(**said: Any) -> dict[str, Any]:
    return {"pid": 1, "name": "python3", "unit": None, "container": None, "container_name": None, **said}


def test_all_cards_of_a_group_are_measured_with_what_the_catalogue_says() -> None:
    (run,) = asked.planned(fabric("HL-225"), range(8), WISH)
    assert (run.modules, run.collective, run.loop) == (tuple(range(8)), "all_reduce", 10000)
    assert asked.plan_text([run], fabric("HL-225")).startswith(
        "all_reduce of 32m over modules 0, 1, 2, 3, 4, 5, 6, 7 (10000 loops); about "
    )


def test_two_groups_are_measured_apart() -> None:
    assert [run.modules for run in asked.planned(fabric("HL-338"), range(8), WISH)] == [(0, 1, 2, 3), (4, 5, 6, 7)]


def test_the_time_said_beforehand_counts_the_one_run_that_may_be_made_again() -> None:
    """Gaudi Direct is tried once, whatever number of runs goes over host NICs."""
    kind = fabric("HL-338")
    over = {**WISH, "tests": ["all_reduce", "all_gather"], "host_nics": True}
    runs, apart = (asked.planned(kind, range(8), options) for options in (over, {**over, "host_nics": False}))
    first, second = (seconds(run, kind) for run in runs if run.over_host_nics)
    total = asked.total_seconds(runs, kind)
    assert total == asked.total_seconds(apart, kind) + 2 * first + second
    assert f"about {total} seconds, with one run made again where there is no Gaudi Direct" in asked.plan_text(
        runs, kind
    )
    assert "Gaudi Direct" not in asked.plan_text(apart, kind)


def test_cards_without_known_links_have_no_plan() -> None:
    assert asked.planned(None, range(8), WISH) == ()
    assert asked.plan_text((), None) == "nothing"


@pytest.mark.parametrize(
    ("options", "id"),
    [
        ({"ranks": 9}, "more_ranks_than_cards"),
        ({"tests": [{"collective": "all_of_it"}]}, None),
        ({"tests": [{"collective": "all2all", "size": 4}]}, "size_too_small"),
    ],
)
def test_what_hccl_demo_does_not_take_is_refused(options: dict[str, Any], id: str | None) -> None:
    with pytest.raises(Refusal) as refused:
        asked.planned(fabric("HL-225"), range(8), {**WISH, **options})
    assert id in (None, refused.value.id)


def test_a_card_is_in_use_by_an_instance_unless_that_is_stopped() -> None:
    cards = [
        {"module_id": 3, "users": [user(unit="vllm-tiny.service")]},
        {"module_id": 1, "users": [user(container="abc", container_name="vllm-other")]},
        {"module_id": 0, "users": [user(unit="vllm-tiny.service"), user(unit="notebook.service")]},
        {"module_id": 2, "users": []},
    ]
    assert asked.busy(cards, drain=False) == (0, 1, 3)
    assert asked.busy(cards, drain=True) == (0,)


@pytest.mark.parametrize(
    ("faults", "image", "runs", "said"),
    [
        ((DOWN,), {"hccl_demo": "f623d69"}, 1, "has to be repaired first"),
        ((), {}, 1, "The image x is not on the node."),
        ((), {"hccl_demo": None}, 1, "has no hccl_demo"),
        ((), {"hccl_demo": "f623d69"}, 0, "No two cards"),
        ((WARM,), {"hccl_demo": "f623d69"}, 1, None),
    ],
)
def test_why_nothing_is_measured(faults: Any, image: dict[str, Any], runs: int, said: str | None) -> None:
    planned = asked.planned(fabric("HL-225"), range(8), WISH)[:runs]
    answer = asked.not_measured(faults, image, "x", planned, ())
    assert answer == "" if said is None else said in answer


def test_cards_in_use_are_not_measured() -> None:
    planned = asked.planned(fabric("HL-225"), range(8), WISH)
    assert asked.not_measured((), {"hccl_demo": "f623d69"}, "x", planned, (5, 1)) == "Modules 1, 5 were in use."


@given(
    busy=st.sets(st.integers(0, 7)),
    cards=st.sets(st.integers(0, 7), min_size=2),
    host_nics=st.booleans(),
    measured=st.sampled_from([None, (), (0,), (1,), (0, 1)]),
)
def test_a_card_in_use_is_never_measured(
    busy: set[int], cards: set[int], host_nics: bool, measured: tuple[int, ...] | None
) -> None:
    """Whatever is in use, asked for and known: what is made has free cards only, and adds what is not known."""
    kind = fabric("HL-288E")
    whole = asked.planned(kind, range(8), WISH)
    results = [
        ClassifiedRun(whole[place], "unpublished", 200.0, 133.0, None, "none", "Measured.") for place in measured or ()
    ]
    before = None
    if measured is not None:
        why_not = "" if measured else "In use."
        made: dict[str, Any] = {
            "made_of": NOW,
            "faults": (),
            "nics": None,
            "results": results,
            "located": (),
            "not_measured": why_not,
        }
        before = new_verdict(node="n", time="2026-11-24T00:00:00+00:00", **made)
    options = {**WISH, "host_nics": host_nics, "image": "x", "again": False, "burn_in": []}
    options["plans"] = [plan("one", *sorted(cards))]
    work = asked.work(kind, range(8), options, before, NOW, (), {"hccl_demo": "f623d69"}, sorted(busy))
    if not work.due.allowed or work.why_not:
        return
    used = {module for run in work.runs for module in run.modules}
    assert not used & busy
    assert not busy or cards <= used
    assert not (work.adds and before and all(asked.covered(run, before) for run in work.runs))
    # Measured or not, every card of the node is accounted for.
    told = asked.left_out(work, before["measurements"] if work.adds and before else ())
    known = {module for each in results for module in each.run.modules} if work.adds else set()
    assert bool(told) == (used | known != set(range(8)))


def document(*faults: StaticFault, why_not: str = "", state: str = "accepted") -> dict[str, Any]:
    """A verdict that holds."""
    made = new_verdict(
        node="n",
        time="2026-11-24T00:00:00+00:00",
        made_of=NOW,
        faults=faults,
        nics=None,
        results=(),
        located=(),
        not_measured=why_not,
    )
    return {**made, "state": state}


def due(before: Any, *faults: StaticFault, busy: tuple[int, ...] = (), why_not: str = "", again: bool = False) -> Any:
    return asked.due(before, NOW, faults, busy, why_not, again=again)


def test_a_first_verdict_is_made_whatever_keeps_the_cards_from_being_measured() -> None:
    assert due(None).allowed
    # It is said beforehand, and beside the verdict that was then made.
    assert due(None).sentence == "The node had no verdict."
    assert due(None, busy=(5,), why_not="Modules 5 were in use.").allowed


def test_a_verdict_that_holds_is_not_made_again() -> None:
    assert not due(document(WARM), WARM).allowed
    assert not due(document(), busy=(5,)).allowed


def test_a_stale_verdict_waits_for_the_cards() -> None:
    other = dataclasses.replace(NOW, driver="1.23.0")
    assert asked.due(document(), other, (), (), "", again=False).allowed
    waits = asked.due(document(), other, (), (5,), "Modules 5 were in use.", again=False)
    assert (waits.allowed, waits.id) == (False, "fabric_busy")


def test_what_could_not_be_measured_is_measured_once_it_can_be() -> None:
    before = document(why_not="Modules 5 were in use.", state="not_measured")
    assert not due(before, busy=(5,), why_not="Modules 5 were in use.").allowed
    now = due(before)
    assert now.allowed
    assert now.sentence == "Nothing was measured: Modules 5 were in use. Now it can be."


def test_a_new_fault_is_news_and_the_same_one_is_none() -> None:
    assert due(None, DOWN).allowed
    assert due(document(), DOWN, WARM, busy=(5,)).allowed
    assert not due(document(DOWN, WARM), DOWN).allowed
    assert due(document(DOWN), DOWN, again=True).allowed


def test_what_was_repaired_is_measured_once_the_cards_are_free() -> None:
    assert due(document(DOWN), WARM).allowed
    waits = due(document(DOWN), busy=(5, 1))
    assert not waits.allowed
    assert "Modules 1, 5 are in use" in waits.sentence


def test_cards_in_use_are_not_measured_again() -> None:
    with pytest.raises(Refusal) as refused:
        due(None, busy=(5,), again=True)
    assert refused.value.id == "cards_in_use_to_measure"
    assert "fabric_check_drain: true" in str(refused.value)
    assert due(None, again=True).allowed


def plan(instance: str, *modules: int, image: str = "x") -> dict[str, Any]:
    cards = [{"module_id": module} for module in modules]
    return {"instance": instance, "image": image, "modules": cards, "requires": {"host_nics": False}}


def test_the_image_of_an_instance_on_several_cards_measures() -> None:
    several = [plan("one", 5, image="y"), plan("two", 0, 1), plan("three", 2, 3, image="z")]
    assert asked.measuring_image(several) == acceptance_image(several) == "x"
    assert asked.other_images(several, "x") == ("z",), "one card asks for no measurement"
    assert asked.measuring_image(several[:1]) == "y"
    assert asked.measuring_image([]) == ""


def test_each_instance_is_judged_by_its_own_image() -> None:
    plans = [plan("one", 5, image="y"), plan("two", 0, 1), plan("three", 2, 3, image="z")]
    others = {"z": dataclasses.replace(NOW, base_image="sha256:9")}
    _, _, other = asked.answers(document(), NOW, plans, Policy(), lambda _name: False, others)
    assert (other.allowed, other.id) == (False, "fabric_stale")
    assert "for its image z, which is not the one that measures: the base image was sha256:1 and is sha256:9" in (
        other.sentence
    )
    assert "Give all instances on several cards images of one base" in other.sentence


def test_each_instance_is_judged_by_its_own_cards() -> None:
    plans = [
        plan("one", 5),
        plan("two", 0, 1),
    ]
    asked_for: list[str] = []

    def running(name: str) -> bool:
        asked_for.append(name)
        return False

    answers = asked.answers(document(DOWN), NOW, plans, Policy(), running, {})
    assert [answer.id for answer in answers] == ["fabric_static_fault", "fabric_not_measured"]
    assert asked_for == ["one", "two"]
    said = asked.result(document(DOWN), None, asked.AcceptanceWork((), (), due(document(DOWN), DOWN), ""), answers)
    assert [sentence[:5] for sentence in said["held_back"]] == ["one: ", "two: "]
    assert said["verdict"]["faults"][0]["id"] == "link-down"
    assert said["lines"] == [
        f"cards and links: accepted at 2026-11-24T00:00:00+00:00, page on the node: {ACCEPTANCE_PAGE}",
        f"  {DOWN.sentence} [{DOWN.id}]",
    ]


def test_what_is_let_through_is_said() -> None:
    answers = asked.answers(
        document(), NOW, [plan("two", 0, 1)], Policy(override="a good reason"), lambda _name: False, {}
    )
    said = asked.result(document(), None, asked.AcceptanceWork((), (), due(document()), ""), answers)
    assert said["held_back"] == []
    assert "a good reason" in said["warnings_of_start"][0]
