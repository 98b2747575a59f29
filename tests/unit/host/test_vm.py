"""The simulator's virtual machine, as far as it can be seen without starting one."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.settings import SimulatorError
from simulator.vm import image, machine
from simulator.vm.image import DiskImage
from simulator.vm.machine import VirtualMachine


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image, "DIRECTORY", tmp_path)


def test_a_machine_that_is_not_there_can_be_taken_away() -> None:
    VirtualMachine("none").down()
    assert VirtualMachine("none").process is None
    assert machine.machines() == []


def test_a_record_of_another_process_is_not_the_machine(tmp_path: Path) -> None:
    one = VirtualMachine("one")
    one.directory.mkdir(parents=True)
    # Process 1 runs, but it did not start at tick 1 of this boot: the pid was given away again.
    (one.directory / "qemu.json").write_text('{"by": "process", "pid": 1, "start_ticks": 1, "boot_id": "x"}')
    assert one.process is None
    one.down()
    assert not one.directory.exists()


@pytest.mark.parametrize("name", ["../up", "a b", "", "A"])
def test_a_name_that_is_none(name: str) -> None:
    with pytest.raises(SimulatorError, match="is no scope name"):
        _ = VirtualMachine(name).directory


def test_the_inventory_reaches_only_this_machine_and_knows_its_key(tmp_path: Path) -> None:
    disk = DiskImage(tmp_path / "disk", tmp_path / "key", "ssh-ed25519 AAAA")
    inventory = machine._inventory(tmp_path, disk, 4242)
    assert isinstance(inventory["all"], dict)
    host = inventory["all"]["children"]["gaudi_nodes"]["hosts"]["vm"]
    assert (host["ansible_host"], host["ansible_port"]) == ("127.0.0.1", 4242)
    assert "StrictHostKeyChecking=yes" in host["ansible_ssh_common_args"]


def test_every_processor_has_memory_of_its_own() -> None:
    arguments = machine._numa()
    assert [word for word in arguments if word.startswith("node,")] == [
        "node,nodeid=0,cpus=0,memdev=memory0",
        "node,nodeid=1,cpus=1,memdev=memory1",
    ]
    assert arguments[arguments.index("-m") + 1] == "1536"
