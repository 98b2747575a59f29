"""Device nodes and sysfs: what is laid out under a root of its own (mounting is seen on a simulated node)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.gaudi.host import iommu
from ansible.module_utils.gaudi.node import iommu as groups
from ansible.module_utils.gaudi.node import reader

from simulator.standins import description
from simulator.standins.node import devices, kmod

REAL_CARD = "0000:43:00.0"


@pytest.fixture
def sys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with a network card and a real Gaudi card, covered under tmp_path."""
    work, root = tmp_path / "work", tmp_path / "sys"
    for name, vendor in (("0000:00:03.0", "0x1af4"), (REAL_CARD, "0x1da3")):
        device = work / "real" / "bus" / "pci" / "devices" / name
        device.mkdir(parents=True)
        (device / "vendor").write_text(vendor + "\n", encoding="ascii")
    for directory in (
        "bus/pci/drivers/virtio-pci",
        "bus/pci/drivers/habanalabs",
        "class/net/eth0",
        "class/accel/accel0",
    ):
        (work / "real" / directory).mkdir(parents=True)
    (root / "bus").mkdir(parents=True)
    monkeypatch.setattr(devices, "WORK", work)
    monkeypatch.setattr(devices, "SYS", root)
    monkeypatch.setattr(devices, "COVERS", {root / "class": work / "class", root / "bus" / "pci": work / "pci"})
    # Where the covers are mounted on a node.
    (root / "class").symlink_to(work / "class")
    (root / "bus" / "pci").symlink_to(work / "pci")
    return root


def read(path: Path) -> str:
    return path.read_text(encoding="ascii").rstrip("\n")


def test_cards_beside_what_the_machine_has(sys: Path, node: dict[str, Any]) -> None:
    devices.make_sysfs(node)
    accel = sys / "class" / "accel"
    assert sorted(entry.name for entry in accel.iterdir()) == [f"accel{n}" for n in range(8)]
    for card in node["cards"]:
        device = accel / f"accel{card['index']}" / "device"
        assert read(device / "module_id") == str(card["module_id"])
        assert read(device / "pci_addr") == card["bus_id"]
        assert read(device / "status") == "Operational"
        assert read(device / "numa_node") == str(card["numa_node"])
        assert read(device / "local_cpulist") == card["cpus"]
        assert device.resolve().name == card["bus_id"]
        assert (device / "driver").resolve().name == "habanalabs"
    bus = sys / "bus" / "pci"
    assert read(bus / "drivers" / "habanalabs" / "0000:33:00.0" / "module_id") == "3"
    assert (sys / "class" / "net" / "eth0").is_dir()
    assert (bus / "devices" / "0000:00:03.0" / "vendor").exists()
    assert not (bus / "devices" / REAL_CARD).exists()


def test_external_ports_have_interfaces_that_are_as_described(sys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the reader of the project reads them so."""
    said = yaml.safe_load((description.DESCRIPTIONS / "gaudi2-oam8.yml").read_text(encoding="utf-8"))
    said["interfaces"] = {"mtu": 1500, "down": [3], "missing": [7]}
    node = description.expand(said, "changed")
    devices.make_sysfs(node)
    monkeypatch.setattr(reader, "SYS", sys)
    found = reader.read_interfaces(node["cards"])
    assert {each[0] for each in found} == {0, 1, 2, 3, 4, 5, 6}
    assert next(each for each in found if each[0] == 3) == (3, "card3p22", "b0:fd:0b:51:03:16", False, 1500, None)
    assert next(each for each in found if each[0] == 5) == (5, "card5p22", "b0:fd:0b:51:05:16", True, 1500, 100000)
    assert reader.read_interfaces([{"module_id": None, "bus_id": None}]) == []
    faster = description.load("gaudi3-oam8")["cards"][0]["interfaces"][0]
    assert faster["speed"] == 200000
    assert description.load("gaudi2e-pcie8")["cards"][0]["interfaces"] == []


@pytest.mark.parametrize(
    ("command_line", "kind"),
    [("ro quiet", "DMA-FQ"), ("ro iommu=pt intel_iommu=on", "identity"), ("ro iommu.passthrough=1", "identity")],
)
def test_an_iommu_that_is_not_described_is_that_of_a_server_started_like_this_machine(
    sys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, node: dict[str, Any], command_line: str, kind: str
) -> None:
    """DMA-FQ is what a server without the argument was recorded with."""
    (tmp_path / "cmdline").write_text(f"{command_line}\n")
    monkeypatch.setattr(devices, "CMDLINE", tmp_path / "cmdline")
    devices.make_sysfs(node)
    found = groups.read_groups(sys)
    assert [(group.module, group.type, group.driver) for group in found if group.bus_id == "0000:33:00.0"] == [
        (3, kind, "habanalabs")
    ]
    assert {group.type for group in found} == {kind}
    assert len({group.number for group in found}) == 8


def test_iommu_groups_are_as_described(sys: Path, described: Callable[..., dict[str, Any]]) -> None:
    cards = [{"module": 3, "type": "DMA"}, {"module": 5, "type": "none"}, {"module": 4, "type": "hidden"}]
    node = described(iommu={"type": "identity", "cards": cards, "together": [[7, 3], [0, 1]]})
    devices.make_sysfs(node)
    found = {group.module: group for group in groups.read_groups(sys)}
    assert {module: group.type for module, group in found.items()} == {
        **dict.fromkeys((0, 1, 2, 6), "identity"),
        **dict.fromkeys((3, 7), "DMA"),
        **dict.fromkeys((4, 5), ""),
    }
    assert (found[5].number, bool(found[4].number)) == ("", True)
    assert found[3].number == found[7].number != found[0].number == found[1].number
    assert [group.module for group in iommu.translating(found.values(), [])] == [3, 7, 4]


def test_without_a_driver_cards_are_only_on_the_bus(sys: Path) -> None:
    devices.make_sysfs(description.load("gaudi2-oam8-no-driver"))
    device = sys / "bus" / "pci" / "devices" / "0000:33:00.0"
    assert read(device / "vendor") == "0x1da3"
    assert not (device / "driver").exists()
    assert not (device / "module_id").exists()
    assert not (sys / "class" / "accel").exists()
    assert not (sys / "bus" / "pci" / "drivers" / "habanalabs").exists()


def test_a_lost_card_has_no_driver_and_a_sick_one_says_so(sys: Path) -> None:
    node = description.load("gaudi2-oam8-faulty")
    lost = next(card for card in node["cards"] if card["lost"])
    sick = next(card for card in node["cards"] if card["state"] != "Operational")
    devices.make_sysfs(node)
    assert not (sys / "class" / "accel" / f"accel{lost['index']}").exists()
    assert (sys / "bus" / "pci" / "devices" / lost["bus_id"] / "config").exists()
    assert read(sys / "class" / "accel" / f"accel{sick['index']}" / "device" / "status") == "Malfunction"


def test_configuration_space_names_the_card() -> None:
    card = description.load("gaudi2e-pcie8")["cards"][0]
    space = devices.config_space(card)
    assert len(space) == 64
    assert space[0:4] == bytes.fromhex("a31d2110")
    assert space[8] == 5
    assert space[0x0B] == 0x12


def test_modules_follow_the_driver_release(node: dict[str, Any]) -> None:
    lines = kmod.lsmod(node, "Module                  Size  Used by\next4   100  1\n").splitlines()
    assert lines[1].split() == ["habanalabs_ib", "98304", "0"]
    assert lines[-1].startswith("ext4")
    assert any(line.startswith("habanalabs_compat") for line in lines)
    older = {**node, "driver": {**node["driver"], "version": "1.20.1-366eb9c"}}
    assert "habanalabs_compat" not in kmod.lsmod(older, "")
    assert kmod.lsmod(description.load("gaudi2-oam8-no-driver"), "").split() == ["Module", "Size", "Used", "by"]
    assert kmod.modinfo(node, ["-F", "version", "habanalabs"]) == "1.22.1-97ec1a4"
    assert "Simulated" in (kmod.modinfo(node, ["habanalabs"]) or "")
    assert kmod.modinfo(node, ["ext4"]) is None
