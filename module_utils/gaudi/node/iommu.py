"""Read the IOMMU groups of a node's cards, and whether cards may be used behind them.

Without Ansible: the supervisor uses it too.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ..base import paths
from ..base.documents import Damaged
from ..cards.sources import HABANA_VENDOR
from ..host import iommu
from ..host.iommu import IommuGroup
from .documents import read_json
from .files import text_of

SYS = Path("/sys")
CMDLINE = Path("/proc/cmdline")
ALLOWED = "iommu"
"""What preflight_allow_mismatch calls it."""


def read_groups(sys: Path | None = None) -> tuple[IommuGroup, ...]:
    """Return the group of each Gaudi device on the PCI bus, with a driver or without one, in the order of addresses."""
    devices = sorted(((sys or SYS) / "bus/pci/devices").glob("*"))
    return tuple(_group(device) for device in devices if _text(device / "vendor") == HABANA_VENDOR)


def read_command_line(proc: Path | None = None) -> list[str]:
    """Return the words of the command line that the running kernel was started with."""
    return ((proc / "cmdline") if proc else CMDLINE).read_text(encoding="utf-8", errors="replace").split()


def translated(
    versions: Iterable[str],
    modules: Iterable[int] | None = None,
    folder: Path | None = None,
    sys: Path | None = None,
    proc: Path | None = None,
) -> dict[str, str]:
    """Return why cards must not be used on the running kernel, for serving.unserved.translated; {} if they may.

    versions: the release, and the driver's. modules: the cards; None for all of the node. folder: of an instance, with
    the mismatches that the site allows it.
    """
    if not iommu.required(*versions):
        return {}
    running = read_command_line(proc)
    cards = iommu.shown(iommu.translating(read_groups(sys), running, modules))
    damage = ""
    try:
        if not cards or (folder is not None and ALLOWED in allowed(folder)):
            return {}
    except Damaged as unreadable:
        damage = str(unreadable)
    return {"case": iommu.case(running), "cards": cards, "damage": damage}


def allowed(folder: Path) -> list[str]:
    """Return the checks whose mismatches the site allows an instance, by its folder. Raises Damaged."""
    return list((read_json(folder / paths.LET_THROUGH, {"allowed?": [str]}) or {}).get("allowed", []))


def _group(device: Path) -> IommuGroup:
    link, module = device / "iommu_group", _text(device / "module_id")
    return IommuGroup(
        device.name,
        link.resolve().name if link.exists() else "",
        _text(link / "type"),
        int(module) if module.isdecimal() else None,
        (device / "driver").resolve().name if (device / "driver").exists() else "",
    )


def _text(path: Path) -> str:
    return text_of(path).strip()
