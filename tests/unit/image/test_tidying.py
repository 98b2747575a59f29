"""Which images stay on a node: never one fewer than its instances use, and the one before each."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.module_utils.gaudi.image.tidying import NOBODY, is_built, tidied, unlabelled


def name(digit: str) -> str:
    return f"gaudi-serving/vllm:1.22-{digit * 12}"


A, B, C, D = map(name, "abcd")
READY = "registry.example.com/gaudi/vllm:7"


def built(release: str = "1.22") -> dict[str, Any]:
    return {"id": "sha256:x", "built": {"gaudi-serving.image.release": release, "gaudi-serving.image.recipe": "1"}}


RECORD = {A: built(), B: built(), C: built(), READY: {"id": "sha256:y"}}


def left(history: dict[str, list[str]], used: dict[str, str], wanted: dict[str, str], keep: int = 1) -> Any:
    return tidied(RECORD, history, used, wanted, [*wanted.values()], keep)


def test_the_one_before_stays_and_those_before_it_go() -> None:
    found = left({"chat": [B, A]}, {"chat": C}, {"chat": C})
    assert (found.history, found.superfluous) == ({"chat": (C, B)}, (A,))


def test_until_an_instance_has_the_new_one_the_one_before_its_own_stays() -> None:
    found = left({"chat": [B, A]}, {"chat": B}, {"chat": C})
    assert (found.history, found.superfluous) == ({"chat": (C, B, A)}, ())


def test_what_another_instance_has_stays() -> None:
    assert left({"chat": [B, A], "embed": [A]}, {"chat": C, "embed": A}, {"chat": C}).superfluous == ()


def test_going_back_is_a_step_like_any_other() -> None:
    found = left({"chat": [C, B]}, {"chat": B}, {"chat": B})
    assert (found.history["chat"], found.superfluous) == ((B, C), (A,))


def test_a_second_look_changes_nothing() -> None:
    first = left({"chat": [B, A]}, {"chat": C}, {"chat": C})
    again = left({name: list(names) for name, names in first.history.items()}, {"chat": C}, {"chat": C})
    assert again.history == first.history


def test_more_may_be_kept() -> None:
    assert left({"chat": [B, A]}, {"chat": C}, {"chat": C}, keep=2).superfluous == ()


def test_a_built_image_stays_behind_a_ready_one() -> None:
    found = left({"chat": [B]}, {"chat": READY}, {"chat": READY})
    assert (found.history["chat"], found.superfluous) == ((READY, B), (A, C))


def test_on_a_build_host_the_last_ones_that_were_asked_for_stay() -> None:
    found = tidied(RECORD, {NOBODY: [B, A]}, {}, {}, [C], 1)
    assert (found.history, found.superfluous) == ({NOBODY: (C, B)}, (A,))
    assert tidied(RECORD, {NOBODY: [B, A]}, {}, {}, [], 1).superfluous == (C,)


def test_what_was_asked_for_before_instances_came_is_not_kept_for_ever() -> None:
    found = tidied(RECORD, {NOBODY: [A]}, {"chat": C}, {"chat": C}, [C], 1)
    assert (found.history, found.superfluous) == ({"chat": (C,)}, (A, B))


def test_of_an_instance_that_is_gone_nothing_stays() -> None:
    assert left({"chat": [C], "gone": [A]}, {"chat": C}, {"chat": C}).superfluous == (A, B)


@pytest.mark.parametrize(
    ("reference", "known", "is_ours"),
    [
        (A, built(), True),
        ("registry.example.com:5000/gaudi/vllm:1.22-0123456789ab", built(), True),
        # Somebody's own, made of one of ours.
        ("mine/vllm:7", built(), False),
        ("mine/vllm:1.22-patched", built(), False),
        (A, built("1.21"), False),
        (A, {"id": "sha256:x"}, False),
    ],
)
def test_only_what_has_label_and_name_of_a_build_is_ours(reference: str, known: dict[str, Any], is_ours: bool) -> None:
    assert is_built(reference, known) is is_ours
    assert tidied({reference: known}, {}, {"chat": D}, {}, [], 1).superfluous == ((reference,) if is_ours else ())


def test_what_a_build_left_is_known_by_its_name() -> None:
    names = [f"{A}-unlabelled", A, "mine/vllm:7-unlabelled", f"{B}-unlabelled-x", "<none>:<none>"]
    assert unlabelled(names) == {f"{A}-unlabelled": A}
