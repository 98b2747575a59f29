"""One container, from start or attachment to its end."""

from __future__ import annotations

import http.client
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from gaudi.base.documents import Damaged
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

from . import clock, facts, freeing
from .cards import Cards
from .clock import now_text
from .closing import Closing
from .emptying import Emptying
from .endpoint import Endpoint
from .engine import Container
from .listening import Listening
from .starting import Starting
from .stopping import EXIT_RETRY, SIGNALS, Stopped
from .systemd import say

if TYPE_CHECKING:
    from .instance import Supervisor

# Messages of the docker client if the engine ends during a command.
ENGINE_LOST = re.compile(
    r"error waiting for container|unexpected EOF|Cannot connect to the Docker daemon|error during connect"
)
# A longer line is cut in two, so that a server's log cannot fill our memory.
LINE_BYTES = 65536


class Run:
    """One container, from start or attachment to its end."""

    def __init__(self, supervisor: Supervisor, plan: Plan, made_of: MadeOf, attach: bool) -> None:
        self.boss = supervisor
        self.plan = plan
        self.made_of = made_of
        self.bearer = self.token(attach)
        self.endpoint = self.listen()
        self.closing = Closing(plan.instance, plan.closed_ports)
        self.kernel_oom = self.oom_kills()
        self.last_progress = time.monotonic()
        self.next_poll = 0.0
        # When the rules for the closed ports are checked again, in every phase.
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
        self.starting = Starting(
            supervisor.state, supervisor.reporter, supervisor.settings, made_of.digest, plan.graphs, own=not attach
        )
        self.cards = Cards(supervisor.paths.sys, [card.module_id for card in plan.cards])
        # Which of them the container has the device of; None until it was seen running.
        self.passed: tuple[int, ...] | None = None
        self.child = self.attach() if attach else self.start()

    def listen(self) -> Endpoint:
        """Where this start of the server is to answer."""
        sockets = Listening(self.boss.own_container, self.plan.name, str(self.plan.container["network"]))
        return Endpoint(self.plan.endpoint, self.plan.served_model_name, self.bearer, sockets)

    def token(self, attach: bool) -> str | None:
        """What the guard lets this supervisor in with, another one for each start of a server; None without a guard."""
        boss = self.boss
        try:
            if self.plan.guarded:
                return boss.door.drawn() if attach else boss.door.draw()
            # The guard of 0.1 knows the keys of clients only; its container ends with the next run of the playbook.
            former = (read_text(boss.paths.former_keys(boss.instance)) or "") if self.plan.guarded is None else ""
        except (OSError, Damaged) as failed:
            raise transient("probe", words.say("probe", why=failed)) from failed
        return next(iter(former.split()), None)

    def oom_kills(self) -> int:
        """The kernel's own count of out-of-memory kills since boot."""
        found = re.search(
            r"^oom_kill (\d+)$", (self.boss.paths.proc / "vmstat").read_text(encoding="ascii"), re.MULTILINE
        )
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
        boss = self.boss
        image = boss.docker.image_environment(self.plan.image) or {}
        command = container_command(
            self.plan,
            self.made_of.digest,
            boss.indexes(self.plan),
            str(boss.paths.environment(self.plan.instance)),
            image.get("PYTHONPATH"),
        )
        boss.reporter.extend(self.starting.silence())
        boss.door.open()
        self.closing.close()
        boss.reporter.publish("starting", self.starting.text(), attached=False, started=now_text())
        modules = ", ".join(str(card.module_id) for card in self.plan.cards)
        say(f"Starting container {self.plan.name} on {'module' if len(self.plan.cards) == 1 else 'modules'} {modules}.")
        return self.spawn(command)

    def attach(self) -> subprocess.Popen[bytes]:
        """Follow a container that runs already."""
        boss = self.boss
        boss.reporter.extend(self.starting.silence())
        self.closing.hold()
        if not self.ending:
            # A supervisor that was killed while it drained has left it closed.
            boss.door.open()
        if boss.state.ready_at is None:
            boss.reporter.publish("starting", "attached to the running container", attached=True)
        say(f"Attached to the running container {self.plan.name} of the same plan.")
        self.attached_at = time.monotonic()
        container = boss.state.document.get("container_id") or self.plan.name
        return self.spawn(["docker", "attach", "--no-stdin", "--sig-proxy=false", container])

    # -- following

    def follow(self) -> int:
        """Follow the container until it ends; returns the exit status."""
        boss = self.boss
        while True:
            ended = self.read_output()
            if signal.SIGHUP in boss.signals.received and boss.state.ready_at is not None and not self.ending:
                boss.signals.received.discard(signal.SIGHUP)
                if self.may_hand_over() and (status := self.hand_over()) is not None:
                    return status
            if boss.signals.asked_to_stop and not self.ending:
                self.empty()
            if ended and not self.survived():
                return self.finish()
            self.beat()

    def read_output(self) -> bool:
        """Wait for output, a signal or the next thing to do; True when the client has ended."""
        stream = self.child.stdout
        if stream is None:
            raise RuntimeError("the client was started without a pipe")
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            selector.register(self.boss.signals.wakeup, selectors.EVENT_READ)
            timeout = max(0.0, min(self.next_poll - time.monotonic(), clock.POLL_SERVING))
            if self.boss.reporter.write_is_due:
                timeout = min(timeout, clock.STATE_INTERVAL)
            ready = {key.fileobj for key, _ in selector.select(timeout)}
        if self.boss.signals.wakeup in ready:
            self.boss.signals.wakeup.recv(64)
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
        boss = self.boss
        boss.state.log.add(line)
        alive = boss.state.progress.hear(line)
        boss.state.counts.hear(line)
        if self.ending:
            return
        if boss.state.ready_at is not None:
            # The last lines of a warm-up may come after the endpoint's answer: a successor reads them in the state.
            boss.reporter.publish(boss.state.document["phase"], boss.state.document["status"])
            return
        if alive:
            self.last_progress = time.monotonic()
            boss.reporter.extend(self.starting.silence())
        phase = "starting" if boss.state.progress.phase == "warmed-up" else boss.state.progress.phase
        boss.reporter.publish(phase, self.starting.text())

    def beat(self) -> None:
        """What is due by the clock: the endpoint, systemd's watchdog, patience."""
        boss, now = self.boss, time.monotonic()
        boss.reporter.write_in_time()
        boss.reporter.ping_in_time()
        if now >= self.next_hold:
            self.closing.hold()
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
        elif boss.state.ready_at is None:
            self.poll_starting(now)
        else:
            self.poll_serving(now)
        calm = boss.state.ready_at is not None and self.unwell_since is None and not self.ending
        interval = clock.POLL_SERVING if calm else clock.POLL_STARTING
        self.next_poll = time.monotonic() + boss.reporter.within_watchdog(interval)

    def poll_starting(self, now: float) -> None:
        """The server is ready once it answers."""
        boss = self.boss
        problem = self.endpoint.problem(models=True)
        if self.passed is None:
            self.passed = facts.passed(boss.seen_container(), boss.state, boss.paths)
        if not self.endpoint.shut:
            self.shut_since = None
        if problem is None:
            boss.state.ready_at = now
            boss.state.log = ServerLog(served=True)
            self.starting.answered()
            boss.reporter.publish(
                "serving", self.plan.serving, ready=now_text(), **self.container_now(), **self.sockets_now()
            )
            boss.reporter.notify(READY=1)
            say(f"{self.plan.serving[0].upper()}{self.plan.serving[1:]}.")
            boss.history.keep()
        elif self.endpoint.stranger is not None:
            text = self.endpoint.stranger
            self.drain(text, Reason("port-taken", text, retry=True))
        elif self.endpoint.shut:
            self.wait_while_shut(now, problem)
        elif (silent := now - self.last_progress) > boss.settings.stall and silent > self.starting.silence():
            text = words.say("stalled", seconds=f"{self.starting.silence():.0f}", doing=boss.state.progress.text())
            self.drain(text, Reason("stalled", text, retry=True))
        elif reason := self.starting.over():
            self.drain(reason.message, reason)

    def wait_while_shut(self, now: float, problem: str) -> None:
        """Say at once that the server listens and is not reached; end it in time, like one that stops answering."""
        boss = self.boss
        self.shut_since = now if self.shut_since is None else self.shut_since
        boss.reporter.publish(
            "not-answering", f"not reached ({problem}); ended after {boss.settings.unhealthy:g} s of this"
        )
        if now - self.shut_since > boss.settings.unhealthy:
            reason = self.not_reached(now - self.shut_since)
            self.drain(reason.message, reason)

    def not_reached(self, seconds: float) -> Reason:
        """Why a server ends that listens, and that no connection comes through to."""
        text = words.say("port-blocked", seconds=f"{seconds:.0f}", endpoint=self.plan.endpoint)
        return Reason("port-blocked", text, retry=True)

    def container_now(self) -> dict[str, str]:
        """What the engine calls the container, for those who find its processes while the engine is away."""
        found = self.boss.seen_container()
        return {"container_id": ""} if found is None else {"container_id": found.id, "container_started": found.started}

    def sockets_now(self) -> dict[str, list[int]]:
        """The server's sockets, where others are known: for those who may not look at its processes themselves."""
        asked = sorted(self.endpoint.asked)
        return {} if asked == self.boss.state.document.get("sockets") else {"sockets": asked}

    def poll_serving(self, now: float) -> None:
        """An instance that stops answering is ended, so that systemd starts it again."""
        boss = self.boss
        lost = self.cards.lost()
        if lost is not None:
            reason = self.card_lost(lost)
            self.drain(reason.message, reason)
            return
        problem = self.endpoint.problem(models=False)
        if problem is None:
            self.unwell_since = None
            self.starting.remember()
            boss.reporter.publish("serving", self.plan.serving, **self.load_now(now), **self.sockets_now())
            boss.history.keep()
            if (
                boss.state.document["failures"]
                and boss.state.ready_at is not None
                and now - boss.state.ready_at >= clock.STABLE_SECONDS
            ):
                boss.reporter.publish("serving", boss.state.document["status"], failures=0)
            return
        problem = self.paused() or problem
        if self.unwell_since is None:
            self.unwell_since = now
        silent = now - self.unwell_since
        boss.reporter.publish(
            "not-answering", f"not answering ({problem}); ended after {boss.settings.unhealthy:g} s of this"
        )
        if silent > boss.settings.unhealthy:
            text = words.say("not-answering", seconds=f"{silent:.0f}", problem=problem)
            unheard = Reason("not-answering", text, retry=True)
            reason = self.not_reached(silent) if self.endpoint.shut else unheard
            self.drain(reason.message, reason)

    def paused(self) -> str:
        """Say that the container is paused, and how to resume it; empty if it is not, or the engine does not answer."""
        found = self.boss.seen_container()
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
            self.boss.state.counts.check(seen)
        before, since = self.load or (None, now)
        self.load = None if seen is None else (seen, now)
        told = None if seen is None else load.document(seen, before, now - since)
        return {} if told == self.boss.state.document.get("load") else {"load": told}

    # -- ends

    @property
    def ending(self) -> bool:
        """Whether the end has begun: by waiting for requests, or by stopping the container."""
        return self.draining is not None or self.emptying is not None

    def empty(self) -> None:
        """Have requests in flight finish before the container is stopped; a guard refuses new ones."""
        boss = self.boss
        grace = boss.settings.stop_grace
        never_served = boss.state.ready_at is None and not boss.state.document.get("attached")
        if never_served or self.unwell_since is not None:
            self.drain("Asked to stop a server that serves nobody.", None)
            return
        boss.door.close()
        self.emptying = Emptying(self.endpoint, grace, self.plan.shutdown_timeout)
        self.next_poll = 0.0
        text = f"draining: requests in flight have up to {grace:g} s"
        boss.reporter.notify(STOPPING=1)
        boss.reporter.publish("draining", text)
        say(text)

    def poll_emptying(self, emptying: Emptying) -> None:
        """Stop the container as soon as no request runs, or when the time is over."""
        why = emptying.look()
        if why is not None:
            self.drain(why, None)
        elif emptying.running is not None:
            self.boss.reporter.publish(
                "draining", f"draining: {emptying.running} in flight, for {emptying.left:.0f} s at most"
            )

    def drain(self, text: str, reason: Reason | None) -> None:
        """Stop the container; ``reason`` says why, unless a stop was requested."""
        boss = self.boss
        self.end = reason
        boss.reporter.notify(STOPPING=1)
        boss.reporter.publish("draining", text)
        say(text)
        self.draining = self.stop()

    def stop(self) -> subprocess.Popen[bytes]:
        """Tell the server to end; it has no request left, or does not answer."""
        grace = min(self.boss.settings.stop_grace, clock.HURRY)
        if self.emptying is not None:
            grace += self.emptying.told
        found = self.boss.seen_container()
        return self.spawn(self.boss.docker.stop_command(found.id if found is not None else self.plan.name, grace))

    def survived(self) -> bool:
        """Take up a container that goes on although the client has ended; False if it has ended, too."""
        boss = self.boss
        status = self.child.wait()
        engine_lost = bool(ENGINE_LOST.search(boss.state.log.last_line)) or not boss.docker.answers()
        if engine_lost and not self.ending:
            say("The container engine is gone; waiting for it to return.", 4)
            self.await_engine_while_serving()
        found = boss.own_container()
        if found is not None and found.running and self.made_of.is_on(found.labels.get(LABEL_PLAN)):
            boss.give_back(found, self.plan.name)
            known = boss.state.document.get("container_started", None if boss.state.ready_at is None else found.started)
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
        """Follow a start that somebody else made (docker restart), with all the patience that a start has."""
        boss = self.boss
        boss.state.start_over()
        self.unwell_since = None
        self.last_progress, self.next_poll = time.monotonic(), 0.0
        self.kernel_oom = self.oom_kills()
        self.starting = Starting(
            boss.state, boss.reporter, boss.settings, self.made_of.digest, self.plan.graphs, own=False
        )
        self.endpoint = self.listen()
        text = "somebody has started the container anew"
        say(f"{text[0].upper()}{text[1:]}: waiting for the server as after any start.", 4)
        began = {"container_id": found.id, "container_started": found.started, "started": now_text()}
        boss.reporter.publish("starting", text, **began)

    def attach_again(self) -> None:
        """Attach, but not in a fast circle while an engine is on its way out."""
        pause = self.attached_at + clock.POLL_STARTING - time.monotonic()
        if pause > 0 and not self.ending:
            try:
                self.boss.reporter.wait(pause)
            except Stopped:
                say("Asked to stop.")  # follow() sees to it
        self.child = self.attach()

    def await_engine_while_serving(self) -> None:
        """The engine may come back to a container that never noticed."""
        boss = self.boss
        deadline = time.monotonic() + boss.settings.engine_wait
        boss.reporter.extend(boss.settings.engine_wait)
        while not boss.docker.answers():
            if time.monotonic() > deadline:
                what = f"The container engine went away and did not return within {boss.settings.engine_wait:g} s"
                raise transient("engine-unreachable", words.say("engine-unreachable", what=what))
            text = "the container engine is gone; waiting for it to return"
            if boss.state.ready_at is not None and self.endpoint.problem(models=False) is None:
                boss.reporter.publish("serving", f"{text}, while the server answers without it")
            else:
                boss.reporter.publish("waiting", text)
            try:
                boss.reporter.wait_alive(2.0)
            except Stopped:
                raise boss.stopped_without_engine(self.plan.name) from None

    def finish(self) -> int:
        """The container has ended: leave nothing behind, and say why."""
        boss = self.boss
        # A way back may have to wait for a lock, and the last message may be as old as half of the watchdog's time.
        boss.reporter.ping()
        if self.draining:
            output, _ = self.draining.communicate(timeout=boss.settings.stop_grace + clock.COMMAND_TIMEOUT)
            if self.draining.returncode != 0:
                say(f"docker stop said: {quote(output.decode('utf-8', 'replace'))}", 4)
        left = boss.own_container()
        if left is not None:
            boss.docker.remove(left.id)
            freeing.end_workers(boss.paths, boss.instance, left.id)
        self.closing.end()
        if self.end is not None:
            return boss.failed(self.end)
        if self.ending:
            return boss.stopped()
        killed = self.oom_kills() - self.kernel_oom or int(self.oom_killed)
        ready = boss.state.served
        # Most servers end at once without their card, before it is missed at two looks.
        gone = self.cards.gone() if ready else None
        if gone is not None:
            return boss.failed(self.card_lost(gone))
        return boss.failed(reason_of(explain_log(boss.state.log, self.facts(ready, killed))))

    def facts(self, ready: bool, killed: int) -> Facts:
        """What can be read when a server has ended. killed: processes that the kernel killed for want of memory."""
        now = facts.read(self.plan, self.boss.history.driver(), self.boss.state, self.boss.paths, self.boss.docker)
        filling = "" if ready else self.boss.state.progress.filling
        return replace(now, status=self.status, served=ready, kernel_oom=killed, filling=filling, passed=self.passed)

    def hand_over(self) -> int | None:
        """Become the program on disk, with the same process id; the container does not notice.

        What the unit says of this process counts from a start by systemd only, so that another unit ends it: systemd
        starts it again, and the container is attached to. None where somebody asked for the end meanwhile.
        """
        boss = self.boss
        same_unit = boss.unit_on_disk() == boss.state.document["unit"]
        # From here on signals wait for the successor; the mask and pending signals survive exec.
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        if boss.signals.asked_to_stop:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            return None
        # Only the docker client ends. SIGTERM might be passed on to the container; SIGKILL cannot be.
        self.child.kill()
        self.child.wait()
        if same_unit:
            say("Handing over to the supervisor on disk.")
            self.become_successor()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        if boss.signals.asked_to_stop:
            self.child = self.attach()
            return None
        text = "the unit has changed: systemd starts the supervisor anew, and the server goes on"
        say(f"Ending, since {text}.")
        boss.reporter.publish("handing-over", text)
        return EXIT_RETRY

    def may_hand_over(self) -> bool:
        """Whether a successor would keep the container: not where it would be made of something else by now."""
        try:
            _plan, made_of = self.boss.read_plan()
            found = self.boss.own_container()
        except (Failure, EngineGone) as problem:
            say(f"Not handing over: {problem}", 4)
            return False
        if found is None or not made_of.is_on(found.labels.get(LABEL_PLAN)):
            say("Not handing over: the plan on the disk is another one, which a restart takes up.", 4)
            return False
        return True

    def become_successor(self) -> NoReturn:
        """Run the program on disk in this process."""
        # As we were started (sys.orig_argv came with Python 3.10 only).
        started_with = Path("/proc/self/cmdline").read_bytes().split(b"\0")[1:-1]
        os.execv(sys.executable, [sys.executable, *map(os.fsdecode, started_with)])
