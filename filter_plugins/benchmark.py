"""Show benchmarks: as a table, and as a chart."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent.parent))
from plugin_utils import brain

brain.on_path()

from ansible.errors import AnsibleFilterError
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.benchmark import chart, figures


def benchmark_runs(runs: Sequence[Mapping[str, Any]], wanted: Sequence[str]) -> list[dict[str, Any]]:
    """Return the runs that the operator asks for: by a part of a name, or from a file of the controller."""
    return [_run(runs, name) for name in wanted]


def benchmark_run(runs: Sequence[Mapping[str, Any]], name: object) -> dict[str, Any]:
    """Return the run of a node that its job has made; name: what the node says. It names no file."""
    return _of_node(runs, str(name))


def _run(runs: Sequence[Mapping[str, Any]], wanted: str) -> dict[str, Any]:
    file = Path(wanted)
    if not (wanted.endswith(".json") and file.is_file()):
        return _of_node(runs, wanted)
    try:
        return dict(figures.read(file.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise AnsibleFilterError(f"{wanted} is no run of a benchmark: {error}.") from error


def _of_node(runs: Sequence[Mapping[str, Any]], wanted: str) -> dict[str, Any]:
    try:
        # Of a node, whose word is checked here: the name of a run becomes that of a file on this machine.
        return dict(figures.read(json.dumps(figures.chosen(runs, wanted))))
    except Refusal as refusal:
        raise AnsibleFilterError(refusal.message_with_id) from None
    except ValueError as error:
        raise AnsibleFilterError(f"{wanted} is no run of a benchmark: {error}.") from error


def benchmark_fault(runs: Sequence[Mapping[str, Any]], wanted: Sequence[str]) -> str:
    """Return what is wrong with the runs that were asked for, in a sentence; empty where nothing is."""
    try:
        benchmark_runs(runs, wanted)
    except AnsibleFilterError as wrong:
        return str(wrong)
    return ""


def benchmark_table(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return one run, or a run and the one it is compared with, as lines."""
    return list(figures.table(*runs))


def benchmark_chart(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return the same as an SVG."""
    return str(chart.draw(runs))


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name the filters."""
        return {
            "benchmark_fault": benchmark_fault,
            "benchmark_run": benchmark_run,
            "benchmark_runs": benchmark_runs,
            "benchmark_table": benchmark_table,
            "benchmark_chart": benchmark_chart,
        }
