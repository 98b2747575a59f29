"""One instance, from its plan to its end."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import Any

from gaudi.faults import words
from gaudi.serving.failure import EngineGone, Failure, Reason
from gaudi.serving.plan import SCHEMA, Plan
from gaudi.serving.state import WAITS_FOR_LOCK, WAITS_LONG_FOR_LOCK

from . import clock, freeing, loaded, low_memory, other_family, recipes, start_directory, starting
from .attempts import failures_so_far, last_reason, pause_before, repeats
from .clock import now_text
from .container import OwnContainer
from .door import Door
from .engine import Docker
from .locks import Held, Locks
from .plan_history import PlanHistory
from .reporter import Reporter
from .run import Run
from .settings import Paths, Settings
from .startup_checks import StartupChecks, read_plan
from .state import SupervisorState
from .stopping import EXIT_CONFIGURATION, EXIT_GAVE_UP, EXIT_RETRY, EXIT_STOPPED, Signals, Stopped
from .systemd import say


class Supervisor:
    """One instance, from its plan to its end."""

    def __init__(self, instance: str, settings: Settings, paths: Paths) -> None:
        self.instance = instance
        self.settings = settings
        self.paths = paths
        self.directory = paths.instance_state(instance)
        self.docker = Docker()
        self.door = Door(self.directory)
        document = {
            "schema": SCHEMA,
            "instance": instance,
            "reason": None,
            "pid": os.getpid(),
            **loaded.digests(),
            "unit": loaded.unit(instance),
        }
        self.state = SupervisorState(document)
        self.signals = Signals()
        self.reporter = Reporter(self.state, self.directory / "state.json", self.signals)
        self.container = OwnContainer(instance, settings, paths, self.docker, self.door, self.state, self.reporter)
        self.history = PlanHistory(instance, settings, paths, self.docker, self.state, self.reporter)

    def run(self) -> int:
        """Run the instance until it ends; returns the exit status."""
        self.signals.listen()
        try:
            locks = self.await_locks()
        except Stopped:
            say(f"Asked to stop without the lock: the container of {self.instance} may still be running.", 4)
            return EXIT_RETRY
        if locks is None:
            return EXIT_RETRY
        try:
            self.state.read_earlier(self.directory / "state.json")
            self.state.document["starts"] = self.state.earlier.get("starts", [])
            self.supervise()
            return EXIT_RETRY
        except Stopped:
            return self.stopped()
        except Failure as failure:
            return self.failed(failure.reason)
        except EngineGone as gone:
            what = f"The container engine does not answer: {gone}"
            return self.failed(Reason("engine-unreachable", words.say("engine-unreachable", what=what), retry=True))
        finally:
            locks.close()

    def await_locks(self) -> Locks | None:
        """The locks of the instance; None where they cannot be taken for as long as is waited; raises Stopped.

        What serves goes on meanwhile.
        """
        began, said = time.monotonic(), ""
        while True:
            try:
                return self.take_locks()
            except Held as held:
                kept = time.monotonic() > began + clock.KEPT_FOR_LONG
                text = f"{WAITS_LONG_FOR_LOCK if kept else WAITS_FOR_LOCK}: {self.taken(held)}"
            except OSError as failed:
                what = f"{failed.filename or self.directory}: {failed.strerror}"
                text = f"{what}, so nobody can tell whether this runs twice"
            if text != said:
                say(f"{text}.", 3)
                self.reporter.notify(STATUS=text)
                said = text
            if time.monotonic() > began + self.settings.uncounted_wait:
                return None
            self.reporter.extend(self.settings.uncounted_wait)
            self.reporter.wait_alive(2.0)

    def take_locks(self) -> Locks:
        """Make a second supervisor of this instance impossible. Raises OSError, as Held where somebody has a lock."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return Locks(self.directory, self.paths.plan(self.instance).parent)

    def taken(self, held: Held) -> str:
        """Who has the lock of the instance, for people."""
        return (
            f"Another supervisor runs {self.instance} already, or somebody keeps it from running: {held} "
            f"(systemctl status vllm-{self.instance})"
        )

    def supervise(self) -> None:
        """Check, start or attach, follow. Returns where systemd is to start this again; raises what ends it."""
        if self.history.resume():
            text = "gone back to the plan that served before: systemd starts it"
            say(f"{text[0].upper()}{text[1:]}.")
            self.reporter.publish("going-back", text)
            return
        plan, made_of = read_plan(self.instance, self.paths)
        passed = other_family.taken_over(plan, self.reporter.systemd)
        self.history.take(plan, made_of)
        boot = (self.paths.proc / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        self.state.document.update(
            plan=made_of.digest,
            sized_by=plan.sized_by,
            boot=boot,
            endpoint=plan.endpoint,
            model=plan.served_model_name,
            container=plan.name,
            cards=[{"module_id": card.module_id, "serial": card.serial} for card in plan.cards],
            failures=failures_so_far(self.state.earlier, made_of.digest, boot),
            last_reason=self.state.earlier.get("reason") or self.state.earlier.get("last_reason"),
            back=None if self.history.back is None else self.history.back.document(),
        )
        self.reporter.publish("checking", "checking plan, engine, cards and weights")
        self.container.await_engine(
            "The container engine did not answer for",
            lambda: self.reporter.publish("waiting", "the container engine does not answer yet"),
        )
        attach = self.container.runs(made_of)
        if attach:
            self.state.take_over()
        else:
            self.prepare(plan)
        Run(
            plan,
            made_of,
            self.settings,
            self.paths,
            self.docker,
            self.door,
            self.container,
            self.history,
            self.state,
            self.signals,
            self.reporter,
            passed,
            attach,
        ).follow()

    def prepare(self, plan: Plan) -> None:
        """Wait, check and make ready what a container needs; raises Failure and Stopped."""
        self.state.document["last_reason"] = last_reason(self.state.earlier)
        self.pause()
        StartupChecks(plan, self.settings.stall, self.paths, self.docker, self.history, self.state, self.reporter).run()
        freeing.await_memory(plan, self.paths, self.state, self.reporter)
        start_directory.prepare(plan)
        recipes.prepare(plan, self.settings, self.paths, self.state, self.reporter)
        starting.measure_weights(plan, self.settings.stall, self.state)
        low_memory.prepare(len(plan.cards), self.paths.proc, self.reporter, drop_caches=self.settings.drop_caches)

    def pause(self) -> None:
        """Wait longer before each further try."""
        failures = int(self.state.document["failures"])
        if pause := pause_before(failures, self.settings.first_pause):
            self.reporter.extend(pause + self.settings.stall)
            text = f"waiting {pause:g} s before attempt {failures + 1} of {self.settings.attempts}"
            last = self.state.document["last_reason"] or {}
            # The reason why another plan was given up does not apply to this one.
            own = last.get("plan", self.state.document["plan"]) == self.state.document["plan"]
            self.reporter.publish("pausing", f"{text}; last: {last.get('message', 'killed') if own else 'killed'}")
            say(f"{text}.")
            self.reporter.wait(pause)

    def stopped(self) -> int:
        """The end that was asked for."""
        self.reporter.notify(STOPPING=1)
        self.reporter.publish("stopped", "stopped as asked", failures=0)
        say("Stopped as asked.")
        return EXIT_STOPPED

    def facts_of(self, reason: Reason) -> dict[str, Any]:
        """What state.json has of an end. The exception counts until the server listens: later it may hold a request."""
        facts: dict[str, Any] = {"kind": reason.kind, "message": reason.message, "time": now_text()}
        facts |= {"plan": self.state.document["plan"]} if "plan" in self.state.document else {}
        if not self.state.served and not self.state.log.served and reason.exception:
            facts |= {"exception": reason.exception, "driver": self.history.driver()}
        return facts

    def failed(self, reason: Reason) -> int:
        """Any other end."""
        before = int(self.state.document.get("failures", 0))
        failures = 1 if self.state.seconds_served >= clock.STABLE_SECONDS else before + 1
        facts = self.facts_of(reason)
        again = ""
        if reason.retry and repeats(self.state.document.get("last_reason"), facts, before):
            reason = replace(reason, retry=False)
            again = f" It ended so twice in a row, so it is not tried again; systemctl start vllm-{self.instance} does."
        going, said = self.history.give_up(reason, failures) if self.state.ready_at is None else (False, "")
        gave_up = reason.retry and failures >= self.settings.attempts and not going
        also = said or (self.history.both() if self.state.ready_at is None else "")
        text = f"{reason.message_with_id}{'' if going else again}{also}"
        if gave_up:
            text += f" Gave up after {failures} attempts; systemctl start vllm-{self.instance} tries again."
        say(text, 3)
        self.reporter.notify(STOPPING=1)
        facts["retry"] = reason.retry
        self.reporter.publish(
            "going-back" if going else "failed", text, failures=failures, gave_up=gave_up, reason=facts
        )
        if gave_up:
            return EXIT_GAVE_UP
        if going:
            return EXIT_RETRY
        return EXIT_RETRY if reason.retry else EXIT_CONFIGURATION
