"""site.yml where nothing is left to change, status.yml and plan.yml: tasks, wall time, and the controller's processor.

    python -m benchmarks.site                      on a simulated node, started and set up here
    python -m benchmarks.site --against COMMIT     and that commit beside it, on a node that its own simulator starts
    python -m benchmarks.site --scope NAME         on the simulated node of a scope that is up, which stays
    python -m benchmarks.site --plan               plan.yml alone, from a topology file: no node is needed

Runs of both commits take turns, so that a machine that is busy with other work is busy for both; medians are compared.
Python keeps what it compiled, as it does for users; the makefile forbids it for tests.
What one more node costs the controller is measured with further names for the same node (``--names 1,8,32``, in check
mode, where nothing can be in the way of anything).
Remote tasks are those whose module ran on the node; the others ran on the controller, or were skipped.
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

RUNS = 3
# Tasks as the recap counts them, done and skipped; seconds of a processor for each further node.
TASK_LIMIT = 12
CONTROLLER_LIMIT_S = 1.2
# Seconds by the clock.
PLAN_LIMIT_S = 2.5
STATUS_LIMIT_S = 2.0
TOPOLOGY = "docs/examples/topologies/hl-225-two-sockets.yml"
# One request, planned without a node.
REQUEST = {"plan_requests": [{"model": "qwen3-8b"}], "gaudi_release": "1.22"}
# Names at a time: the one sshd behind all names drops connections when more than ten have not logged in yet.
NAMES_AT_A_TIME = 8
# What a run may take of the older commit's time.
SHARE_LIMIT = 0.5
SLOWEST = 10
OURS = "this"
SCOPE = "bench-site"
RECAP = ("ok", "failures", "dark", "skipped", "rescued", "ignored")


@dataclass(frozen=True)
class Side:
    """A commit that is measured: its checkout, and the scope of a node that its own simulator started."""

    checkout: Path
    scope: str


@dataclass(frozen=True)
class SiteRun:
    """One run: seconds by the clock, seconds of processors on the controller, tasks of a host, seconds of each task."""

    seconds: float
    processor: float
    tasks: int
    remote: int
    changed: int
    slow: Mapping[str, float]


@dataclass(frozen=True)
class RunKind:
    """A run to measure: a playbook, in check mode or not, for so many names of the node."""

    playbook: str
    check: bool = False
    names: int = 1

    @property
    def title(self) -> str:
        """Its name in the table."""
        names = "" if self.names == 1 else f", {self.names} names"
        return f"{self.playbook}{' --check' if self.check else ''}{names}"


SITE, CHECK, STATUS = RunKind("site.yml"), RunKind("site.yml", check=True), RunKind("playbooks/status.yml")
PLAN = RunKind("playbooks/plan.yml")


def processor_seconds() -> float:
    """What the processes that were started and have ended used of the processors."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(side: Side, kind: RunKind, folder: Path) -> SiteRun:
    """Run a playbook of a checkout. folder: for its inventory.

    Raises RuntimeError: the playbook failed; with what it printed.
    """
    slow: dict[str, float] = {}
    remote: dict[str, int] = {}
    recap: dict[str, dict[str, int]] = {}

    def follow(event: Mapping[str, Any]) -> bool:
        data = event.get("event_data", {})
        if event["event"].startswith("runner_on_") and "duration" in data:
            slow[data["task"]] = slow.get(data["task"], 0.0) + data["duration"]
            # Every module of Ansible returns how it was called.
            remote[data["host"]] = remote.get(data["host"], 0) + ("invocation" in (data.get("res") or {}))
        if event["event"] == "playbook_on_stats":
            recap.update({column: data[column] for column in (*RECAP, "changed")})
        return False  # keeps no file per event

    variables = {**REQUEST, "topology_file": str(side.checkout / TOPOLOGY)} if kind == PLAN else {}
    with tempfile.TemporaryDirectory() as private:
        begun, used = time.monotonic(), processor_seconds()
        done = ansible_runner.run(
            private_data_dir=private,
            project_dir=str(side.checkout),
            playbook=kind.playbook,
            inventory=None if kind == PLAN else str(inventory_of(folder, side, kind.names)),
            extravars=variables,
            cmdline=f"--check --forks {NAMES_AT_A_TIME}" if kind.check else None,
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
    tasks = max(sum(recap[column].get(name, 0) for column in RECAP) for name in recap["ok"])
    return SiteRun(seconds, used, tasks, max(remote.values()), sum(recap["changed"].values()), slow)


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
    (place / "group_vars").mkdir(parents=True, exist_ok=True)
    (place / "group_vars/gaudi_nodes.yml").write_text(group, encoding="utf-8")
    hosts = {f"node-{number:02}": variables for number in range(1, names + 1)}
    # YAML reads JSON.
    (place / "hosts.yml").write_text(json.dumps({"gaudi_nodes": {"hosts": hosts}}), encoding="utf-8")
    return place


def median(runs: Sequence[SiteRun], what: str) -> float:
    """The middle one of several runs."""
    return statistics.median(float(getattr(one, what)) for one in runs)


def in_turns(sides: Mapping[str, Side], kind: RunKind, folder: Path, runs: int) -> dict[str, list[SiteRun]]:
    """Run a playbook of each side in turns, and print what each run took: a later one may fail."""
    measured: dict[str, list[SiteRun]] = {name: [] for name in sides}
    for _ in range(runs):
        for name, side in sides.items():
            one = run(side, kind, folder)
            measured[name].append(one)
            print(f"  {kind.title}, {name}: {one.seconds:.1f} s, {one.processor:.1f} s of processors", flush=True)
    return measured


def rows(found: Mapping[RunKind, Mapping[str, Sequence[SiteRun]]]) -> Iterator[tuple[str, list[str]]]:
    """The table: what was measured, and the figure of each side."""
    for kind, sides in found.items():
        for what, unit in (("seconds", "s"), ("processor", "s of the controller's processors")):
            yield f"{kind.title}: {unit}", [f"{median(runs, what):.1f}" for runs in sides.values()]
        if kind.names == 1:
            for what in ("tasks", "remote"):
                title = "tasks" if what == "tasks" else "tasks with a module"
                yield f"{kind.title}: {title}", [str(getattr(runs[-1], what)) for runs in sides.values()]
        else:
            first = found[CHECK]
            yield (
                f"{kind.title}: s of processors for each further name",
                [
                    f"{(median(runs, 'processor') - median(first[name], 'processor')) / (kind.names - 1):.2f}"
                    for name, runs in sides.items()
                ],
            )


def missed(found: Mapping[RunKind, Mapping[str, Sequence[SiteRun]]]) -> Iterator[str]:
    """The limits that the working tree does not keep."""
    limits = {SITE: None, CHECK: None, STATUS: STATUS_LIMIT_S, PLAN: PLAN_LIMIT_S}
    for kind, sides in found.items():
        ours, *others = sides.values()
        seconds = median(ours, "seconds")
        limit = limits.get(kind)
        if limit is not None and seconds > limit:
            yield f"{kind.title} takes {seconds:.1f} s, {limit} are allowed"
        if kind == SITE and ours[-1].tasks > TASK_LIMIT:
            yield f"{kind.title} has {ours[-1].tasks} tasks, {TASK_LIMIT} are allowed"
        if kind == SITE and others and seconds > SHARE_LIMIT * median(others[0], "seconds"):
            yield f"{kind.title} takes more than {SHARE_LIMIT:.0%} of the other commit's time"
        if any(one.changed for one in ours):
            yield f"{kind.title} changes something"
        if kind.names > 1:
            each = (median(ours, "processor") - median(found[CHECK][OURS], "processor")) / (kind.names - 1)
            if each > CONTROLLER_LIMIT_S:
                yield f"{kind.title}: a further name takes {each:.2f} s, {CONTROLLER_LIMIT_S} are allowed"


def main() -> int:
    """Set the nodes up, measure, print; 1 where a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", metavar="COMMIT", help="measure this commit, too")
    parser.add_argument("--scope", help="simulated node that is up; it stays")
    parser.add_argument("--plan", action="store_true", help="measure plan.yml alone, without a node")
    parser.add_argument("--runs", type=int, default=RUNS, help=f"runs of each (default {RUNS})")
    parser.add_argument("--names", default="", help="numbers of names to give the node, such as 8,32")
    chosen = parser.parse_args()
    kinds = [PLAN] if chosen.plan else [PLAN, STATUS, SITE, CHECK]
    if not chosen.plan:
        kinds += [RunKind("site.yml", check=True, names=int(count)) for count in chosen.names.split(",") if count]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        checkouts = {OURS: ROOT}
        other = stack.enter_context(beside(chosen.against))
        if other:
            checkouts[chosen.against] = other
        sides = {}
        for name, checkout in checkouts.items():
            scope = SCOPE if name == OURS else f"{SCOPE}-other"
            if chosen.plan or (chosen.scope and name == OURS):
                sides[name] = Side(checkout, chosen.scope or scope)
            else:
                sides[name] = stack.enter_context(node(checkout, scope))
        if not chosen.plan:
            for side in sides.values():
                run(side, SITE, folder)
        found = {kind: in_turns(sides, kind, folder, chosen.runs) for kind in kinds}
    print(f"\n| medians of {chosen.runs} | {' | '.join(sides)} |\n| --- |{' ---: |' * len(sides)}")
    for title, figures in rows(found):
        print(f"| {title} | {' | '.join(figures)} |")
    if SITE in found:
        slow = found[SITE][OURS][-1].slow
        for task in sorted(slow, key=lambda name: -slow[name])[:SLOWEST]:
            print(f"  {slow[task]:5.2f} s  {task}")
    print(f"load of this machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()}")
    wrong = list(missed(found))
    print("\n".join(wrong))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
