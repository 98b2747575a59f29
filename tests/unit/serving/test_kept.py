"""Which plans are kept, when an instance goes back and to which, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.pages import history
from ansible.module_utils.gaudi.serving import kept
from ansible.module_utils.gaudi.serving.failure import Reason, is_over
from ansible.module_utils.gaudi.serving.kept import Back, Failed, StartsFrom, StoredPlan
from ansible.module_utils.gaudi.serving.unserved import went_back

START = StartsFrom("sha256:1", "", "w", "1.22.2-32")
AT = "2026-01-31T08:00:00Z"
FAILED = Failed("The server ended by itself.", AT, "", START)


def files(name: str) -> dict[str, str]:
    """The files of a plan."""
    return {
        "plan.json": json.dumps({"image": "i:1", "arguments": ["serve", "--seed", name], "environment": {"A": "1"}}),
        "environment": "A=1\n",
    }


def plan(name: str, number: int = 0, failed: Failed | None = None) -> StoredPlan:
    """A plan that is kept."""
    return StoredPlan(files(name), START, number, AT if number else "", failed)


@pytest.mark.parametrize("each", [plan("a", 1), plan("b", 0, FAILED)])
def test_what_is_written_is_read_back(each: StoredPlan) -> None:
    assert kept.read(json.dumps(each.document())) == each


def test_a_way_back_is_read_back() -> None:
    back = Back("a" * 64, "b" * 64, "it exits", AT, "")
    assert kept.read_back(json.dumps(back.document())) == back


def test_words_make_no_other_plan() -> None:
    assert kept.digest_of({**files("a"), "explanation.json": "x"}) == kept.digest_of(files("a"))
    assert kept.digest_of({**files("a"), "environment": ""}) != kept.digest_of(files("a"))
    lacking = plan("a").document()
    del lacking["files"]["environment"]
    with pytest.raises(ValueError, match="it lacks a file of the plan"):
        kept.read(json.dumps(lacking))


def test_what_serves_again_has_not_failed() -> None:
    again = kept.serves([plan("a", 4), plan("b", 7), plan("c", 0, FAILED)], files("c"), START, AT)
    assert (again.number, again.failed) == (8, None)


def test_what_fails_after_it_served_did_serve() -> None:
    failed = kept.fails([plan("a", 4)], files("a"), FAILED)
    assert (failed.number, failed.failed) == (4, FAILED)
    assert kept.fails([], files("a"), FAILED) == plan("a", 0, FAILED)


@pytest.mark.parametrize(("driver", "goes"), [("1.22.2-32", True), ("1.24.1-30", False), ("", True)])
def test_a_plan_goes_with_the_driver_that_it_served_with(driver: str, goes: bool) -> None:
    assert kept.goes_with(plan("a", 1), driver) is goes
    assert kept.goes_with(replace(plan("a", 1), starts_from=replace(START, driver="")), driver), "it is not known"


def test_five_that_served_and_five_that_failed_are_kept() -> None:
    served = [plan(f"s{number}", number) for number in range(1, 8)]
    failed = [plan(f"f{number}", 0, replace(FAILED, at=f"2026-01-0{number}")) for number in range(1, 8)]
    gone = kept.to_forget([*served, *failed], [])
    assert set(gone) == {each.digest for each in (*served[:2], *failed[:2])}
    assert served[0].digest not in kept.to_forget([*served, *failed], [served[0].digest])


def test_an_instance_goes_back_to_what_served_last() -> None:
    a, b, c = plan("a", 1), plan("b", 3), plan("c", 2)
    new = plan("d").digest
    assert kept.ways_back([a, b, c], new) == [b, c, a]
    # One that failed since is nothing to go back to.
    assert kept.ways_back([a, replace(b, failed=FAILED), c], new) == [c, a]
    # The last one that served is no change.
    assert kept.ways_back([a, b, c], b.digest) == []
    # An earlier one that is wished again is.
    assert kept.ways_back([a, b, c], a.digest) == [b, c]
    assert kept.ways_back([plan("e", 0, FAILED)], new) == []


@pytest.mark.parametrize(
    ("kind", "retry", "tries", "over"),
    [
        ("unknown-argument", False, 1, True),
        ("server-ended", True, 1, False),
        ("server-ended", True, 2, True),
        ("stalled", True, 1, True),
        ("port-taken", True, 2, True),
        ("engine-unreachable", True, 9, False),
        ("cards-not-offered", False, 9, False),
        ("keys", False, 9, False),
    ],
)
def test_a_change_has_its_tries(kind: str, retry: bool, tries: int, over: bool) -> None:
    assert is_over(Reason(kind, "It ended.", retry), tries, 2) is over


def test_how_far_a_way_back_is() -> None:
    before, after = plan("b", 0, FAILED), plan("a", 1)
    half = {**files("b"), "plan.json": files("a")["plan.json"]}
    assert kept.where(files("a"), before, after) == "done"
    assert kept.where(files("b"), before, after) == "pending"
    assert kept.where({**files("b"), "environment": "A=1\n", "plan.json": half["plan.json"]}, before, after) == "done"
    assert kept.where({**files("b"), "environment": "C=1\n"}, before, after) == "moot"
    assert kept.where({"plan.json": None, "environment": None}, before, after) == "moot"
    assert kept.where(files("b"), None, after) == "moot"


def test_a_plan_that_failed_is_refused_while_it_starts_from_the_same() -> None:
    refusal = kept.refused(plan("a", 0, FAILED), START, "chat")
    assert refusal is not None
    assert refusal.id == "plan_failed_before"
    assert "chat is left as it is" in str(refusal)
    for other in (replace(START, image="x"), replace(START, guard="x"), replace(START, weights="x")):
        assert kept.refused(plan("a", 0, FAILED), other, "chat") is None
    assert kept.refused(plan("a", 1), START, "chat") is None
    assert kept.refused(None, START, "chat") is None
    taken = kept.refused(plan("a", 1, replace(FAILED, by="admin")), START, "chat")
    assert "was taken back at 2026-01-31T08:00:00Z by admin." in str(taken)


@pytest.mark.parametrize(
    ("then", "coming", "again"),
    [
        ("1.22.2-97ec1a4", "1.22.2-32", False),
        ("1.22.2-97ec1a4", "1.22.3-32", True),
        ("1.22.2-97ec1a4", "1.24.1-482", True),
        # Nobody knows with which driver it failed.
        ("", "1.22.2-32", True),
    ],
)
def test_a_plan_that_failed_is_held_against_the_driver_that_comes(then: str, coming: str, again: bool) -> None:
    """What is loaded says a hash where the packages have a build, and is another driver until then."""
    failed = replace(FAILED, starts_from=replace(START, driver=then))
    now = replace(START, driver="1.21.3-bfcec49")
    assert kept.refused(plan("a", 0, failed), now, "chat") is None
    refusal = kept.refused(plan("a", 0, failed), now, "chat", coming)
    assert (refusal is None) is again
    if refusal is not None:
        assert "so chat is left as it is, and so is the driver." in str(refusal)
    assert kept.refused(plan("a", 0, failed), replace(now, image="x"), "chat", coming) is None


def test_a_person_chooses_a_plan() -> None:
    a, b, c = plan("a", 1), plan("b", 2), plan("c", 3)
    found = [a, b, c]
    assert kept.chosen(found, c.digest, "", "chat") == b
    assert kept.chosen(found, c.digest, a.digest[:8].upper(), "chat") == a
    assert kept.chosen([a, replace(b, failed=FAILED), c], c.digest, "", "chat") == a
    assert kept.chosen([a, replace(b, failed=FAILED), c], c.digest, b.digest[:12], "chat").digest == b.digest
    for to, running, refused in (("", a.digest, "no_plan_to_go_back_to"), ("zz", c.digest, "no_plan_to_go_back_to")):
        with pytest.raises(Refusal) as wrong:
            kept.chosen(found if to else [a], running, to, "chat")
        assert wrong.value.id == refused
    many = [plan(str(number), number) for number in range(1, 40)]
    first = next(digit for digit in "0123456789abcdef" if sum(each.digest[0] == digit for each in many) > 1)
    with pytest.raises(Refusal, match="Name more of it") as wrong:
        kept.chosen(many, "", first, "chat")
    assert wrong.value.id == "plan_ambiguous"


def test_a_run_hears_both_reasons() -> None:
    back = Back("a" * 64, "b" * 64, "The server ended.", AT, "").document()
    state = {"back": back, "plan": "old", "status": "serving tiny", "ready": AT}
    said = went_back(state, "new")
    assert said.startswith("the new plan aaaaaaaaaaaa does not serve, because it failed: The server ended. ")
    assert f"back on the plan bbbbbbbbbbbb: serving tiny since {AT}." in said
    assert went_back(state, "old") == ""
    assert went_back(state, None) == ""
    assert went_back({**state, "back": None}, "new") == ""
    assert "admin took it back" in went_back({**state, "back": {**back, "by": "admin"}}, "new")
    assert Back("a" * 64, "b" * 64, "x", AT, "admin").text == f"admin took the plan aaaaaaaaaaaa back at {AT}"


def test_the_history_says_what_became_of_each_plan() -> None:
    good, bad = plan("1", 1), plan("2", 0, replace(FAILED, at="2026-02-01T00:00:00Z"))
    told = history.entries([good, bad], files("1"))
    assert [(each["current"], each["served"], each["differs"]) for each in told] == [
        (False, "", ["--seed 1 -> 2"]),
        (True, AT, []),
    ]
    back = Back(bad.digest, good.digest, "x", AT, "")
    text = "\n".join(history.lines("chat", told, back, ["x.json is damaged: it is empty"]))
    assert f"{bad.digest[:12]}  never served, image i:1" in text
    assert "failed at 2026-02-01T00:00:00Z: The server ended by itself." in text
    assert "beside *: --seed 1 -> 2" in text
    assert f"It went back from {bad.digest[:12]} to {good.digest[:12]} at {AT}." in text
    assert "x.json is damaged: it is empty, and is passed over." in text
    assert history.lines("chat", [], None, []) == ["chat: no plan is kept yet; one is once it serves."]
    assert history.lines("chat", [], None, ["x"])[0] == "chat:"
    taken = history.entries([replace(good, failed=replace(FAILED, by="admin"))], files("2"))
    assert "taken back by admin at" in "\n".join(history.lines("chat", taken, None, []))


def test_a_plan_that_nobody_can_read_is_told_all_the_same() -> None:
    broken = StoredPlan({"plan.json": "{", "environment": ""}, START, 1, AT)
    (told,) = history.entries([broken], files("1"))
    assert told["differs"][0].startswith("nobody can tell in what: ")
