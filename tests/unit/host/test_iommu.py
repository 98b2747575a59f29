"""The cards' IOMMU groups: how they are read, which of them translate, and which releases cannot live with that."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.gaudi.host import cmdline, iommu
from ansible.module_utils.gaudi.host.iommu import IommuGroup
from ansible.module_utils.gaudi.node import iommu as reader

ROOT = Path(__file__).resolve().parents[3]
RECORDED = Path(__file__).with_name("recorded")
RULES = yaml.safe_load((ROOT / "catalog/host.yml").read_text())["kernel_arguments"]
WORDS = cmdline.split((RECORDED / "gaudi3/proc_cmdline.txt").read_text())
Lay = Callable[..., None]


def recorded_types() -> list[tuple[str, str]]:
    """The card and the type of each command in the record of one host, before and after its owner set iommu=pt."""
    text = (RECORDED / "gaudi2/iommu_group_type.txt").read_text()
    return re.findall(r"devices/(\S+)/iommu_group/type\b.*\n(\S+)", text)


@pytest.fixture
def lay(tmp_path: Path) -> Lay:
    """Lay out a device of the PCI bus as the kernel does; kind None: a group without the file type."""

    def make(bus_id: str, group: str = "", kind: str | None = None, vendor: str = "0x1da3", **more: str) -> None:
        device = tmp_path / "devices/pci0000:00" / bus_id
        device.mkdir(parents=True)
        (device / "vendor").write_text(f"{vendor}\n")
        if "module" in more:
            (device / "module_id").write_text(f"{more['module']}\n")
        if "driver" in more:
            driver = tmp_path / "bus/pci/drivers" / more["driver"]
            driver.mkdir(parents=True, exist_ok=True)
            (device / "driver").symlink_to(driver)
        if group:
            folder = tmp_path / "kernel/iommu_groups" / group
            (folder / "devices").mkdir(parents=True, exist_ok=True)
            (folder / "devices" / bus_id).symlink_to(device)
            (device / "iommu_group").symlink_to(folder)
            if kind is not None:
                (folder / "type").write_text(f"{kind}\n")
        links = tmp_path / "bus/pci/devices"
        links.mkdir(parents=True, exist_ok=True)
        (links / bus_id).symlink_to(device)

    return make


def test_the_recorded_types_are_read_as_the_owner_did(lay: Lay, tmp_path: Path) -> None:
    """The same card worked with the first and panicked seven times of seven with the second."""
    (good, bad) = recorded_types()
    assert (good, bad) == (("0000:02:00.0", "identity"), ("0000:02:00.0", "DMA-FQ"))
    lay(good[0], "17", good[1], module="0", driver="habanalabs")
    assert reader.read_groups(tmp_path) == (IommuGroup("0000:02:00.0", "17", "identity", 0, "habanalabs"),)
    assert iommu.translating(reader.read_groups(tmp_path), []) == ()
    (tmp_path / "kernel/iommu_groups/17/type").write_text(f"{bad[1]}\n")
    assert iommu.shown(iommu.translating(reader.read_groups(tmp_path), [])) == "DMA-FQ of 0000:02:00.0 (module 0)"


def test_other_devices_are_passed_over_and_a_group_is_shared(lay: Lay, tmp_path: Path) -> None:
    lay("0000:00:01.0", "3", "DMA-FQ", vendor="0x8086")
    lay("0000:33:00.0", "40", "identity", module="3")
    lay("0000:34:00.0", "40")
    lay("0000:4d:00.0", "41", "DMA", module="0")
    lay("0000:4e:00.0")
    found = reader.read_groups(tmp_path)
    assert [(group.bus_id, group.number, group.type) for group in found] == [
        ("0000:33:00.0", "40", "identity"),
        ("0000:34:00.0", "40", "identity"),
        ("0000:4d:00.0", "41", "DMA"),
        ("0000:4e:00.0", "", ""),
    ]
    assert iommu.shown(iommu.translating(found, [])) == "DMA of 0000:4d:00.0 (module 0)"
    assert reader.read_groups(tmp_path / "nothing") == ()


@pytest.mark.parametrize(
    ("group", "running", "bad"),
    [
        (IommuGroup("0000:33:00.0", "40", "identity"), [], False),
        (IommuGroup("0000:33:00.0", "40", "DMA"), [], True),
        (IommuGroup("0000:33:00.0", "40", "DMA-FQ"), [], True),
        (IommuGroup("0000:33:00.0", "40", "unmanaged"), [], True),
        (IommuGroup("0000:33:00.0", "40", "blocked"), [], True),
        # What the kernel shows counts, not what it was started with.
        (IommuGroup("0000:33:00.0", "40", "DMA-FQ"), WORDS, True),
        (IommuGroup("0000:33:00.0"), [], False),
        # Kernels before 5.11 do not show the type.
        (IommuGroup("0000:33:00.0", "40"), [], True),
        (IommuGroup("0000:33:00.0", "40"), WORDS, False),
        (IommuGroup("0000:33:00.0", "40"), [*WORDS, "iommu.passthrough=0"], True),
        # Given to a virtual machine.
        (IommuGroup("0000:33:00.0", "40", "DMA", driver="vfio-pci"), [], False),
    ],
)
def test_translates(group: IommuGroup, running: list[str], bad: bool) -> None:
    assert iommu.translates(group, running) is bad


def test_translating_of_some_modules() -> None:
    """A card whose driver tells no module id may be any of them."""
    groups = [
        IommuGroup(f"0000:3{module}:00.0", "4", "DMA" if module == 2 else "identity", module) for module in range(4)
    ]
    assert [group.module for group in iommu.translating(groups, [])] == [2]
    assert iommu.translating(groups, [], [0, 1, 3]) == ()
    assert [group.module for group in iommu.translating(groups, [], [1, 2])] == [2]
    unknown = IommuGroup("0000:44:00.0", "9", "DMA", driver="habanalabs")
    assert iommu.translating([*groups, unknown], [], [0]) == (unknown,)
    # A lost card has no driver: its page tables are nobody's. A node without any driver is judged as a whole.
    lost = IommuGroup("0000:44:00.0", "9", "DMA")
    assert iommu.translating([*groups, lost], [], [0]) == ()
    assert lost in iommu.translating([*groups, lost], [])


def test_shown_names_the_cards_of_each_type() -> None:
    groups = [
        IommuGroup("0000:33:00.0", "4", "DMA", 3),
        IommuGroup("0000:34:00.0", "5"),
        IommuGroup("0000:35:00.0", "6", "DMA", 1),
    ]
    assert iommu.shown(groups) == "DMA of 0000:33:00.0 (module 3), 0000:35:00.0 (module 1); none shown of 0000:34:00.0"
    assert iommu.shown([]) == ""


@pytest.mark.parametrize(
    ("versions", "needed"),
    [
        (("1.24",), True),
        (("1.24.1",), True),
        (("1.23", "1.24.1-b336d5e"), True),
        (("1.24.0-1007", None), True),
        (("2.0",), True),
        (("1.23.0",), False),
        (("1.22-2025.11", "1.22.1-97ec1a4"), False),
        (("1.9",), False),
        (("deepseek-r1-2025.11",), False),
        (("", None), False),
    ],
)
def test_required_from_1_24_on(versions: tuple[str | None, ...], needed: bool) -> None:
    assert iommu.required(*versions) is needed


def test_the_catalogue_and_the_library_name_the_same_release() -> None:
    """Nodes have no catalogue."""
    iommus = [rule for rule in RULES if rule["id"] == "iommu"]
    limits = [rule["when"].get("from_release") or rule["when"].get("before_release") for rule in iommus]
    assert limits == [iommu.SINCE] * 2
    assert [rule.get("shown_by") for rule in iommus] == [None, "iommu_group"]


@pytest.mark.parametrize(
    ("release", "system", "kernel", "wanted"),
    [
        ("1.23", "ubuntu", "6.8.0-45-generic", "argument"),
        ("", "ubuntu", "6.8.0-45-generic", "argument"),
        ("1.23", "debian", "6.1.0-53-amd64", ""),
        ("1.24.1", "ubuntu", "6.8.0-136-generic", "shown"),
        ("1.24", "debian", "6.1.0-53-amd64", "shown"),
        ("1.24.1", "rhel", "5.14.0-570.el9", "shown"),
    ],
)
@pytest.mark.parametrize("always", [[], ["iommu"]])
def test_which_rule_holds(release: str, system: str, kernel: str, wanted: str, always: list[str]) -> None:
    """And never both: each argument stands once, also where the site wants them everywhere."""
    needed = cmdline.needed(RULES, system, [kernel], always, release)
    found = [need for need in needed if need.purpose == "correctness"]
    wanted = wanted or ("argument" if always else "")
    assert [need.argument for need in found] == (["intel_iommu=on", "iommu=pt"] if wanted else [])
    assert {need.shown for need in found} == ({wanted == "shown"} if wanted else set())


def test_the_command_line_of_an_owner_has_what_is_wanted() -> None:
    needed: Mapping[str, bool] = {
        need.argument: cmdline.holds(need.argument, WORDS)
        for need in cmdline.needed(RULES, "ubuntu", ["6.8.0-110-generic"], release="1.24")
        if need.shown
    }
    assert needed == {"intel_iommu=on": True, "iommu=pt": True}
    assert iommu.case(WORDS) == "started-so"
    assert iommu.case(["ro"]) == ""
