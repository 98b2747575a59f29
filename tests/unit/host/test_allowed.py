"""The entry points allowed and passthrough: whether a node may serve on its running kernel, decided here."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible.module_utils.gaudi.base import paths
from ansible.module_utils.gaudi.host.cmdline import NeededArgument
from ansible.module_utils.gaudi.node import iommu
from ansible.module_utils.gaudi.node.report import tuning

from filter_plugins.running_kernel import cards_translated, serving_refused
from tests.unit.host.modules import run_main
from tests.unit.host.test_program import document
from tests.unit.node.damages import DAMAGES, damage
from tests.unit.preflight.test_templates import runs, task_of, within

NEEDED = NeededArgument("intel_iommu=on", "correctness", "x")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The document of a host whose kernel was started without any argument; it is not there yet."""
    monkeypatch.setattr(tuning, "STATE", tmp_path / "host_tuning.json")
    monkeypatch.setattr(tuning, "read_command_line", lambda: ["ro"])
    monkeypatch.setattr(iommu, "SYS", tmp_path)
    return tmp_path / "host_tuning.json"


def reported() -> dict[str, Any]:
    return run_main("library.node_report", {"parts": ["tuning"]})


def fails(file: str, words: str, **given: Any) -> str:
    """Why a task of the role fails; "" if it does not."""
    task = task_of("host_tuning", file, words)
    condition = {"when": task["ansible.builtin.assert"]["that"], "vars": task["vars"]}
    if runs("host_tuning", condition, **given):
        return ""
    return str(within("host_tuning", task, task["ansible.builtin.assert"]["fail_msg"], **given))


def test_a_host_that_was_never_tuned_may_serve() -> None:
    assert serving_refused(reported()) == ""
    assert fails("allowed", "garble", __host_tuning_node=reported()) == ""


@pytest.mark.parametrize(
    ("release", "kind", "allowed", "refused"),
    [
        (1.24, "DMA-FQ", [], True),
        ("1.24.1", "DMA-FQ", ["driver", "iommu"], False),
        ("1.24.1", "identity", [], False),
        ("1.23", "DMA-FQ", [], False),
        ("", "DMA-FQ", [], False),
    ],
)
def test_cards_behind_an_iommu_that_translates(
    tmp_path: Path, release: object, kind: str, allowed: list[str], refused: bool
) -> None:
    """Also on a host that was never tuned."""
    device = tmp_path / "bus/pci/devices/0000:33:00.0"
    (device / "iommu_group").mkdir(parents=True)
    (device / "vendor").write_text("0x1da3\n")
    (device / "iommu_group/type").write_text(f"{kind}\n")
    given = {"host_tuning_release": release, "host_tuning_allow_mismatch": allowed}
    said = fails("passthrough", "translates", __host_tuning_node=reported(), **given)
    assert bool(said) is refused
    if refused:
        assert f"iommu_group/type {kind} of 0000:33:00.0" in said
        assert "tune_host.yml with host_tuning_reboot=if_needed" in said


def test_a_kernel_that_would_garble_the_answers_is_refused_as_the_nodes_own_program_does(state: Path) -> None:
    state.write_text(json.dumps({"schema": 2, **document([NEEDED])}))
    said = fails("allowed", "garble", __host_tuning_node=reported())
    assert "was started without intel_iommu=on" in said


def test_what_only_costs_speed_refuses_nothing(state: Path) -> None:
    state.write_text(json.dumps({"schema": 2, **document([NeededArgument("quiet", "speed", "y")])}))
    assert serving_refused(reported()) == ""


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_document_allows_nothing(state: Path, kind: str) -> None:
    damage(state, kind)
    said = serving_refused(reported())
    assert said.startswith(f"Whether this kernel may serve is not known: {paths.HOST_TUNING} cannot be read (it ")


@pytest.mark.parametrize("refuses", [serving_refused, lambda result: cards_translated(result, "1.24", [])])
@pytest.mark.parametrize(
    "result",
    [
        {},
        {"report": []},
        {"report": {}},
        {"report": {"tuning": {"error": "Too late."}}},
        {"report": {"tuning": {"state": {"text": None}, "kernel": "6.8", "command_line": "ro", "groups": []}}},
        {"report": {"tuning": {"state": {"text": None}, "kernel": "6.8", "command_line": [], "groups": [{}]}}},
        {"report": {"tuning": {"state": {"text": None}, "kernel": "6.8", "command_line": [], "groups": [{}] * 257}}},
    ],
)
def test_a_node_that_reports_no_kernel_is_refused(refuses: Callable[[Any], str], result: Any) -> None:
    with pytest.raises(AnsibleFilterError, match=r"\[[a-z_]+\]$"):
        refuses(result)
