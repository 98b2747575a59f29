"""Show benchmarks: as a table, and as a chart."""

from __future__ import annotations

import base64
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


def benchmark_paths(found: Mapping[str, Any], wanted: Sequence[str]) -> list[str]:
    """Return the files on the node that are to be read: those of each name that only one run has.

    found: what ansible.builtin.find says of the folder, without files if nothing was looked for.
    """
    kept = _kept(found)
    matching = [[name for name in kept if part in name] for part in wanted if not _is_here(part)]
    return [kept[names[0]] for names in matching if len(names) == 1]


def benchmark_runs(
    read: Sequence[Mapping[str, Any]], wanted: Sequence[str], found: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the runs that the operator asks for: by a part of a name, or from a file of the controller.

    read: what ansible.builtin.slurp has read of benchmark_paths. found: as there.
    """
    kept, answers = _kept(found), {str(answer["item"]): answer for answer in read}
    runs = []
    for part in wanted:
        if _is_here(part):
            runs.append(_run(part, Path(part).read_bytes))
            continue
        try:
            path = kept[figures.chosen(list(kept), part)]
        except Refusal as refusal:
            raise AnsibleFilterError(refusal.message_with_id) from None
        runs.append(benchmark_run(answers[path]))
    return runs


def benchmark_run(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the run that ansible.builtin.slurp has read on a node."""
    return _run(str(answer["source"]), lambda: base64.b64decode(str(answer["content"])))


def _kept(found: Mapping[str, Any]) -> dict[str, str]:
    """Return the runs of a node: name and path. Beside them are descriptions of what is measured."""
    paths = [str(file["path"]) for file in found.get("files", ())]
    return {Path(path).stem: path for path in paths if figures.RUN.match(Path(path).stem)}


def _is_here(wanted: str) -> bool:
    """Whether the operator names a file of the controller."""
    return wanted.endswith(".json") and Path(wanted).is_file()


def _run(source: str, content: Callable[[], bytes]) -> dict[str, Any]:
    """Read a run. A node's word is checked too: the name of its run becomes that of a file on this machine."""
    try:
        return dict(figures.read(content().decode("utf-8")))
    except (OSError, ValueError) as error:
        raise AnsibleFilterError(f"{source} is no run of a benchmark: {error}.") from error


def benchmark_fault(read: Sequence[Mapping[str, Any]], wanted: Sequence[str], found: Mapping[str, Any]) -> str:
    """Return what is wrong with the runs that were asked for, in a sentence; empty where nothing is."""
    try:
        benchmark_runs(read, wanted, found)
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
            "benchmark_paths": benchmark_paths,
            "benchmark_run": benchmark_run,
            "benchmark_runs": benchmark_runs,
            "benchmark_table": benchmark_table,
            "benchmark_chart": benchmark_chart,
        }
