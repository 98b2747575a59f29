"""The role benchmark: what it takes away is what its program leaves."""

from __future__ import annotations

import json
from pathlib import Path

import bench
import pytest
import yaml
from ansible.errors import AnsibleError, AnsibleFilterError

from filter_plugins.benchmark import benchmark_fault, benchmark_run, benchmark_runs
from tests.unit.benchmark.made import run
from tests.unit.preflight.test_templates import evaluate, results, task_of

ROLE = Path(__file__).resolve().parents[3] / "roles/benchmark"


def test_the_container_of_a_killed_measurement_is_looked_for_by_the_label_that_it_has() -> None:
    tasks = yaml.safe_load((ROLE / "tasks/remove.yml").read_text(encoding="utf-8"))
    (looked,) = [
        task for task in tasks if f"label={bench.LABEL}" in task.get("ansible.builtin.command", {}).get("argv", [])
    ]
    (removing,) = [task for task in tasks if "rm" in str(task.get("ansible.builtin.command"))]
    # Before the programs go: who runs it again finds it done.
    assert tasks.index(looked) < tasks.index(removing) < next(n for n, task in enumerate(tasks) if "node_files" in task)


def test_a_run_of_a_node_is_no_way_to_another_file_of_the_controller() -> None:
    """Its name becomes that of a file here, and a node says what it likes."""
    assert benchmark_runs([run()], ["3f2a"]) == [run()]
    with pytest.raises(AnsibleFilterError, match="it has a name that no run has"):
        benchmark_runs([run("../../.ssh/authorized_keys-3f2a")], ["3f2a"])


def test_the_name_that_a_node_gives_its_run_is_no_path_on_the_controller(tmp_path: Path) -> None:
    """Only the operator may name a file."""
    file = tmp_path / "3f2a.json"
    file.write_text(json.dumps(run()))
    assert benchmark_runs([], [str(file)]) == [run()]
    assert benchmark_run([run()], "3f2a") == run()
    written = task_of("benchmark", "show", "Write the result")["loop"][0]
    for name in (str(file), ["x"], {"run": 1}):
        with pytest.raises(AnsibleFilterError, match="No run on this node has"):
            benchmark_run([run()], name)
        known = results("benchmark", node_job={"result": {"run": name}}, benchmark_runs_info={"runs": [run()]})
        with pytest.raises(AnsibleError, match="No run on this node has"):
            evaluate("benchmark", written, benchmark_compare="", **known)


def test_a_run_that_is_none_is_refused_in_one_sentence() -> None:
    assert benchmark_fault([run()], ["3f2a"]) == benchmark_fault([], []) == ""
    assert (
        benchmark_fault([], ["x"]) == "No run on this node has 'x' in the name. The last ones are: none. [no_such_run]"
    )


def test_a_check_writes_nothing_on_the_controller() -> None:
    tasks = yaml.safe_load((ROLE / "tasks/show.yml").read_text(encoding="utf-8"))
    assert [task["name"] for task in tasks if task.get("check_mode") is False] == []
