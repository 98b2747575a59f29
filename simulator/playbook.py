"""Run a playbook through ansible-runner and follow it: phases, times of every task, what failed and why.

The demo shows it; benchmarks and integration tests read it.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import ansible_runner

from plugin_utils.phases import RunPhases, sentence
from simulator.settings import ROOT


@dataclass
class PlaybookProgress:
    """What is known of a run, built from ansible-runner's events in the order they come."""

    run: RunPhases = field(default_factory=RunPhases)
    failures: dict[str, str] = field(default_factory=dict)  # host -> why it failed last

    def feed(self, event: Mapping[str, Any], now: float) -> None:
        """Take one event; ``now`` is a clock in seconds."""
        data = event.get("event_data", {})
        kind = event["event"]
        if kind in ("playbook_on_play_start", "playbook_on_task_start", "playbook_on_stats"):
            self.run.end_task(now)
        if kind == "playbook_on_play_start":
            self.run.begin_play(data.get("name") or data.get("play", ""))
        elif kind == "playbook_on_task_start":
            role = data.get("role") or ""
            name = data.get("name") or data.get("task", "")
            self.run.begin_task(name.removeprefix(f"{role} : "), role, now)
        elif kind == "runner_on_ok" and self.run.phases and (data.get("res") or {}).get("changed"):
            self.run.task.hosts.append(data.get("host", ""))
        elif kind in ("runner_on_failed", "runner_on_unreachable") and not data.get("ignore_errors"):
            self.failures[data.get("host", "")] = sentence(data.get("res") or {})


@dataclass(frozen=True)
class PlaybookResult:
    """How a run ended."""

    status: int
    interrupted: bool  # by Ctrl-C, after which Ansible ended its workers
    progress: PlaybookProgress
    output: Path  # everything ansible-playbook printed


def run(
    playbook: str,
    directory: Path,
    follow: Callable[[PlaybookProgress, Mapping[str, Any]], None],
    clock: Callable[[], float],
    inventory: Path = ROOT / "inventories" / "simulated",
    **environment: str,
) -> PlaybookResult:
    """Run a playbook of this checkout; ``directory`` takes what ansible-runner keeps of the run."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    progress = PlaybookProgress()

    def handle(event: Mapping[str, Any]) -> bool:
        progress.feed(event, clock())
        follow(progress, event)
        return False  # keeps no file per event

    with _handing_on_ctrl_c() as interrupts:
        runner = ansible_runner.run(
            private_data_dir=str(directory),
            project_dir=str(ROOT),
            playbook=playbook,
            inventory=str(inventory),
            ident="run",
            quiet=True,
            event_handler=handle,
            # Its own way with Ctrl-C kills ansible-playbook alone and leaves the workers, which have sessions of
            # their own, at work.
            cancel_callback=lambda: False,
            envvars={
                "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
                # The virtual environment's ansible-playbook, also for who did not activate it.
                "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}",
                **environment,
            },
        )
    return PlaybookResult(int(runner.rc), bool(interrupts), progress, directory / "artifacts" / "run" / "stdout")


@contextmanager
def _handing_on_ctrl_c() -> Iterator[list[int]]:
    """Hand Ctrl-C on to ansible-playbook, which then ends its workers; a second one ends this program at once."""
    interrupts: list[int] = []

    def hand_on(number: int, _: FrameType | None) -> None:
        if interrupts:
            raise KeyboardInterrupt
        interrupts.append(number)
        for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
            os.kill(int(child), number)

    before = signal.signal(signal.SIGINT, hand_on)
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, before)
