"""One instance, from its plan to its end."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from gaudi.base.documents import Damaged, parse
from gaudi.base.refusal import Refusal
from gaudi.faults import words
from gaudi.faults.causes import quote
from gaudi.node import iommu
from gaudi.node.documents import read, read_text
from gaudi.node.programs import runs_as, unit_digest
from gaudi.node.reservations import read_reservations
from gaudi.node.weight_folders import changed_weights, missing_weights
from gaudi.serving import unserved
from gaudi.serving.failure import EngineGone, Failure, Reason, configuration, transient
from gaudi.serving.keys import read as parse_keys
from gaudi.serving.made_of import MadeOf
from gaudi.serving.plan import (
    LABEL_INSTANCE,
    LABEL_PLAN,
    SCHEMA,
    Plan,
)
from gaudi.serving.plan_cards import card_indexes, check_reservation
from gaudi.serving.state import WAITS_FOR_CARDS, WAITS_FOR_LOCK, WAITS_LONG_FOR_LOCK

from . import cards, clock, freeing, loaded, low_memory, recipes, starting
from .attempts import failures_so_far, last_reason, pause_before, repeats
from .clock import now_text
from .door import Door
from .emptying import Emptying
from .endpoint import Endpoint, port_problem
from .engine import Container, Docker, run_command
from .listening import Listening
from .locks import Held, Locks
from .plan_history import PlanHistory
from .reporter import Reporter
from .run import Run
from .settings import Paths, Settings
from .state import State
from .stopping import EXIT_CONFIGURATION, EXIT_GAVE_UP, EXIT_RETRY, EXIT_STOPPED, Signals, Stopped
from .systemd import say


class Supervisor:
    """One instance, from its plan to its end."""

    def __init__(self, instance: str, settings: Settings, paths: Paths) -> None:
        self.instance = instance
        self.settings = settings
        self.paths = paths
        self.docker = Docker()
        self.directory = paths.instance_state(instance)
        self.door = Door(self.directory)
        document = {
            "schema": SCHEMA,
            "instance": instance,
            "reason": None,
            "pid": os.getpid(),
            **loaded.digests(),
            "unit": self.unit_of_this_process(),
        }
        self.state = State(document)
        self.signals = Signals()
        self.reporter = Reporter(self.state, self.directory / "state.json", self.signals)
        self.history = PlanHistory(instance, settings, paths, self.docker, self.state, self.reporter)

    def shown_unit(self) -> str:
        """What systemd says of the unit; nothing without systemd."""
        properties = "FragmentPath,DropInPaths,NeedDaemonReload,ExecStart"
        try:
            return run_command(
                ["systemctl", "show", f"vllm-{self.instance}.service", f"--property={properties}"]
            ).stdout
        except (FileNotFoundError, subprocess.TimeoutExpired):
            return ""

    def unit_on_disk(self) -> str:
        """The digest of the unit and of its drop-ins as they are now; empty without systemd."""
        return unit_digest(self.shown_unit())

    def unit_of_this_process(self) -> str:
        """The digest of the unit that this process was started with; empty where nobody can tell."""
        shown = self.shown_unit()
        arguments = Path("/proc/self/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
        return unit_digest(shown) if runs_as(shown, arguments) else ""

    # -- the way

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
            return self.supervise()
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
            self.reporter.linger(self.settings.uncounted_wait)

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

    def supervise(self) -> int:
        """Check, start or attach, follow."""
        if self.history.resume():
            text = "gone back to the plan that served before: systemd starts it"
            say(f"{text[0].upper()}{text[1:]}.")
            self.reporter.publish("going-back", text)
            return EXIT_RETRY
        plan, made_of = self.read_plan()
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
        self.await_engine(plan.name)
        if self.own_container_runs(plan, made_of):
            self.state.take_over()
            return Run(self, plan, made_of, attach=True).follow()
        self.state.document["last_reason"] = last_reason(self.state.earlier)
        self.pause()
        self.check_node(plan)
        freeing.await_memory(plan, self.paths, self.state, self.reporter)
        recipes.prepare(plan, self.settings, self.paths, self.state, self.reporter)
        starting.measure_weights(plan, self.settings.stall, self.state)
        low_memory.prepare(len(plan.cards), self.paths.proc, self.reporter, drop_caches=self.settings.drop_caches)
        return Run(self, plan, made_of, attach=False).follow()

    def read_plan(self) -> tuple[Plan, MadeOf]:
        """The plan, and everything that makes the container what it is. Raises Failure."""
        path, environment_path = self.paths.plan(self.instance), self.paths.environment(self.instance)
        try:
            text, environment = read_text(path), read_text(environment_path)
        except Damaged as damage:
            raise configuration("plan", words.say("plan", what=damage)) from damage
        if text is None or environment is None:
            missing = path if text is None else environment_path
            raise configuration("plan", words.say("plan", what=f"{missing} is not there"))
        try:
            plan = Plan.from_document(parse(text))
        except ValueError as wrong:
            raise configuration("plan", words.say("plan", what=f"{path} cannot be used: {wrong}")) from wrong
        if plan.instance != self.instance:
            what = f"{path} is the plan of {plan.instance}, not of {self.instance}"
            raise configuration("plan", words.say("plan", what=what))
        if environment != plan.environment_file:
            what = (
                f"{environment_path} is not the environment of {path}: it was changed by hand, or two runs wrote it at "
                "once"
            )
            raise configuration("plan", words.say("plan", what=what))
        guard = self.read_guard(plan)
        former = plan.guarded is None and guard is not None
        return plan, MadeOf(text.encode(), environment.encode(), guard, former)

    def read_guard(self, plan: Plan) -> bytes | None:
        """The guard as it is on the disk; None where the instance asks for no keys. Raises Failure."""
        # A plan of 0.1 leaves it to whether there are keys.
        if not (self.paths.former_keys(self.instance).exists() if plan.guarded is None else plan.guarded):
            return None
        module = self.paths.programs / "guard" / "gaudi_guard.py"
        try:
            return module.read_bytes()
        except OSError as failed:
            said = words.say("guard-missing", path=module, why=failed.strerror)
            raise configuration("guard-missing", said) from failed

    def check_keys(self, plan: Plan) -> None:
        """Refuse to start a server that asks for keys without what it knows them by; raises Failure."""
        path = self.paths.keys(self.instance)
        if plan.guarded is None and self.paths.former_keys(self.instance).exists():
            what = "The plan is one of an earlier release, which kept keys elsewhere"
            raise configuration("keys", words.say("keys", what=what))
        if not plan.guarded:
            return
        try:
            found = read(path, parse_keys)
        except Damaged as damage:
            raise configuration("keys", words.say("keys", what=f"{damage}, so nobody could ask with a key")) from damage
        if found is None:
            what = f"{path} is not there, but {self.instance} asks for keys"
            raise configuration("keys", words.say("keys", what=what))

    def await_engine(self, name: str) -> None:
        """Wait for the engine to answer, as long as settings allow; raises Failure. name: that of the container."""
        deadline = time.monotonic() + self.settings.engine_wait
        self.reporter.extend(self.settings.engine_wait)
        while not self.docker.answers():
            if time.monotonic() > deadline:
                what = f"The container engine did not answer for {self.settings.engine_wait:g} s"
                raise transient("engine-unreachable", words.say("engine-unreachable", what=what))
            self.reporter.publish("waiting", "the container engine does not answer yet")
            try:
                self.reporter.wait_alive(2.0)
            except Stopped:
                raise self.stopped_without_engine(name) from None

    @staticmethod
    def stopped_without_engine(name: str) -> Failure:
        """How a requested stop ends when no engine answers, so that it is unknown what runs."""
        what = "Asked to stop while the container engine is gone"
        return transient("engine-unreachable", words.say("engine-unreachable", "stopping", what=what, name=name))

    def own_container_runs(self, plan: Plan, made_of: MadeOf) -> bool:
        """Is a container of just this plan running? Any other one of ours is stopped and removed."""
        found = self.docker.of_instance(self.instance, plan.name, self.state.earlier.get("container_id", ""))
        if found is None:
            return False
        if found.labels.get(LABEL_INSTANCE) != self.instance:
            raise configuration("container-name-taken", words.say("container-name-taken", name=plan.name))
        if found.running and made_of.is_on(found.labels.get(LABEL_PLAN)):
            self.state.document.update(container_id=found.id, container_started=found.started)
            self.give_back(found, plan.name)
            return True
        say(f"A container {found.name} of another plan is still there: stopping and removing it.")
        self.reporter.publish("draining", "stopping a container of another plan")
        say(self.remove_container(found))
        self.reporter.wait(0)
        return False

    def own_container(self) -> Container | None:
        """The container of this instance, whatever it is called by now. Raises EngineGone."""
        known = self.state.document.get("container_id") or self.state.earlier.get("container_id", "")
        found = self.docker.of_instance(self.instance, f"vllm-{self.instance}", known)
        return found if found is not None and found.labels.get(LABEL_INSTANCE) == self.instance else None

    def seen_container(self) -> Container | None:
        """As ``own_container``, but None as well while the engine does not answer."""
        try:
            return self.own_container()
        except EngineGone:
            return None

    def give_back(self, found: Container, name: str) -> None:
        """Give a container the name that everybody else knows it by."""
        if found.name == name:
            return
        try:
            problem = self.docker.rename(found.id, name)
        except EngineGone as gone:
            problem = str(gone)
        if problem:
            say(f"The container of {self.instance} is called {found.name}, and cannot be called {name}: {problem}", 4)
        else:
            say(f"The container of {self.instance} was called {found.name}. It is {name} again.", 4)

    def remove_container(self, found: Container) -> str:
        """Leave no container behind; returns how it went.

        Requests in flight finish first, where the last supervisor said that the server serves.
        """
        why = ""
        if found.running:
            self.reporter.extend(self.settings.stop_grace + clock.HURRY)
            endpoint = self.earlier_endpoint()
            why = "" if endpoint is None else f"{self.empty(endpoint)} "
            self.stop(found.id)
        self.docker.remove(found.id)
        freeing.end_workers(self.paths, self.instance, found.id)
        return f"{why}Removed the container {found.name}."

    def earlier_endpoint(self) -> Endpoint | None:
        """Where the last supervisor's server answers; None where it served nobody."""
        if "ready" not in self.state.earlier or self.state.earlier["phase"] == "not-answering":
            return None
        sockets = Listening(self.own_container, f"vllm-{self.instance}", "host")
        try:
            return Endpoint(self.state.earlier.get("endpoint", ""), "", self.earlier_token(), sockets)
        except ValueError:
            return None

    def earlier_token(self) -> str | None:
        """What the guard of a container of another plan lets this supervisor in with; None where it has no guard."""
        try:
            # The guard of 0.1 knows the keys of clients only. Its successors draw a token when they start a server.
            return self.door.kept() or next(
                iter((read_text(self.paths.former_keys(self.instance)) or "").split()), None
            )
        except Damaged as damage:
            say(f"{damage}: the server is not asked how many requests run.", 4)
            return None

    def empty(self, endpoint: Endpoint) -> str:
        """Wait for requests in flight, at most the grace time; returns why the waiting ended."""
        self.door.close()
        emptying = Emptying(endpoint, self.settings.stop_grace)
        while (why := emptying.look()) is None:
            self.reporter.ping()
            time.sleep(self.reporter.within_watchdog(clock.POLL_STARTING))
        return why

    def stop(self, container: str) -> None:
        """Tell the server to end; it has nothing left to do, or does not hear."""
        grace = min(self.settings.stop_grace, clock.HURRY)
        with subprocess.Popen(self.docker.stop_command(container, grace), stdout=subprocess.DEVNULL) as stopping:
            deadline = time.monotonic() + grace + clock.COMMAND_TIMEOUT
            while stopping.poll() is None and time.monotonic() < deadline:
                self.reporter.ping()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    stopping.wait(clock.POLL_STARTING)
            stopping.kill()

    def check_node(self, plan: Plan) -> None:
        """Everything that can be known before a container starts; raises Failure."""
        self.check_keys(plan)
        lock = self.paths.state / "cards.lock"
        if not os.path.lexists(lock):
            raise configuration("reservation", words.say("reservation", what=f"{lock} is not there"))
        try:
            found = read_reservations(lock, self.paths.plan(self.instance).parents[1], now_text())
        except Refusal as refusal:
            raise configuration("reservation", words.say("reservation", what=refusal)) from refusal
        if found.damage:
            say(f"{found.damage}. The next run of the playbook writes it anew.", 4)
        check_reservation(found.reservations, plan)
        self.await_cards(plan)
        for folder in map(Path, plan.weight_folders):
            if changed := changed_weights(folder):
                raise configuration("weights-incomplete", changed)
            if incomplete := missing_weights(folder):
                said = f"The weights are not complete: {incomplete}. {words.remedy('weights-incomplete')}"
                raise configuration("weights-incomplete", said)
        if not self.history.look().image:
            said = f"The image {plan.image} is not on this node. {words.remedy('image-missing')}"
            raise configuration("image-missing", said)
        driver, modules = self.history.look().driver, [card.module_id for card in plan.cards]
        folder = self.paths.plan(self.instance).parent
        versions, paths = (plan.release, driver), self.paths
        if refused := unserved.translated(iommu.translated(versions, modules, folder, paths.sys, paths.proc)):
            raise configuration("iommu-translates", refused)
        if taken := port_problem(plan, self.docker):
            raise transient("port-taken", taken)

    def await_cards(self, plan: Plan) -> None:
        """Look the cards up; raises Failure. One that was lost while it served is waited for: no start can do without.

        Nobody has to see to the instance when the card is back, and no try is spent meanwhile.
        """
        lost = (self.state.document["last_reason"] or {}).get("kind") == "lost-while-serving"
        modules = {card.module_id for card in plan.cards}
        while True:
            try:
                self.indexes(plan)
            except Failure as failure:
                if not lost or not failure.reason.retry:
                    raise
                text = failure.reason.message
            else:
                # hl-smi may list a card that the driver has given up.
                down = min(modules & cards.disabled(self.paths.sys), default=None) if lost else None
                if down is None:
                    return
                text = words.say("lost-while-serving", "disabled", module=down)
            self.reporter.extend(self.settings.stall)
            self.reporter.publish("waiting", f"{WAITS_FOR_CARDS}: {text}")
            self.reporter.write_in_time()
            self.reporter.wait_alive(clock.POLL_SERVING)

    def indexes(self, plan: Plan) -> list[int]:
        """Today's device numbers of the plan's cards; raises Failure."""
        command = ["hl-smi", "-Q", "index,module_id,serial", "-f", "csv,noheader"]
        try:
            done = run_command(command)
        except FileNotFoundError as missing:
            said = f"hl-smi is not installed. {words.say('cards-not-offered', 'missing')}"
            raise configuration("cards-not-offered", said) from missing
        except subprocess.TimeoutExpired as slow:
            said = f"hl-smi did not answer in {clock.COMMAND_TIMEOUT:g} s. {words.say('cards-not-offered')}"
            raise transient("cards-not-offered", said) from slow
        if done.returncode != 0:
            said = f"hl-smi fails with status {done.returncode}: {quote(done.stderr or done.stdout)}"
            raise transient("cards-not-offered", f"{said} {words.say('cards-not-offered')}")
        indexes = card_indexes(done.stdout, plan.cards)
        for card, index in zip(self.state.document["cards"], indexes):
            card["index"] = index
        return indexes

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

    # -- ends

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
        served = 0.0 if self.state.ready_at is None else time.monotonic() - self.state.ready_at
        before = int(self.state.document.get("failures", 0))
        failures = 1 if served >= clock.STABLE_SECONDS else before + 1
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
