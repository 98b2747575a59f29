"""The role benchmark: what it takes away is what its program leaves."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import bench
import pytest
import yaml
from ansible.errors import AnsibleError, AnsibleFilterError

from filter_plugins.benchmark import benchmark_fault, benchmark_paths, benchmark_runs
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


NAME = run()["run"]
PATH = f"/var/lib/gaudi-serving/benchmarks/chat/{NAME}.json"
FOUND = {"files": [{"path": PATH}, {"path": "/var/lib/gaudi-serving/benchmarks/chat.json"}]}


def read(document: object, path: str = PATH) -> dict[str, Any]:
    """What ansible.builtin.slurp says of a file."""
    text = document if isinstance(document, str) else json.dumps(document)
    return {"item": path, "source": path, "content": base64.b64encode(text.encode()).decode()}


def test_only_runs_that_are_asked_for_are_read() -> None:
    later = {"path": PATH.replace("20260131", "20260201")}
    both = {"files": [*FOUND["files"], later]}
    assert benchmark_paths(both, ["0201"]) == [later["path"]]
    # Several are refused, and none of them has to be read for that.
    assert benchmark_paths(both, ["3f2a"]) == benchmark_paths(both, ["chat"]) == benchmark_paths({}, ["3f2a"]) == []


def test_a_run_of_a_node_is_no_way_to_another_file_of_the_controller() -> None:
    """Its name becomes that of a file here, and a node says what it likes."""
    assert benchmark_runs([read(run())], ["3f2a"], FOUND) == [run()]
    evil = read(run("../../.ssh/authorized_keys-3f2a"))
    with pytest.raises(AnsibleFilterError, match="it has a name that no run has"):
        benchmark_runs([evil], ["3f2a"], FOUND)
    written = task_of("benchmark", "show", "Write the result")["loop"][0]
    nothing = {"find": {"skipped": True}, "slurp": {**read(run()), "results": []}}
    for name in ("../../x", ["x"], {"run": 1}):
        known = results("benchmark", **{**nothing, "node_job": {"result": {"run": name}}})
        assert evaluate("benchmark", written, benchmark_compare="", **known)["name"] == f"{NAME}.json"
    known = results("benchmark", **{**nothing, "slurp": {**evil, "results": []}})
    with pytest.raises(AnsibleError, match="it has a name that no run has"):
        evaluate("benchmark", written, benchmark_compare="", **known)


def test_the_path_that_a_node_gives_is_none_of_the_controller(tmp_path: Path) -> None:
    """Only the operator may name a file."""
    file = tmp_path / "3f2a.json"
    file.write_text(json.dumps(run()))
    assert benchmark_runs([], [str(file)], {}) == [run()]
    assert benchmark_paths(FOUND, [str(file)]) == []
    other = run(instance="other")
    assert benchmark_runs([{**read(other), "source": str(file)}], ["3f2a"], FOUND) == [other]
    with pytest.raises(AnsibleFilterError, match="No run on this node has"):
        benchmark_runs([], ["3f2a"], {"files": [{"path": str(file)}]})


@pytest.mark.parametrize("content", ["", "{", "[]", "\0", json.dumps({**run(), "steps": 3})])
def test_a_run_that_cannot_be_read_is_refused_before_anything_is_measured(content: str) -> None:
    fault = benchmark_fault([read(content)], ["3f2a"], FOUND)
    assert fault.startswith(f"{PATH} is no run of a benchmark: ")


def test_a_run_that_is_none_is_refused_in_one_sentence() -> None:
    assert benchmark_fault([read(run())], ["3f2a"], FOUND) == benchmark_fault([], [], {"skipped": True}) == ""
    assert (
        benchmark_fault([], ["x"], {})
        == "No run on this node has 'x' in the name. The last ones are: none. [no_such_run]"
    )


def test_a_check_writes_nothing_on_the_controller() -> None:
    tasks = yaml.safe_load((ROLE / "tasks/show.yml").read_text(encoding="utf-8"))
    assert [task["name"] for task in tasks if task.get("check_mode") is False] == []
