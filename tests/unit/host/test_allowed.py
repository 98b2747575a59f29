"""host_tuning_allowed: the node's own program decides whether the running kernel may serve."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible.module_utils.gaudi.node import iommu

from tests.unit.host.modules import run_main

PROGRAM = "import sys\nassert sys.argv[1:] == ['allow']\nprint('Add intel_iommu=on.', file=sys.stderr)\nsys.exit({})\n"


def test_a_host_that_was_never_tuned_has_nothing_to_ask(tmp_path: Path) -> None:
    answer = run_main("library.host_tuning_allowed", {"program": str(tmp_path / "none.py")})
    assert (answer.get("failed", False), answer["asked"]) == (False, False)


@pytest.mark.parametrize(
    ("release", "kind", "allowed", "fails"),
    [
        ("1.24.1", "DMA-FQ", False, True),
        ("1.24.1", "DMA-FQ", True, False),
        ("1.24.1", "identity", False, False),
        ("1.23", "DMA-FQ", False, False),
        ("", "DMA-FQ", False, False),
    ],
)
def test_cards_behind_an_iommu_that_translates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: str, kind: str, allowed: bool, fails: bool
) -> None:
    """Also on a host that was never tuned."""
    monkeypatch.setattr(iommu, "SYS", tmp_path)
    device = tmp_path / "bus/pci/devices/0000:33:00.0"
    (device / "iommu_group").mkdir(parents=True)
    (device / "vendor").write_text("0x1da3\n")
    (device / "iommu_group/type").write_text(f"{kind}\n")
    answer = run_main("library.host_tuning_allowed", {"release": release, "translated": allowed})
    assert answer.get("failed", False) is fails
    if fails:
        assert f"iommu_group/type {kind} of 0000:33:00.0" in answer["msg"]
        assert "tune_host.yml with host_tuning_reboot=if_needed" in answer["msg"]


@pytest.mark.parametrize(("status", "fails"), [(0, False), (1, True), (255, True), (3, True)])
def test_a_no_is_a_failure_with_its_sentence(tmp_path: Path, status: int, fails: bool) -> None:
    program = tmp_path / "host_tuning.py"
    program.write_text(PROGRAM.format(status))
    answer = run_main("library.host_tuning_allowed", {"program": str(program)})
    assert answer.get("failed", False) is fails
    if fails:
        assert answer["msg"] == "Add intel_iommu=on."
