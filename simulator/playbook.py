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

from simulator.settings import ROOT

# The play of site.yml that goes through its roles node by node, and what people call these parts of it.
NODE_BY_NODE = "Bring up node by node, and serve"
PARTS = {
    "gaudi_driver": "Install the driver",
    "preflight": "Look again, with the real cards",
    "host_tuning": "Tune the host",
    "fabric_check": "Prove cards and links",
    "vllm_service": "Serve",
}


@dataclass
class Task:
    """One task on all its hosts. Times are in seconds."""

    name: str
    seconds: float = 0.0
    changed: bool = False


@dataclass
class Phase:
    """What people follow: one play, or a part of the play that goes node by node."""

    title: str
    tasks: list[Task] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """How long the phase took."""
        return sum(task.seconds for task in self.tasks)

    @property
    def changed(self) -> int:
        """How many tasks changed something."""
        return sum(task.changed for task in self.tasks)


@dataclass
class Progress:
    """What is known of a run, built from ansible-runner's events in the order they come."""

    phases: list[Phase] = field(default_factory=list)
    messages: dict[str, list[str]] = field(default_factory=dict)  # host -> what the last debug task said
    failures: dict[str, str] = field(default_factory=dict)  # host -> why it failed last
    _play: str = ""
    _part: int = 0
    _started: float = 0.0

    def feed(self, event: Mapping[str, Any], now: float) -> None:
        """Take one event; ``now`` is a clock in seconds."""
        data = event.get("event_data", {})
        kind = event["event"]
        if kind in ("playbook_on_play_start", "playbook_on_task_start", "playbook_on_stats"):
            self._end_task(now)
        if kind == "playbook_on_play_start":
            self._play, self._part = data.get("name") or data.get("play", ""), 0
        elif kind == "playbook_on_task_start":
            self._start_task(data.get("name") or data.get("task", ""), data.get("role"), now)
        elif kind in ("runner_on_ok", "runner_on_failed", "runner_on_unreachable"):
            self._result(kind, data)

    def _start_task(self, name: str, role: str | None, now: float) -> None:
        title = self._title(role)
        if not self.phases or self.phases[-1].title != title:
            self.phases.append(Phase(title))
        self.phases[-1].tasks.append(Task(name.removeprefix(f"{role} : ")))
        self._started = now

    def _title(self, role: str | None) -> str:
        """The phase that a task belongs to. Parts come in order: a role that a later one asks adds to that one."""
        if self._play != NODE_BY_NODE:
            return self._play
        self._part = max(self._part, list(PARTS).index(role) if role in PARTS else 0)
        return list(PARTS.values())[self._part]

    def _end_task(self, now: float) -> None:
        if self.phases and self._started:
            self.phases[-1].tasks[-1].seconds = now - self._started
        self._started = 0.0

    def _result(self, kind: str, data: Mapping[str, Any]) -> None:
        result = data.get("res") or {}
        host = data.get("host", "")
        if kind == "runner_on_ok":
            if self.phases:
                task = self.phases[-1].tasks[-1]
                task.changed = task.changed or bool(result.get("changed"))
            if data.get("task_action", "").endswith("debug") and "msg" in result:
                message = result["msg"]
                self.messages[host] = [str(line) for line in message] if isinstance(message, list) else [str(message)]
        elif not data.get("ignore_errors"):
            self.failures[host] = sentence(result)


def sentence(result: Mapping[str, Any]) -> str:
    """Give a failed task's own words; of a loop, those of the items that failed."""
    items = [item for item in result.get("results") or [] if item.get("failed")]
    if items:
        return "\n".join(sentence(item) for item in items)
    text = str(result.get("msg") or "The task failed without a message.")
    said = str(result.get("stderr") or result.get("module_stderr") or "").strip()
    return f"{text}\n{said}" if said and said not in text else text


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    status: int
    interrupted: bool  # by Ctrl-C, after which Ansible ended its workers
    progress: Progress
    output: Path  # everything ansible-playbook printed


def run(
    playbook: str,
    directory: Path,
    follow: Callable[[Progress, Mapping[str, Any]], None],
    clock: Callable[[], float],
    inventory: Path = ROOT / "inventories" / "simulated",
    **environment: str,
) -> Outcome:
    """Run a playbook of this checkout; ``directory`` takes what ansible-runner keeps of the run."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    progress = Progress()

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
    return Outcome(int(runner.rc), bool(interrupts), progress, directory / "artifacts" / "run" / "stdout")


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
