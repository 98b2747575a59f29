"""playbooks/tune_host.yml on a node where nothing is left to change: tasks, rounds of facts, wall time.

    python -m benchmarks.host_tuning                       on a simulated node, started and taken away here
    python -m benchmarks.host_tuning --inventory DIRECTORY on nodes of your own; they are tuned, twice

The baseline is kernel_settings of linux-system-roles: 36 tasks and 9.3 s for two kernel settings, with nothing to
change, on the simulated node.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from simulator import host, playbook
from simulator.settings import ROOT

RUNS = 5
TASK_LIMIT = 12
FACTS_LIMIT = 1
BASELINE_TASKS = 36
BASELINE_S = 9.3
LIMIT_S = BASELINE_S / 2
SCOPE = "bench-host-tuning"


def run(inventory: Path, **environment: str) -> tuple[float, list[playbook.Task]]:
    """Seconds of one run, from the command to its end, and its tasks.

    Raises:
        RuntimeError: the playbook failed; with each host's own words.
    """
    with tempfile.TemporaryDirectory() as directory:
        begun = time.monotonic()
        outcome = playbook.run(
            "playbooks/tune_host.yml",
            Path(directory) / "run",
            lambda _progress, _event: None,
            time.monotonic,
            inventory,
            **environment,
        )
        seconds = time.monotonic() - begun
        if outcome.status:
            raise RuntimeError(f"tune_host.yml ended with status {outcome.status}: {outcome.progress.failures}")
    return seconds, [task for phase in outcome.progress.phases for task in phase.tasks]


@contextmanager
def simulated_node() -> Iterator[None]:
    """Start a node for this measurement, and take it away."""
    simulator = [sys.executable, "-m", "simulator"]
    host.run([*simulator, "up", "--no-vault", "--scope", SCOPE])
    try:
        yield
    finally:
        host.run([*simulator, "down", "--scope", SCOPE])


def measure(inventory: Path, **environment: str) -> int:
    """Tune once, then measure runs that change nothing. Returns 1 when a limit is passed."""
    first, _ = run(inventory, **environment)
    runs = [run(inventory, **environment) for _ in range(RUNS)]
    tasks = runs[-1][1]
    changed = [task.name for _, tasks_of_run in runs for task in tasks_of_run if task.changed]
    facts = sum("Gathering Facts" in task.name for task in tasks)
    median = statistics.median(seconds for seconds, _ in runs)
    print(f"{'':36}{'this role':>12}{'limit':>9}{'kernel_settings':>17}")
    print(f"{'tasks, nothing to change':36}{len(tasks):>12}{TASK_LIMIT:>9}{BASELINE_TASKS:>17}")
    print(f"{'rounds of facts':36}{facts:>12}{FACTS_LIMIT:>9}{'':>17}")
    print(f"{f'seconds, median of {RUNS}':36}{median:>12.1f}{LIMIT_S:>9.2f}{BASELINE_S:>17.1f}")
    print(f"{'seconds, first run':36}{first:>12.1f}")
    for task in tasks:
        print(f"  {task.seconds:5.2f} s  {task.name}")
    if changed:
        print(f"Changed although nothing was left to change: {changed}")
    return int(bool(changed) or len(tasks) > TASK_LIMIT or facts > FACTS_LIMIT or median > LIMIT_S)


def main() -> int:
    """Measure on the nodes named, or on a simulated one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inventory", type=Path, help="nodes to measure on, instead of a simulated one")
    chosen = parser.parse_args()
    if chosen.inventory:
        return measure(chosen.inventory.resolve())
    with simulated_node():
        return measure(ROOT / "inventories" / "simulated", GAUDI_SIMULATOR_SCOPE=SCOPE)


if __name__ == "__main__":
    sys.exit(main())
