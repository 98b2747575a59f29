"""What a run is to the person who follows it: phases, what changed in each, why it failed.

A phase is a play; the play of site.yml that goes through its roles node by node is several. The stdout callback prints
phases, the simulator measures with them.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from plugin_utils import brain

brain.on_path()

from ansible.module_utils.gaudi.base import reported
from ansible.module_utils.gaudi.base.refusal import with_id

# The play of site.yml that goes through its roles node by node, and what people call these parts of it.
NODE_BY_NODE = "Bring up node by node, and serve"
PARTS = {
    "": "Wait for the node's turn",
    "gaudi_driver": "Install the driver",
    "preflight": "Look again, with the real cards",
    "host_tuning": "Tune the host",
    "fabric_check": "Prove cards and links",
    "vllm_service": "Serve",
}
TITLE_COLUMNS = 58
# What became of a node in a run that takes one after the other.
DONE, FAILED, NOT_REACHED = "done", "failed", "not reached"
# Of more hosts than this a line names the first, and how many more there are.
HOSTS_NAMED = 5
# A failed command says why at the end. One that says nothing on standard error, like ansible-playbook, says it on
# standard output.
COMMAND_LINES = 20
# What Ansible puts before the sentence of a filter of ours; names of its own filters have a dot in them.
_OF_A_FILTER = re.compile(
    r"Task failed: .*?The filter plugin '[a-z_]+' failed: ([A-Za-z'][^\n]*\.(?: \[[a-z0-9_-]+\])?)", re.DOTALL
)


# Characters of a message that may be a filter's refusal. A node's may have any length, and the pattern takes more than
# linear time.
LONGEST_REFUSAL = 1 << 14


@dataclass
class Task:
    """One task on all its hosts. Times are in seconds."""

    name: str
    seconds: float = 0.0
    hosts: list[str] = field(default_factory=list)  # where it changed something

    @property
    def changed(self) -> bool:
        """Whether it changed something anywhere."""
        return bool(self.hosts)


@dataclass
class Phase:
    """What people follow: one play, or a part of the play that goes node by node."""

    title: str
    tasks: list[Task] = field(default_factory=list)
    failed: bool = False
    worked: bool = False  # a host had something to do in it

    @property
    def seconds(self) -> float:
        """How long the phase took."""
        return sum(task.seconds for task in self.tasks)

    @property
    def changed(self) -> int:
        """How many tasks changed something."""
        return sum(task.changed for task in self.tasks)


@dataclass
class RunPhases:
    """The phases of a run, in the order in which they come. ``now`` is a clock in seconds."""

    phases: list[Phase] = field(default_factory=list)
    open: bool = False  # the last phase goes on
    _play: str = ""
    _where: str = ""
    _part: int = 0
    _started: float | None = None

    @property
    def phase(self) -> Phase:
        """The phase that began last."""
        return self.phases[-1]

    @property
    def task(self) -> Task:
        """The task that began last."""
        return self.phase.tasks[-1]

    @property
    def running(self) -> bool:
        """Whether a task began that has not ended."""
        return self._started is not None

    def begin_play(self, name: str, where: str = "") -> None:
        """Begin a play; ``where`` names its hosts where it is for others, too, which come later or came before."""
        self._play, self._where, self._part = name, where, 0

    def changes_phase(self, role: str) -> bool:
        """Whether a task of a role (empty for none) belongs to another phase than the one that goes on."""
        return self.open and self.phase.title != self._title(role)

    def begin_task(self, name: str, role: str, now: float) -> None:
        """Begin a task, and the phase it belongs to if that is another one."""
        title = self._title(role)
        if not self.open or self.phase.title != title:
            self.phases.append(Phase(title))
            self.open = True
        self.phase.tasks.append(Task(name))
        self._started = now

    def end_task(self, now: float) -> None:
        """End the task that runs, if one does."""
        if self._started is not None:
            self.task.seconds = now - self._started
        self._started = None

    def _title(self, role: str) -> str:
        """The phase that a task belongs to. Parts come in order: a role that a later one asks adds to that one."""
        title = self._play
        if title == NODE_BY_NODE:
            self._part = max(self._part, list(PARTS).index(role) if role in PARTS else 0)
            title = list(PARTS.values())[self._part]
        return f"{title} ({self._where})" if self._where else title


def sentence(result: Mapping[str, Any], lines: int = COMMAND_LINES) -> str:
    """Give a failed task's own words; of a loop, those of the items that failed.

    lines: how many of the last lines that a command printed are part of them; 0 for all.
    """
    listed = result.get("results")
    items = [item for item in listed if _failed(item)] if isinstance(listed, list) else []
    if items:
        return "\n".join(sentence(item, lines) for item in items)
    message = result.get("msg") or result.get("censored") or _without_message(result)
    text = "\n".join(str(line) for line in message) if isinstance(message, list) else str(message)
    refused = _OF_A_FILTER.fullmatch(text) if len(text) <= LONGEST_REFUSAL else None
    text = refused[1] if refused else text
    if text == "Assertion failed":  # Ansible's own words, for who gave no others
        text = f"{text}: {result.get('assertion')}"
    text = with_id(text, str(result.get("refused_id") or ""))
    said = next(
        (words for key in ("stderr", "module_stderr", "stdout") if (words := str(result.get(key) or "").strip())), ""
    )
    last = "\n".join(said.splitlines()[-lines:])
    return f"{text}\n{last}" if last and last not in text else text


def _failed(item: object) -> bool:
    """Whether a result of a loop is a failed one. A node may have put anything in its place."""
    return isinstance(item, Mapping) and bool(item.get("failed"))


def _without_message(result: Mapping[str, Any]) -> str:
    """Return why a task failed that has no message of its own."""
    if not result.get("failed_when_result"):
        return "The task failed without a message."
    status = f" (exit status {result['rc']})" if "rc" in result else ""
    return f"The failed_when condition of the task is met{status}."


def changed_line(task: Task, hosts: Sequence[str]) -> str:
    """Say in a line what a task changed; of several ``hosts`` also where."""
    where = [host for host in hosts if host in task.hosts]
    return f"    · {task.name}" + (f": {names(where)}" if len(hosts) > 1 else "")


def names(hosts: Sequence[str]) -> str:
    """Name hosts, or the first of many."""
    more = len(hosts) - HOSTS_NAMED
    return ", ".join(hosts[:HOSTS_NAMED]) + (f" and {more} more" if more > 0 else "")


def ended_line(phase: Phase, foreseen: bool = False) -> str:
    """Say how a phase ended, how long it took, and how many tasks changed something, or would in check mode."""
    if phase.failed:
        return f"  ✗ {phase.title:<{TITLE_COLUMNS}} {duration(phase.seconds):>9}"
    changes = f"{phase.changed} {'to change' if foreseen else 'changed'}" if phase.changed else ""
    return f"  ✓ {phase.title:<{TITLE_COLUMNS}} {duration(phase.seconds):>9}  {changes}".rstrip()


def failure(host: str, task: str, result: Mapping[str, Any], lines: int = COMMAND_LINES) -> list[str]:
    """Say where what failed, and below it why, in the task's own words; ``lines`` as of sentence()."""
    return [f"  ✗ {host}: {task}", *textwrap.indent(sentence(result, lines), "      ").splitlines()]


def went_no_further(turns: Mapping[str, str], runs_on: Mapping[str, object]) -> list[str]:
    """Say what became of each node where a run that takes them one after the other ended before the last.

    turns: DONE, FAILED or NOT_REACHED of each node, in the order of the play; runs_on: by node the instances that run
    and were to change, as the node reports them: it may report anything. There is nothing to say unless one failed and
    another was not reached.
    """
    failed = [node for node, turn in turns.items() if turn == FAILED]
    if not failed or NOT_REACHED not in turns.values():
        return []
    width = max(map(len, turns))
    lines = [f"  {names(failed)} failed, so the run went no further."]
    for node, turn in turns.items():
        said = runs_on.get(node) if turn == NOT_REACHED else None
        here = reported.instance_names(said)
        goes_on = f": {', '.join(here)} {'goes' if len(here) == 1 else 'go'} on with what ran before" if here else ""
        lines.append(f"    {node:<{width}}  {turn}{goes_on}")
    return [
        *lines,
        "  Repair it, or leave it out with --limit, and run the same again: it goes on with those that are not done.",
        "",
    ]


def duration(seconds: float) -> str:
    """Write a duration the way people say it: 0.4 s, 12 s, 2 min 05 s."""
    if seconds < 9.95:  # from ten seconds on, tenths tell nothing
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
