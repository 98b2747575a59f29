"""Run a module's main() in this process, with scripted commands and a tree that stands for / ."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gaudi.cards.users import device_index
from ansible.module_utils.gaudi.node import open_cards
from ansible.module_utils.gaudi.node import reader as gaudi_reader
from ansible.module_utils.testing import patch_module_args

from tests.unit.cards.nodes import BUS_IDS, CPUS, MODULES

Scripted = Callable[[Sequence[str]], tuple[int, str, str]]

PROGRAMS = ("hl-smi", "timeout", "lspci", "ip", "docker")


def run_main(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a module answers, whether it ends well or not."""
    output = io.StringIO()
    with patch_module_args(dict(arguments)), contextlib.redirect_stdout(output), pytest.raises(SystemExit):
        importlib.import_module(name).main()
    answer: dict[str, Any] = json.loads(output.getvalue())
    return answer


@contextlib.contextmanager
def commands(
    patch: pytest.MonkeyPatch, answer: Scripted, programs: Sequence[str] = PROGRAMS
) -> Iterator[list[list[str]]]:
    """Have these programs installed in /usr/bin and answer as scripted; yields the commands run, in full."""
    run: list[list[str]] = []

    def get_bin_path(_self: object, program: str, required: bool = False) -> str | None:
        assert program in programs or not required
        return f"/usr/bin/{program}" if program in programs else None

    def run_command(self: AnsibleModule, command: list[str]) -> tuple[int, str, str]:
        assert self.run_command_environ_update == {"LC_ALL": "C"}
        run.append(command)
        return answer(command)

    with patch.context() as inner:
        inner.setattr(AnsibleModule, "get_bin_path", get_bin_path)
        inner.setattr(AnsibleModule, "run_command", run_command)
        yield run


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def lay_out(root: Path, patch: pytest.MonkeyPatch) -> None:
    """Write what the kernel of a node with 8 x HL-225 shows in /sys and /proc, and read from there."""
    for index, bus_id in enumerate(BUS_IDS):
        node = MODULES[index] // 4
        device = root / "sys/bus/pci/devices" / bus_id
        write(device / "vendor", "0x1da3\n")
        write(device / "numa_node", f"{node}\n")
        write(device / "local_cpulist", f"{CPUS[node]}\n")
        write(device / "module_id", f"{MODULES[index]}\n")
        write(device / "status", "Operational\n")
        entry = root / f"sys/class/accel/accel{index}"
        entry.mkdir(parents=True)
        (entry / "device").symlink_to(device)
        (root / f"sys/class/accel/accel_controlD{index}").mkdir()
    write(root / "sys/bus/pci/devices/0000:00:02.0/vendor", "0x8086\n")
    # Another vendor's accelerator is in the same class.
    write(root / "sys/class/accel/accel8/device/pci_addr", "0000:00:0b.0\n")
    write(root / "proc/1/comm", "systemd\n")
    write(root / "proc/1/cgroup", "0::/init.scope\n")
    patch.setattr(gaudi_reader, "SYS", root / "sys")
    patch.setattr(gaudi_reader, "PROC", root / "proc")
    patch.setattr(gaudi_reader, "RESERVATIONS", root / "cards.lock")
    patch.setattr("os.geteuid", lambda: 0)
    # No test may make device files: /dev/null is a character device that stands for accel0.
    real = device_index
    patch.setattr(open_cards, "device_index", lambda path: 0 if path == "/dev/null" else real(path))


def process(root: Path, pid: int, name: str, cgroup: str, opens: Sequence[str]) -> None:
    """Add a process with these files open."""
    folder = root / f"proc/{pid}"
    write(folder / "comm", f"{name}\n")
    write(folder / "cgroup", f"{cgroup}\n")
    (folder / "fd").mkdir()
    for number, target in enumerate(opens):
        (folder / f"fd/{number}").symlink_to(target)
