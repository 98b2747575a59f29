"""A node for the supervisor: a directory, scripted docker and hl-smi on PATH, systemd's socket."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from ansible.module_utils.gaudi.serving.keys import ApiKey, digest_of, document

from tests.integration.vllm_service import record
from tests.integration.vllm_service.record import EngineRecord
from tests.unit.ports import free_port
from tests.unit.vllm_service.made import guarded, make_plan

HERE = Path(__file__).resolve().parent
# Seconds. Generous: the tests share a machine, and each step starts a handful of small programs.
PATIENCE = 180.0
# Seconds between two looks.
PAUSE = 0.05


class SupervisedNode:
    """A simulated node and the supervisors started on it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.instances = root / "etc/instances/tiny"
        self.state_file = root / "state/instances/tiny/state.json"
        self.weights = root / "weights"
        self.port = free_port()
        self.plan = make_plan(self.port, self.weights)
        kernel = (root / "proc/sys/kernel/random", root / "proc/sys/vm")
        for folder in (self.instances, root / "state", self.weights, *kernel):
            folder.mkdir(parents=True)
        self.low_memory(64)
        self.used()
        for name in ("compact_memory", "drop_caches"):
            (root / "proc/sys/vm" / name).touch()
        (root / "proc/sys/kernel/random/boot_id").write_text("boot-1\n")
        (root / "proc/vmstat").write_text("nr_free 1\noom_kill 0\n")
        (root / "proc/cmdline").write_text("ro quiet\n")
        (self.weights / "config.json").write_text("{}")
        (self.weights / "model.safetensors").write_text("data")
        (root / "hl-smi.csv").write_text("3, 1, AN1\n5, 0, AN0\n0, 2, AN2\n")
        self.write_plan()
        self.reserve([{"module_id": 0, "serial": "AN0"}, {"module_id": 1, "serial": "AN1"}])
        self.scenario(lines=["INFO hello"])
        self.notifications = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notifications.bind(str(root / "notify"))
        self.notifications.setblocking(False)
        self._messages: list[str] = []
        # What systemd keeps for the next supervisor.
        self._stored: list[int] = []
        self.processes: list[subprocess.Popen[str]] = []
        self.workers: list[subprocess.Popen[bytes]] = []
        self._reading = threading.Lock()
        self._closed = threading.Event()
        self._listener = threading.Thread(target=self._keep_listening, daemon=True)
        self._listener.start()

    def write_plan(self) -> None:
        """Write the plan and its environment file, as the role does."""
        (self.instances / "plan.json").write_text(json.dumps(self.plan))
        (self.instances / "environment").write_text(
            "".join(
                f"{name}={value}\n"
                for name, value in sorted({**self.plan["environment"], **self.plan["container"]["environment"]}.items())
            )
        )

    def card(self, bus_id: str, module: int, kind: str) -> None:
        """Lay out a card on the PCI bus, in an IOMMU group of a type."""
        device = self.root / "sys/bus/pci/devices" / bus_id
        (device / "iommu_group").mkdir(parents=True)
        for name, text in (("vendor", "0x1da3"), ("module_id", str(module)), ("iommu_group/type", kind)):
            (device / name).write_text(f"{text}\n")

    def used(self, **modules: int) -> None:
        """Have modules use so many MiB (m0=84000), and the others what an idle card does."""
        fresh = self.root / "memory.new"
        fresh.write_text("".join(f"{module}, {modules.get(f'm{module}', 512)} MiB\n" for module in range(3)))
        fresh.replace(self.root / "memory.csv")

    def worker(self, name: str, cgroup: str) -> subprocess.Popen[bytes]:
        """Start a process that the kernel lists in a control group, with the card of module 0 open."""
        process = subprocess.Popen(["sleep", "infinity"])
        self.workers.append(process)
        folder = self.root / f"proc/{process.pid}"
        (folder / "fd").mkdir(parents=True)
        (folder / "comm").write_text(f"{name}\n")
        (folder / "cgroup").write_text(f"0::/{cgroup}\n")
        (folder / "fd/3").symlink_to("/dev/null")
        group = self.root / "sys/fs/cgroup" / cgroup
        group.mkdir(parents=True)
        (group / "cgroup.procs").write_text(f"0\n{process.pid}\n")
        return process

    def low_memory(self, pieces: int) -> None:
        """Have so many free pieces of 4 MiB in low memory, as a kernel with pages of 4 KiB shows them."""
        columns = [9000, 4000, 10, 3, 1, 0, 0, 0, 0, 7, pieces]
        (self.root / "proc/buddyinfo").write_text(f"Node 0, zone    DMA32 {' '.join(map(str, columns))}\n")

    @contextlib.contextmanager
    def kernel(self, *steps: tuple[str, int]) -> Iterator[list[str]]:
        """Play the kernel's part behind /proc/sys/vm: after each write there are so many pieces.

        steps: the file that is to be written, and the pieces afterwards. Yields what was written, as it comes.
        """
        written: list[str] = []
        for name in {name for name, _ in steps}:
            (self.root / "proc/sys/vm" / name).unlink()
            os.mkfifo(self.root / "proc/sys/vm" / name)

        def answer() -> None:
            for number, (name, pieces) in enumerate(steps):
                # The writer waits until somebody reads, as it waits for the kernel.
                times = [each for each, _ in steps[: number + 1]].count(name)
                self.wait_for(partial(self.waited_for_kernel, name, times), f"the wait for {name}")
                self.low_memory(pieces)
                written.append(f"{name} {(self.root / 'proc/sys/vm' / name).read_text().strip()}")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield written
        thread.join(PATIENCE)
        assert not thread.is_alive(), f"only {written} was written"

    def waited_for_kernel(self, name: str, times: int) -> bool:
        """Has the supervisor begun so often to wait for the kernel?"""
        return self.statuses.count(f"waiting for the kernel ({name})") == times

    def reserve(self, cards: list[dict[str, Any]]) -> None:
        """Write cards.lock."""
        reservations = {"tiny": {"cards": cards, "since": "2026-01-01T00:00:00Z"}}
        (self.root / "state/cards.lock").write_text(json.dumps({"schema": 1, "reservations": reservations}))

    def guard(self, *keys: str) -> None:
        """Have the instance ask for API keys, as the planner and the role do."""
        written = [ApiKey(f"inventory-{number}", "inventory", digest_of(key)) for number, key in enumerate(keys, 1)]
        for path, text in (
            (self.instances / "guard/keys.json", json.dumps(document(written))),
            (self.root / "programs/guard/gaudi_guard.py", ""),
        ):
            path.parent.mkdir(parents=True)
            path.write_text(text)
        self.plan = guarded(self.plan, self.root)
        self.write_plan()

    def guard_of_an_earlier_release(self, key: str) -> None:
        """Give the instance a key as 0.1 did: its plan does not say so."""
        for path, text in ((self.instances / "keys/api_keys", key), (self.root / "programs/guard/gaudi_guard.py", "")):
            path.parent.mkdir(parents=True)
            path.write_text(text)
        del self.plan["guarded"], self.plan["container"]["at_start"]
        self.write_plan()

    def scenario(self, image: str = "registry/image:1", **scenario: Any) -> None:
        """Say what the container will do, and which image the engine has."""
        (self.root / "image").write_text(image)
        (self.root / "scenario.json").write_text(json.dumps({"port": self.port, **scenario}))

    def start(self, *options: str, action: str = "run", **environment: str) -> subprocess.Popen[str]:
        """Start a supervisor."""
        self._listen()
        # As systemd passes it: the first file behind the three of every process, and the process's own number.
        passing = 'exec env LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=other-family "$@" 3<&'
        process = subprocess.Popen(
            [
                *(word for file in self._stored for word in ("bash", "-c", f"{passing}{file} {file}<&-", "bash")),
                *(sys.executable, str(HERE / "driver.py"), action, "tiny", "--first-pause", "0.1", *options),
            ],
            pass_fds=self._stored,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={
                **os.environ,
                "PATH": f"{HERE / 'bin'}:{os.environ['PATH']}",
                "FAKE_NODE": str(self.root),
                "NOTIFY_SOCKET": str(self.root / "notify"),
                **environment,
            },
        )
        self.processes.append(process)
        return process

    def run(self, *options: str, action: str = "run", **environment: str) -> tuple[int, str]:
        """Start a supervisor and wait for its end: status and output."""
        process = self.start(*options, action=action, **environment)
        output, _ = process.communicate(timeout=PATIENCE)
        return process.returncode, output

    @property
    def messages(self) -> list[str]:
        """What systemd was told so far."""
        self._listen()
        return self._messages

    def _listen(self) -> None:
        """Collect what was sent."""
        with self._reading, contextlib.suppress(BlockingIOError):
            while True:
                message, files, _, _ = socket.recv_fds(self.notifications, 65536, 1)
                self._messages.append(message.decode())
                if files or "FDSTOREREMOVE=1" in self._messages[-1]:
                    self.forget()
                    self._stored = files

    def forget(self) -> None:
        """Close what systemd keeps, as it does with a unit that is stopped, or of an earlier release."""
        for file in self._stored:
            os.close(file)
        self._stored = []

    def _keep_listening(self) -> None:
        """Listen whatever the test waits for, as systemd does.

        The kernel keeps ten messages for a socket that nobody reads, and whoever sends one more waits: a supervisor
        would never end.
        """
        while not self._closed.wait(PAUSE):
            self._listen()

    def wait_for(self, condition: Callable[[], object], what: str) -> None:
        """Wait until a condition holds; fail after PATIENCE seconds."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, f"{what} did not happen; systemd was told {self.messages}"
            select.select([self.notifications], [], [], PAUSE)
            self._listen()

    def wait_ready(self) -> None:
        """Wait for READY=1."""
        self.wait_for(lambda: "READY=1" in self.messages, "READY=1")

    @property
    def state(self) -> dict[str, Any]:
        """state.json."""
        return dict(json.loads(self.state_file.read_text()))

    @property
    def calls(self) -> list[list[str]]:
        """Every call of docker."""
        words = iter((self.root / "calls").read_text().split("\0")[:-1])
        return [list(islice(words, int(count))) for count in words]

    @property
    def statuses(self) -> list[str]:
        """Every STATUS= text."""
        return [message[len("STATUS=") :] for message in self.messages if message.startswith("STATUS=")]

    @property
    def requests(self) -> list[str]:
        """Every path the server was asked for."""
        path = self.root / "requests"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def tokens(self) -> list[str]:
        """What each request to the server came with, without the word Bearer."""
        path = self.root / "tokens"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def container(self) -> EngineRecord:
        """The container, which is there."""
        found = record.read(self.root)
        assert found is not None
        return found

    def container_pid(self) -> int:
        """The process that plays the container."""
        return self.container.pid

    def kill(self) -> None:
        """Kill the container, as the kernel does where memory is out."""
        os.kill(self.container_pid(), signal.SIGKILL)
        fresh = self.root / "container.status.new"
        fresh.write_text("137")
        fresh.replace(self.root / "container.status")

    def rename(self, name: str) -> None:
        """Give the container another name, as docker rename does."""
        record.write(self.root, self.container._replace(name=name))

    def restart(self) -> None:
        """Start the container again, as docker restart does: its port is free when the first one is gone."""
        first = os.pidfd_open(self.container_pid())
        signal.pidfd_send_signal(first, signal.SIGKILL)
        select.select([first], [], [], PATIENCE)
        os.close(first)
        self.run_container(self.container._replace(started="2026-02-02T00:00:00Z"))

    def run_container(self, container: EngineRecord) -> None:
        """Have a container run, as this record but for its pid."""
        # Of an earlier one: it prints nothing before somebody follows.
        (self.root / "container.heard").unlink(missing_ok=True)
        with (self.root / "container.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, str(HERE / "fake_server.py")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "FAKE_NODE": str(self.root)},
            )
        self.wait_for((self.root / "container.armed").exists, "the container")
        (self.root / "container.armed").unlink()
        record.write(self.root, container._replace(pid=process.pid))

    def client_of(self, process: subprocess.Popen[str]) -> Path:
        """What /proc says of the docker client that a supervisor follows."""
        (pid,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        return Path(f"/proc/{pid}/stat")

    def say(self, text: str) -> None:
        """Have the serving container say something."""
        fresh = self.root / "say.new"
        fresh.write_text(text)
        fresh.replace(self.root / "say")

    def crash(self, *lines: str) -> None:
        """Have the serving container say something and end with status 1."""
        fresh = self.root / "crash.new"
        fresh.write_text(json.dumps({"lines": lines, "exit": 1}))
        fresh.replace(self.root / "crash")

    @contextlib.contextmanager
    def stopped(self, process: subprocess.Popen[str]) -> Iterator[None]:
        """Stop a supervisor meanwhile, as SIGSTOP does: it writes nothing where the test moves its folders."""
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        yield
        process.send_signal(signal.SIGCONT)

    def container_runs(self) -> bool:
        """Is it still there?"""
        return self.container_exists() and not (self.root / "container.status").exists()

    def container_exists(self) -> bool:
        """Is there anything left of it?"""
        return record.read(self.root) is not None

    def close(self) -> None:
        """End what is still running."""
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.communicate()
        if self.container_runs():
            os.kill(self.container_pid(), signal.SIGKILL)
        for worker in self.workers:
            worker.kill()
            worker.wait()
        # What a killed supervisor had started ends by itself, and may write a last file meanwhile.
        self.wait_for(self._removed, "the node's folder to be left alone")
        self._closed.set()
        self._listener.join()
        self.notifications.close()
        self.forget()

    def _removed(self) -> bool:
        try:
            shutil.rmtree(self.root)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.ENOENT):
                raise
        return not self.root.exists()
