"""site.yml where nothing is left to change: tasks, wall time and the controller's processor time, and status.yml.

    python -m benchmarks.site                      on a simulated node, started and set up here
    python -m benchmarks.site --against COMMIT     and that commit beside it, on a node that its own simulator starts
    python -m benchmarks.site --scope NAME         on the simulated node of a scope that is up, which stays

Runs of both commits take turns, so that a machine that is busy with other work is busy for both; medians are compared.
Python keeps what it compiled, as it does for users; the makefile forbids it for tests.
What one more node costs the controller is measured with further names for the same node (``--names 1,4,16``, in check
mode, where nothing can be in the way of anything).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, chdir, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ansible_runner

from simulator import host
from simulator.settings import ROOT

RUNS = 5
# Tasks as the recap counts them, done and skipped; seconds of a processor for each further node.
TASK_LIMIT = 40
CONTROLLER_LIMIT_S = 3.0
# Names at a time: the one sshd behind all names drops connections when more than ten have not logged in yet.
NAMES_AT_A_TIME = 8
# What a run may take of the older commit's time.
SHARE_LIMIT = 0.5
SLOWEST = 10
SCOPE = "bench-site"
RECAP = ("ok", "failures", "dark", "skipped", "rescued", "ignored")


@dataclass(frozen=True)
class Side:
    """A commit that is measured: its checkout, and the scope of a node that its own simulator started."""

    checkout: Path
    scope: str


@dataclass(frozen=True)
class Measured:
    """One run: seconds by the clock, seconds of processors on the controller, tasks a host, seconds of each task."""

    seconds: float
    processor: float
    tasks: int
    changed: int
    slow: Mapping[str, float]


def processor_seconds() -> float:
    """What the processes that were started and have ended used of the processors."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(side: Side, playbook: str, inventory: Path, *, check: bool = False) -> Measured:
    """Run a playbook of a checkout.

    Raises RuntimeError: the playbook failed; with what it printed.
    """
    slow: dict[str, float] = {}
    recap: dict[str, dict[str, int]] = {}

    def follow(event: Mapping[str, Any]) -> bool:
        data = event.get("event_data", {})
        if event["event"].startswith("runner_on_") and "duration" in data:
            slow[data["task"]] = slow.get(data["task"], 0.0) + data["duration"]
        if event["event"] == "playbook_on_stats":
            recap.update({kind: data[kind] for kind in (*RECAP, "changed")})
        return False  # keeps no file per event

    with tempfile.TemporaryDirectory() as folder:
        begun, used = time.monotonic(), processor_seconds()
        done = ansible_runner.run(
            private_data_dir=folder,
            project_dir=str(side.checkout),
            playbook=playbook,
            inventory=str(inventory),
            cmdline=f"--check --forks {NAMES_AT_A_TIME}" if check else None,
            quiet=True,
            event_handler=follow,
            envvars={
                "ANSIBLE_CONFIG": str(side.checkout / "ansible.cfg"),
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "GAUDI_SIMULATOR_SCOPE": side.scope,
                "PYTHONDONTWRITEBYTECODE": "",
                "PYTHONPYCACHEPREFIX": tempfile.gettempdir() + "/gaudi-serving-compiled",
            },
        )
        seconds, used = time.monotonic() - begun, processor_seconds() - used
        if done.rc != 0:
            raise RuntimeError(done.stdout.read())
    tasks = max(sum(recap[kind].get(name, 0) for kind in RECAP) for name in recap["ok"])
    return Measured(seconds, used, tasks, sum(recap["changed"].values()), slow)


@contextmanager
def beside(commit: str | None) -> Iterator[Path | None]:
    """A commit of this repository, checked out beside it."""
    if commit is None:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        checkout = Path(folder) / "checkout"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(checkout), commit], check=True)
        try:
            yield checkout
        finally:
            subprocess.run([*git, "remove", "--force", str(checkout)], check=True)


@contextmanager
def node(checkout: Path, scope: str) -> Iterator[Side]:
    """A node that the checkout's own simulator starts and takes away."""
    simulator = [sys.executable, "-m", "simulator"]
    with chdir(checkout):
        host.run([*simulator, "up", "--scope", scope])
    try:
        yield Side(checkout, scope)
    finally:
        with chdir(checkout):
            host.run([*simulator, "down", "--scope", scope])


def inventory_of(folder: Path, side: Side, names: int) -> Path:
    """An inventory of the side's node under so many names, with the variables of its simulated nodes."""
    scope = side.checkout / ".cache/simulator/scopes" / side.scope
    written = json.loads((scope / "inventory.json").read_text(encoding="utf-8"))
    (variables,) = list(written["_meta"]["hostvars"].values())[:1]
    group = (side.checkout / "inventories/simulated/group_vars/gaudi_nodes.yml").read_text(encoding="utf-8")
    place = folder / f"{side.scope}-{names}"
    (place / "group_vars").mkdir(parents=True)
    (place / "group_vars/gaudi_nodes.yml").write_text(group, encoding="utf-8")
    hosts = {f"node-{number:02}": variables for number in range(1, names + 1)}
    # YAML reads JSON.
    (place / "hosts.yml").write_text(json.dumps({"gaudi_nodes": {"hosts": hosts}}), encoding="utf-8")
    return place


def median(runs: Sequence[Measured], what: str) -> float:
    """The middle one of several runs."""
    return statistics.median(float(getattr(one, what)) for one in runs)


def in_turns(sides: Mapping[str, Side], what: tuple[str, bool], folder: Path, runs: int) -> bool:
    """Run a playbook of each side in turns, print a line each; whether the limits hold."""
    playbook, check = what
    title = f"{playbook}{' --check' if check else ''}"
    measured: dict[str, list[Measured]] = {name: [] for name in sides}
    for _ in range(runs):
        for name, side in sides.items():
            measured[name].append(run(side, playbook, folder / f"{side.scope}-1", check=check))
    for name, done in measured.items():
        figures = [f"{median(done, what):.1f}" for what in ("seconds", "processor")]
        print(f"| {title} | {name} | {' | '.join(figures)} | {done[-1].tasks} | {done[-1].changed} |", flush=True)
    ours = measured["this"]
    good = not any(one.changed for one in ours)
    if playbook == "site.yml":
        good = good and max(one.tasks for one in ours) <= TASK_LIMIT
    if len(measured) > 1:
        (other,) = [done for name, done in measured.items() if name != "this"]
        good = good and median(ours, "seconds") <= SHARE_LIMIT * median(other, "seconds")
    if playbook == "site.yml" and not check:
        for task in sorted(ours[-1].slow, key=lambda name: -ours[-1].slow[name])[:SLOWEST]:
            print(f"  {ours[-1].slow[task]:5.2f} s  {task}")
    return good


def names_cost(sides: Mapping[str, Side], counts: Sequence[int], folder: Path) -> bool:
    """What further names of the node cost the controller in check mode; whether it keeps the limit, and is linear."""
    good = True
    for title, side in sides.items():
        used = {}
        for count in counts:
            inventory = folder / f"{side.scope}-1" if count == 1 else inventory_of(folder, side, count)
            used[count] = run(side, "site.yml", inventory, check=True).processor
            # At once: a larger number may fail on a machine that is too small for it.
            print(f"  {title}: {used[count]:.1f} s of processors for {count} names", flush=True)
        first, *more = counts
        each = {count: (used[count] - used[first]) / (count - first) for count in more}
        told = ", ".join(f"{count}: {used[count]:.1f} s" for count in counts)
        print(
            f"{title}: processor time by names {told}; for each further one "
            f"{', '.join(f'{seconds:.2f} s' for seconds in each.values())}",
            flush=True,
        )
        if title == "this":
            good = all(seconds <= CONTROLLER_LIMIT_S for seconds in each.values())
    return good


def main() -> int:
    """Set the nodes up, measure, print; 1 where a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", metavar="COMMIT", help="measure this commit, too")
    parser.add_argument("--scope", help="simulated node that is up; it stays")
    parser.add_argument("--runs", type=int, default=RUNS, help=f"runs of each (default {RUNS})")
    parser.add_argument("--names", default="", help="numbers of names to give the node, such as 1,4,16")
    chosen = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ours = Side(ROOT, chosen.scope) if chosen.scope else stack.enter_context(node(ROOT, SCOPE))
        sides = {"this": ours}
        other = stack.enter_context(beside(chosen.against))
        if other:
            sides[chosen.against] = stack.enter_context(node(other, f"{SCOPE}-other"))
        for side in sides.values():
            run(side, "site.yml", inventory_of(folder, side, 1))
        print("| playbook | commit | seconds | of processors | tasks | changed |")
        print("| --- | --- | ---: | ---: | ---: | ---: |")
        kinds = [("site.yml", False), ("site.yml", True), ("playbooks/status.yml", False)]
        good = [in_turns(sides, kind, folder, chosen.runs) for kind in kinds]
        if chosen.names:
            good.append(names_cost(sides, [int(count) for count in chosen.names.split(",")], folder))
        print(f"load of this machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()}")
    return int(not all(good))


if __name__ == "__main__":
    sys.exit(main())
