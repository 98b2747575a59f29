"""One container, from start or attachment to its end."""

from __future__ import annotations

import http.client
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import time
from dataclasses import InitVar, dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from gaudi.base.documents import Damaged
from gaudi.base.listeners import Listener
from gaudi.base.printable import journal_line, printable
from gaudi.faults import words
from gaudi.faults.causes import explain_log, quote
from gaudi.faults.facts import Facts
from gaudi.faults.tracebacks import ServerLog
from gaudi.node.documents import read_text
from gaudi.serving import load
from gaudi.serving.failure import EngineGone, Failure, Reason, reason_of, transient
from gaudi.serving.load import Load
from gaudi.serving.made_of import MadeOf
from gaudi.serving.plan import LABEL_PLAN, Plan, container_command

from . import cards, clock, facts, loaded
from .cards import Cards
from .clock import now_text
from .closing import Closing
from .container import OwnContainer
from .door import Door
from .emptying import Emptying
from .endpoint import Endpoint
from .engine import Container, Docker
from .listening import Listening
from .other_family import OtherFamily
from .plan_history import PlanHistory
from .reporter import Reporter
from .settings import Paths, Settings
from .starting import Starting
from .startup_checks import read_plan
from .state import SupervisorState
from .stopping import SIGNALS, Signals, Stopped
from .systemd import say

# Messages of the docker client if the engine ends during a command.
ENGINE_LOST = re.compile(
    r"error waiting for container|unexpected EOF|Cannot connect to the Docker daemon|error during connect"
)
# A longer line is cut in two, so that a server's log cannot fill our memory.
LINE_BYTES = 65536


@dataclass
class Run:
    """One container, from start or attachment to its end."""

    plan: Plan
    made_of: MadeOf
    settings: Settings
    paths: Paths
    docker: Docker
    door: Door
    container: OwnContainer
    history: PlanHistory
    state: SupervisorState
    signals: Signals
    reporter: Reporter
    passed: InitVar[socket.socket | None]
    """The socket at the port of the other address family, from the supervisor before this one."""
    attached: InitVar[bool]
    """Whether the container runs already."""

    def __post_init__(self, passed: socket.socket | None, attached: bool) -> None:
        """Start the container, or attach to it. Raises Failure and EngineGone."""
        plan = self.plan
        self.bearer = self.token(attached)
        self.endpoint = self.listen()
        self.closing = Closing(plan.instance, plan.closed_ports)
        self.other_family = OtherFamily(plan, self.is_own, self.reporter.systemd, passed)
        self.kernel_oom = self.oom_kills()
        self.last_progress = time.monotonic()
        self.next_poll = 0.0
        # When the rules for the closed ports, and the port of the other address family, are checked again.
        self.next_hold = 0.0
        self.unwell_since: float | None = None
        # Since when a server that starts listens, and no connection to it comes through.
        self.shut_since: float | None = None
        # What the server's metrics said last, and when.
        self.load: tuple[Load, float] | None = None
        # Waits for requests in flight; None until a stop is requested.
        self.emptying: Emptying | None = None
        self.draining: subprocess.Popen[bytes] | None = None
        self.end: Reason | None = None
        self.buffer = b""
        self.status = 0
        self.oom_killed = False
        self.attached_at = 0.0
        self.starting = self.new_start(own=not attached)
        self.cards = Cards(self.paths.sys, [card.module_id for card in plan.cards])
        # Which of them the container has the device of; None until it was seen running.
        self.cards_passed: tuple[int, ...] | None = None
        self.child = self.attach() if attached else self.start()

    def new_start(self, own: bool) -> Starting:
        """A start that begins now. own: this process began it."""
        return Starting(self.state, self.reporter, self.settings, self.made_of.digest, self.plan.graphs, own=own)

    def listen(self) -> Endpoint:
        """Where this start of the server is to answer."""
        self.sockets = Listening(self.container.look, self.plan.name, str(self.plan.container["network"]))
        return Endpoint(self.plan.endpoint, self.plan.served_model_name, self.bearer, self.sockets)

    def is_own(self, listener: Listener) -> bool:
        """Whether a socket is the server's, also of one that was started again. Raises OSError if nobody knows."""
        return self.sockets.is_own(listener)

    def token(self, attach: bool) -> str | None:
        """What the guard lets this supervisor in with, another one for each start of a server; None without a guard."""
        try:
            if self.plan.guarded:
                return self.door.drawn() if attach else self.door.draw()
            # The guard of 0.1 knows the keys of clients only; its container ends with the next run of the playbook.
            former = (read_text(self.paths.former_keys(self.plan.instance)) or "") if self.plan.guarded is None else ""
        except (OSError, Damaged) as failed:
            raise transient("probe", words.say("probe", why=failed)) from failed
        return next(iter(former.split()), None)

    def oom_kills(self) -> int:
        """The kernel's own count of out-of-memory kills since boot."""
        found = re.search(r"^oom_kill (\d+)$", (self.paths.proc / "vmstat").read_text(encoding="ascii"), re.MULTILINE)
        return int(found[1]) if found else 0

    def spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        """Start a docker client whose output we follow; out of reach of a terminal's Ctrl-C."""
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def start(self) -> subprocess.Popen[bytes]:
        """Run a fresh container in the foreground."""
        image = self.docker.image_environment(self.plan.image) or {}
        command = container_command(
            self.plan,
            self.made_of.digest,
            cards.indexes(self.plan.cards, self.state),
            str(self.paths.environment(self.plan.instance)),
            image.get("PYTHONPATH"),
        )
        self.reporter.extend(self.starting.silence())
        self.other_family.hold()
        if self.other_family.problem:
            raise transient("port-taken", self.other_family.problem)
        self.door.open()
        self.closing.close()
        self.reporter.publish("starting", self.starting.text(), attached=False, started=now_text())
        modules = ", ".join(str(card.module_id) for card in self.plan.cards)
        say(f"Starting container {self.plan.name} on {'module' if len(self.plan.cards) == 1 else 'modules'} {modules}.")
        return self.spawn(command)

    def attach(self) -> subprocess.Popen[bytes]:
        """Follow a container that runs already."""
        self.reporter.extend(self.starting.silence())
        self.hold_ports()
        if not self.ending:
            # A supervisor that was killed while it drained has left it closed.
            self.door.open()
        if self.state.ready_at is None:
            self.reporter.publish("starting", "attached to the running container", attached=True)
        say(f"Attached to the running container {self.plan.name} of the same plan.")
        self.attached_at = time.monotonic()
        container = self.state.document.get("container_id") or self.plan.name
        return self.spawn(["docker", "attach", "--no-stdin", "--sig-proxy=false", container])

    def hold_ports(self) -> None:
        """Keep others out of the ports that they could take beside the server."""
        self.closing.hold()
        self.other_family.hold()

    # -- following

    def follow(self) -> None:
        """Follow the container until it ends, which raises Failure or Stopped.

        Returns where systemd is to start another supervisor for it.
        """
        while True:
            ended = self.read_output()
            if signal.SIGHUP in self.signals.received and self.state.ready_at is not None and not self.ending:
                self.signals.received.discard(signal.SIGHUP)
                if self.may_hand_over() and self.hand_over():
                    return
            if self.signals.asked_to_stop and not self.ending:
                self.empty()
            if ended and not self.survived():
                self.finish()
            self.tick()

    def read_output(self) -> bool:
        """Wait for output, a signal or the next thing to do; True when the client has ended."""
        stream = self.child.stdout
        if stream is None:
            raise RuntimeError("the client was started without a pipe")
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            selector.register(self.signals.wakeup, selectors.EVENT_READ)
            timeout = max(0.0, min(self.next_poll - time.monotonic(), clock.POLL_SERVING))
            if self.reporter.write_is_due:
                timeout = min(timeout, clock.STATE_INTERVAL)
            ready = {key.fileobj for key, _ in selector.select(timeout)}
        if self.signals.wakeup in ready:
            self.signals.wakeup.recv(64)
        if stream not in ready:
            return False
        chunk = os.read(stream.fileno(), LINE_BYTES)
        *lines, self.buffer = re.split(rb"[\r\n]", self.buffer + chunk)
        if len(self.buffer) >= LINE_BYTES or not chunk:
            lines.append(self.buffer)
            self.buffer = b""
        for line in lines:
            self.take(line.decode("utf-8", "replace"))
        return not chunk

    def take(self, raw: str) -> None:
        """Pass one line on to the journal and learn from it."""
        line = printable(raw).rstrip()
        if not line:
            return
        print(journal_line(line), flush=True)
        self.state.log.add(line)
        alive = self.state.progress.hear(line)
        self.state.counts.hear(line)
        if self.ending:
            return
        if self.state.ready_at is not None:
            # The last lines of a warm-up may come after the endpoint's answer: a successor reads them in the state.
            self.reporter.publish(self.state.document["phase"], self.state.document["status"])
            return
        if alive:
            self.last_progress = time.monotonic()
            self.reporter.extend(self.starting.silence())
        phase = "starting" if self.state.progress.phase == "warmed-up" else self.state.progress.phase
        self.reporter.publish(phase, self.starting.text())

    def tick(self) -> None:
        """What is due by the clock: the endpoint, systemd's watchdog, timeouts."""
        now = time.monotonic()
        self.reporter.write_in_time()
        self.reporter.ping_in_time()
        if now >= self.next_hold:
            self.hold_ports()
            self.next_hold = now + clock.POLL_SERVING
        if now < self.next_poll:
            return
        if self.draining:
            self.next_poll = now + clock.POLL_STARTING
            if self.draining.poll():  # too early: docker run had not created the container yet, or the engine is busy
                self.draining = self.stop()
            return
        if self.emptying is not None:
            self.poll_emptying(self.emptying)
        elif self.state.ready_at is None:
            self.poll_starting(now)
        else:
            self.poll_serving(now)
        calm = self.state.ready_at is not None and self.unwell_since is None and not self.ending
        interval = clock.POLL_SERVING if calm else clock.POLL_STARTING
        self.next_poll = time.monotonic() + self.reporter.within_watchdog(interval)

    def poll_starting(self, now: float) -> None:
        """The server is ready once it answers."""
        problem = self.endpoint.problem(models=True)
        if self.cards_passed is None:
            self.cards_passed = facts.passed(self.container.seen(), self.state, self.paths)
        if not self.endpoint.shut:
            self.shut_since = None
        if problem is None:
            # Before anybody is told of the server.
            self.other_family.hold()
            self.state.ready_at = now
            self.state.log = ServerLog(served=True)
            self.starting.answered()
            self.reporter.publish(
                "serving", self.plan.serving, ready=now_text(), **self.container_now(), **self.sockets_now()
            )
            self.reporter.notify(READY=1)
            say(f"{self.plan.serving[0].upper()}{self.plan.serving[1:]}.")
            self.history.keep()
        elif self.endpoint.stranger is not None:
            self.give_up(Reason("port-taken", self.endpoint.stranger, retry=True))
        elif self.endpoint.shut:
            self.wait_while_shut(now, problem)
        elif (silent := now - self.last_progress) > self.settings.stall and silent > self.starting.silence():
            text = words.say("stalled", seconds=f"{self.starting.silence():.0f}", doing=self.state.progress.text())
            self.give_up(Reason("stalled", text, retry=True))
        elif reason := self.starting.over():
            self.give_up(reason)

    def wait_while_shut(self, now: float, problem: str) -> None:
        """Say at once that the server listens and is not reached; end it in time, like one that stops answering."""
        self.shut_since = now if self.shut_since is None else self.shut_since
        self.reporter.publish(
            "not-answering", f"not reached ({problem}); ended after {self.settings.unhealthy:g} s of this"
        )
        if now - self.shut_since > self.settings.unhealthy:
            self.give_up(self.not_reached(now - self.shut_since))

    def not_reached(self, seconds: float) -> Reason:
        """Why a server ends that listens, and that no connection comes through to."""
        text = words.say("port-blocked", seconds=f"{seconds:.0f}", endpoint=self.plan.endpoint)
        return Reason("port-blocked", text, retry=True)

    def container_now(self) -> dict[str, str]:
        """What the engine calls the container, for those who find its processes while the engine is away."""
        found = self.container.seen()
        return {"container_id": ""} if found is None else {"container_id": found.id, "container_started": found.started}

    def sockets_now(self) -> dict[str, list[int]]:
        """The server's sockets, where others are known: for those who may not look at its processes themselves."""
        asked = sorted(self.endpoint.asked)
        return {} if asked == self.state.document.get("sockets") else {"sockets": asked}

    def poll_serving(self, now: float) -> None:
        """An instance that stops answering is ended, so that systemd starts it again."""
        lost = self.cards.lost()
        if lost is not None:
            self.give_up(self.card_lost(lost))
            return
        problem = self.other_family.problem or self.endpoint.problem(models=False)
        if not problem:
            self.unwell_since = None
            self.starting.remember()
            self.reporter.publish("serving", self.plan.serving, **self.load_now(now), **self.sockets_now())
            self.history.keep()
            if self.state.document["failures"] and self.state.seconds_served >= clock.STABLE_SECONDS:
                self.reporter.publish("serving", self.state.document["status"], failures=0)
            return
        problem = self.paused() or problem
        if self.unwell_since is None:
            self.unwell_since = now
        silent = now - self.unwell_since
        self.reporter.publish(
            "not-answering", f"not answering ({problem}); ended after {self.settings.unhealthy:g} s of this"
        )
        if silent > self.settings.unhealthy:
            text = words.say("not-answering", seconds=f"{silent:.0f}", problem=problem)
            unheard = Reason("not-answering", text, retry=True)
            self.give_up(self.not_reached(silent) if self.endpoint.shut else unheard)

    def paused(self) -> str:
        """Say that the container is paused, and how to resume it; empty if it is not, or the engine does not answer."""
        found = self.container.seen()
        if found is None or not found.paused:
            return ""
        return f"its container is paused; docker unpause {found.name} resumes it"

    @staticmethod
    def card_lost(module: int) -> Reason:
        """Why a server ends without its card."""
        return Reason("lost-while-serving", words.say("lost-while-serving", module=module), retry=True)

    def load_now(self, now: float) -> dict[str, Any]:
        """What changed in the load of the server since the last look; a server that does not tell has none."""
        try:
            seen = self.endpoint.load()
        except (OSError, http.client.HTTPException):
            seen = None
        if seen is not None:
            self.state.counts.check(seen)
        before, since = self.load or (None, now)
        self.load = None if seen is None else (seen, now)
        told = None if seen is None else load.document(seen, before, now - since)
        return {} if told == self.state.document.get("load") else {"load": told}

    # -- ends

    @property
    def ending(self) -> bool:
        """Whether the end has begun: by waiting for requests, or by stopping the container."""
        return self.draining is not None or self.emptying is not None

    def empty(self) -> None:
        """Have requests in flight finish before the container is stopped; a guard refuses new ones."""
        grace = self.settings.stop_grace
        never_served = self.state.ready_at is None and not self.state.document.get("attached")
        if never_served or self.unwell_since is not None:
            self.drain("Asked to stop a server that serves nobody.")
            return
        self.door.close()
        self.emptying = Emptying(self.endpoint, grace, self.plan.shutdown_timeout)
        self.next_poll = 0.0
        text = f"draining: requests in flight have up to {grace:g} s"
        self.reporter.notify(STOPPING=1)
        self.reporter.publish("draining", text)
        say(text)

    def poll_emptying(self, emptying: Emptying) -> None:
        """Stop the container as soon as no request runs, or when the time is over."""
        why = emptying.look()
        if why is not None:
            self.drain(why)
        elif emptying.running is not None:
            self.reporter.publish(
                "draining", f"draining: {emptying.running} in flight, for {emptying.left:.0f} s at most"
            )

    def give_up(self, reason: Reason) -> None:
        """Stop the container although nobody asked for it."""
        self.end = reason
        self.drain(reason.message)

    def drain(self, text: str) -> None:
        """Stop the container; text: why."""
        self.reporter.notify(STOPPING=1)
        self.reporter.publish("draining", text)
        say(text)
        self.draining = self.stop()

    def stop(self) -> subprocess.Popen[bytes]:
        """Tell the server to end; it has no request left, or does not answer."""
        grace = min(self.settings.stop_grace, clock.HURRY)
        if self.emptying is not None:
            grace += self.emptying.told
        found = self.container.seen()
        return self.spawn(self.docker.stop_command(found.id if found is not None else self.plan.name, grace))

    def survived(self) -> bool:
        """Take up a container that goes on although the client has ended; False if it has ended, too."""
        status = self.child.wait()
        engine_lost = bool(ENGINE_LOST.search(self.state.log.last_line)) or not self.docker.answers()
        if engine_lost and not self.ending:
            say("The container engine is gone; waiting for it to return.", 4)
            problem = "The container engine went away and did not return within"
            self.container.await_engine(problem, self.tell_engine_gone)
        found = self.container.look()
        if found is not None and found.running and self.made_of.is_on(found.labels.get(LABEL_PLAN)):
            self.container.give_back(found)
            known = self.state.document.get("container_started", None if self.state.ready_at is None else found.started)
            if found.started != known and not self.ending:
                self.start_over(found)
            self.attach_again()
            return True
        # The client's status counts only where there was no container to have one.
        self.status = found.exit_code if found is not None and found.ran else status
        self.oom_killed = found is not None and found.oom_killed
        if engine_lost and not self.ending:
            self.end = Reason("engine-restarted", words.say("engine-restarted"), retry=True)
        return False

    def start_over(self, found: Container) -> None:
        """Follow a start that somebody else made (docker restart), with all the time that a start has."""
        self.state.start_over()
        self.unwell_since = None
        self.last_progress, self.next_poll = time.monotonic(), 0.0
        self.kernel_oom = self.oom_kills()
        self.starting = self.new_start(own=False)
        self.endpoint = self.listen()
        text = "somebody has started the container again"
        say(f"{text[0].upper()}{text[1:]}: waiting for the server as after any start.", 4)
        began = {"container_id": found.id, "container_started": found.started, "started": now_text()}
        self.reporter.publish("starting", text, **began)

    def attach_again(self) -> None:
        """Attach, but not in a fast circle while an engine is on its way out."""
        pause = self.attached_at + clock.POLL_STARTING - time.monotonic()
        if pause > 0 and not self.ending:
            try:
                self.reporter.wait(pause)
            except Stopped:
                say("Asked to stop.")  # follow() sees to it
        self.child = self.attach()

    def tell_engine_gone(self) -> None:
        """Say that the engine is waited for; it may come back to a container that never noticed."""
        self.hold_ports()
        text = "the container engine is gone; waiting for it to return"
        if self.state.ready_at is not None and self.endpoint.problem(models=False) is None:
            self.reporter.publish("serving", f"{text}, while the server answers without it")
        else:
            self.reporter.publish("waiting", text)

    def finish(self) -> NoReturn:
        """The container has ended: leave nothing behind, and raise why: Failure, or Stopped where it was asked."""
        # A way back may have to wait for a lock, and the last message may be as old as half of the watchdog's time.
        self.reporter.ping()
        if self.draining:
            output, _ = self.draining.communicate(timeout=self.settings.stop_grace + clock.COMMAND_TIMEOUT)
            if self.draining.returncode != 0:
                say(f"docker stop said: {quote(output.decode('utf-8', 'replace'))}", 4)
        left = self.container.look()
        if left is not None:
            self.container.discard(left)
        self.closing.end()
        self.other_family.release()
        if self.end is not None:
            raise Failure(self.end)
        if self.ending:
            raise Stopped
        killed = self.oom_kills() - self.kernel_oom or int(self.oom_killed)
        ready = self.state.served
        # Most servers end at once without their card, before it is missed at two looks.
        gone = self.cards.gone() if ready else None
        if gone is not None:
            raise Failure(self.card_lost(gone))
        raise Failure(reason_of(explain_log(self.state.log, self.facts(ready, killed))))

    def facts(self, ready: bool, killed: int) -> Facts:
        """What can be read when a server has ended. killed: processes that the kernel killed for want of memory."""
        now = facts.read(self.plan, self.history.driver(), self.state, self.paths, self.docker)
        filling = "" if ready else self.state.progress.filling
        return replace(
            now, status=self.status, served=ready, kernel_oom=killed, filling=filling, passed=self.cards_passed
        )

    def hand_over(self) -> bool:
        """Become the program on disk, with the same process id; the container does not notice.

        What the unit says of this process counts from a start by systemd only, so that another unit ends it: systemd
        starts it again, and the container is attached to. False where somebody asked for the end meanwhile.
        """
        same_unit = loaded.unit_on_disk(self.plan.instance) == self.state.document["unit"]
        # From here on signals wait for the successor; the mask and pending signals survive exec.
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        if self.signals.asked_to_stop:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            return False
        # Only the docker client ends. SIGTERM might be passed on to the container; SIGKILL cannot be.
        self.child.kill()
        self.child.wait()
        if same_unit:
            say("Handing over to the supervisor on disk.")
            self.become_successor()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        if self.signals.asked_to_stop:
            self.child = self.attach()
            return False
        text = "the unit has changed: systemd starts the supervisor again, and the server goes on"
        say(f"Ending, since {text}.")
        self.reporter.publish("handing-over", text)
        return True

    def may_hand_over(self) -> bool:
        """Whether a successor would keep the container: not where it would be made of something else by now."""
        try:
            _plan, made_of = read_plan(self.plan.instance, self.paths)
            found = self.container.look()
        except (Failure, EngineGone) as problem:
            say(f"Not handing over: {problem}", 4)
            return False
        if found is None or not made_of.is_on(found.labels.get(LABEL_PLAN)):
            say("Not handing over: the plan on the disk is another one, which a restart takes up.", 4)
            return False
        return True

    def become_successor(self) -> NoReturn:
        """Run the program on disk in this process."""
        self.other_family.pass_on()
        # As we were started (sys.orig_argv came with Python 3.10 only).
        started_with = Path("/proc/self/cmdline").read_bytes().split(b"\0")[1:-1]
        os.execv(sys.executable, [sys.executable, *map(os.fsdecode, started_with)])
