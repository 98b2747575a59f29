"""Make sure a Docker engine answers; remember which one we started, so that clean stops only that one."""

from __future__ import annotations

import grp
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import docker
import requests
from docker import DockerClient

from simulator import host
from simulator.settings import CACHE, SimulatorError

RECORD = CACHE / "engine.json"
LOG = CACHE / "dockerd.log"
PACKAGES = {"dockerd": "docker.io", "iptables": "iptables", "debootstrap": "debootstrap"}

_APPARMOR = Path("/sys/module/apparmor/parameters/enabled")
_SOCKET = Path("/var/run/docker.sock")
_PIDFILE = Path("/var/run/docker.pid")
_START_SECONDS = 60
_STOP_SECONDS = 60
_CALL_SECONDS = 600


@dataclass(frozen=True)
class StartedEngine:
    """An engine the simulator started: by which way, and for a process who it was exactly."""

    by: Literal["process", "systemd"]
    pid: int = 0
    start_ticks: int = 0
    boot_id: str = ""


def start_ticks(stat: str) -> int:
    """Read a process's start (clock ticks after boot) from the text of /proc/PID/stat.

    The second field is the program's name in brackets and may itself hold spaces and brackets;
    the start is field 22, so the 20th after the last bracket (proc(5)).
    """
    return int(stat.rpartition(")")[2].split()[19])


def identify(pid: int) -> StartedEngine | None:
    """Describe a running process so that its pid, used again later, is not mistaken for it."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return None
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return StartedEngine("process", pid, start_ticks(stat), boot_id)


def connect() -> DockerClient | None:
    """Give a client if an engine answers, None if there is none to ask."""
    try:
        client = docker.from_env(timeout=_CALL_SECONDS)
        client.ping()
    except (docker.errors.DockerException, requests.exceptions.ConnectionError):
        return None
    return client


def existing() -> DockerClient | None:
    """Give a client if an engine runs, None if there is none; starts nothing."""
    if not os.environ.get("DOCKER_HOST") and _refused_by_permissions():
        _again_with_the_group_of_the_socket()
    return connect()


def ensure(say: Callable[[str], None] = print) -> DockerClient:
    """Give a client of a Docker engine that answers, after installing and starting one if needed."""
    if client := connect():
        return _suitable(client)
    with host.lock("engine"):
        # Somebody else may have started it while this process waited for the lock.
        if client := connect():
            return _suitable(client)
        if os.environ.get("DOCKER_HOST"):
            raise SimulatorError(
                f"No Docker engine answers at DOCKER_HOST={os.environ['DOCKER_HOST']}. "
                "Start it, or unset DOCKER_HOST to let the simulator start one here."
            )
        if _refused_by_permissions():
            _again_with_the_group_of_the_socket()
        host.install_packages(packages(), say)
        say("Start the Docker engine")
        started = _start_service() if host.systemd_runs() else _start_process()
        RECORD.parent.mkdir(parents=True, exist_ok=True)
        RECORD.write_text(json.dumps(asdict(started)) + "\n")
        if _refused_by_permissions():
            _again_with_the_group_of_the_socket()
        client = connect()
        if client is None:
            raise SimulatorError("The Docker engine was started but does not answer. See its log.")
        return _suitable(client)


def refusal(security_options: list[str]) -> str | None:
    """Say why nodes cannot run on an engine with these SecurityOptions (of ``docker info``), None if they can.

    A node sets kernel settings, makes device nodes and runs an engine of its own: its root must be the machine's.
    """
    names = {option.split(",")[0].removeprefix("name=") for option in security_options}
    if "rootless" in names:
        return (
            "The Docker engine that answers is rootless, and simulated nodes need one that runs as root. "
            "Unset DOCKER_HOST: the simulator then uses the machine's engine, or installs docker.io."
        )
    if "userns" in names:
        return (
            "The Docker engine that answers maps root in containers to another user (userns-remap), and simulated "
            "nodes need the real one. Take userns-remap out of /etc/docker/daemon.json, or use another machine."
        )
    return None


def _suitable(client: DockerClient) -> DockerClient:
    if reason := refusal(client.info().get("SecurityOptions") or []):
        raise SimulatorError(reason)
    return client


def packages(apparmor: Path = _APPARMOR) -> dict[str, str]:
    """Give what an engine needs here: programs, and the packages they come in.

    docker.io only recommends the package apparmor, but where the kernel's AppArmor is on (``apparmor`` reads Y),
    dockerd starts no container without its parser.
    """
    confined = apparmor.exists() and apparmor.read_text().strip() == "Y"
    return {**PACKAGES, **({"apparmor_parser": "apparmor"} if confined else {})}


def _refused_by_permissions() -> bool:
    return _SOCKET.exists() and not os.access(_SOCKET, os.R_OK | os.W_OK)


def _again_with_the_group_of_the_socket() -> None:
    """Run this program again, as the same user, with the group that may talk to the engine.

    So that a user with sudo needs no entry in the group ``docker``, which would outlive the demo.
    """
    group = _SOCKET.stat().st_gid
    if group in os.getgroups():
        raise SimulatorError(f"{_SOCKET} refuses this user, though it is in the socket's group.")
    if host.find("sudo") is None:
        raise SimulatorError(
            f"{_SOCKET} refuses this user. Put the user into the group {grp.getgrgid(group).gr_name} and log in "
            "again, or run this command as root."
        )
    groups = ",".join(str(number) for number in sorted({*os.getgroups(), group}))
    same_user = ["setpriv", f"--reuid={os.getuid()}", f"--regid={os.getgid()}", f"--groups={groups}"]
    # sudo replaces PATH and HOME even when it preserves the rest.
    keep = ["env", f"PATH={os.environ['PATH']}", f"HOME={Path.home()}"]
    program = [sys.executable, "-m", "simulator", *sys.argv[1:]]
    print(f"Asking through the group {grp.getgrgid(group).gr_name}, which may talk to the Docker engine")
    again = subprocess.run(["sudo", "--preserve-env", "--", *same_user, "--", *keep, *program], check=False)
    sys.exit(again.returncode)


def _start_service() -> StartedEngine:
    host.run(host.as_root(["systemctl", "start", "docker.service"]))
    return StartedEngine("systemd")


def _start_process() -> StartedEngine:
    """Start dockerd directly, detached from this terminal, and wait until its socket answers."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with LOG.open("ab") as log:
        process = subprocess.Popen(
            host.as_root(["dockerd", "--pidfile", str(_PIDFILE)]),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=host.environment(),
            start_new_session=True,
        )
    deadline = time.monotonic() + _START_SECONDS
    while not (connect() or _refused_by_permissions()):
        if process.poll() is not None or time.monotonic() > deadline:
            raise SimulatorError(
                f"dockerd did not come up within {_START_SECONDS} s. The end of {LOG.name}:\n"
                + host.last_lines(LOG.read_text(errors="replace"))
            )
        time.sleep(0.2)
    started = identify(int(_PIDFILE.read_text()))
    if started is None:
        raise SimulatorError(f"dockerd answers, but {_PIDFILE} names no running process.")
    return started


def stop(say: Callable[[str], None] = print) -> bool:
    """Stop the engine if the simulator started it; give False if it stays because others use it."""
    if not RECORD.exists():
        return True
    started = StartedEngine(**json.loads(RECORD.read_text()))
    client = connect()
    others = [container.name for container in client.containers.list()] if client else []
    if others:
        say(f"The Docker engine stays: it also runs {', '.join(map(str, others))}")
        return False
    if started.by == "systemd":
        host.run(host.as_root(["systemctl", "stop", "docker.socket", "docker.service"]))
        say("Stopped the Docker engine (systemd)")
    elif identify(started.pid) == started:
        host.run(host.as_root(["kill", "-TERM", str(started.pid)]))
        deadline = time.monotonic() + _STOP_SECONDS
        while identify(started.pid) == started and not _is_zombie(started.pid):
            if time.monotonic() > deadline:
                raise SimulatorError(f"dockerd (pid {started.pid}) still runs {_STOP_SECONDS} s after SIGTERM.")
            time.sleep(0.2)
        say(f"Stopped the Docker engine (pid {started.pid})")
    RECORD.unlink()
    LOG.unlink(missing_ok=True)
    return True


def _is_zombie(pid: int) -> bool:
    """Tell whether a process has ended and only waits for its parent to notice."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
