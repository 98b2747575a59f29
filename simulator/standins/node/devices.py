#!/usr/bin/python3
"""Make the devices and the sysfs of the described cards, or take them away: ``devices.py start|stop``.

Run by gaudi-simulator.service at boot. After editing /etc/gaudi-simulator/node.json, restart that unit.

* /dev/accel/accelN and accel_controlDN are nodes of their own with the number of /dev/null: there is no driver
  behind them, but a process can hold one open and is seen by its path in /proc/PID/fd.
* /sys/class and /sys/bus/pci are covered by directories in which everything the kernel shows is still there
  (links into a bind mount of the real /sys) beside the described cards.
* A card's iommu_group is a directory of ours. Where nothing is described, its type is what a server's kernel shows that
  was started with this machine's command line: the simulator is not kinder than a server that nobody has set up.
* A kernel that is described is the one /proc/sys/kernel/osrelease names.
* Where the vendor's packages are not installed, hl-smi and the runtime are not there until a package brings them.
* Described users of cards without a pid are started as gaudi-simulated-user@N.service.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

NODE_DOCUMENT = Path("/etc/gaudi-simulator/node.json")
DEV = Path("/dev/accel")
SYS = Path("/sys")
WORK = Path("/run/gaudi-simulator")
HABANA = "0x1da3"
# What is covered, and the directory in WORK that covers it. Unmounted in reverse order.
COVERS = {SYS / "class": WORK / "class", SYS / "bus" / "pci": WORK / "pci"}
KERNEL = Path("/proc/sys/kernel/osrelease")
CMDLINE = Path("/proc/cmdline")
# As recorded on a host with one Gaudi 2 (JChen-318/gaudi2-single-card-driver): without these arguments DMA-FQ.
PASSTHROUGH = {"iommu=pt", "iommu.passthrough=1"}
# What the vendor's packages bring, and the package of each.
PROGRAMS = {
    Path("/usr/bin/hl-smi"): "habanalabs-firmware-tools",
    Path("/usr/bin/habana-container-runtime"): "habanalabs-container-runtime",
}
PACKAGES = Path("/var/lib/dpkg/info")


def make_nodes(node: dict[str, Any]) -> None:
    """Create the character devices of every card that works."""
    DEV.mkdir(mode=0o755)
    for card in present(node):
        for name in (f"accel{card['index']}", f"accel_controlD{card['index']}"):
            os.mknod(DEV / name, stat.S_IFCHR | 0o666, os.makedev(1, 3))
            (DEV / name).chmod(0o666)  # mknod honours the umask


def present(node: dict[str, Any]) -> list[dict[str, Any]]:
    """Cards the driver has brought up."""
    return [card for card in node["cards"] if node["driver"]["loaded"] and not card["lost"]]


def write(directory: Path, files: dict[str, str]) -> None:
    """Write attributes the way sysfs shows them: one line each."""
    directory.mkdir(parents=True)
    for name, content in files.items():
        (directory / name).write_text(content + "\n", encoding="ascii")


def pci_attributes(card: dict[str, Any]) -> dict[str, str]:
    """What the PCI core shows of a card, driver or not."""
    return {
        "vendor": HABANA,
        "device": f"0x{card['pci_id']}",
        "subsystem_vendor": HABANA,
        "subsystem_device": f"0x{card['pci_id']}",
        "class": "0x120000",
        "revision": f"0x{card['revision']}",
        "irq": "0",
        "numa_node": str(card["numa_node"]),
        "local_cpulist": card["cpus"],
        "resource": "\n".join(["0x0000000000000000 0x0000000000000000 0x0000000000000000"] * 7),
        "uevent": f"PCI_ID=1DA3:{card['pci_id']}\nPCI_SLOT_NAME={card['bus_id']}",
    }


def driver_attributes(card: dict[str, Any]) -> dict[str, str]:
    """What the habanalabs driver adds."""
    return {
        "module_id": str(card["module_id"]),
        "pci_addr": card["bus_id"],
        "device_type": card["device_type"],
        "status": card["state"],
    }


def interface_attributes(interface: dict[str, Any]) -> dict[str, str]:
    """What the kernel shows of a network interface; the speed of one that is down it does not tell."""
    shown = {name: str(interface[name]) for name in ("address", "operstate", "mtu")}
    return {**shown, "speed": str(interface["speed"]) if interface["operstate"] == "up" else "-1"}


def iommu_type(card: dict[str, Any], command_line: str) -> str:
    """What a card's IOMMU group is: a type as the kernel writes it, "none" or "hidden"."""
    kind = str(card["iommu"]["type"])
    if kind != "auto":
        return kind
    return "identity" if PASSTHROUGH & set(command_line.split()) else "DMA-FQ"


def make_iommu_group(device: Path, card: dict[str, Any], command_line: str) -> None:
    """Put a card into its IOMMU group, which others may be in already."""
    kind, group = iommu_type(card, command_line), WORK / "iommu_groups" / str(card["iommu"]["group"])
    if kind == "none":
        return
    (group / "devices").mkdir(parents=True, exist_ok=True)
    if kind != "hidden":
        (group / "type").write_text(f"{kind}\n", encoding="ascii")
    (group / "devices" / card["bus_id"]).symlink_to(SYS / "bus" / "pci" / "devices" / card["bus_id"])
    (device / "iommu_group").symlink_to(group)


def config_space(card: dict[str, Any]) -> bytes:
    """Return the first 64 bytes of the card's PCI configuration space, which lspci reads."""
    pci_id = int(card["pci_id"], 16).to_bytes(2, "little")
    vendor = int(HABANA, 16).to_bytes(2, "little")
    space = bytearray(64)
    space[0x00:0x04] = vendor + pci_id
    space[0x04:0x08] = (0x0406).to_bytes(2, "little") + (0x0010).to_bytes(2, "little")
    space[0x08] = int(card["revision"], 16)
    space[0x0B] = 0x12  # processing accelerators
    space[0x2C:0x30] = vendor + pci_id
    return bytes(space)


def mirror(real: Path, cover: Path, leave_out: set[str]) -> None:
    """Fill a directory with links to what a real one holds."""
    cover.mkdir(parents=True)
    for entry in real.iterdir():
        if entry.name not in leave_out:
            (cover / entry.name).symlink_to(entry)


def is_habana(device: Path) -> bool:
    """Whether a real PCI device is a Gaudi card: those of the machine below are not this node's."""
    return (device / "vendor").read_text(encoding="ascii").strip() == HABANA


def make_sysfs(node: dict[str, Any]) -> None:
    """Lay out the two directories that cover parts of /sys."""
    real, pci, classes = WORK / "real", COVERS[SYS / "bus" / "pci"], COVERS[SYS / "class"]
    mirror(real / "class", classes, {"accel"})
    mirror(real / "bus" / "pci", pci, {"devices", "drivers"})
    own = {device.name for device in (real / "bus" / "pci" / "devices").iterdir() if is_habana(device)}
    mirror(real / "bus" / "pci" / "devices", pci / "devices", own | {card["bus_id"] for card in node["cards"]})
    mirror(real / "bus" / "pci" / "drivers", pci / "drivers", {"habanalabs"})
    up = [card["bus_id"] for card in present(node)]
    command_line = CMDLINE.read_text(encoding="utf-8")
    if node["driver"]["loaded"]:
        (pci / "drivers" / "habanalabs").mkdir()
        (classes / "accel").mkdir()
    for card in node["cards"]:
        device = pci / "devices" / card["bus_id"]
        write(device, pci_attributes(card))
        (device / "config").write_bytes(config_space(card))
        make_iommu_group(device, card, command_line)
        if card["bus_id"] not in up:
            continue
        for name, content in driver_attributes(card).items():
            (device / name).write_text(content + "\n", encoding="ascii")
        for interface in card["interfaces"]:
            write(device / "net" / interface["name"], interface_attributes(interface))
        (device / "driver").symlink_to("../../drivers/habanalabs")
        (pci / "drivers" / "habanalabs" / card["bus_id"]).symlink_to(f"../../devices/{card['bus_id']}")
        accel = classes / "accel" / f"accel{card['index']}"
        accel.mkdir()
        (accel / "device").symlink_to(SYS / "bus" / "pci" / "devices" / card["bus_id"])


def remove_programs() -> None:
    """Take away what no package has brought."""
    for program, package in PROGRAMS.items():
        if not (PACKAGES / f"{package}.list").exists():
            program.unlink(missing_ok=True)


def start(node: dict[str, Any]) -> None:
    """Bring the described hardware up."""
    stop()
    if not node["driver"]["installed"]:
        remove_programs()
    make_nodes(node) if present(node) else None
    (WORK / "real").mkdir(parents=True)
    subprocess.run(["mount", "--bind", str(SYS), str(WORK / "real")], check=True)
    make_sysfs(node)
    for covered, cover in COVERS.items():
        subprocess.run(["mount", "--bind", str(cover), str(covered)], check=True)
    if node["kernel"]:
        (WORK / "osrelease").write_text(f"{node['kernel']}\n", encoding="ascii")
        subprocess.run(["mount", "--bind", str(WORK / "osrelease"), str(KERNEL)], check=True)
    users = [f"gaudi-simulated-user@{n}.service" for n, user in enumerate(node["busy"]) if user["pid"] is None]
    if users and present(node):
        subprocess.run(["systemctl", "start", *users], check=True)


def stop() -> None:
    """Take down whatever an earlier start left, also half of one."""
    subprocess.run(["systemctl", "stop", "gaudi-simulated-user@*.service"], check=True)
    for mounted in (KERNEL, *reversed(COVERS), WORK / "real"):
        # Path.is_mount() knows directories only.
        while os.path.ismount(mounted):
            subprocess.run(["umount", str(mounted)], check=True)
    for directory in (WORK, DEV):
        if directory.exists():
            shutil.rmtree(directory)


def main() -> int:
    """Do what the command line says."""
    match sys.argv[1:]:
        case ["start"]:
            start(json.loads(NODE_DOCUMENT.read_text(encoding="utf-8")))
        case ["stop"]:
            stop()
        case _:
            print("usage: devices.py start|stop", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
