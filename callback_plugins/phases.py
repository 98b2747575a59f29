"""What a run prints: its phases, what it changed, why it waits or fails. With -v everything, as Ansible prints it.

Ansible loads this file whichever stdout callback is chosen: what another one prints is printable as well.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent.parent))

from plugin_utils import brain

# Before anything is imported that another version of ansible-core may lack.
brain.on_path()

from ansible.constants import COLOR_CHANGED, COLOR_DIFF_ADD, COLOR_DIFF_LINES, COLOR_DIFF_REMOVE, COLOR_ERROR
from ansible.context import CLIARGS
from ansible.module_utils.gaudi.base.printable import printable, printable_lines
from ansible.playbook.task_include import TaskInclude
from ansible.plugins.callback.default import CallbackModule as Everything
from ansible.plugins.loader import filter_loader
from ansible.utils.display import Display

from plugin_utils import packaged_modules, phases
from plugin_utils.screen import Screen, print_printably

print_printably(Display)
packaged_modules.reuse()
# Ansible loads all filters for the first that is used. Workers are copies of this process, and would load them again.
filter_loader.get("bool")

DOCUMENTATION = """
name: phases
type: stdout
short_description: Print phases, changes and reasons, for people
description:
  - Prints a line for each task that changed something, a line for each phase when it is done, and what tasks say.
  - On a terminal a line at the bottom tells what goes on. Without one, only whole lines are printed.
  - A failed task is its own sentence.
  - With C(-v) it prints everything, as the callback C(default) does.
extends_documentation_fragment:
  - default_callback
  - result_format_callback
requirements:
  - set as stdout in configuration
options:
  failed_command_lines:
    description: Number of lines shown of what a failed command printed, counted from its end; V(0) for all.
    type: int
    default: 20
    env:
      - name: GAUDI_FAILED_COMMAND_LINES
"""

# Actions whose message is for people; the other words are Ansible's own, for an assertion without any.
SPEAKING = ("debug", "ansible.builtin.debug", "assert", "ansible.builtin.assert")
SAYS_NOTHING = ("", "All assertions passed")
DIFF_COLORS = {"+": COLOR_DIFF_ADD, "-": COLOR_DIFF_REMOVE, "@": COLOR_DIFF_LINES}


class Printable(Everything):  # type: ignore[misc]  # ansible-core carries no types
    """Ansible's own callback, which prints everything, on a terminal that no text of a node controls."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "phases"
    # Ansible derives it from the name of the class, and finds no option for another one.
    plugin_type = "callback"

    def v2_on_file_diff(self, result: Any) -> None:
        """Print differences. Ansible colours them within the text, where a node's own colours are too."""
        several = result.task.loop and "results" in result.result
        for each in result.result["results"] if several else [result.result]:
            if each.get("diff") and each.get("changed") and (text := self._get_diff(each["diff"])):
                if self._last_task_banner != result.task._uuid:
                    self._print_task_banner(result.task)
                for line in printable_lines(text).split("\n"):
                    self._display.display(line, color=DIFF_COLORS.get(line[:1]))


class Phases(Printable):
    """The callback of people who do not ask for everything."""

    def __init__(self) -> None:
        """Put a screen before the terminal, if there is one."""
        super().__init__()
        self._run = phases.RunPhases()
        self._hosts: list[str] = []
        self._uuid = ""  # of the play; it has as many copies as batches
        self._everyone: list[str] = []  # the hosts of the play
        self._reached: set[str] = set()  # those of this batch and of earlier ones
        self._begun = time.monotonic()
        self._speaker = ""  # whose words were printed last
        self._screen: Screen | None = None
        if sys.stdout.isatty():
            self._screen = Screen(sys.stdout)
            sys.stdout = self._screen.before(sys.stdout)
            if sys.stderr.isatty():
                sys.stderr = self._screen.before(sys.stderr)

    def v2_playbook_on_start(self, playbook: Any) -> None:
        """Say nothing: the first phase follows at once."""

    def v2_playbook_on_include(self, included_file: Any) -> None:
        """Print nothing: readers of a run do not need the names of task files."""

    def v2_playbook_on_play_start(self, play: Any) -> None:
        """Begin a play. One that takes its hosts in batches begins with each; its phases then name the hosts."""
        self._play = play
        known = play.get_variable_manager().get_vars(play=play, include_hostvars=False)
        self._hosts = list(known.get("ansible_play_batch", []))
        self._everyone = list(known.get("ansible_play_hosts_all", []))
        self._reached = {*(self._reached if play._uuid == self._uuid else ()), *self._hosts}
        self._uuid = play._uuid
        batches = len(self._hosts) < len(self._everyone)
        self._end_phase()
        self._run.begin_play(play.get_name().strip(), phases.names(self._hosts) if batches else "")

    def _task_start(self, task: Any, prefix: str | None = None) -> None:
        role = task._role.get_name() if task._role else ""
        # "file | What it does" is for who reads the role.
        name = task.get_name().strip().removeprefix(f"{role} : ").rpartition(" | ")[2]
        self._end_task()
        if self._run.changes_phase(role):
            self._end_phase()
        self._run.begin_task(name, role, time.monotonic())
        self._passing(f"{self._run.phase.title}: {name}")

    def v2_playbook_on_no_hosts_matched(self) -> None:
        """Print nothing: Ansible warns of a pattern without hosts, but a play may rightly have no host."""

    def v2_playbook_on_no_hosts_remaining(self) -> None:
        """Say nothing: each host has said why it failed, and the last line counts them."""

    def v2_runner_on_start(self, host: Any, task: Any) -> None:
        """Say nothing."""

    def v2_runner_on_ok(self, result: Any) -> None:
        """Keep what changed; show what a task says to people."""
        self._handle_warnings_and_exception(result)
        if isinstance(result.task, TaskInclude):
            return
        self._run.phase.worked = True
        if result.result.get("changed"):
            self._run.task.hosts.append(result.host.get_name())
        if not (result.task.loop and "results" in result.result):
            self._say(result)

    def v2_runner_item_on_ok(self, result: Any) -> None:
        """Show what one round of a loop says to people."""
        self._say(result)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        """Say at once what failed, and why. What the play itself goes on from is no failure."""
        self._handle_warnings_and_exception(result)
        if not ignore_errors and not rescued(result.task):
            self._tell_failure(result.host.get_name(), result)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        """Say at once which host gives no answer, and why. No rescue of a block is for that."""
        self._handle_warnings_and_exception(result)
        if not result.task.ignore_unreachable:
            self._tell_failure(self.host_label(result), result)

    def _tell_failure(self, host: str, result: Any) -> None:
        self._run.phase.worked = self._run.phase.failed = True
        lines = self.get_option("failed_command_lines")
        self._lines(phases.failure(host, self._run.task.name, result.result, lines), COLOR_ERROR)

    def _handle_exception(self, result: Any, use_stderr: bool = False) -> None:
        """Say nothing of where in the playbook a task failed: a failed task is its own sentence."""

    def v2_runner_item_on_failed(self, result: Any) -> None:
        """Say nothing: the whole loop fails with the sentences of all its rounds."""

    def v2_runner_on_skipped(self, result: Any) -> None:
        """Say nothing."""

    def v2_runner_item_on_skipped(self, result: Any) -> None:
        """Say nothing."""

    def v2_runner_on_async_poll(self, result: Any) -> None:
        """Say nothing."""

    def v2_runner_on_async_ok(self, result: Any) -> None:
        """Say nothing: the task ends as every other."""

    def v2_runner_on_async_failed(self, result: Any) -> None:
        """Say nothing: the task fails as every other."""

    def v2_runner_retry(self, result: Any) -> None:
        """Say on a terminal that a task waits for its condition."""
        left = result.result["retries"] - result.result["attempts"]
        self._passing(f"{self._run.phase.title}: {self._run.task.name} ({left} more looks)")

    def _print_task_banner(self, task: Any) -> None:
        """Name the task whose difference follows."""
        self._lines([f"    {task.get_name().strip()}"])
        self._last_task_banner = task._uuid

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """End with the time of everything, and a line a host."""
        self._end_phase()
        self._lines(
            [f"    {'in all':<{phases.TITLE_COLUMNS}} {phases.duration(time.monotonic() - self._begun):>9}", ""]
        )
        if CLIARGS["check"]:
            self._lines(["  A check (--check): nothing was changed."])
        self._lines(self._went_no_further(stats))
        for host in sorted(stats.processed):
            counted = stats.summarize(host)
            shown = " ".join(
                f"{word}={counted[key]}"
                for word, key in (
                    ("ok", "ok"),
                    ("changed", "changed"),
                    ("unreachable", "unreachable"),
                    ("failed", "failures"),
                    ("skipped", "skipped"),
                )
            )
            bad = counted["failures"] or counted["unreachable"]
            self._lines([f"  {host} : {shown}"], COLOR_ERROR if bad else None)

    def _went_no_further(self, stats: Any) -> list[str]:
        """Say which nodes the last play did not reach, and which instances still run there."""
        turns: dict[str, str] = {}
        for host in self._everyone:
            counted = stats.summarize(host)
            bad = counted["failures"] or counted["unreachable"]
            turns[host] = phases.FAILED if bad else phases.DONE if host in self._reached else phases.NOT_REACHED
        left = [host for host, turn in turns.items() if turn == phases.NOT_REACHED]
        return phases.went_no_further(turns, {host: self._restarts(host) for host in left})

    def _restarts(self, host: str) -> object:
        """The instances of a host that run and were to change, as its preflight registered them."""
        manager = self._play.get_variable_manager()
        known = manager.get_vars(play=self._play, host=manager._inventory.get_host(host), include_hostvars=False)
        return (known.get("preflight_node") or {}).get("restarts")

    def _say(self, result: Any) -> None:
        """Print what a task says to people, line by line; after the host's name where others may say something too."""
        said = result.result.get("msg", "")
        if result.task.action not in SPEAKING or said in SAYS_NOTHING:
            return
        lines = said if isinstance(said, list) else str(said).splitlines()
        host = result.host.get_name()
        if host != self._speaker:
            named = len(self._hosts) < 2 or any(host in str(line) for line in lines[:1])
            self._lines(["", *([] if named else [f"  {host}:"])])
        self._lines(f"  {line}" for line in lines)
        self._speaker = host

    def _end_task(self) -> None:
        """Print what the task that ends has changed."""
        if self._run.running:
            self._run.end_task(time.monotonic())
            if self._run.task.changed:
                self._lines([phases.changed_line(self._run.task, self._hosts)], COLOR_CHANGED)

    def _end_phase(self) -> None:
        """Print how the phase that ends went; nothing of one in which no host had anything to do."""
        self._end_task()
        if self._run.open and self._run.phase.worked:
            self._lines([phases.ended_line(self._run.phase, CLIARGS["check"])])
        self._run.open = False

    def _passing(self, text: str) -> None:
        if self._screen is not None:
            self._screen.passing(text)

    def _lines(self, lines: Iterable[str], color: str | None = None) -> None:
        self._speaker = ""
        for line in lines:
            self._display.display(printable(line).rstrip(), color=color)


def rescued(task: Any) -> bool:
    """Whether the task is in a block with a rescue section, and not in that section itself."""
    inner, block = task, task._parent
    while block is not None:
        after = {each._uuid for each in (*getattr(block, "rescue", ()), *getattr(block, "always", ()))}
        if getattr(block, "rescue", None) and inner._uuid not in after:
            return True
        inner, block = block, getattr(block, "_parent", None)
    return False


# Ansible loads this file when it has read how much it is to say.
CallbackModule = Printable if Display().verbosity else Phases
