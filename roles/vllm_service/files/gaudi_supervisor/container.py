"""The container of one instance: found whatever it is called, waited for, stopped and removed."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass

from gaudi.base.documents import Damaged
from gaudi.faults import words
from gaudi.node.documents import read_text
from gaudi.serving.failure import EngineGone, configuration, transient
from gaudi.serving.made_of import MadeOf
from gaudi.serving.plan import LABEL_INSTANCE, LABEL_PLAN

from . import clock, freeing
from .door import Door
from .emptying import Emptying
from .endpoint import Endpoint
from .engine import Container, Docker
from .listening import Listening
from .reporter import Reporter
from .settings import Paths, Settings
from .state import SupervisorState
from .stopping import Stopped
from .systemd import say


@dataclass(frozen=True)
class OwnContainer:
    """The container of one instance, as the engine has it now."""

    instance: str
    settings: Settings
    paths: Paths
    docker: Docker
    door: Door
    state: SupervisorState
    reporter: Reporter

    @property
    def name(self) -> str:
        """What it is to be called."""
        return f"vllm-{self.instance}"

    def await_engine(self, problem: str, tell: Callable[[], None]) -> None:
        """Wait for the engine to answer, as long as settings allow; raises Failure.

        problem: the failure's text, up to the number of seconds. tell: called between looks.
        """
        wait = self.settings.engine_wait
        deadline = time.monotonic() + wait
        self.reporter.extend(wait)
        while not self.docker.answers():
            if time.monotonic() > deadline:
                said = words.say("engine-unreachable", what=f"{problem} {wait:g} s")
                raise transient("engine-unreachable", said)
            tell()
            try:
                self.reporter.wait_alive(2.0)
            except Stopped:
                # Nobody can tell what runs.
                what = "Asked to stop while the container engine is gone"
                said = words.say("engine-unreachable", "stopping", what=what, name=self.name)
                raise transient("engine-unreachable", said) from None

    def _find(self) -> Container | None:
        known = self.state.document.get("container_id") or self.state.earlier.get("container_id", "")
        return self.docker.of_instance(self.instance, self.name, known)

    def look(self) -> Container | None:
        """The container of this instance, whatever it is called by now. Raises EngineGone."""
        found = self._find()
        return found if found is not None and found.labels.get(LABEL_INSTANCE) == self.instance else None

    def seen(self) -> Container | None:
        """As ``look``, but None as well while the engine does not answer."""
        try:
            return self.look()
        except EngineGone:
            return None

    def runs(self, made_of: MadeOf) -> bool:
        """Is a container of just this plan running? Any other one of ours is stopped and removed."""
        found = self._find()
        if found is None:
            return False
        if found.labels.get(LABEL_INSTANCE) != self.instance:
            raise configuration("container-name-taken", words.say("container-name-taken", name=self.name))
        if found.running and made_of.is_on(found.labels.get(LABEL_PLAN)):
            self.state.document.update(container_id=found.id, container_started=found.started)
            self.give_back(found)
            return True
        say(f"A container {found.name} of another plan is still there: stopping and removing it.")
        self.reporter.publish("draining", "stopping a container of another plan")
        say(self.remove(found))
        self.reporter.wait(0)
        return False

    def give_back(self, found: Container) -> None:
        """Give a container the name that everybody else knows it by."""
        if found.name == self.name:
            return
        try:
            problem = self.docker.rename(found.id, self.name)
        except EngineGone as gone:
            problem = str(gone)
        ours = f"The container of {self.instance}"
        if problem:
            say(f"{ours} is called {found.name}, and cannot be called {self.name}: {problem}", 4)
        else:
            say(f"{ours} was called {found.name}. It is {self.name} again.", 4)

    def remove(self, found: Container) -> str:
        """Leave no container behind; returns how it went.

        Requests in flight finish first, where the last supervisor said that the server serves.
        """
        why = ""
        if found.running:
            self.reporter.extend(self.settings.stop_grace + clock.HURRY)
            endpoint = self._earlier_endpoint()
            why = "" if endpoint is None else f"{self._empty(endpoint)} "
            self._stop(found.id)
        self.discard(found)
        return f"{why}Removed the container {found.name}."

    def discard(self, found: Container) -> None:
        """Remove a container that has ended, and what outlived it."""
        self.docker.remove(found.id)
        freeing.end_workers(self.paths, self.instance, found.id)

    def _earlier_endpoint(self) -> Endpoint | None:
        """Where the last supervisor's server answers; None where it served nobody."""
        earlier = self.state.earlier
        if "ready" not in earlier or earlier["phase"] == "not-answering":
            return None
        sockets = Listening(self.look, self.name, "host")
        try:
            return Endpoint(earlier.get("endpoint", ""), "", self._earlier_token(), sockets)
        except ValueError:
            return None

    def _earlier_token(self) -> str | None:
        """What the guard of a container of another plan lets this supervisor in with; None where it has no guard."""
        try:
            # The guard of 0.1 knows the keys of clients only. Its successors draw a token when they start a server.
            return self.door.kept() or next(
                iter((read_text(self.paths.former_keys(self.instance)) or "").split()), None
            )
        except Damaged as damage:
            say(f"{damage}: the server is not asked how many requests run.", 4)
            return None

    def _empty(self, endpoint: Endpoint) -> str:
        """Wait for requests in flight, at most the grace time; returns why the waiting ended."""
        self.door.close()
        emptying = Emptying(endpoint, self.settings.stop_grace)
        while (why := emptying.look()) is None:
            self.reporter.ping()
            time.sleep(self.reporter.within_watchdog(clock.POLL_STARTING))
        return why

    def _stop(self, container: str) -> None:
        """Tell the server to end; it has nothing left to do, or does not hear."""
        grace = min(self.settings.stop_grace, clock.HURRY)
        with subprocess.Popen(self.docker.stop_command(container, grace), stdout=subprocess.DEVNULL) as stopping:
            deadline = time.monotonic() + grace + clock.COMMAND_TIMEOUT
            while stopping.poll() is None and time.monotonic() < deadline:
                self.reporter.ping()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    stopping.wait(clock.POLL_STARTING)
            stopping.kill()
