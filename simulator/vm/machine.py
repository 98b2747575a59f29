"""Virtual machines of the simulator: start one, reach it, take it away."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml

from simulator import engine, host, network
from simulator.settings import Scope, SimulatorError
from simulator.vm import image
from simulator.vm.image import DiskImage, Say

BOOT_SECONDS = 900
"""Software emulation on a busy machine (300 were too few with a load of 20); an idle one needs about 20."""

_STOP_SECONDS = 30
# An emulated machine that shares two cores with others answers late, but it answers.
_CONNECT_SECONDS = 60
_CONNECT_RETRIES = 3
_NODES = 2
_NODE_MIB = 768


@dataclass(frozen=True)
class VirtualMachine:
    """One virtual machine and the files that belong to it. Its name is a scope's."""

    name: str

    @property
    def directory(self) -> Path:
        """Its disk, console log, keys and inventory."""
        return image.DIRECTORY / "machines" / Scope(self.name).name

    @property
    def inventory(self) -> Path:
        """The inventory file that reaches it."""
        return self.directory / "inventory.yml"

    @property
    def console(self) -> Path:
        """What it printed on its serial line."""
        return self.directory / "console.log"

    @property
    def _record(self) -> Path:
        return self.directory / "qemu.json"

    @property
    def process(self) -> engine.StartedEngine | None:
        """The QEMU that runs it, or None when it is off."""
        if not self._record.exists():
            return None
        started = engine.StartedEngine(**json.loads(self._record.read_text()))
        return started if engine.identify(started.pid) == started else None

    def up(self, disk: DiskImage, say: Say) -> None:
        """Start it from a fresh copy of the disk and wait until one can log in."""
        self.down()
        self.directory.mkdir(parents=True)
        port = network.free_ports(1)[0]
        overlay = self.directory / "disk.qcow2"
        backing = ["-b", str(disk.disk), "-F", "qcow2"]
        host.run(["qemu-img", "create", "-q", "-f", "qcow2", *backing, str(overlay)])
        pidfile = self.directory / "qemu.pid"
        host.run(
            [
                *("qemu-system-x86_64", "-name", f"gaudi-simulator-{self.name}", *image.ACCELERATION),
                *("-daemonize", "-pidfile", str(pidfile), "-display", "none"),
                *("-serial", f"file:{self.console}", *_numa()),
                *("-drive", f"file={overlay},if=virtio,cache=unsafe"),
                *("-nic", f"user,model=virtio-net-pci,restrict=on,hostfwd=tcp:127.0.0.1:{port}-:22"),
            ]
        )
        started = engine.identify(int(pidfile.read_text()))
        if started is None:
            raise SimulatorError(f"QEMU ended at once. Its console: {self.console}")
        self._record.write_text(json.dumps(asdict(started)) + "\n")
        (self.directory / "known_hosts").write_text(f"[127.0.0.1]:{port} {disk.host_key}\n")
        self.inventory.write_text(yaml.safe_dump(_inventory(self.directory, disk, port)))
        begun = time.monotonic()
        self._wait(disk, port)
        say(f"Virtual machine {self.name} answers after {time.monotonic() - begun:.0f} s")

    def _wait(self, disk: DiskImage, port: int) -> None:
        login = ["ssh", "-i", str(disk.private_key), "-p", str(port), *_ssh_options(self.directory)]
        deadline = time.monotonic() + BOOT_SECONDS
        while subprocess.run([*login, "gaudi@127.0.0.1", "true"], check=False, capture_output=True).returncode:
            if self.process is None or time.monotonic() > deadline:
                raise SimulatorError(
                    f"The virtual machine {self.name} did not let anybody in within {BOOT_SECONDS} s. "
                    f"The end of its console:\n{host.last_lines(self.console.read_text(errors='replace'))}"
                )
            time.sleep(1)

    def down(self) -> None:
        """Switch it off and remove what belongs to it; a machine that is not there is no error."""
        if started := self.process:
            host.run(["kill", "-TERM", str(started.pid)])
            deadline = time.monotonic() + _STOP_SECONDS
            while self.process:
                if time.monotonic() > deadline:
                    raise SimulatorError(f"QEMU (pid {started.pid}) still runs {_STOP_SECONDS} s after SIGTERM.")
                time.sleep(0.2)
        if self.directory.exists():
            shutil.rmtree(self.directory)


def machines() -> list[VirtualMachine]:
    """Give every machine that is there, running or not."""
    directory = image.DIRECTORY / "machines"
    return [VirtualMachine(path.name) for path in sorted(directory.iterdir())] if directory.exists() else []


def _numa() -> list[str]:
    """Describe two processors, each with its own memory: a kernel with one node has no NUMA balancing."""
    arguments = ["-m", str(_NODES * _NODE_MIB), "-smp", f"{_NODES},sockets={_NODES},cores=1,threads=1"]
    for node in range(_NODES):
        arguments += ["-object", f"memory-backend-ram,id=memory{node},size={_NODE_MIB}M"]
        arguments += ["-numa", f"node,nodeid={node},cpus={node},memdev=memory{node}"]
    return arguments


def _ssh_options(directory: Path) -> list[str]:
    return [
        *("-o", f"UserKnownHostsFile={directory / 'known_hosts'}", "-o", "StrictHostKeyChecking=yes"),
        *("-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={_CONNECT_SECONDS}"),
    ]


def _inventory(directory: Path, disk: DiskImage, port: int) -> dict[str, object]:
    machine = {
        "ansible_host": "127.0.0.1",
        "ansible_port": port,
        "ansible_user": "gaudi",
        "ansible_ssh_private_key_file": str(disk.private_key),
        "ansible_ssh_common_args": " ".join(_ssh_options(directory)),
        "ansible_timeout": _CONNECT_SECONDS,
        "ansible_ssh_retries": _CONNECT_RETRIES,
        "ansible_python_interpreter": "/usr/bin/python3",
    }
    return {"all": {"children": {"gaudi_nodes": {"hosts": {"vm": machine}}}}}
