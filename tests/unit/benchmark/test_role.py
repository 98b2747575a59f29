"""The role benchmark: what it takes away is what its program leaves."""

from __future__ import annotations

from pathlib import Path

import bench
import yaml

ROLE = Path(__file__).resolve().parents[3] / "roles/benchmark"


def test_the_container_of_a_killed_measurement_is_looked_for_by_the_label_that_it_has() -> None:
    tasks = yaml.safe_load((ROLE / "tasks/remove.yml").read_text(encoding="utf-8"))
    (looked,) = [task for task in tasks if task.get("register") == "__benchmark_left"]
    assert looked["ansible.builtin.command"]["argv"][-1] == f"label={bench.LABEL}"
    (removing,) = [task for task in tasks if "rm" in str(task.get("ansible.builtin.command"))]
    # Before the programs go: who runs it again finds it done.
    assert tasks.index(looked) < tasks.index(removing) < next(n for n, task in enumerate(tasks) if "node_files" in task)
