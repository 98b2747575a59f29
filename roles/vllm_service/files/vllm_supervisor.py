#!/usr/bin/env python3
"""Run one vLLM instance for systemd: the main process of vllm-<instance>.service (Type=notify).

Active means serving: READY=1 is sent when GET /health and GET /v1/models answer with the served model
name, never because of a line in a log. The container is run in the foreground through the docker
command line; a container of the same plan that is already running (this program was killed or handed
over, the engine restarted with live-restore) is attached to again, which costs no warm-up.

Every end has a reason in words a person can act on: in the journal, in the unit's status text and in
/var/lib/gaudi-serving/instances/<instance>/state.json. Exit status: 0 stopped as asked; 75 failed, worth
another try (systemd restarts, this program paces); 78 configuration, trying again cannot help; 69 tried
often enough. The unit's RestartPreventExitStatus= names the last two.

Python 3.9, its standard library, and the library gaudi beside this program: it runs on whatever the node ships.
"""

from __future__ import annotations

import argparse
import errno
import fcntl
import hashlib
import http.client
import json
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

try:
    import gaudi
    from gaudi.node.files import write_text
    from gaudi.node.model_directory import missing_weights
    from gaudi.serving.plan import (
        LABEL_INSTANCE,
        LABEL_PLAN,
        SCHEMA,
        Guard,
        Plan,
        card_indexes,
        check_reservation,
        container_command,
    )
    from gaudi.serving.signs import (
        ENGINE_LOST,
        EngineGone,
        Failure,
        Progress,
        Reason,
        configuration,
        diagnose,
        printable,
        quote,
        transient,
    )
except ImportError as missing:
    sys.exit(
        f"{missing}: the library gaudi beside {__file__} is missing or damaged. Run the playbook, which installs it."
    )

# The directory of the library that this process has read; another one may have become current since.
LIBRARY = Path(gaudi.__file__).resolve().parents[1].name

EXIT_STOPPED = 0
EXIT_GAVE_UP = 69
EXIT_RETRY = 75
EXIT_CONFIGURATION = 78

INSTANCE_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,46}[a-z0-9])?")

# Seconds. How often the endpoint is asked, and how long one command of the engine or hl-smi may take.
POLL_STARTING = 1.0
POLL_SERVING = 10.0
COMMAND_TIMEOUT = 60.0
HTTP_TIMEOUT = 5.0
# state.json follows a fast warm-up at most this often; a new phase is written at once.
STATE_INTERVAL = 0.5
# Serving this long means that the start was good: earlier failures no longer count.
STABLE_SECONDS = 600.0
LONGEST_PAUSE = 300.0
TAIL_LINES = 400
# For a server that never served: it has no requests to finish, and may be deaf to SIGTERM.
HURRY = 10.0
# A line longer than this is cut in two: nobody's log may fill our memory.
LINE_BYTES = 65536


def pause_before(failures: int, first: float) -> float:
    """Seconds to wait before the next try after so many failures in a row: 0, first, twice that, ... at most 300."""
    return 0.0 if failures == 0 else min(first * 2 ** (failures - 1), LONGEST_PAUSE)


def failures_so_far(earlier: dict[str, Any], digest: str, boot: str) -> int:
    """Count the failures in a row that this start continues.

    A new plan, a reboot, a stop as asked, a refusal or a surrender begin anew: then a person, or the boot,
    starts the instance. So does a start after the instance had been serving for a while.
    """
    if earlier.get("plan") != digest or earlier.get("boot") != boot or earlier.get("phase") == "stopped":
        return 0
    failures = int(earlier.get("failures", 0))
    if earlier.get("phase") != "failed":
        return failures + 1  # killed before it could say why
    return failures if (earlier.get("reason") or {}).get("retry") and not earlier.get("gave_up") else 0


@dataclass(frozen=True)
class Settings:
    """How patient to be. Seconds, unless the name says otherwise."""

    attempts: int = 5
    first_pause: float = 10.0
    stall: float = 1800.0
    stop_grace: float = 120.0
    engine_wait: float = 300.0
    unhealthy: float = 180.0


@dataclass(frozen=True)
class Paths:
    """Where things lie on the node."""

    etc: Path = Path("/etc/gaudi-serving")
    state: Path = Path("/var/lib/gaudi-serving")
    programs: Path = Path("/usr/local/lib/gaudi-serving")
    proc: Path = Path("/proc")

    def plan(self, instance: str) -> Path:
        """The plan document."""
        return self.etc / "instances" / instance / "plan.json"

    def environment(self, instance: str) -> Path:
        """docker's env-file, without secrets."""
        return self.etc / "instances" / instance / "environment"

    def keys(self, instance: str) -> Path:
        """The API keys; there only if the instance asks for one."""
        return self.etc / "instances" / instance / "keys" / "api_keys"

    def instance_state(self, instance: str) -> Path:
        """The directory for state.json and the lock."""
        return self.state / "instances" / instance


@dataclass(frozen=True)
class Container:
    """What the engine says of a container."""

    running: bool
    labels: dict[str, str]
    ran: bool
    exit_code: int
    oom_killed: bool


def run_command(command: list[str], timeout: float = COMMAND_TIMEOUT) -> subprocess.CompletedProcess[str]:
    """Run a short command and return what it said; never raises for its exit status."""
    environment = {**os.environ, "LC_ALL": "C"}
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
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
            raise configuration(
                "engine-missing",
                "The docker command is not installed. Run the playbook again (role container_runtime).",
            ) from missing
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
            running=bool(state["Running"]),
            labels=dict(facts["Config"].get("Labels") or {}),
            # The zero time stands for never.
            ran=not str(state["StartedAt"]).startswith("0001-"),
            exit_code=int(state["ExitCode"]),
            oom_killed=bool(state["OOMKilled"]),
        )

    def image_environment(self, image: str) -> dict[str, str] | None:
        """The variables an image sets; None if the image is not there."""
        facts = self._inspect("image", image)
        if facts is None:
            return None
        pairs = (str(entry).partition("=") for entry in facts["Config"].get("Env") or [])
        return {name: value for name, _, value in pairs}

    def stop_command(self, name: str, grace: float) -> list[str]:
        """Ask the server to finish what it is at, and kill it after the grace period."""
        return ["docker", "stop", "-t", str(int(grace)), name]

    def remove(self, name: str) -> None:
        """Remove a container, running or not; absent is as good as removed."""
        done = self._run("container", "rm", "--force", "--volumes", name)
        if done.returncode != 0 and not re.search(r"no such container|already in progress", done.stderr, re.IGNORECASE):
            raise EngineGone(done.stderr.strip())


class Notifier:
    """systemd's notification socket; silent where there is none (run by hand)."""

    def __init__(self, address: str | None) -> None:
        self._address = "\0" + address[1:] if address and address.startswith("@") else address

    def send(self, **fields: str | int) -> None:
        """Send one message of NAME=value lines."""
        if self._address is None:
            return
        message = "\n".join(f"{name}={str(value).replace(chr(10), ' ')}" for name, value in fields.items())
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
            channel.sendto(message.encode(), self._address)


class Endpoint:
    """The server's HTTP side."""

    def __init__(self, plan: Plan, keys: Path | None) -> None:
        host, _, port = plan.endpoint[len("http://") :].rpartition(":")
        self._host, self._port = host.strip("[]"), int(port)
        self._model = plan.served_model_name
        self._keys = keys

    def _get(self, path: str) -> tuple[int, bytes]:
        headers = {}
        if self._keys is not None:
            headers["Authorization"] = "Bearer " + self._keys.read_text(encoding="utf-8").split()[0]
        connection = http.client.HTTPConnection(self._host, self._port, timeout=HTTP_TIMEOUT)
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read(1 << 20)
        finally:
            connection.close()

    def problem(self, models: bool) -> str | None:
        """Ask /health, and /v1/models on request; None if all is well, else what is wrong."""
        try:
            status, _ = self._get("/health")
            if status != http.client.OK:
                return f"GET /health answers {status}"
            if not models:
                return None
            status, body = self._get("/v1/models")
            if status != http.client.OK:
                return f"GET /v1/models answers {status}"
            names = [str(model["id"]) for model in json.loads(body)["data"]]
        except (OSError, http.client.HTTPException) as failed:
            return f"no answer: {failed}"
        except (ValueError, KeyError, TypeError) as failed:
            return f"GET /v1/models answers something else than a list of models: {failed!r}"
        if self._model not in names:
            return f"GET /v1/models names {', '.join(names) or 'no model'}, not {self._model}"
        return None


def port_problem(plan: Plan) -> str | None:
    """Try to take the port for a moment; say who has it if it is taken."""
    family = socket.AF_INET6 if ":" in plan.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As the server does: a connection of the last run in TIME_WAIT is no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((plan.host, plan.port))
            probe.listen(1)
        except socket.gaierror as failed:
            return f"The address {plan.host} is not known on this node ({failed.strerror})."
        except OSError as failed:
            if failed.errno == errno.EADDRNOTAVAIL:
                return f"The address {plan.host} is not an address of this node."
            if failed.errno != errno.EADDRINUSE:
                return f"Port {plan.port} on {plan.host} cannot be used: {failed.strerror}."
        else:
            return None
    try:
        listeners = run_command(["ss", "-H", "-l", "-t", "-n", "-p", f"sport = :{plan.port}"]).stdout
    except (FileNotFoundError, subprocess.TimeoutExpired):
        listeners = ""
    owners = sorted(set(re.findall(r'\("([^"]+)",pid=(\d+)', listeners)))
    who = ", ".join(f"{name} (pid {pid})" for name, pid in owners) or "another process"
    return f"Port {plan.port} on {plan.host} is taken by {who}. Stop it, or give the instance another port."


def now_text() -> str:
    """Now, in UTC, to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")


def say(message: str, priority: int = 6) -> None:
    """Write a sentence of our own to the journal, with its syslog priority."""
    print(f"<{priority}>gaudi-serving: {message}", flush=True)


class Stopped(Exception):
    """SIGTERM while there was no container to drain."""


class Supervisor:
    """One instance, from its plan to its end."""

    def __init__(self, instance: str, settings: Settings, paths: Paths) -> None:
        self.instance = instance
        self.settings = settings
        self.paths = paths
        self.docker = Docker()
        self.notifier = Notifier(os.environ.get("NOTIFY_SOCKET"))
        self.directory = paths.instance_state(instance)
        self.earlier: dict[str, Any] = {}
        self.state: dict[str, Any] = {
            "schema": SCHEMA,
            "instance": instance,
            "reason": None,
            "pid": os.getpid(),
            "library": LIBRARY,
        }
        self.written = 0.0
        self.unwritten = False
        self.signals: set[int] = set()
        self.wakeup, self._wakeup_end = socket.socketpair()
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self.progress = Progress()
        self.ready_at: float | None = None
        self.watchdog = int(os.environ.get("WATCHDOG_USEC", "0")) / 2e6

    # -- saying

    def publish(self, phase: str, text: str, **extra: Any) -> None:
        """Tell systemd and state.json what is going on."""
        changed = phase != self.state.get("phase")
        if changed:
            self.state["since"] = now_text()
        # Lines of the log may be read after the endpoint has answered, and belong into the state all the same.
        learned = {
            "warm_up": {name: list(counts) for name, counts in self.progress.warm_up.items()},
            "warm_up_seconds": self.progress.warm_up_seconds,
            "memory": self.progress.memory,
        }
        known = all(self.state.get(name) == value for name, value in learned.items())
        if not changed and known and text == self.state.get("status") and not extra:
            return
        self.state.update(phase=phase, status=text, **learned, **extra)
        self.notifier.send(STATUS=text)
        self.unwritten = True
        if changed or extra:
            self.write_state()
        else:
            self.write_state_in_time()

    def write_state_in_time(self) -> None:
        """Write what is not written yet, but not more often than readers can follow."""
        if self.unwritten and time.monotonic() - self.written > STATE_INTERVAL:
            self.write_state()

    def write_state(self) -> None:
        """Replace state.json in one step; a reader sees the old or the new, never half."""
        self.written, self.unwritten = time.monotonic(), False
        write_text(self.directory / "state.json", json.dumps(self.state, indent=1) + "\n", mode=0o600)

    def extend(self, seconds: float) -> None:
        """Ask systemd for more time to start; it grants it only to a unit that is starting."""
        if self.ready_at is None:
            self.notifier.send(EXTEND_TIMEOUT_USEC=int((seconds + COMMAND_TIMEOUT) * 1e6))

    # -- the way

    def run(self) -> int:
        """Run the instance until it ends; returns the exit status."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = self.take_lock()
        try:
            self.listen_for_signals()
            self.earlier = self.read_state()
            return self.supervise()
        except Stopped:
            return self.stopped()
        except Failure as failure:
            return self.failed(failure.reason)
        except EngineGone as gone:
            return self.failed(Reason("engine-gone", f"The container engine does not answer: {gone}", retry=True))
        finally:
            os.close(lock)

    def take_lock(self) -> int:
        """Make a second supervisor of this instance impossible; the kernel lets go when we end, however we end."""
        lock = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            message = f"Another supervisor runs {self.instance} already (systemctl status vllm-{self.instance})."
            self.notifier.send(STATUS=message)
            say(message, 3)
            raise SystemExit(EXIT_CONFIGURATION) from None
        return lock

    def listen_for_signals(self) -> None:
        """SIGTERM and SIGINT stop, SIGHUP hands over to the program on disk."""
        self.wakeup.setblocking(False)
        self._wakeup_end.setblocking(False)
        signal.set_wakeup_fd(self._wakeup_end.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda received, _frame: self.signals.add(received))

    @property
    def asked_to_stop(self) -> bool:
        """Did systemd, or a person, ask for the end?"""
        return bool(self.signals & {signal.SIGTERM, signal.SIGINT})

    def wait(self, seconds: float) -> None:
        """Wait, but not past a signal; raises Stopped when asked to stop."""
        deadline = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self.wakeup, selectors.EVENT_READ)
            while not self.asked_to_stop and (left := deadline - time.monotonic()) > 0:
                if selector.select(left):
                    self.wakeup.recv(64)
        if self.asked_to_stop:
            raise Stopped

    def read_state(self) -> dict[str, Any]:
        """What the last supervisor left; an unreadable file counts as none."""
        try:
            return dict(json.loads((self.directory / "state.json").read_text(encoding="utf-8")))
        except FileNotFoundError:
            return {}
        except ValueError as damaged:
            say(f"{self.directory / 'state.json'} is damaged ({damaged}) and will be written anew.", 4)
            return {}

    def supervise(self) -> int:
        """Check, start or attach, follow."""
        plan, digest = self.read_plan()
        boot = (self.paths.proc / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        self.state.update(
            plan=digest,
            boot=boot,
            endpoint=plan.endpoint,
            model=plan.served_model_name,
            container=plan.name,
            cards=[{"module_id": card.module_id, "serial": card.serial} for card in plan.cards],
            failures=failures_so_far(self.earlier, digest, boot),
            last_reason=self.earlier.get("reason") or self.earlier.get("last_reason"),
        )
        self.publish("checking", "checking plan, engine, cards and weights")
        self.await_engine("the container engine does not answer yet")
        if self.own_container_runs(plan, digest):
            self.remember()
            return Run(self, plan, digest, attach=True).follow()
        self.pause()
        self.check_node(plan)
        return Run(self, plan, digest, attach=False).follow()

    def remember(self) -> None:
        """Take over what the last supervisor knew of a container that never stopped."""
        kept = ("started", "ready", "failures")
        self.state.update({name: self.earlier[name] for name in kept if name in self.earlier})
        self.state["cards"] = self.earlier.get("cards", self.state["cards"])
        self.progress.warm_up = {name: (int(c[0]), int(c[1])) for name, c in self.earlier.get("warm_up", {}).items()}
        self.progress.warm_up_seconds = self.earlier.get("warm_up_seconds")
        self.progress.memory = dict(self.earlier.get("memory", {}))

    def read_plan(self) -> tuple[Plan, str]:
        """The plan, and the digest of everything that makes the container what it is."""
        path = self.paths.plan(self.instance)
        try:
            text = path.read_bytes()
            environment = self.paths.environment(self.instance).read_bytes()
            plan = Plan.from_document(json.loads(text))
        except FileNotFoundError as missing:
            raise configuration(
                "plan", f"{missing.filename} is not there. Run the playbook, which writes it."
            ) from missing
        except (ValueError, UnicodeDecodeError) as wrong:
            raise configuration("plan", f"{path} cannot be used: {wrong}. Run the playbook again.") from wrong
        if plan.instance != self.instance:
            raise configuration("plan", f"{path} is the plan of {plan.instance}, not of {self.instance}.")
        if environment.decode("utf-8", "replace") != plan.environment_file:
            raise configuration(
                "plan",
                f"{self.paths.environment(self.instance)} is not the environment of {path}: it was changed by hand, or "
                "two runs wrote it at once. Run the playbook again.",
            )
        guarded = b"guarded" if self.guard() else b"open"
        return plan, hashlib.sha256(b"\0".join([text, environment, guarded])).hexdigest()

    def guard(self) -> Guard | None:
        """The API key guard, if this instance has keys."""
        keys = self.paths.keys(self.instance)
        return Guard(str(self.paths.programs / "guard" / "gaudi_guard.py"), str(keys)) if keys.exists() else None

    def await_engine(self, text: str) -> None:
        """Wait for the engine to answer, as long as settings allow; raises Failure."""
        deadline = time.monotonic() + self.settings.engine_wait
        self.extend(self.settings.engine_wait)
        while not self.docker.answers():
            if time.monotonic() > deadline:
                raise transient(
                    "engine-gone",
                    f"The container engine did not answer for {self.settings.engine_wait:g} s."
                    " Look at systemctl status docker.",
                )
            self.publish("waiting", text)
            self.wait(2.0)

    def own_container_runs(self, plan: Plan, digest: str) -> bool:
        """Is a container of just this plan running? Any other one of ours is stopped and removed."""
        found = self.docker.container(plan.name)
        if found is None:
            return False
        if found.labels.get(LABEL_INSTANCE) != self.instance:
            raise configuration(
                "container-name-taken", f"A container named {plan.name} is there that is not ours. Remove or rename it."
            )
        if found.running and found.labels.get(LABEL_PLAN) == digest:
            return True
        say(f"A container {plan.name} of another plan is still there: stopping and removing it.")
        self.remove_container(plan.name, found.running)
        return False

    def remove_container(self, name: str, running: bool) -> None:
        """Leave no container behind."""
        if running:
            self.extend(self.settings.stop_grace)
            run_command(
                self.docker.stop_command(name, self.settings.stop_grace), self.settings.stop_grace + COMMAND_TIMEOUT
            )
        self.docker.remove(name)

    def check_node(self, plan: Plan) -> None:
        """Everything that can be known before a container starts; raises Failure."""
        lock = self.paths.state / "cards.lock"
        try:
            reservations = lock.read_text(encoding="utf-8")
        except FileNotFoundError as missing:
            raise configuration(
                "reservation", f"{lock} is not there. Run the playbook, which reserves cards."
            ) from missing
        check_reservation(reservations, plan)
        self.indexes(plan)
        if incomplete := missing_weights(Path(plan.weights)):
            raise configuration("weights-incomplete", f"The weights are not complete: {incomplete}. Fetch them again.")
        if self.docker.image_environment(plan.image) is None:
            raise configuration("image-missing", f"The image {plan.image} is not on this node. Run the playbook again.")
        guard = self.guard()
        if guard is not None and not Path(guard.module).is_file():
            raise configuration("guard-missing", f"{guard.module} is not there. Run the playbook again.")
        if taken := port_problem(plan):
            raise transient("port-taken", taken)

    def indexes(self, plan: Plan) -> list[int]:
        """Today's device numbers of the plan's cards; raises Failure."""
        command = ["hl-smi", "-Q", "index,module_id,serial", "-f", "csv,noheader"]
        try:
            done = run_command(command)
        except FileNotFoundError as missing:
            raise configuration("driver", "hl-smi is not installed: install the driver packages first.") from missing
        except subprocess.TimeoutExpired as slow:
            raise transient("driver", f"hl-smi did not answer within {COMMAND_TIMEOUT:g} s. Look at dmesg.") from slow
        if done.returncode != 0:
            said = quote(done.stderr or done.stdout)
            raise transient("driver", f"hl-smi fails with status {done.returncode}: {said} Is the driver loaded?")
        indexes = card_indexes(done.stdout, plan.cards)
        for card, index in zip(self.state["cards"], indexes):
            card["index"] = index
        return indexes

    def pause(self) -> None:
        """Wait longer before each further try."""
        failures = int(self.state["failures"])
        if pause := pause_before(failures, self.settings.first_pause):
            self.extend(pause + self.settings.stall)
            text = f"waiting {pause:g} s before attempt {failures + 1} of {self.settings.attempts}"
            self.publish("pausing", f"{text}; last: {(self.state['last_reason'] or {}).get('message', 'killed')}")
            say(f"{text}.")
            self.wait(pause)

    # -- ends

    def stopped(self) -> int:
        """The end that was asked for."""
        self.notifier.send(STOPPING=1)
        self.publish("stopped", "stopped as asked", failures=0)
        say("Stopped as asked.")
        return EXIT_STOPPED

    def failed(self, reason: Reason) -> int:
        """Any other end."""
        served = 0.0 if self.ready_at is None else time.monotonic() - self.ready_at
        failures = 1 if served >= STABLE_SECONDS else int(self.state.get("failures", 0)) + 1
        gave_up = reason.retry and failures >= self.settings.attempts
        text = reason.message
        if gave_up:
            text += f" Gave up after {failures} attempts; systemctl start vllm-{self.instance} tries again."
        say(text, 3)
        self.notifier.send(STOPPING=1)
        facts = {"kind": reason.kind, "message": reason.message, "retry": reason.retry, "time": now_text()}
        self.publish("failed", text, failures=failures, gave_up=gave_up, reason=facts)
        if gave_up:
            return EXIT_GAVE_UP
        return EXIT_RETRY if reason.retry else EXIT_CONFIGURATION


class Run:
    """One container, from start or attachment to its end."""

    def __init__(self, supervisor: Supervisor, plan: Plan, digest: str, attach: bool) -> None:
        self.boss = supervisor
        self.plan = plan
        self.digest = digest
        guard = supervisor.guard()
        self.guard = guard
        self.endpoint = Endpoint(plan, Path(guard.keys) if guard else None)
        self.kernel_oom = self.oom_kills()
        self.last_progress = time.monotonic()
        self.next_poll = 0.0
        self.next_watchdog = 0.0
        self.unwell_since: float | None = None
        self.draining: subprocess.Popen[bytes] | None = None
        self.end: Reason | None = None
        self.buffer = b""
        self.status = 0
        self.oom_killed = False
        self.attached_at = 0.0
        self.child = self.attach() if attach else self.start()

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
            self.digest,
            boss.indexes(self.plan),
            str(boss.paths.environment(self.plan.instance)),
            self.guard,
            image.get("PYTHONPATH"),
        )
        boss.extend(boss.settings.stall)
        boss.publish("starting", "starting the server", attached=False, started=now_text())
        say(f"Starting container {self.plan.name} on slots {', '.join(str(c.module_id) for c in self.plan.cards)}.")
        return self.spawn(command)

    def attach(self) -> subprocess.Popen[bytes]:
        """Follow a container that runs already."""
        boss = self.boss
        boss.extend(boss.settings.stall)
        if boss.ready_at is None:
            boss.publish("starting", "attached to the running container", attached=True)
        say(f"Attached to the running container {self.plan.name} of the same plan.")
        self.attached_at = time.monotonic()
        return self.spawn(["docker", "attach", "--no-stdin", "--sig-proxy=false", self.plan.name])

    # -- following

    def follow(self) -> int:
        """Follow the container until it ends; returns the exit status."""
        boss = self.boss
        while True:
            ended = self.read_output()
            if signal.SIGHUP in boss.signals and boss.ready_at is not None and not self.draining:
                self.hand_over()
            if boss.asked_to_stop and not self.draining:
                self.drain("draining", f"draining: requests in flight have up to {boss.settings.stop_grace:g} s")
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
            selector.register(self.boss.wakeup, selectors.EVENT_READ)
            timeout = max(0.0, min(self.next_poll - time.monotonic(), POLL_SERVING))
            if self.boss.unwritten:
                timeout = min(timeout, STATE_INTERVAL)
            ready = {key.fileobj for key, _ in selector.select(timeout)}
        if self.boss.wakeup in ready:
            self.boss.wakeup.recv(64)
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
        line = printable(raw)
        if not line:
            return
        print(line, flush=True)
        boss = self.boss
        boss.tail.append(line)
        alive = boss.progress.hear(line)
        if self.draining:
            return
        if boss.ready_at is not None:
            # The last lines of a warm-up may come after the endpoint's answer: a successor reads them in the state.
            boss.publish(boss.state["phase"], boss.state["status"])
            return
        if alive:
            self.last_progress = time.monotonic()
            boss.extend(boss.settings.stall)
        phase = "starting" if boss.progress.phase == "warmed-up" else boss.progress.phase
        boss.publish(phase, boss.progress.text())

    def beat(self) -> None:
        """What is due by the clock: the endpoint, systemd's watchdog, patience."""
        boss, now = self.boss, time.monotonic()
        boss.write_state_in_time()
        if boss.watchdog and now >= self.next_watchdog:
            boss.notifier.send(WATCHDOG=1)
            self.next_watchdog = now + boss.watchdog
        if now < self.next_poll:
            return
        if self.draining:
            self.next_poll = now + POLL_STARTING
            if self.draining.poll():  # too early: docker run had not created the container yet, or the engine is busy
                self.draining = self.stop()
            return
        if boss.ready_at is None:
            self.poll_starting(now)
        else:
            self.poll_serving(now)
        interval = POLL_STARTING if boss.ready_at is None or self.unwell_since is not None else POLL_SERVING
        self.next_poll = time.monotonic() + (min(interval, boss.watchdog) if boss.watchdog else interval)

    def poll_starting(self, now: float) -> None:
        """Ready is what answers."""
        boss = self.boss
        if self.endpoint.problem(models=True) is None:
            boss.ready_at = now
            boss.publish("serving", f"serving {self.plan.served_model_name} on {self.plan.endpoint}", ready=now_text())
            boss.notifier.send(READY=1)
            say(f"Serving {self.plan.served_model_name} on {self.plan.endpoint}.")
        elif now - self.last_progress > boss.settings.stall:
            text = f"No sign of progress for {boss.settings.stall:g} s while {boss.progress.text()}."
            self.drain("draining", text, Reason("stalled", text + " The journal has the last lines.", retry=True))

    def poll_serving(self, now: float) -> None:
        """An instance that stops answering is ended, so that systemd starts it again."""
        boss = self.boss
        problem = self.endpoint.problem(models=False)
        if problem is None:
            self.unwell_since = None
            boss.publish("serving", f"serving {self.plan.served_model_name} on {self.plan.endpoint}")
            if boss.state["failures"] and boss.ready_at is not None and now - boss.ready_at >= STABLE_SECONDS:
                boss.publish("serving", boss.state["status"], failures=0)
            return
        if self.unwell_since is None:
            self.unwell_since = now
        silent = now - self.unwell_since
        boss.publish("serving", f"not answering ({problem}); ended after {boss.settings.unhealthy:g} s of this")
        if silent > boss.settings.unhealthy:
            text = f"The server did not answer for {silent:.0f} s ({problem})."
            self.drain("draining", text, Reason("not-answering", text, retry=True))

    # -- ends

    def drain(self, phase: str, text: str, reason: Reason | None = None) -> None:
        """Have the server stop: it takes no new requests and finishes those in flight."""
        boss = self.boss
        self.end = reason
        boss.notifier.send(STOPPING=1)
        boss.publish(phase, text)
        say(text)
        self.draining = self.stop()

    def stop(self) -> subprocess.Popen[bytes]:
        """Tell the server to end."""
        grace = self.boss.settings.stop_grace
        patience = grace if self.boss.ready_at is not None else min(grace, HURRY)
        return self.spawn(self.boss.docker.stop_command(self.plan.name, patience))

    def survived(self) -> bool:
        """Take up a container that goes on although the client has ended; False if it has ended, too."""
        boss = self.boss
        status = self.child.wait()
        engine_lost = bool(boss.tail and ENGINE_LOST.search(boss.tail[-1])) or not boss.docker.answers()
        if engine_lost and not self.draining:
            say("The container engine is gone; waiting for it to return.", 4)
            self.await_engine_while_serving()
        found = boss.docker.container(self.plan.name)
        if found is not None and found.running and found.labels.get(LABEL_PLAN) == self.digest:
            self.attach_again()
            return True
        # The client's status counts only where there was no container to have one.
        self.status = found.exit_code if found is not None and found.ran else status
        self.oom_killed = found is not None and found.oom_killed
        if engine_lost and not self.draining:
            self.end = Reason(
                "engine-restarted",
                "The container engine went away and returned without the container: it was stopped, or live-restore is"
                ' off ("live-restore": true in /etc/docker/daemon.json keeps containers running).',
                retry=True,
            )
        return False

    def attach_again(self) -> None:
        """Attach, but not in a fast circle while an engine is on its way out."""
        pause = self.attached_at + POLL_STARTING - time.monotonic()
        if pause > 0 and not self.draining:
            try:
                self.boss.wait(pause)
            except Stopped:
                say("Asked to stop.")  # follow() sees to it
        self.child = self.attach()

    def await_engine_while_serving(self) -> None:
        """The engine may come back to a container that never noticed."""
        boss = self.boss
        deadline = time.monotonic() + boss.settings.engine_wait
        boss.extend(boss.settings.engine_wait)
        while not boss.docker.answers():
            if time.monotonic() > deadline:
                raise transient(
                    "engine-gone",
                    f"The container engine went away and did not return within {boss.settings.engine_wait:g} s."
                    " Look at systemctl status docker.",
                )
            text = "the container engine is gone; waiting for it to return"
            if boss.ready_at is not None and self.endpoint.problem(models=False) is None:
                boss.publish("serving", f"{text}, while the server answers without it")
            else:
                boss.publish("waiting", text)
            if boss.watchdog:
                boss.notifier.send(WATCHDOG=1)
            try:
                boss.wait(min(2.0, boss.watchdog or 2.0))
            except Stopped:
                raise transient(
                    "engine-gone",
                    f"Asked to stop while the container engine is gone: {self.plan.name} may still be running."
                    " The next start takes it over, or playbooks/stop.yml removes it.",
                ) from None

    def finish(self) -> int:
        """The container has ended: leave nothing behind, and say why."""
        boss = self.boss
        if self.draining:
            output, _ = self.draining.communicate(timeout=boss.settings.stop_grace + COMMAND_TIMEOUT)
            if self.draining.returncode != 0:
                say(f"docker stop said: {quote(output.decode('utf-8', 'replace'))}", 4)
        boss.docker.remove(self.plan.name)
        if self.end is not None:
            return boss.failed(self.end)
        if self.draining:
            return boss.stopped()
        killed = self.oom_kills() - self.kernel_oom or int(self.oom_killed)
        return boss.failed(diagnose(list(boss.tail), self.status, boss.ready_at is not None, killed, boss.progress))

    def hand_over(self) -> None:
        """Become the program on disk, with the same process id; the container does not notice."""
        say("Handing over to the supervisor on disk.")
        # Only the client goes. SIGTERM would do as well, but SIGKILL cannot be passed on to the container.
        self.child.kill()
        self.child.wait()
        # As we were started (sys.orig_argv came with Python 3.10 only).
        started_with = Path("/proc/self/cmdline").read_bytes().split(b"\0")[1:-1]
        os.execv(sys.executable, [sys.executable, *map(os.fsdecode, started_with)])


def clean(instance: str, settings: Settings, paths: Paths) -> int:
    """Stop and remove the container of an instance whose unit is down."""
    supervisor = Supervisor(instance, settings, paths)
    supervisor.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = supervisor.take_lock()
    try:
        name = f"vllm-{instance}"
        found = supervisor.docker.container(name)
        if found is None or found.labels.get(LABEL_INSTANCE) != instance:
            print(f"There is no container of {instance}.")
            return EXIT_STOPPED
        supervisor.remove_container(name, found.running)
        print(f"Removed the container {name}.")
        return EXIT_STOPPED
    except EngineGone as gone:
        print(
            f"The container engine does not answer ({gone}), so the container vllm-{instance} may still be running. "
            "Start the engine (systemctl start docker), then run this again.",
            file=sys.stderr,
        )
        return 1
    except Failure as failed:
        print(failed, file=sys.stderr)
        return 1
    finally:
        os.close(lock)


def instance_name(text: str) -> str:
    """Accept an instance name, or say what one looks like."""
    if not INSTANCE_NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not an instance name (a-z, 0-9 and -, at most 48 characters)")
    return text


def main(arguments: list[str], paths: Paths | None = None) -> int:
    """Read the command line and do what it says; returns the exit status."""
    parser = argparse.ArgumentParser(description="Run one vLLM instance for systemd.")
    parser.add_argument("action", choices=["run", "clean"], help="run the instance, or remove its stray container")
    parser.add_argument("instance", type=instance_name)
    default = Settings()
    for name, text in (
        ("first-pause", "seconds before the second try; doubled before each further one"),
        ("stall", "seconds without any new output before a start is given up"),
        ("stop-grace", "seconds for requests in flight when stopping"),
        ("engine-wait", "seconds to wait for a container engine that is gone"),
        ("unhealthy", "seconds a serving instance may not answer"),
    ):
        value = getattr(default, name.replace("-", "_"))
        parser.add_argument(f"--{name}", type=float, default=value, metavar="SECONDS", help=f"{text} ({value:g})")
    parser.add_argument("--attempts", type=int, default=default.attempts, help=f"tries in a row ({default.attempts})")
    given = parser.parse_args(arguments)
    chosen = {name: value for name, value in vars(given).items() if name not in ("action", "instance")}
    settings = Settings(**chosen)
    if given.action == "clean":
        return clean(given.instance, settings, paths or Paths())
    return Supervisor(given.instance, settings, paths or Paths()).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
