"""The container engine, through its command line."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from typing import Any

from gaudi.faults import words
from gaudi.serving.failure import EngineGone, configuration
from gaudi.serving.plan import LABEL_INSTANCE

from .clock import COMMAND_TIMEOUT


@dataclass(frozen=True)
class Container:
    """What the engine says of a container; pid is that of its first process, as the node counts.

    started: when it was started last, in the engine's own words.
    """

    id: str
    name: str
    pid: int
    started: str
    running: bool
    paused: bool
    labels: dict[str, str]
    ran: bool
    exit_code: int
    oom_killed: bool


def run_command(
    command: list[str], timeout: float = COMMAND_TIMEOUT, data: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a short command, which reads the data, and return what it said; never raises for its exit status."""
    environment = {**os.environ, "LC_ALL": "C"}
    return subprocess.run(
        command,
        input=data,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout,
        check=False,
        env=environment,
    )


class Docker:
    """The container engine, through its command line."""

    def _run(self, *arguments: str, timeout: float = COMMAND_TIMEOUT) -> subprocess.CompletedProcess[str]:
        try:
            return run_command(["docker", *arguments], timeout)
        except FileNotFoundError as missing:
            raise configuration("engine-missing", words.say("engine-missing")) from missing
        except subprocess.TimeoutExpired as slow:
            raise EngineGone(f"docker {arguments[0]} did not answer within {timeout:g} s") from slow

    def answers(self) -> bool:
        """Is there an engine?"""
        try:
            return self._run("version", "--format", "{{.Server.Version}}", timeout=15).returncode == 0
        except EngineGone:
            return False

    def _inspect(self, kind: str, name: str) -> dict[str, Any] | None:
        done = self._run(kind, "inspect", name)
        if done.returncode == 0:
            return dict(json.loads(done.stdout)[0])
        if "no such" in done.stderr.lower():
            return None
        raise EngineGone(done.stderr.strip())

    def container(self, name: str) -> Container | None:
        """Look a container up by name; None if there is none."""
        facts = self._inspect("container", name)
        if facts is None:
            return None
        state = facts["State"]
        return Container(
            id=str(facts["Id"]),
            name=str(facts["Name"]).lstrip("/"),
            pid=int(state["Pid"]),
            started=str(state["StartedAt"]),
            running=bool(state["Running"]),
            paused=bool(state["Paused"]),
            labels=dict(facts["Config"].get("Labels") or {}),
            # The zero time stands for never.
            ran=not str(state["StartedAt"]).startswith("0001-"),
            exit_code=int(state["ExitCode"]),
            oom_killed=bool(state["OOMKilled"]),
        )

    def of_instance(self, instance: str, name: str, known: str) -> Container | None:
        """The container of an instance: by its name, or by its label where somebody gave it another name.

        known: the id that it had when last looked at. Where there is none, somebody else's container of that name.
        """
        named = self.container(name)
        if named is not None and named.labels.get(LABEL_INSTANCE) == instance:
            return named
        label = f"label={LABEL_INSTANCE}={instance}"
        done = self._run("container", "ls", "--all", "--no-trunc", "--filter", label, "--format", "{{.ID}}")
        if done.returncode != 0:
            raise EngineGone(done.stderr.strip())
        labelled = [found for found in map(self.container, done.stdout.split()) if found is not None]
        return min(labelled, key=lambda found: (found.id != known, not found.running), default=named)

    def rename(self, container: str, name: str) -> str:
        """Give a container a name; returns why it could not have it, or nothing."""
        done = self._run("container", "rename", container, name)
        return "" if done.returncode == 0 else done.stderr.strip()

    def image_environment(self, image: str) -> dict[str, str] | None:
        """The variables an image sets; None if the image is not there."""
        facts = self._inspect("image", image)
        if facts is None:
            return None
        pairs = (str(entry).partition("=") for entry in facts["Config"].get("Env") or [])
        return {name: value for name, _, value in pairs}

    def image_labels(self, image: str) -> dict[str, str]:
        """The labels of an image; none if it is not there."""
        facts = self._inspect("image", image) or {}
        return {str(name): str(value) for name, value in (facts.get("Config", {}).get("Labels") or {}).items()}

    def image_id(self, image: str) -> str:
        """What the engine has under the name of an image; empty where it has nothing."""
        return str((self._inspect("image", image) or {}).get("Id", ""))

    def stop_command(self, name: str, grace: float) -> list[str]:
        """Ask the server to finish what it is at, and kill it after the grace period."""
        return ["docker", "stop", "-t", str(int(grace)), name]

    def remove(self, name: str) -> None:
        """Remove a container, running or not; absent is as good as removed."""
        done = self._run("container", "rm", "--force", "--volumes", name)
        if done.returncode != 0 and not re.search(r"no such container|already in progress", done.stderr, re.IGNORECASE):
            raise EngineGone(done.stderr.strip())
