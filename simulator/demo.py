"""The demo: a bare, simulated node, without driver, engine or image; site.yml; and an answer of a real vLLM."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simulator import engine, nodes, playbook, world
from simulator.playbook import Phase, Progress
from simulator.report import Report
from simulator.settings import ROOT, Scope, SimulatorError
from simulator.standins import description

BOLD = "1"
# Cards on the PCI bus, and nothing of the vendor's.
BARE = "gaudi2-oam8-bare"
# Lines shown of a run that ended before any host: a reason of Ansible's is shorter.
LAST_WORDS = 10
INTERRUPTED = "\nInterrupted. make demo goes on from here; make demo-clean takes everything away."


def run(scope: Scope, release: str, described: str | Path | None = None) -> None:
    """Run the demo on a scope's default node, which is reused when it is there already.

    The inventory's release is built on the node, which is bare unless another one is named; of another release the
    vault holds the image ready, and the node has its driver.
    """
    if not world.from_built(release):
        raise SimulatorError(
            f"The demo shows release {world.wanted_release()} and those with the plugin, 1.23 and later, not {release}."
        )
    directory = scope.directory
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "demo.log").open("w") as log:
        report = Report(sys.stdout, log)
        started = time.monotonic()
        _show(scope, release, described, report, started)


def _show(scope: Scope, release: str, described: str | Path | None, report: Report, started: float) -> None:
    report.line()
    report.line("From a bare node to an answered question. The node and its eight cards are simulated.", style=BOLD)
    report.line()
    _prepare(scope, release, described, report)
    report.line()
    report.line("ansible-playbook -i inventories/simulated site.yml", style=BOLD)
    follower = _Follower(report)
    outcome = playbook.run(
        "site.yml",
        scope.directory / "runner",
        follower.follow,
        time.monotonic,
        GAUDI_SIMULATOR_SCOPE=scope.name,
    )
    for phase in outcome.progress.phases:
        for task in phase.tasks:
            report.detail(f"    {task.seconds:7.1f} s  {phase.title}: {task.name}")
    if outcome.interrupted:
        raise SimulatorError(INTERRUPTED)
    if outcome.status:
        for host, why in outcome.progress.failures.items():
            report.line()
            report.line(f"{host}: {why}")
        if not outcome.progress.failures:
            # Ansible did not come as far as a host, as with an environment that it refuses.
            report.line()
            report.line(_last_words(outcome.output))
        raise SimulatorError(f"\nsite.yml ended with status {outcome.status}. All it said: {_relative(outcome.output)}")
    report.total(time.monotonic() - started)
    for lines in outcome.progress.messages.values():
        report.line()
        for text in lines:
            report.line(f"  {text}")
    report.line()
    report.line("  The words mean nothing: the simulated model is random numbers. What serves it is a real vLLM.")
    report.line()
    _what_next(scope, report)


def _prepare(scope: Scope, release: str, described: str | Path | None, report: Report) -> None:
    with report.phase("Docker engine") as say:
        client = engine.ensure(say)
    name, wanted = nodes.DEFAULT_NAME, release == world.wanted_release()
    described = described or (BARE if wanted else description.DEFAULT)
    with report.phase(f"Simulated node {name} ({described}), and vault") as say:
        world.up(client, scope, [name], described, say, [release], buildable=wanted, packages=described == BARE)


class _Follower:
    """Prints each phase when the next one begins."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._printed = 0

    def follow(self, progress: Progress, event: Mapping[str, Any]) -> None:
        ended = event["event"] == "playbook_on_stats"
        # Hosts that failed, and were not rescued, are counted at the end.
        statistics = event.get("event_data", {}) if ended else {}
        failed = bool(statistics.get("failures") or statistics.get("dark"))
        for phase in progress.phases[self._printed : None if ended else -1]:
            self._print(phase, failed=failed and phase is progress.phases[-1])
            self._printed += 1
        if progress.phases and not ended:
            phase = progress.phases[-1]
            # Long work is followed by an action that says how far it is, outside of any task's result.
            said = event.get("stdout", "") if event["event"] == "verbose" else ""
            self._report.passing(f"  … {phase.title}: {said or phase.tasks[-1].name}")

    def _print(self, phase: Phase, *, failed: bool) -> None:
        if failed:
            self._report.line(f"  ✗ {phase.title}: {phase.tasks[-1].name}")
            return
        note = f"{phase.changed} changed" if phase.changed else ""
        self._report.done(phase.title, phase.seconds, note)


def _what_next(scope: Scope, report: Report) -> None:
    ssh = f"ssh -F {_relative(scope.directory / 'ssh_config')} {nodes.DEFAULT_NAME}"
    report.line("What a curious reader would type next:", style=BOLD)
    report.line(f"  {ssh} hl-smi")
    report.line(f"  {ssh} curl -s http://127.0.0.1:30001/v1/models")
    report.line("  .venv/bin/ansible-playbook -i inventories/simulated site.yml             # again: changed=0")
    report.line("  .venv/bin/ansible-playbook -i inventories/simulated playbooks/plan.yml   # what, and why")
    report.line("  make demo-clean                                                          # all of it but .venv")
    report.line()


def _last_words(output: Path) -> str:
    """The last lines that ansible-playbook printed, without colours."""
    text = output.read_text(encoding="utf-8", errors="replace") if output.exists() else ""
    lines = [line for line in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines() if line.strip()]
    return "\n".join(lines[-LAST_WORDS:]) or "ansible-playbook said nothing."


def _relative(path: Path) -> str:
    return os.path.relpath(path, ROOT)
