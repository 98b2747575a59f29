"""make check looks at what was touched."""

from __future__ import annotations

import pytest

from tests.check import all_tests, chosen_tests

TESTS = all_tests()


def test_tests_about_all_files_are_always_chosen() -> None:
    assert chosen_tests(["README.txt"], TESTS) == [str(test) for test in TESTS if str(test.parent) == "tests/unit"]


@pytest.mark.parametrize(
    ("touched", "found"),
    [
        # The folder of the package.
        ("module_utils/gaudi/cards/hl_smi.py", "tests/unit/cards"),
        # Tests that import the module, or the program.
        ("module_utils/gaudi/node/long_work.py", "tests/unit/jobs/test_decisions.py"),
        ("roles/vllm_service/files/vllm_supervisor.py", "tests/integration/vllm_service/test_supervisor.py"),
        # Tests that name the plugin, the role, or the file.
        ("library/card_reservation.py", "tests/unit/cards/test_card_reservation.py"),
        ("roles/host_tuning/tasks/main.yml", "tests/unit/host/test_program.py"),
        ("catalog/cards.yml", "tests/unit/planning/test_refusals.py"),
        ("docs/refusals.md", "tests/unit/base/test_refusals.py"),
        # A helper of tests, and a test.
        ("tests/unit/cards/nodes.py", "tests/unit/cards"),
        ("tests/unit/cards/test_text.py", "tests/unit/cards/test_text.py"),
    ],
)
def test_a_file_is_tested_by_the_folder_of_its_name_and_by_what_names_it(touched: str, found: str) -> None:
    assert found in chosen_tests([touched], TESTS)


def test_what_has_nothing_to_do_with_a_file_is_not_chosen() -> None:
    assert not [test for test in chosen_tests(["module_utils/gaudi/cards/hl_smi.py"], TESTS) if "weights" in test]


def test_a_file_in_a_chosen_folder_is_not_named_again() -> None:
    assert (
        chosen_tests(["tests/unit/cards/nodes.py", "tests/unit/cards/test_text.py"], TESTS).count(
            "tests/unit/cards/test_text.py"
        )
        == 0
    )
