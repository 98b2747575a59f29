"""The compute check: what is due, what the program is asked, and what its lines mean."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from ansible.module_utils.gaudi.catalogue.compute import ComputeBounds
from ansible.module_utils.gaudi.fabric import compute

from tests.unit.fabric.made import EIGHT, ROOT

BOUNDS = ComputeBounds.from_cards(yaml.safe_load((ROOT / "catalog" / "cards.yml").read_text(encoding="utf-8")))
GROUPS = (EIGHT,)
QUADS = ((0, 1, 2, 3), (4, 5, 6, 7))
# A module has another device index.
INDEXES = {module: 7 - module for module in EIGHT}
NOW, BOOT = "2026-11-27T12:00:00+00:00", "boot-1"


def line(module: int, *group: int, **said: Any) -> str:
    return f"\n{compute.MARK}{json.dumps({'module': module, 'group': list(group), **said})}\n"


def sound(module: int, took: int | None = None) -> str:
    """What the process of a card prints where all is right."""
    return "".join(
        [
            line(module, device=INDEXES[module if took is None else took]),
            line(module, check="copy", wrong=0, of=1024),
            line(module, check="gather", wrong=0, of=1024),
            line(module, check="matmul", of=4096, error=0.0031),
            line(module, done=True),
        ]
    )


def summed(*group: int) -> str:
    parts = [(line(each, *group, check="all_reduce", wrong=0, of=64), line(each, *group, done=True)) for each in group]
    return "".join(text for pair in parts for text in pair)


WHOLE = compute.plan((), EIGHT, GROUPS, (), BOOT, BOUNDS.copy_mib)
WELL = "".join(map(sound, EIGHT)) + summed(*EIGHT)


def judged(text: str, planned: compute.ComputePlan = WHOLE, **how: Any) -> tuple[list[dict[str, Any]], str]:
    ended = compute.ComputeExit(**{"text": text, "status": 0, "limit": 600, **how})
    return compute.judge(planned, ended, INDEXES, BOUNDS, NOW, BOOT)


def outcomes(rows: list[dict[str, Any]]) -> dict[tuple[int, ...], str]:
    return {tuple(row["modules"]): row["outcome"] for row in rows}


def rows(outcome: str = compute.PASSED, boot: str = BOOT, **others: str) -> list[dict[str, Any]]:
    """Rows of all cards and their group; others: outcomes by module, as m3."""
    found, _ = judged(WELL)
    return [{**row, "outcome": others.get(f"m{row['modules'][0]}", outcome), "boot": boot} for row in found]


def test_a_node_without_the_check_has_all_of_it_due() -> None:
    assert (WHOLE.cards, WHOLE.groups, WHOLE.form, WHOLE.repeats) == (EIGHT, GROUPS, "full", False)
    asked = compute.request(WHOLE)
    assert asked["copy_bytes"] == 4 << 30
    assert asked["copy_bytes"] % asked["chunk_bytes"] == 0
    assert (asked["cards"], asked["groups"]) == (list(EIGHT), [list(EIGHT)])


def test_what_has_a_row_of_this_boot_is_not_checked_again() -> None:
    assert not compute.plan(rows(), EIGHT, GROUPS, (), BOOT, 8).due
    assert not compute.plan(rows(m3=compute.FAILED), EIGHT, GROUPS, (), BOOT, 8).due


def test_cards_in_use_are_left_out_and_come_later() -> None:
    first = compute.plan((), EIGHT, QUADS, (5,), BOOT, 8)
    assert (first.cards, first.groups) == ((0, 1, 2, 3, 4, 6, 7), (QUADS[0],))
    found, _ = judged("".join(map(sound, first.cards)) + summed(*QUADS[0]), first)
    assert not compute.plan(found, EIGHT, QUADS, (5,), BOOT, 8).due
    later = compute.plan(found, EIGHT, QUADS, (), BOOT, 8)
    # The others of its group are checked again, since only sound cards are added up.
    assert (later.cards, later.groups) == ((4, 5, 6, 7), (QUADS[1],))


def test_a_card_that_failed_in_this_boot_is_not_checked_again_with_its_group() -> None:
    """Another card of its group was in use, and is free now."""
    found = [row for row in rows(m3=compute.FAILED) if row["modules"] not in ([6], list(EIGHT))]
    later = compute.plan(found, EIGHT, GROUPS, (), BOOT, 8)
    assert (later.cards, later.groups) == ((6,), ())


@pytest.mark.parametrize(
    ("outcome", "form", "repeats"),
    [
        (compute.PASSED, "short", False),
        (compute.DIFFERS, "short", False),
        (compute.UNKNOWN, "full", False),
        (compute.FAILED, "full", True),
    ],
)
def test_a_reboot_has_free_cards_checked_again(outcome: str, form: str, repeats: bool) -> None:
    planned = compute.plan(rows(m3=outcome, boot="boot-0"), EIGHT, GROUPS, (), BOOT, 4096)
    assert (planned.cards, planned.form, planned.repeats) == (EIGHT, form, repeats)
    assert compute.plan(rows(boot="boot-0"), EIGHT, GROUPS, EIGHT, BOOT, 4096) == compute.ComputePlan(copy_mib=4096)


def test_the_short_form_copies_less_and_computes_as_long() -> None:
    short = compute.plan(rows(boot="boot-0"), EIGHT, GROUPS, (), BOOT, 4096)
    full, less = compute.request(WHOLE), compute.request(short)
    assert less["copy_bytes"] * 8 == full["copy_bytes"]
    assert less["rounds"] == 1
    assert [less[key] == full[key] for key in ("table_bytes", "inner", "sum_elements")] == [True] * 3
    assert compute.seconds(short) < compute.seconds(WHOLE) < compute.limit_seconds(WHOLE)
    assert "in the short form (copies of 512 MiB" in compute.text(short)


@pytest.mark.parametrize("size", [1, 3, 8, 300, 4096, 65536])
def test_every_size_gives_whole_parts(size: int) -> None:
    asked = compute.request(compute.plan((), EIGHT, GROUPS, (), BOOT, size))
    assert asked["copy_bytes"] > 0
    assert asked["copy_bytes"] % asked["chunk_bytes"] == 0
    assert asked["copy_bytes"] <= size << 20
    assert asked["table_bytes"] >= 4096
    # Sums of products of -2 to 2 are exact in a float.
    assert asked["inner"] * 4 < 2**24


def test_what_is_right_is_proved() -> None:
    found, why = judged(f"loading\n{WELL}a library without an end of line")
    assert (set(outcomes(found).values()), why) == ({"passed"}, "")
    part = compute.document(found, 4096, why)
    assert compute.lines(part) == [
        "numbers: proved on modules 0-7 (copies of 4096 MiB, gathers, matrix products, sum over modules 0-7)"
    ]
    assert compute.failed(part, EIGHT) == []
    compute.read(json.loads(json.dumps(part)))


def test_which_cards_were_checked_in_the_short_form_is_reported() -> None:
    found = [{**row, "form": "short" if row["modules"] in ([1], [2], [3]) else "full"} for row in rows()]
    (reported,) = compute.lines(compute.document(found, 4096, ""))
    assert reported.endswith("sum over modules 0-7; since a reboot in the short form: modules 1-3)")


WRONG = {
    "copy": {"wrong": 5, "of": 1024, "at": 17, "expected": "12", "got": "0"},
    "gather": {"wrong": 1024, "of": 1024, "at": 0, "expected": "-7", "got": "3"},
}


@pytest.mark.parametrize("check", sorted(WRONG))
def test_a_wrong_copy_or_row_fails_its_card_alone(check: str) -> None:
    text = WELL.replace(line(5, check=check, wrong=0, of=1024), line(5, check=check, **WRONG[check]))
    # The program adds up sound cards only.
    found, why = judged(text.replace(summed(*EIGHT), ""))
    assert why == ""
    assert {key: value for key, value in outcomes(found).items() if value != "passed"} == {
        (5,): "failed",
        EIGHT: "skipped",
    }
    part = compute.document(found, 4096, "")
    (sentence,) = compute.failed(part, (4, 5))
    assert sentence.startswith("Module 5 computes wrong numbers: ")
    said = WRONG[check]
    assert f"value {said['at']} is {said['got']} and should be {said['expected']}; {said['wrong']} of 1024" in sentence
    assert compute.failed(part, (4, 6)) == []
    assert "have a card that stays wrong replaced" in compute.lines(part)[-1]


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(0.0, "passed"), (2**-7, "passed"), (0.008, "differs"), (1e30, "differs"), (float("nan"), "unknown")],
)
def test_a_product_beyond_the_tolerance_warns(error: float, outcome: str) -> None:
    said = line(5, check="matmul", of=4096, error=error, at=1, expected="2.0", got="nan")
    found, _ = judged(WELL.replace(line(5, check="matmul", of=4096, error=0.0031), said))
    assert outcomes(found)[5,] == outcome
    assert compute.failed(compute.document(found, 1, ""), EIGHT) == []


def test_a_wrong_sum_fails_the_group_and_names_the_card_that_has_it() -> None:
    bad = line(2, *EIGHT, check="all_reduce", wrong=1, of=64, at=63, expected="9.0", got="8.0")
    found, _ = judged(WELL.replace(line(2, *EIGHT, check="all_reduce", wrong=0, of=64), bad))
    assert {key for key, value in outcomes(found).items() if value == "failed"} == {EIGHT}
    part = compute.document(found, 1, "")
    (sentence,) = compute.failed(part, (0, 1))
    assert "the sum over the group on module 2: value 63 is 8.0 and should be 9.0" in sentence
    assert compute.failed(part, (0,), alone=True) == []


def test_all_cards_wrong_are_a_fault_of_the_node() -> None:
    found, _ = judged("".join(sound(each).replace('"wrong": 0', '"wrong": 9') for each in EIGHT))
    assert "iommu=pt" in compute.advice(compute.document(found, 1, ""))


def test_a_process_that_took_another_card_speaks_of_that_card() -> None:
    text = sound(0, took=1).replace('"wrong": 0', '"wrong": 9') + sound(1, took=0)
    planned = compute.ComputePlan((0, 1), (), "full", 8)
    found, _ = judged(text, planned)
    assert outcomes(found) == {(0,): "passed", (1,): "failed"}
    found, _ = judged(sound(0, took=1) + sound(1), planned)
    assert outcomes(found) == {(0,): "unknown", (1,): "passed"}


@pytest.mark.parametrize(
    ("text", "how", "words"),
    [
        (line(3, failed="RuntimeError: synStatus=26\x1b[1m"), {}, "RuntimeError: synStatus=26"),
        ("", {"status": None}, "no answer within 600 seconds"),
        ("x\nModuleNotFoundError: no torch\n", {"status": 1}, "status 1 and without an answer: ModuleNotFoundError"),
    ],
)
def test_a_card_that_gives_no_answer_warns(text: str, how: dict[str, Any], words: str) -> None:
    found, why = judged(WELL.replace(sound(3), text).replace(summed(*EIGHT), ""), **how)
    assert (outcomes(found)[3,], outcomes(found)[0,], why) == ("unknown", "passed", "")
    said = " ".join(compute.lines(compute.document(found, 1, why)))
    assert words in said
    assert said.isprintable()
    assert compute.failed(compute.document(found, 1, ""), EIGHT) == []


def test_an_end_from_outside_says_nothing_of_the_cards() -> None:
    found, why = judged(sound(0), status=137, interrupted=True)
    assert outcomes(found) == {(0,): "passed"}
    assert why.startswith("Modules 1-7 were not checked: the run was ended from outside")
    assert compute.plan(found, EIGHT, GROUPS, (), BOOT, 8).cards == EIGHT


@pytest.mark.parametrize(
    "said",
    [
        "[]",
        "{",
        "[" * 100000,
        '{"module": "3", "group": []}',
        '{"module": 99, "group": [], "check": "copy", "wrong": 0, "of": 1}',
        '{"module": 3, "group": [3, 99], "check": "all_reduce", "wrong": 0, "of": 1}',
        '{"module": 3, "group": [], "check": "all_reduce", "wrong": 0, "of": 1}',
        '{"module": 3, "group": [], "check": "copy", "wrong": "no", "of": 1}',
        '{"module": 3, "group": [], "check": "copy", "wrong": -1, "of": 1}',
        '{"module": 3, "group": [], "check": "copy", "wrong": 1e400, "of": 1}',
        '{"module": 3, "group": [], "check": "copy", "wrong": 1, "of": 1, "at": 100000000000000000000000}',
        '{"module": 3, "group": [], "check": "rm -rf", "wrong": 1, "of": 1}',
    ],
)
def test_what_has_no_form_is_no_answer(said: str) -> None:
    found, _ = judged(f"{WELL.replace(sound(3), '')}\n{compute.MARK}{said}\n")
    assert outcomes(found)[3,] == "unknown"
    assert [row["findings"] for row in found] == [[]] * 9


@pytest.mark.parametrize("value", ["x", None, [1], {"a": 1}, True])
@pytest.mark.parametrize("key", ["error", "wrong", "at", "of", "expected", "device", "failed", "done"])
def test_any_value_of_any_key_is_read(key: str, value: object) -> None:
    for check in ("copy", "matmul"):
        line = {"module": 1, "group": [], "check": check, "of": 4, "wrong": 0, "error": 0.0, key: value}
        judged(f"gaudi-compute {json.dumps(line)}\n")


def test_a_line_that_is_longer_than_any_of_the_program_is_not_parsed() -> None:
    for more, known in ((0, True), (100_000, False)):
        text = line(3, failed="synStatus=26", more=[{}] * more)
        found, _ = judged(WELL.replace(sound(3), text).replace(summed(*EIGHT), ""))
        assert ("synStatus=26" in str(found)) is known


def test_an_image_that_prints_without_end_does_not_fill_the_verdict() -> None:
    endless = line(3, check="copy", wrong=1, of=2, expected="x" * 10000, got="\x1b" * 10000) * 5000
    found, _ = judged(endless + WELL)
    text = json.dumps(compute.document(found, 1, ""))
    assert len(text) < 20000
    assert "\\u001b" not in text


@pytest.mark.parametrize("wrong", [{}, {"rows": [{}]}, {"rows": 1, "copy_mib": 1, "not_checked": ""}])
def test_another_form_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="it has no compute_check"):
        compute.read(wrong)
    with pytest.raises(ValueError, match="no known outcome"):
        compute.read(compute.document(rows(outcome="fine"), 1, ""))


def test_rows_that_are_checked_again_give_way() -> None:
    part = compute.document(rows(), 1, "")
    assert [row["modules"] for row in compute.keep(part, compute.ComputePlan((0, 1, 2, 3, 4, 5, 6, 7), ()))] == [
        list(EIGHT)
    ]
    assert compute.keep(None, WHOLE) == []
