"""host_tuning_allowed: the node's own program decides whether the running kernel may serve."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.host.modules import run_main

PROGRAM = "import sys\nassert sys.argv[1:] == ['allow']\nprint('Add intel_iommu=on.', file=sys.stderr)\nsys.exit({})\n"


def test_a_host_that_was_never_tuned_has_nothing_to_ask(tmp_path: Path) -> None:
    answer = run_main("library.host_tuning_allowed", {"program": str(tmp_path / "none.py")})
    assert (answer.get("failed", False), answer["asked"]) == (False, False)


@pytest.mark.parametrize(("status", "fails"), [(0, False), (1, True), (255, True), (3, True)])
def test_a_no_is_a_failure_with_its_sentence(tmp_path: Path, status: int, fails: bool) -> None:
    program = tmp_path / "host_tuning.py"
    program.write_text(PROGRAM.format(status))
    answer = run_main("library.host_tuning_allowed", {"program": str(program)})
    assert answer.get("failed", False) is fails
    if fails:
        assert answer["msg"] == "Add intel_iommu=on."
