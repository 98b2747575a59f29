"""playbooks/tune_host.yml on a node where nothing is left to change: tasks, rounds of facts, wall time.

    python -m benchmarks.host_tuning                       on a simulated node, started and taken away here
    python -m benchmarks.host_tuning --inventory DIRECTORY on nodes of your own; they are tuned, twice
    python -m benchmarks.host_tuning --baseline ROLE       and kernel_settings beside it, in the same minutes

The baseline is kernel_settings of linux-system-roles: 36 tasks and 9.3 s for two kernel settings, with nothing to
change, on the simulated node of a quiet machine. With a copy of that role (ROLE; PyPI's package ``ansible`` does not
have it) it is measured here and now, and the limit is half of what it took: a busy machine is neither excuse nor
accusation.
It installs TuneD on the node, so it is for simulated ones.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from plugin_utils.phases import Task
from simulator import host, playbook
from simulator.settings import ROOT

RUNS = 5
TASK_LIMIT = 12
FACTS_LIMIT = 1
BASELINE_TASKS = 36
BASELINE_S = 9.3
SCOPE = "bench-host-tuning"
BASELINE_PLAY = """\
- hosts: gaudi_nodes
  become: true
  gather_facts: false
  roles:
    - role: {role}
      vars:
        kernel_settings_sysctl:
          - {{name: vm.nr_hugepages, value: 64}}
          - {{name: kernel.numa_balancing, value: 0}}
"""


def run(play: str, inventory: Path, **environment: str) -> tuple[float, list[Task]]:
    """Seconds of one run, from the command to its end, and its tasks.

    Raises RuntimeError: the playbook failed; with each host's own words.
    """
    with tempfile.TemporaryDirectory() as directory:
        begun = time.monotonic()
        outcome = playbook.run(
            play,
            Path(directory) / "run",
            lambda _progress, _event: None,
            time.monotonic,
            inventory,
            **environment,
        )
        seconds = time.monotonic() - begun
        if outcome.status:
            raise RuntimeError(f"{play} ended with status {outcome.status}: {outcome.progress.failures}")
    return seconds, [task for phase in outcome.progress.run.phases for task in phase.tasks]


@contextmanager
def simulated_node() -> Iterator[None]:
    """Start a node for this measurement, and take it away."""
    simulator = [sys.executable, "-m", "simulator"]
    host.run([*simulator, "up", "--no-vault", "--scope", SCOPE])
    try:
        yield
    finally:
        host.run([*simulator, "down", "--scope", SCOPE])


def baseline(role: Path, inventory: Path, **environment: str) -> tuple[float, int]:
    """Seconds (median) and tasks of kernel_settings with nothing to change."""
    with tempfile.TemporaryDirectory() as directory:
        play = Path(directory) / "kernel_settings.yml"
        play.write_text(BASELINE_PLAY.format(role=role))
        run(str(play), inventory, **environment)
        runs = [run(str(play), inventory, **environment) for _ in range(RUNS)]
    return statistics.median(seconds for seconds, _ in runs), len(runs[-1][1])


def measure(inventory: Path, role: Path | None, **environment: str) -> int:
    """Tune once, then measure runs that change nothing. Returns 1 when a limit is passed."""
    tune = "playbooks/tune_host.yml"
    first, _ = run(tune, inventory, **environment)
    runs = [run(tune, inventory, **environment) for _ in range(RUNS)]
    tasks = runs[-1][1]
    changed = [task.name for _, tasks_of_run in runs for task in tasks_of_run if task.changed]
    facts = sum("Gathering Facts" in task.name for task in tasks)
    median = statistics.median(seconds for seconds, _ in runs)
    base_s, base_tasks = baseline(role, inventory, **environment) if role else (BASELINE_S, BASELINE_TASKS)
    limit = base_s / 2
    print(f"{'':36}{'this role':>12}{'limit':>9}{'kernel_settings':>17}")
    print(f"{'tasks, nothing to change':36}{len(tasks):>12}{TASK_LIMIT:>9}{base_tasks:>17}")
    print(f"{'rounds of facts':36}{facts:>12}{FACTS_LIMIT:>9}{'':>17}")
    print(f"{f'seconds, median of {RUNS}':36}{median:>12.1f}{limit:>9.2f}{base_s:>17.1f}")
    print(f"{'seconds, first run':36}{first:>12.1f}")
    print(f"{'load of this machine':36}{os.getloadavg()[0]:>12.1f}")
    for task in tasks:
        print(f"  {task.seconds:5.2f} s  {task.name}")
    if changed:
        print(f"Changed although nothing was left to change: {changed}")
    return int(bool(changed) or len(tasks) > TASK_LIMIT or facts > FACTS_LIMIT or median > limit)


def main() -> int:
    """Measure on the nodes named, or on a simulated one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inventory", type=Path, help="nodes to measure on, instead of a simulated one")
    parser.add_argument(
        "--baseline", type=Path, metavar="ROLE", help="a copy of the role kernel_settings, to measure it too"
    )
    chosen = parser.parse_args()
    role = chosen.baseline.resolve() if chosen.baseline else None
    if chosen.inventory:
        return measure(chosen.inventory.resolve(), role)
    with simulated_node():
        return measure(ROOT / "inventories" / "simulated", role, GAUDI_SIMULATOR_SCOPE=SCOPE)


if __name__ == "__main__":
    sys.exit(main())
