"""What a simulated node sets in this machine's kernel goes back to what it was before anything of ours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from simulator import cleaning, engine, host, kernel
from simulator.settings import ROOT, Scope

RECORD = kernel.RECORD


class MachineSettings:
    """A machine's settings, as files, and the commands root runs on it."""

    def __init__(self, directory: Path) -> None:
        self.settings = directory / "proc"
        self.run_as_root: list[list[str]] = []
        self._run = host.run
        for name, value in {"vm/nr_hugepages": "0", "kernel/numa_balancing": "1"}.items():
            (self.settings / name).parent.mkdir(parents=True)
            (self.settings / name).write_text(f"{value}\n")

    def run(self, command: Sequence[str]) -> str:
        """Stand in for root's sysctl(8); everything else is run as it is."""
        self.run_as_root.append(list(command))
        if command[0] != "sysctl":
            return self._run(command)
        name, _, value = command[-1].partition("=")
        self.set(name, value)
        return ""

    def set(self, name: str, value: str) -> None:
        """Do what the role host_tuning does on a simulated node."""
        (self.settings / name.replace(".", "/")).write_text(f"{value}\n")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MachineSettings:
    made = MachineSettings(tmp_path)
    monkeypatch.setattr(kernel, "SETTINGS", made.settings)
    monkeypatch.setattr(kernel, "RECORD", tmp_path / "run" / "record.json")
    kernel.RECORD.parent.mkdir()
    monkeypatch.setattr(host, "as_root", list)
    monkeypatch.setattr(host, "run", made.run)
    return made


def test_a_second_checkout_does_not_take_the_first_ones_settings_for_the_machines(
    machine: MachineSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not RECORD.is_relative_to(ROOT), "each checkout would have a record of its own"
    for checkout in ("first", "second"):
        (tmp_path / checkout).mkdir()
        monkeypatch.setattr(host, "CACHE", tmp_path / checkout)
        kernel.record()
        machine.set("vm.nr_hugepages", "64")
        machine.set("kernel.numa_balancing", "0")
    # The first checkout leaves while the second has nodes, so it is the second that puts things back.
    assert kernel.restore() == [
        "Restored vm.nr_hugepages of this machine: 64 -> 0",
        "Restored kernel.numa_balancing of this machine: 0 -> 1",
    ]
    assert kernel.read() == {"vm.nr_hugepages": "0", "kernel.numa_balancing": "1"}


def test_a_later_start_keeps_the_first_record(machine: MachineSettings) -> None:
    kernel.record()
    machine.set("vm.nr_hugepages", "64")
    kernel.record()
    kernel.restore()
    assert kernel.read()["vm.nr_hugepages"] == "0"


def test_after_it_was_put_back_the_owners_new_value_counts(machine: MachineSettings) -> None:
    kernel.record()
    kernel.restore()
    assert not kernel.RECORD.exists()
    machine.set("vm.nr_hugepages", "8")
    kernel.record()
    machine.set("vm.nr_hugepages", "64")
    kernel.restore()
    assert kernel.read()["vm.nr_hugepages"] == "8"


def test_without_a_record_nothing_is_touched(machine: MachineSettings) -> None:
    assert kernel.restore() == []
    assert machine.run_as_root == []


def test_a_kernel_without_numa_has_one_setting_less(machine: MachineSettings) -> None:
    (machine.settings / "kernel" / "numa_balancing").unlink()
    kernel.record()
    machine.set("vm.nr_hugepages", "64")
    assert kernel.restore() == ["Restored vm.nr_hugepages of this machine: 64 -> 0"]


def test_nothing_is_put_back_under_the_nodes_of_another_checkout(
    machine: MachineSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "existing", object)
    monkeypatch.setattr(cleaning, "machines", list)
    monkeypatch.setattr(cleaning, "living_scopes", lambda _client: {("demo", "/elsewhere")})
    kernel.record()
    machine.set("vm.nr_hugepages", "64")
    said: list[str] = []
    cleaning.clean([Scope("demo")], said.append)
    assert kernel.read()["vm.nr_hugepages"] == "64"
    assert said == ["Images, the engine and .cache stay for demo (of /elsewhere)"]
