"""Ports of a server's own processes, which other machines are kept out of."""

from __future__ import annotations

import shutil
import subprocess

from gaudi.faults import words
from gaudi.faults.causes import quote
from gaudi.serving.closed_ports import ClosedPorts, closed, is_closed, opened, table_of
from gaudi.serving.failure import Failure, configuration

from .clock import COMMAND_TIMEOUT
from .engine import run_command
from .systemd import say


class Closing:
    """The packet-filter table of one instance, for as long as its container is there."""

    def __init__(self, instance: str, ports: ClosedPorts | None) -> None:
        self.instance = instance
        self.ports = ports
        # What was wrong when it was held last: said once, not every ten seconds.
        self.said = ""

    def close(self) -> None:
        """Make the table what it is to be; raises Failure."""
        if self.ports is None:
            return
        done = self._run("--file", "-", rules=closed(self.instance, self.ports))
        if done.returncode != 0:
            why = f"nft says {quote(done.stderr or done.stdout)}"
            raise configuration("ports-open", words.say("ports-open", ports=self.ports, why=why))

    def hold(self) -> None:
        """Close the ports again if the table was removed; a serving instance goes on if that fails."""
        if self.ports is None:
            return
        problem = ""
        try:
            if not self._is_closed(self.ports):
                self.close()
                say(f"The rules that keep others out of ports {self.ports} were gone. They are there again.", 4)
        except Failure as failed:
            problem = str(failed)
        if problem and problem != self.said:
            say(problem, 3)
        self.said = problem

    def end(self) -> None:
        """Remove the table, also that of an earlier plan; a failure does no harm."""
        if shutil.which("nft") is None:
            return
        try:
            done = self._run("--file", "-", rules=opened(self.instance))
        except Failure as failed:
            say(str(failed), 4)
            return
        if done.returncode != 0:
            say(f"The table {table_of(self.instance)} cannot be taken away: nft says {quote(done.stderr)}", 4)

    def _is_closed(self, ports: ClosedPorts) -> bool:
        done = self._run("list", "table", "inet", table_of(self.instance))
        return is_closed(done.stdout if done.returncode == 0 else "", ports)

    def _run(self, *arguments: str, rules: str = "") -> subprocess.CompletedProcess[str]:
        try:
            return run_command(["nft", *arguments], data=rules)
        except FileNotFoundError as missing:
            why = "nft is not on this node."
            said = words.say("ports-open", "missing", ports=self.ports, why=why)
            raise configuration("ports-open", said) from missing
        except subprocess.TimeoutExpired as slow:
            why = f"nft did not answer in {COMMAND_TIMEOUT:g} s."
            raise configuration("ports-open", words.say("ports-open", ports=self.ports, why=why)) from slow
