"""The program of the compute check as a process, over the stand-in for PyTorch and a described node.

tests/compute_torch.py runs it with the real PyTorch.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.gaudi.catalogue.compute import ComputeBounds
from ansible.module_utils.gaudi.fabric import compute

from simulator.settings import ROOT, SIMULATOR
from simulator.standins import description

PROGRAM = ROOT / "roles" / "fabric_check" / "files" / "compute_check.py"
BOUNDS = ComputeBounds.from_cards(yaml.safe_load((ROOT / "catalog" / "cards.yml").read_text(encoding="utf-8")))
# Where the stand-in finds node and cards is fixed in a container; here it is told.
START = """\
import sys; from pathlib import Path
import torch
torch.NODE_DOCUMENT, torch.DEV = Path(sys.argv[2]), Path(sys.argv[3])
exec(compile(Path(sys.argv[4]).read_text(), "compute_check.py", "exec"), {"__name__": "__main__"})
"""
PLANNED = compute.ComputePlan((0, 1, 2, 3), ((0, 1, 2, 3),), compute.FULL, 1)
Rows = dict[tuple[int, ...], dict[str, Any]]
Compute = Callable[..., Rows]


@pytest.fixture
def computed(tmp_path: Path) -> Compute:
    """Run the program over four cards of a node with these faults, and judge it; without some of their devices."""

    def run(*faults: dict[str, Any], without: int | None = None, seconds: float = 60) -> Rows:
        said = yaml.safe_load((description.DESCRIPTIONS / "gaudi2-oam8.yml").read_text(encoding="utf-8"))
        node = description.expand({**said, "compute": list(faults)}, "test")
        document, dev = tmp_path / "node.json", tmp_path / "dev"
        document.write_text(description.render(node), encoding="utf-8")
        dev.mkdir(exist_ok=True)
        indexes = {card["module_id"]: card["index"] for card in node["cards"]}
        for module, index in indexes.items():
            if module != without:
                (dev / f"accel{index}").touch()
        asked = json.dumps(compute.request(PLANNED))
        command = [sys.executable, "-c", START, asked, str(document), str(dev), str(PROGRAM)]
        environment = {**os.environ, "PYTHONPATH": str(SIMULATOR / "images" / "pytorch")}
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, start_new_session=True) as started:
            try:
                out, _ = started.communicate(timeout=seconds)
            except subprocess.TimeoutExpired as late:
                os.killpg(started.pid, 9)
                out, _ = started.communicate()
                assert late.timeout == seconds
        status = started.returncode if started.returncode >= 0 else None
        ended = compute.ComputeExit(out.decode(), status, int(seconds))
        rows, why = compute.judge(PLANNED, ended, indexes, BOUNDS, "now", "boot")
        assert why == ""
        return {tuple(row["modules"]): row for row in rows}

    return run


def outcomes(rows: Rows) -> list[str]:
    return [rows[part]["outcome"] for part in ((0,), (1,), (2,), (3,), (0, 1, 2, 3))]


def test_sound_cards_are_proved(computed: Compute) -> None:
    assert outcomes(computed()) == ["passed"] * 5


@pytest.mark.parametrize("check", ["copy", "gather", "matmul"])
def test_a_card_that_damages_data_is_found(check: str, computed: Compute) -> None:
    rows = computed({"module": 2, "fault": check})
    wrong = "differs" if check == "matmul" else "failed"
    last = "passed" if check == "matmul" else "skipped"
    assert outcomes(rows) == ["passed", "passed", wrong, "passed", last]
    found = rows[(2,)]["findings"][0]
    assert (found["module"], found["check"]) == (2, check)
    assert found["expected"] != found["got"]


def test_a_card_that_adds_wrongly_is_found_among_four(computed: Compute) -> None:
    rows = computed({"module": 1, "fault": "all_reduce"})
    assert outcomes(rows) == ["passed"] * 4 + ["failed"]
    assert [each["module"] for each in rows[0, 1, 2, 3]["findings"]] == [1]


def test_a_process_that_crashes_and_a_card_that_is_not_there_are_named(computed: Compute) -> None:
    rows = computed({"module": 2, "fault": "crash"}, without=3)
    assert outcomes(rows) == ["passed", "passed", "unknown", "unknown", "skipped"]
    assert "synStatus=26" in rows[2,]["sentence"]
    assert "Device not found" in rows[3,]["sentence"]


def test_a_card_that_hangs_hides_nothing_of_the_others(computed: Compute) -> None:
    rows = computed({"module": 0, "fault": "hang"}, seconds=5)
    assert outcomes(rows) == ["unknown", "passed", "passed", "passed", "skipped"]
    assert "no answer within 5 seconds" in rows[0,]["sentence"]
