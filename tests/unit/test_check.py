"""make check looks at what was touched."""

from __future__ import annotations

import pytest

from tests.check import CONTRACTS, DOCUMENTS, ROOT, TESTED_BY, all_tests, chosen_tests, contracts

TESTS = all_tests()


@pytest.mark.parametrize(
    ("touched", "found"),
    [
        (["module_utils/gaudi/cards/hl_smi.py"], ["tests/unit/cards"]),
        (["module_utils/gaudi/families/plugin.py"], ["tests/unit/families", "tests/unit/planning"]),
        (
            ["module_utils/gaudi/node/long_work.py"],
            ["tests/unit/jobs/test_decisions.py", "tests/unit/library/test_node_status_info.py", "tests/unit/node"],
        ),
        (
            ["roles/vllm_service/files/vllm_supervisor.py"],
            ["tests/integration/vllm_service", "tests/unit/vllm_service"],
        ),
        (["roles/fp8_weights/README.md"], ["tests/integration/fp8", "tests/integration/fp8_dynamic", "tests/unit/fp8"]),
        (["roles/gaudi_driver/tasks/main.yml"], ["tests/unit/driver"]),
        (["roles/serving_image/files/gaudi_image/build.py"], ["tests/integration/image", "tests/unit/image"]),
        (
            ["catalog/cards.yml"],
            ["tests/golden", "tests/integration/catalogue", "tests/unit/catalogue", "tests/unit/planning"],
        ),
        (["tests/golden/serving_cases/cases.json"], ["tests/golden/serving_cases"]),
        (["tests/unit/cards/nodes.py", "tests/unit/cards/test_text.py"], ["tests/unit/cards"]),
        (["tests/unit/cards/test_text.py"], ["tests/unit/cards/test_text.py"]),
        (["README.md"], []),
    ],
)
def test_a_file_is_tested_by_the_folder_of_its_subject(touched: list[str], found: list[str]) -> None:
    assert chosen_tests(touched, TESTS) == found


def test_a_plugin_is_tested_by_every_test_that_names_it() -> None:
    assert "tests/unit/cards/test_card_reservation.py" in chosen_tests(["library/card_reservation.py"], TESTS)


def test_every_named_place_and_folder_exists() -> None:
    folders = {test.parts[2] for test in TESTS}
    for place, said in TESTED_BY.items():
        assert (ROOT / place).is_dir(), place
        assert set(said) <= folders, place


def test_what_holds_for_every_file_of_a_kind_is_tested_with_any_of_them() -> None:
    assert "tests/unit/base/test_refusals.py" in contracts(["module_utils/gaudi/host/sysctl.py"])
    assert "tests/unit/test_module_pages.py" in contracts(["library/toy.py"])
    assert contracts(["README.md"]) == set()
    assert contracts(["docs/refusals.md"]) == {"tests/unit/base/test_refusals.py"}
    every = {test for tests in CONTRACTS.values() for test in tests} | {*DOCUMENTS.values()}
    assert all((ROOT / test).exists() for test in every)
