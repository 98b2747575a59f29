"""The module, its action, and the filter: what they read, and what they answer."""

from __future__ import annotations

import gzip
import importlib
import io
import json
import subprocess
import sys
import urllib.error
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from ansible.errors import AnsibleActionFail
from ansible.module_utils.gaudi.cards.query import HlSmiReport, SeenCard
from ansible.module_utils.gaudi.cards.sources import Holder, PciCard, Sources
from ansible.module_utils.gaudi.driver import boot, packages, room
from ansible.module_utils.gaudi.driver.next_boot import NextBoot
from ansible.module_utils.gaudi.node import folders
from ansible.module_utils.gaudi.node.driver import look, next_boot
from ansible.module_utils.gaudi.node.host import boot_loader

from filter_plugins.driver_trouble import driver_trouble
from library import gaudi_driver_info
from plugin_utils import releases
from tests.unit.driver.made import DEBS, DOCUMENT, FACTS, KERNEL, listed, status
from tests.unit.host.test_boot_menu import config as boot_configuration
from tests.unit.preflight.conftest import Answer, Run

action = importlib.import_module("action_plugins.gaudi_driver_info")
UBUNTU = 'ID=ubuntu\nID_LIKE=debian\nVERSION_ID="24.04"\n'
RHEL = 'ID="rhel"\nID_LIKE="fedora"\nVERSION_ID="9.4"\n'
PCI = tuple(PciCard(f"0000:{bus:02x}:00.0", 0, "0-39") for bus in range(8))
GIVEN: dict[str, Any] = {"software": releases.read("1.22")["software"], "facts": DOCUMENT}
HEADERS = f"linux-headers-{KERNEL}"
ASKED_FOR_HEADERS = f"dpkg-query --show --showformat={packages._DPKG} {HEADERS}"
MODULES = "".join(f"{name} 16384 0\n" for name in FACTS.order("1.22").load)


class System:
    """A node's files, and what its programs answer."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.root, self.patch = root, patch
        self.answers: dict[str, Answer] = {
            "lsmod": (0, "Module Size Used by\n", ""),
            "dpkg-query --show": (1, "", "no packages found matching habanalabs*"),
            ASKED_FOR_HEADERS: (1, "", ""),
            "apt-cache madison": (0, "", ""),
            "apt-cache pkgnames": (0, "", ""),
            "apt-cache show": (0, "", ""),
            "modinfo": (1, "", "modinfo: ERROR: Module habanalabs not found."),
        }
        for name, path in (("OS_RELEASE", "os"), ("DEVICES", "accel")):
            patch.setattr(look, name, root / path)
        for name, path in (("RUNNING", "osrelease"), ("BOOT", "boot"), ("MODULES", "modules"), ("ROOT", "")):
            patch.setattr(next_boot, name, root / path)
        patch.setattr(boot_loader, "GRUB_CONFIG", root / "boot/grub/grub.cfg")
        blocks = tuple(root / "boot" / folder / "grubenv" for folder in ("grub", "grub2"))
        patch.setattr(boot_loader, "GRUB_ENVIRONMENTS", blocks)
        patch.setattr(boot_loader, "GRUB_DEFAULTS", root / "default/grub")
        patch.setattr(look, "DKMS_TREE", root / "dkms_tree")
        for name in ("EFI", "LOCKDOWN", "ENFORCED", "INITRAMFS", "DKMS_SETTINGS"):
            patch.setattr(look, name, root / name.lower())
        patch.setattr(look, "APT_LISTS", root / "lists")
        patch.setattr(look, "DPKG", root / "dpkg")
        patch.setattr(look, "BROUGHT", root / "brought.json")
        (root / "os").write_text(UBUNTU)
        (root / "osrelease").write_text(f"{KERNEL}\n")
        self.cards(0)

    def cards(self, shown: int, *users: Holder, version: str = "1.22.2-97ec1a4") -> None:
        """Eight cards on the bus, so many with a driver of a version; users hold some open."""
        seen = HlSmiReport(cards=tuple(SeenCard(index=n, module_id=n, driver_version=version) for n in range(shown)))
        found = Sources(uid=0, seen=seen if shown else None, pci=PCI, holders=users)
        self.patch.setattr(gaudi_driver_info, "read_sources", lambda _module, links: found)
        (self.root / "accel").mkdir(exist_ok=True)
        for index in range(shown):
            (self.root / "accel" / f"accel{index}").touch()
            (self.root / "accel" / f"accel_controlD{index}").touch()

    def installed(self, version: str = "1.22.2-32") -> None:
        """A driver that is whole."""
        self.answers["dpkg-query --show"] = (0, listed(version), "")
        self.answers[ASKED_FOR_HEADERS] = (1, listed("6.8.0-45.45", HEADERS), "")
        self.answers["lsmod"] = (0, MODULES, "")
        self.answers["dkms"] = (0, status(version, KERNEL), "")
        self.cards(8)


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> System:
    return System(tmp_path, monkeypatch)


def test_a_bare_node_is_told_what_to_do(run: Run, system: System) -> None:
    ran = run(gaudi_driver_info, GIVEN, system.answers)
    assert (ran["state"], ran["origin"], ran["refusals"], ran["changed"]) == ("absent", "", [], False)
    assert ran["steps"]["install"][0] == "habanalabs-dkms=1.22.2-32"
    assert ran["kernel_packages"] == [HEADERS]
    assert {wrong["id"] for wrong in ran["unverified"]} >= {"driver_not_as_wanted", "no_hl_smi", "cards_missing"}
    assert "Pin: version 1.22.2-32\nPin-Priority: 990\n" in ran["preferences"]
    ran = run(gaudi_driver_info, {**GIVEN, "replace": True}, system.answers)
    assert "Pin: version 1.22.2-32\nPin-Priority: 1001\n" in ran["preferences"]


def test_a_whole_node_has_nothing_to_do(run: Run, system: System) -> None:
    system.installed()
    ran = run(gaudi_driver_info, {**GIVEN, "refuse": "after"}, system.answers)
    assert "msg" not in ran.result
    assert (ran["state"], ran["unverified"], ran["reboot"]) == ("right", [], [])
    # The role reads each of them.
    assert ran["steps"] == {step: [] for step in (*HALVES, "install", "build", "unload", "load")}
    assert ran["cards"] == 8


HALVES = ("repair", "forget", "unpack")
HALF = f"{listed('1.22.2-32', *DEBS[1:])}habanalabs-dkms install half-installed reinstreq 1.22.2-32\n"
ASKED_FOR_ALL = f"dpkg-query --show --showformat={packages._DPKG}"


class Dpkg(System):
    """A node whose dpkg was cut off while it unpacked the driver, of this release or another."""

    def cut_off(self, others: str = "", half: str = HALF) -> None:
        self.installed()
        query = f"{ASKED_FOR_ALL} habanalabs*"
        self.answers[query] = (0, half, "")
        self.answers[ASKED_FOR_ALL] = (0, f"{half}libc6 install installed ok 2.36-9\n{others}", "")
        (self.root / "dpkg" / "updates").mkdir(parents=True)
        (self.root / "dpkg" / "updates" / "0007").touch()


@pytest.fixture
def dpkg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dpkg:
    return Dpkg(tmp_path, monkeypatch)


def test_a_driver_that_is_installed_by_half_is_repaired(run: Run, dpkg: Dpkg) -> None:
    # A package that waits for a trigger is whole but for that.
    dpkg.cut_off("man-db install triggers-pending ok 2.11\n")
    ran = run(gaudi_driver_info, {**GIVEN, "refuse": "before"}, dpkg.answers)
    assert "msg" not in ran.result
    assert (ran["state"], ran["interrupted"], ran["replaces"]) == ("broken", True, False)
    assert (ran["steps"]["repair"], ran["steps"]["unpack"]) == (["habanalabs-dkms"], ["habanalabs-dkms=1.22.2-32"])


def test_what_has_to_come_anew_has_to_be_on_offer(run: Run, dpkg: Dpkg) -> None:
    dpkg.cut_off()
    dpkg.answers["apt-cache madison"] = (0, "", "")
    ran = run(gaudi_driver_info, {**GIVEN, "offered": True}, dpkg.answers)
    assert [refusal["id"] for refusal in ran["refusals"]] == ["driver_package_not_offered"]


@pytest.mark.parametrize("other", ["gcc-12 install unpacked ok 12.2", "vim install half-installed reinstreq"])
def test_what_is_not_ours_is_not_repaired(run: Run, dpkg: Dpkg, other: str) -> None:
    dpkg.cut_off(f"{other}\n")
    ran = run(gaudi_driver_info, {**GIVEN, "refuse": "before"}, dpkg.answers)
    assert ran["refused_id"] == "other_packages_half_installed"
    name = other.split()[0]
    assert f": {name}. " in ran["msg"]
    # What came with ours is.
    (dpkg.root / "brought.json").write_text(json.dumps({"packages": {"driver": [name]}}))
    assert "msg" not in run(gaudi_driver_info, {**GIVEN, "refuse": "before"}, dpkg.answers).result
    (dpkg.root / "brought.json").write_text("[]")
    ran = run(gaudi_driver_info, {**GIVEN, "refuse": "before"}, dpkg.answers)
    assert ran["refused_id"] == "record_damaged"


@pytest.mark.parametrize(
    ("half", "others", "id_", "words"),
    [
        (HALF, "", "driver_half_installed", "habanalabs-dkms installed by half, which apt does not take off. Run"),
        (HALF, "vim install half-installed reinstreq\n", "driver_half_installed", "Run playbooks/driver.yml"),
        (listed("1.22.2-32"), "vim install unpacked ok 9\n", "other_packages_half_installed", "by half: vim."),
        (listed("1.22.2-32"), "", "packages_interrupted", "dpkg --configure -a"),
    ],
)
def test_nothing_is_taken_off_a_node_whose_dpkg_was_cut_off(
    run: Run, dpkg: Dpkg, half: str, others: str, id_: str, words: str
) -> None:
    """apt would take it off no more than half-way."""
    dpkg.cut_off(others, half=half)
    ran = run(gaudi_driver_info, {**GIVEN, "refuse": "removal"}, dpkg.answers)
    assert ran["refused_id"] == id_
    assert words in ran["msg"]


def test_a_whole_driver_of_any_release_may_be_taken_off(run: Run, system: System) -> None:
    system.installed("1.21.3-57")
    assert "msg" not in run(gaudi_driver_info, {**GIVEN, "refuse": "removal"}, system.answers).result


def test_notes_of_dpkg_alone_keep_apt_from_everything(run: Run, dpkg: Dpkg) -> None:
    dpkg.cut_off("vim install unpacked ok 9\n", half=listed("1.22.2-32", *DEBS[1:]))
    ran = run(gaudi_driver_info, GIVEN, dpkg.answers)
    assert ran["interrupted"]
    assert [refusal["id"] for refusal in ran["refusals"]] == ["other_packages_half_installed"]
    # What is right stays as it is, whatever others have.
    dpkg.answers[f"{ASKED_FOR_ALL} habanalabs*"] = (0, listed("1.22.2-32"), "")
    assert run(gaudi_driver_info, GIVEN, dpkg.answers)["refusals"] == []


HOLD = "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.lockf(file, fcntl.LOCK_EX); print(flush=True); input()"


@pytest.mark.parametrize("name", ["lock-frontend", "lock"])
def test_whoever_is_at_it_is_left_alone(run: Run, dpkg: Dpkg, name: str) -> None:
    """What is installed by half may be so because somebody installs it now."""
    dpkg.cut_off()
    (dpkg.root / "dpkg" / "lock").touch()
    lock = dpkg.root / "dpkg" / name
    command = [sys.executable, "-c", HOLD, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout and holder.stdin
        holder.stdout.readline()
        ran = run(gaudi_driver_info, {**GIVEN, "refuse": "before"}, dpkg.answers)
        holder.stdin.close()
    assert (ran["refused_id"], ran["interrupted"]) == ("packages_locked", False)
    assert f"installs packages ({holder.pid} (python" in ran["msg"]
    assert "msg" not in run(gaudi_driver_info, {**GIVEN, "refuse": "before"}, dpkg.answers).result


def test_headers_that_somebody_built_do(run: Run, system: System) -> None:
    (system.root / "modules" / KERNEL / "build").mkdir(parents=True)
    assert run(gaudi_driver_info, GIVEN, system.answers)["kernel_packages"] == []


def dkms_left(system: System, *, size: int = 0, log: str = "") -> None:
    """What DKMS has of the release: module files of a size, and the log of a build that failed."""
    folder = system.root / "modules" / KERNEL / "updates/dkms"
    folder.mkdir(parents=True)
    for name in ("habanalabs.ko.zst", "habanalabs_cn.ko.zst"):
        (folder / name).write_bytes(b"x" * size)
    (folder / "nvidia.ko").touch()
    if log:
        path = system.root / "dkms_tree/habanalabs/1.22.2-32/build/make.log"
        path.parent.mkdir(parents=True)
        path.write_text(log)


@pytest.mark.parametrize(("size", "build"), [(0, [KERNEL]), (1829, [])])
def test_module_files_without_content_are_seen(run: Run, system: System, size: int, build: list[str]) -> None:
    """Names as recorded; dkms status calls them installed either way."""
    system.installed()
    dkms_left(system, size=size)
    ran = run(gaudi_driver_info, GIVEN, system.answers)
    assert ran["steps"]["build"] == build
    assert [wrong["id"] for wrong in ran["unverified"]] == ["driver_modules_empty"] * bool(build)
    if build:
        assert "(habanalabs.ko.zst, habanalabs_cn.ko.zst)" in ran["unverified"][0]["message"]
    assert ("0 bytes" in lost(system)) is bool(build)


WERROR = "device.c:1:9: error: implicit declaration of function 'f'\ncc1: all warnings being treated as errors\n"
AN_ATTEMPT = f"DKMS make.log for habanalabs-1.22.2-32 for kernel {KERNEL} (x86_64)\n{WERROR}"


@pytest.mark.parametrize(
    ("log", "built", "failure"),
    [
        (AN_ATTEMPT, False, "kernel_too_new"),
        # Of a kernel that has its driver meanwhile, or of another one.
        (AN_ATTEMPT, True, None),
        (AN_ATTEMPT.replace(KERNEL, "5.15.0-1-generic"), False, None),
        ("", False, None),
    ],
)
def test_why_the_driver_was_not_built_is_read_from_its_log(
    run: Run, system: System, log: str, built: bool, failure: str | None
) -> None:
    system.installed()
    if not built:
        system.answers["dkms"] = (0, "habanalabs/1.22.2-32: added\n", "")
    dkms_left(system, size=1, log=log)
    found = run(gaudi_driver_info, GIVEN, system.answers)["build_failure"]
    assert found.get("id") == failure
    if failure:
        # The release was tested on this system with kernel 6.8 at the most.
        assert "A kernel 6.8, the newest" in found["message"]


def test_a_kernel_that_boots_next_is_seen(run: Run, system: System) -> None:
    system.installed()
    (system.root / "boot").mkdir()
    (system.root / "boot" / "vmlinuz-6.17.0-22-generic").touch()
    ran = run(gaudi_driver_info, {**GIVEN, "refuse": "after"}, system.answers)
    assert ran["next_kernel"] == "6.17.0-22-generic"
    assert ran["refused_id"] == "kernel_has_no_driver"
    assert "linux-headers-6.17.0-22-generic" in ran["kernel_packages"]


NEXT = "6.17.0-22-generic"


def grub(system: System, default: str, *drop_ins: str, environment: str = "") -> None:
    """GRUB with two kernels, of which the newer one comes first in its menu."""
    (system.root / "boot/grub").mkdir(parents=True, exist_ok=True)
    for kernel in (KERNEL, NEXT):
        (system.root / "boot" / f"vmlinuz-{kernel}").touch()
    (system.root / "boot/grub/grub.cfg").write_text(boot_configuration(default, NEXT, KERNEL))
    (system.root / "boot/grub/grubenv").write_text(f"# GRUB Environment Block\n{environment}")
    (system.root / "default/grub.d").mkdir(parents=True, exist_ok=True)
    (system.root / "default/grub").write_text("GRUB_DEFAULT=0\n")
    for number, text in enumerate(drop_ins):
        (system.root / f"default/grub.d/{number}.cfg").write_text(f"{text}\n")


@pytest.mark.parametrize(
    ("default", "environment", "kernel"),
    [
        ("0", "", NEXT),
        ("1>2", "", KERNEL),
        ("${saved_entry}", "saved_entry=1>2\n", KERNEL),
        ("1>2", "next_entry=0\n", NEXT),
    ],
)
def test_the_kernel_that_grub_chooses_boots_next(
    run: Run, system: System, default: str, environment: str, kernel: str
) -> None:
    grub(system, default, environment=environment)
    assert run(gaudi_driver_info, GIVEN, system.answers)["next_kernel"] == kernel


def test_a_link_that_an_entry_boots_is_followed(run: Run, system: System) -> None:
    grub(system, "own")
    (system.root / "vmlinuz").symlink_to(f"boot/vmlinuz-{KERNEL}")
    assert run(gaudi_driver_info, GIVEN, system.answers)["next_kernel"] == KERNEL


def booting(system: System) -> NextBoot:
    """What is read of the next boot, on a node without grubby."""
    module = MagicMock()
    module.get_bin_path.side_effect = lambda name, **_: None if name == "grubby" else name
    module.run_command.side_effect = lambda command, **_: system.answers.get(command[0], (0, "", ""))
    return next_boot.read(module)


def lost(system: System) -> str:
    """What the preflight reports of a reboot, on a node whose driver is built for the running kernel alone."""
    system.installed()
    return booting(system).loses_driver


def test_an_entry_that_boots_once_is_read_beside_grubby(run: Run, system: System) -> None:
    """grub2-reboot of RHEL writes next_entry; grubby shows only the lasting default."""
    (system.root / "os").write_text(RHEL)
    (system.root / "boot/grub2").mkdir(parents=True)
    block = "# GRUB Environment Block\nsaved_entry=a\nnext_entry=b\n"
    (system.root / "boot/grub2/grubenv").write_text(block)
    system.answers["rpm --query --all"] = (1, "", "")
    system.answers["grubby --default-kernel"] = (0, "/boot/vmlinuz-5.14.0-427.el9.x86_64\n", "")
    listing = (
        'index=0\nkernel="/boot/vmlinuz-5.14.0-427.el9.x86_64"\nid="a"\n'
        f'index=1\nkernel="/boot/vmlinuz-{KERNEL}"\nid="b"\n'
    )
    system.answers["grubby --info=ALL"] = (0, listing, "")
    assert run(gaudi_driver_info, GIVEN, system.answers)["next_kernel"] == KERNEL


@pytest.mark.report("A11")
def test_what_the_repositories_do_not_have_is_refused(run: Run, system: System) -> None:
    offers = "".join(f"{name} | 1.23.0-695 | https://x noble/main amd64 Packages\n" for name in DEBS)
    system.answers["apt-cache madison"] = (0, offers, "")
    ran = run(gaudi_driver_info, {**GIVEN, "offered": True, "refuse": "before"}, system.answers)
    assert [refusal["id"] for refusal in ran["refusals"]] == [
        "driver_version_not_offered",
        "kernel_headers_not_offered",
    ]
    assert ran["failed"]
    assert HEADERS in ran["msg"]


def test_further_packages_of_a_kernel_are_taken_where_they_are(run: Run, system: System) -> None:
    names = [*DEBS, HEADERS, f"linux-modules-extra-{KERNEL}"]
    offers = "".join(f"{name} | 1.22.2-32 | https://x noble/main amd64 Packages\n" for name in names)
    system.answers["apt-cache madison"] = (0, offers, "")
    ran = run(gaudi_driver_info, {**GIVEN, "offered": True, "refuse": "before"}, system.answers)
    assert ran["kernel_packages"] == [HEADERS, f"linux-modules-extra-{KERNEL}"]
    assert ran["refusals"] == []


_BOTH = ("1.22.2-32", "1.23.0-695")
INDEX = "".join(f"Package: {name}\nVersion: {version}\nSize: 1\n\n" for name in DEBS for version in _BOTH)


class Web:
    """A repository: addresses with their answers. What is not there does not answer."""

    def __init__(self, patch: pytest.MonkeyPatch, answers: dict[str, bytes]) -> None:
        self.asked: list[str] = []
        self.answers = answers
        patch.setattr(look, "open_url", self.open)

    def open(self, address: str, timeout: int, use_netrc: bool = True) -> io.BytesIO:
        assert not use_netrc, "accounts of root are not for this address"
        self.asked.append(address)
        if address not in self.answers:
            raise urllib.error.URLError(f"[Errno 111] Connection refused after {timeout} s")
        return io.BytesIO(self.answers[address])


PLACE = "http://mirror/debian/dists/noble/main/binary-amd64/Packages"
PREVIEW = {**GIVEN, "offered": True, "repository": "http://mirror/debian/", "suite": "noble"}


@pytest.mark.parametrize("answers", [{PLACE: INDEX.encode()}, {f"{PLACE}.gz": gzip.compress(INDEX.encode())}])
def test_a_repository_that_the_node_is_not_told_of_is_asked(
    run: Run, system: System, monkeypatch: pytest.MonkeyPatch, answers: dict[str, bytes]
) -> None:
    web = Web(monkeypatch, answers)
    ran = run(gaudi_driver_info, PREVIEW, system.answers)
    # Who never read the distribution's index does not know of its headers.
    assert ran["refusals"] == []
    assert web.asked[0] == f"{PLACE}.gz"
    (system.root / "lists").mkdir()
    (system.root / "lists" / "deb.debian.org_main_Packages.lz4").touch()
    ran = run(gaudi_driver_info, PREVIEW, system.answers)
    assert [refusal["id"] for refusal in ran["refusals"]] == ["kernel_headers_not_offered"]


def test_a_repository_that_does_not_answer_is_said(run: Run, system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    Web(monkeypatch, {f"{PLACE}.gz": b"<html>no index</html>"})
    (refusal,) = run(gaudi_driver_info, PREVIEW, system.answers)["refusals"]
    assert refusal["id"] == "repository_not_read"
    assert "Connection refused" in refusal["message"]


@pytest.mark.parametrize("name", [f"{PLACE}.gz", PLACE])
def test_an_index_that_is_larger_than_any_is_not_unpacked(
    run: Run, system: System, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Whoever answers for a mirror over HTTP gives a few kilobytes, and root's memory is full."""
    monkeypatch.setattr(look, "INDEX_LIMIT", 1 << 20)
    text = (INDEX * (1 + (1 << 20) // len(INDEX))).encode()
    Web(monkeypatch, {name: gzip.compress(text) if name.endswith(".gz") else text})
    (refusal,) = run(gaudi_driver_info, PREVIEW, system.answers)["refusals"]
    assert refusal["id"] == "repository_not_read"


def test_a_suite_that_nobody_names_is_the_systems(run: Run, system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    (system.root / "os").write_text(UBUNTU + "VERSION_CODENAME=jammy\n")
    web = Web(monkeypatch, {})
    run(gaudi_driver_info, {**PREVIEW, "suite": ""}, system.answers)
    assert web.asked[-1] == PLACE.replace("noble", "jammy")


def test_packages_that_do_not_fit_are_refused_before_any_comes(run: Run, system: System) -> None:
    system.installed("1.21.3-57")
    both = [(name, version) for name in DEBS for version in ("1.22.2-32", "1.21.3-57")]
    offers = "".join(f"{name} | {version} | https://x noble/main amd64 Packages\n" for name, version in both)
    index = "".join(
        f"Package: {name}\nVersion: {version}\nInstalled-Size: 3145728\nSize: {1 << 30}\n\n" for name, version in both
    )
    system.answers.update({"apt-cache madison": (0, offers, ""), "apt-cache show": (0, index, "")})
    system.patch.setattr(look, "KEPT", str(system.root / "kept"))
    system.patch.setattr(room, "ARCHIVES", str(system.root / "archives"))
    given = {**GIVEN, "replace": True, "offered": True, "refuse": "before"}
    free = {str(system.root / "archives"): ("/var", 10 << 30), str(system.root / "kept"): ("/var", 10 << 30)}
    system.patch.setattr(folders, "space_at", lambda path: free.get(str(path), ("/", 27 << 30)))
    ran = run(gaudi_driver_info, given, system.answers)
    assert ran["refused_id"] == "disk"
    assert "10.0 GiB are free on /var, but 9.0 GiB for the driver's packages" in ran["msg"]
    assert "and 9.0 GiB for the packages that they replace" in ran["msg"]
    # What apt has fetched is there: epochs are not in these versions.
    (system.root / "archives").mkdir()
    for name in DEBS:
        (system.root / "archives" / f"{name}_1.22.2-32_all.deb").touch()
    assert run(gaudi_driver_info, given, system.answers)["refusals"] == []
    free.clear()
    system.patch.setattr(folders, "space_at", lambda _path: ("/", 27 << 30))
    assert run(gaudi_driver_info, given, system.answers)["refused_id"] == "disk"


def test_a_node_that_nobody_offers_anything_is_told_so_once(run: Run, system: System) -> None:
    ran = run(gaudi_driver_info, {**GIVEN, "offered": True}, system.answers)
    assert [refusal["id"] for refusal in ran["refusals"]] == ["driver_package_not_offered"]


def test_a_driver_that_nobody_could_bring_back_stays(run: Run, system: System) -> None:
    system.installed("1.21.3-57")
    offers = "".join(f"{name} | 1.22.2-32 | https://x noble/main amd64 Packages\n" for name in DEBS)
    given = {**GIVEN, "replace": True, "offered": True}
    system.answers["apt-cache madison"] = (0, offers, "")
    (refusal,) = run(gaudi_driver_info, given, system.answers)["refusals"]
    assert refusal["id"] == "no_way_back"
    assert "has habanalabs-dkms 1.21.3-57, " in refusal["message"]
    assert run(gaudi_driver_info, {**given, "no_way_back": True}, system.answers)["refusals"] == []
    system.answers["apt-cache madison"] = (0, offers + offers.replace("1.22.2-32", "1.21.3-57"), "")
    assert run(gaudi_driver_info, given, system.answers)["refusals"] == []


def test_who_uses_a_card_keeps_the_driver(run: Run, system: System) -> None:
    system.installed("1.21.3-57")
    system.cards(8, Holder(3, 4242, "python3", ""), version="1.21.3-97ec1a4")
    ran = run(gaudi_driver_info, {**GIVEN, "replace": True, "refuse": "before"}, system.answers)
    assert ran["refused_id"] == "cards_in_use"
    assert "cards are in use: module 3: pid 4242" in ran["msg"]


def test_a_card_that_hl_smi_does_not_list_is_in_use_as_well(run: Run, system: System) -> None:
    system.installed("1.21.3-57")
    unit = "0::/system.slice/vllm-chat.service\n"
    stranger, ours = Holder(7, 4242, "python3", "", "alice"), Holder(6, 17, "python3", unit, "root")
    system.cards(6, stranger, ours, version="1.21.3-97ec1a4")
    ran = run(gaudi_driver_info, {**GIVEN, "replace": True, "drain": True, "refuse": "before"}, system.answers)
    assert ran["refused_id"] == "cards_in_use"
    lost = f"{system.root}/accel/accel7, which hl-smi does not list: pid 4242 python3 of alice"
    assert (ran["users"], ran["instances"]) == ([lost], ["chat"])
    assert lost in ran["msg"]


def test_our_instance_is_told_from_other_users(run: Run, system: System) -> None:
    system.installed("1.21.3-57")
    unit = "0::/system.slice/vllm-chat.service\n"
    system.cards(8, Holder(3, 4242, "python3", unit), Holder(4, 17, "python3", ""), version="1.21.3-97ec1a4")
    ran = run(gaudi_driver_info, {**GIVEN, "replace": True, "drain": True}, system.answers)
    assert (ran["instances"], ran["users"]) == (["chat"], ["module 4: pid 17 python3"])


def test_what_is_about_to_be_replaced_can_be_brought_back(run: Run, system: System) -> None:
    system.installed("1.18.0-524")
    offers = "".join(
        f"{name} | {version} | https://x noble/main amd64 Packages\n" for name in DEBS for version in _BOTH
    )
    system.answers["apt-cache madison"] = (0, offers.replace("1.23.0-695", "1.18.0-524"), "")
    ran = run(gaudi_driver_info, {**GIVEN, "replace": True, "offered": True}, system.answers)
    assert (ran["refusals"], ran["replaces"]) == ([], True)
    assert ran["keep"] == [f"{name}=1.18.0-524" for name in DEBS]
    assert ran["present"]["packages"] == dict.fromkeys(DEBS, "1.18.0-524")
    assert ran["present"]["says"] == "1.22.2-97ec1a4"
    assert ran["present"]["modules"] == ["habanalabs_en", "habanalabs_ib", "habanalabs_cn", "habanalabs"]
    # Above 1000: the newer packages make way for it.
    assert "Pin: version 1.18.0-524\nPin-Priority: 1001\n" in ran["present"]["preferences"]
    # What no repository has any more, the site said it can do without.
    system.answers["apt-cache madison"] = (0, offers, "")
    given = {**GIVEN, "replace": True, "no_way_back": True, "offered": True}
    ran = run(gaudi_driver_info, given, system.answers)
    assert (ran["refusals"], ran["keep"]) == ([], [])


def test_external_ports_that_nobody_brought_up_are_named(run: Run, system: System) -> None:
    system.installed()
    system.patch.setattr(look, "PCI", system.root / "pci")
    # Up with a cable, up without one, and down; the last as it is when its module has just been loaded.
    for bus, name, flags in ((0, "ens1", "0x1043"), (1, "ens2", "0x1003"), (2, "ens3", "0x1002")):
        folder = system.root / "pci" / f"0000:{bus:02x}:00.0" / "net" / name
        folder.mkdir(parents=True)
        (folder / "flags").write_text(f"{flags}\n")
    assert run(gaudi_driver_info, GIVEN, system.answers)["interfaces_down"] == ["ens3"]
    # Cards without external ports, such as HL-288E.
    system.patch.setattr(look, "PCI", system.root / "nowhere")
    assert run(gaudi_driver_info, GIVEN, system.answers)["interfaces_down"] == []


def test_the_kernel_is_kept_by_wish(run: Run, system: System) -> None:
    system.installed()
    kernels = listed("6.8.0-45.45", "linux-image-generic", "linux-libc-dev")
    query = f"dpkg-query --show --showformat={packages._DPKG} linux-image*"
    system.answers[query] = (0, kernels, "")
    ran = run(gaudi_driver_info, {**GIVEN, "hold_kernel": True}, system.answers)
    assert "Package: linux-image-generic\nPin: version 6.8.0-45.45\n" in ran["preferences"]
    assert '"^linux-image-generic$"' in ran["unattended"]
    assert "linux-libc-dev" not in ran["preferences"]


@pytest.mark.parametrize("folder", ["habanalabs-installer-log", "habanalabs_installer_logs"])
def test_what_the_installer_left_is_seen(run: Run, system: System, folder: str) -> None:
    system.installed("1.21.3-57")
    (system.root / "home/ubuntu" / folder).mkdir(parents=True)
    ran = run(gaudi_driver_info, GIVEN, system.answers)
    assert ran["origin"] == "installer"
    assert "driver_of_installer" in {refusal["id"] for refusal in ran["refusals"]}


def test_rhel_is_read_with_rpm(run: Run, system: System) -> None:
    """Constructed: no RHEL was looked at."""
    (system.root / "os").write_text(RHEL)
    system.answers["rpm --query --all"] = (0, "habanalabs install installed ok 1.22.1-6.el9\n", "")
    # grubby knows better than the newest in /boot.
    (system.root / "boot").mkdir()
    (system.root / "boot" / "vmlinuz-6.17.0-22.el9").touch()
    system.answers["grubby"] = (0, f"/boot/vmlinuz-{KERNEL}\n", "")
    ran = run(gaudi_driver_info, GIVEN, system.answers)
    assert (ran["family"], ran["state"], ran["version"]) == ("RedHat", "older", "1.22.2-32.el9")
    assert ran["steps"]["install"][0] == "habanalabs-1.22.2-32.el9"
    assert ran["kernel_packages"] == [f"kernel-devel-{KERNEL}", f"kernel-headers-{KERNEL}"]
    assert (ran["preferences"], ran["unattended"]) == ("", "")


def test_a_system_without_packages_is_refused(run: Run, system: System) -> None:
    (system.root / "os").write_text("ID=sles\nID_LIKE=suse\n")
    ran = run(gaudi_driver_info, GIVEN, system.answers)
    assert ran["refused_id"] == "no_packages_for_system"


def acting(**arguments: object) -> Any:
    """The action for a task with these arguments; what it gives to the module is in ``given``."""
    task = MagicMock(async_val=0, args=arguments)
    made = action.ActionModule(task, MagicMock(), MagicMock(), MagicMock(), MagicMock(), MagicMock())
    made.validate_argument_spec = lambda argument_spec: (None, {"refuse": "never", **arguments})
    made._execute_module = lambda module_name, module_args, task_vars: {"name": module_name, "given": module_args}
    return made


def test_the_action_gives_a_release_with_what_it_extends() -> None:
    ran = acting(release="1.22-2025.11").run(task_vars={})
    assert ran["given"]["software"]["driver"] == "1.22.2-32"
    assert ran["given"]["facts"] == DOCUMENT
    assert "release" not in ran["given"]


def test_a_release_without_a_file_is_refused() -> None:
    with pytest.raises(AnsibleActionFail, match=r"no release '9.99'. Set gaudi_release to one of .*1\.22"):
        acting(release="9.99").run(task_vars={})


def test_options_of_module_and_action_are_the_same() -> None:
    own = {name: about for name, about in action.ARGUMENT_SPEC.items() if name != "release"}
    assert own == {name: gaudi_driver_info.ARGUMENT_SPEC[name] for name in own}
    assert set(gaudi_driver_info.ARGUMENT_SPEC) == {*own, "software", "facts"}


def test_words_of_a_tool_come_with_what_they_mean() -> None:
    said = driver_trouble("E: dpkg was interrupted, you must manually run 'dpkg --configure -a'\x1b[2J")
    assert said.startswith("dpkg was interrupted on this node.")
    assert said.endswith("It said: E: dpkg was interrupted, you must manually run 'dpkg --configure -a'")
    assert driver_trouble("nobody knows\n") == "nobody knows"


def test_no_end_of_a_long_line_and_no_beginning_of_a_long_text_is_looked_at() -> None:
    """Patterns would take hours for a line of some MiB, which a node may print."""
    for long in ("x" * 5000 + " dpkg was interrupted", "dpkg was interrupted\n" + "x\n" * (1 << 20)):
        assert "It said: " not in driver_trouble(long)


def test_what_dnf_quotes_has_no_account() -> None:
    said = driver_trouble(
        "Failed to download metadata for repo 'habana': Cannot download repomd.xml: Curl error (6): Couldn't resolve "
        "host name for https://reader:p%40ss@mirror.example/x/repodata/repomd.xml",
        "https://reader:p%40ss@mirror.example/x",
    )
    assert "https://mirror.example/x/repodata/repomd.xml" in said
    assert "p%40ss" not in said
    assert "reader" not in said


SHIM = "605dab50-e046-4300-abb6-3dd810dd8b23"
KERNEL_FILES = (f"vmlinuz-{KERNEL}", f"initrd.img-{KERNEL}", f"config-{KERNEL}")


def secure_boot(system: System, *, on: bool = True, enrolled: bytes = b"", lockdown: str = "none [integrity]") -> None:
    """Firmware with Secure Boot, the certificates that shim has, and a key of DKMS."""
    (system.root / "efi/efivars").mkdir(parents=True)
    (system.root / "efi/efivars" / boot.SECURE_BOOT).write_bytes(bytes([6, 0, 0, 0, on]))
    (system.root / "efi/efivars" / f"MokListRT-{SHIM}").write_bytes(b"\x06\0\0\0header" + enrolled)
    (system.root / "lockdown").write_text(f"{lockdown}\n" if lockdown else "")
    (system.root / "var/lib/dkms").mkdir(parents=True)
    (system.root / "var/lib/dkms/mok.pub").write_bytes(b"a certificate")


@pytest.mark.report("A10")
def test_a_key_that_secure_boot_does_not_know_is_refused_before_the_driver_changes(run: Run, system: System) -> None:
    secure_boot(system, enrolled=b"another certificate of somebody"[:11])
    ran = run(gaudi_driver_info, {**GIVEN, "refuse": "before"}, system.answers)
    assert ran["refused_id"] == "secure_boot_key_not_enrolled"
    assert "mokutil --import" in ran["msg"]


@pytest.mark.report("A10")
def test_a_node_with_secure_boot_and_nothing_to_build_is_left_alone(run: Run, system: System) -> None:
    system.installed()
    secure_boot(system)
    assert run(gaudi_driver_info, GIVEN, system.answers)["refusals"] == []


@pytest.mark.parametrize(
    "firmware",
    [
        {"enrolled": b"a certificate"},
        {"on": False},
        # shim validates nothing (mokutil --disable-validation): the kernel is not locked down.
        {"lockdown": "[none] integrity confidentiality"},
        # A kernel without lockdown, whose module.sig_enforce is off.
        {"lockdown": ""},
    ],
)
def test_a_driver_that_the_kernel_will_load_is_not_refused(run: Run, system: System, firmware: dict[str, Any]) -> None:
    secure_boot(system, **firmware)
    assert run(gaudi_driver_info, GIVEN, system.answers)["refusals"] == []


def boot_files(system: System, *names: str, size: int = 0, modules: tuple[str, ...] = (KERNEL,)) -> None:
    """Files beside the kernels, each of a size, and the kernels that have modules."""
    (system.root / "boot").mkdir(exist_ok=True)
    for name in names:
        with (system.root / "boot" / name).open("wb") as file:
            file.truncate(size)
    for name in modules:
        (system.root / "modules" / name).mkdir(parents=True, exist_ok=True)


@pytest.mark.report("A09")
def test_a_full_boot_is_refused_before_anything_is_changed(run: Run, system: System) -> None:
    boot_files(system, *KERNEL_FILES, size=90 << 20)
    free = {"/boot": 80 << 20}
    other = folders.space_at
    system.patch.setattr(
        folders, "space_at", lambda path: ("/boot", free["/boot"]) if path == system.root / "boot" else other(path)
    )
    ran = run(gaudi_driver_info, {**GIVEN, "refuse": "before"}, system.answers)
    assert ran["refused_id"] == "boot_full"
    # The margin is not taken for the initramfs.
    assert "80 MiB are free in /boot, but 106 MiB are needed: " in ran["msg"]
    assert "90 MiB while" in ran["msg"] and "16 MiB" in ran["msg"]
    assert "autoremove" in ran["msg"]
    free["/boot"] = 120 << 20
    assert run(gaudi_driver_info, GIVEN, system.answers)["refusals"] == []


@pytest.mark.parametrize(
    ("files", "free", "refused", "reported"),
    [
        ({"initrd.img-1": 90}, 200, 0, 0),
        ({"initrd.img-1": 90}, 100, 1, 0),
        # Whether DKMS keeps the old ones of both kernels is not known.
        ({"initrd.img-1": 90, "initrd.img-2": 90}, 120, 0, 1),
        ({"initramfs-1.x86_64.img": 30, "initramfs-0-rescue-f0.img": 120}, 80, 0, 0),
        ({"vmlinuz-1": 15}, 1, 0, 0),
    ],
)
def test_space_for_an_initramfs_is_refused_only_if_none_fits(
    files: dict[str, int], free: int, refused: int, reported: int
) -> None:
    sizes = {name: size << 20 for name, size in files.items()}
    node = boot.BootFiles(sizes, frozenset(), frozenset(), "/boot", free << 20)
    refusals, findings = boot.no_space(node, ["1", "2"])
    assert (len(refusals), len(findings)) == (refused, reported)
    for said in findings:
        assert "180 MiB while" in said and "16 MiB" in said


@pytest.mark.parametrize("newer", [(), ("7.0.0-1-generic",)])
def test_files_of_the_running_kernel_are_never_advised_to_be_removed(newer: tuple[str, ...]) -> None:
    files = [f"{what}-{version}" for version in (KERNEL, *newer) for what in ("vmlinuz", "initrd.img")]
    node = boot.BootFiles(dict.fromkeys(files, 1), frozenset(newer), frozenset(), "/boot", 0)
    refusals, findings = boot.left_over(node, KERNEL)
    (said,) = (*map(str, refusals), *findings)
    assert [refusal.id for refusal in refusals] == ([] if newer else ["running_kernel_without_modules"])
    assert "the running kernel" in said
    # A command for Debian names no package that only Ubuntu has.
    assert f"Debian: apt-get install --reinstall linux-image-{KERNEL};" in said
    assert f"Ubuntu: the same with linux-modules-{KERNEL}" in said
    assert "Remove" not in said


@pytest.mark.report("A09")
@pytest.mark.parametrize("modules", [(KERNEL,), (KERNEL, "7.0.0-1-generic")])
def test_files_of_a_kernel_that_does_not_exist_are_refused_if_they_count_as_the_newest(
    run: Run, system: System, modules: tuple[str, ...]
) -> None:
    boot_files(system, *KERNEL_FILES, modules=modules)
    boot_files(system, "vmlinuz-6.9.0-1-generic.dpkg-bak", "initrd.img-6.9.0-1-generic.dpkg-bak")
    if len(modules) > 1:
        # A newer one that is whole.
        boot_files(system, "vmlinuz-7.0.0-1-generic", "initrd.img-7.0.0-1-generic")
    ran = run(gaudi_driver_info, GIVEN, {**system.answers, "dpkg-query --show": (1, "", "")})
    assert ("boot_left_over" in [refusal["id"] for refusal in ran["refusals"]]) is (len(modules) == 1)
    assert ran["next_kernel"] == (KERNEL if len(modules) == 1 else "7.0.0-1-generic")
