"""Statements about facts, on which a remedy depends."""

from __future__ import annotations

import pytest
from ansible.module_utils.gaudi.faults.facts import Facts


@pytest.mark.parametrize(
    ("release", "early"),
    [
        ("1.22", True),
        ("1.22-2025.11", True),
        ("1.24", True),
        ("1.24.0", True),
        ("1.24.1", False),
        ("deepseek-r1", False),
    ],
)
def test_gemma_4_is_too_early_by_the_number_of_its_release(release: str, early: bool) -> None:
    assert Facts(model="google/gemma-4-31b-it", release=release).gemma4_too_early is early
    assert Facts(model="qwen3-8b", release=release).gemma4_too_early is False


@pytest.mark.parametrize(
    ("driver", "image", "release", "differ"),
    [
        ("1.24.0-568", None, "1.24", False),
        ("1.24.1-17", "1.24.1.482", "1.24.1", False),
        ("1.24.1-17", None, "1.22-2025.11", True),
        ("1.24.1-17", "1.24.0.5", None, True),
        ("1.24.1-17", None, "deepseek-r1", None),
        (None, "1.24.1", None, None),
    ],
)
def test_releases_are_compared_by_the_numbers_that_both_have(
    driver: str | None, image: str | None, release: str | None, differ: bool | None
) -> None:
    assert Facts(driver=driver, image=image, release=release).releases_differ is differ


@pytest.mark.parametrize(
    ("passed", "visible", "lacks"),
    [(None, (0, 1), None), ((0, 1), (0, 1), False), ((0,), (0, 1), True), ((0,), (0,), False), ((), None, True)],
)
def test_a_card_is_not_passed_where_the_driver_offers_it_and_the_container_lacks_it(
    passed: tuple[int, ...] | None, visible: tuple[int, ...] | None, lacks: bool | None
) -> None:
    assert Facts(cards=(0, 1), passed=passed, visible=visible).card_not_passed is lacks
