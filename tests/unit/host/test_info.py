"""host_tuning_info: what it refuses before anything is changed, on this machine's own /proc and /sys."""

from __future__ import annotations

import json
import os
import resource
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.gaudi.host import files as host_files
from ansible.module_utils.gaudi.host import grub
from ansible.module_utils.gaudi.node import iommu, registers
from ansible.module_utils.gaudi.node.host import boot_loader, tuning

from tests.unit.host.modules import run_main, script
from tests.unit.node.damages import DAMAGES, damage

ROOT = Path(__file__).resolve().parents[3]
RECORDED = Path(__file__).with_name("recorded")
CATALOG = yaml.safe_load((ROOT / "catalog/host.yml").read_text())


class DebianHost:
    """A Debian host whose GRUB lies in a folder, and that is neither container nor virtual machine."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch, container: str = "none") -> None:
        shutil.copytree(RECORDED / "debian12", root / "default")
        self.root = root
        patch.setattr(tuning, "BOOT", root / "boot")
        patch.setattr(boot_loader, "GRUB_DEFAULTS", root / "default/grub")
        patch.setattr(boot_loader, "GRUB_CONFIG", root / "default/grub.cfg")
        patch.setattr(tuning, "TUNED", root / "no tuned here")
        (root / "cpuinfo").write_text("vendor_id\t: GenuineIntel\n")
        patch.setattr(tuning, "CPUINFO", root / "cpuinfo")
        (root / "os-release").write_text('PRETTY_NAME="Debian 12"\nID=debian\n')
        patch.setattr(tuning, "OS_RELEASE", root / "os-release")
        self.programs: dict[str, Any] = {
            "systemd-detect-virt": lambda command: (0, container if "--container" in command else "none", ""),
            "systemctl": lambda _command: (0, "", ""),
            "update-grub": lambda _command: (0, "", ""),
        }
        script(patch, self.programs)

    def run(self, *, refuse: bool = False, **wanted: Any) -> dict[str, Any]:
        wish = {
            "sysctl": {"vm.nr_hugepages": 0},
            "max_memory_share": 50,
            "kernel_rules": CATALOG["kernel_arguments"],
            "set_arguments": True,
            "cpu": True,
            "limits": {"nofile": "1048576"},
            "firmware": CATALOG["firmware"],
            **wanted,
        }
        names = {"sysctl": "zz.conf", "grub": "default/grub.d/zz.cfg", "limits": "limits.conf", "former": "former.json"}
        names |= {"unit": "our.service", "udev_rule": "our.rules", "program": "lib/program.py", "state": "state.json"}
        paths = {name: str(self.root / file) for name, file in names.items()}
        return run_main("host_tuning_info", {"wanted": wish, "paths": paths, "refuse": refuse})


def of_units(command: list[str]) -> bool:
    """Whether systemctl is asked how units stand, and not for their limits."""
    return any(word.startswith("--property=Id,ActiveState") for word in command)


@pytest.fixture
def debian(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DebianHost:
    return DebianHost(tmp_path, monkeypatch)


def test_a_host_that_can_be_tuned(debian: DebianHost) -> None:
    found = debian.run()
    assert found["refusals"] == []
    assert found["in_effect"] is False
    assert found["loader"] == "grub"
    assert found["kernel_arguments"] == ["cpufreq.default_governor=performance", "intel_idle.max_cstate=0"]
    assert found["former"]["sysctl"].keys() == {"vm.nr_hugepages"}
    assert found["document"]["serving_refused"] is None
    assert found["document"]["schema"] == 2


def test_from_1_24_on_the_arguments_are_set_everywhere_and_a_reboot_is_for_cards_that_are_translated(
    debian: DebianHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel of this host is Debian's, for which earlier releases need none of them."""
    device = debian.root / "sys/bus/pci/devices/0000:33:00.0"
    (device / "iommu_group").mkdir(parents=True)
    (device / "vendor").write_text("0x1da3\n")
    monkeypatch.setattr(iommu, "SYS", debian.root / "sys")
    config = debian.root / "default/grub.cfg"
    config.write_text(config.read_text().replace("ro  console", "ro intel_iommu=on iommu=pt console"))
    for kind, refused in (("DMA-FQ", True), ("identity", False)):
        (device / "iommu_group/type").write_text(f"{kind}\n")
        found = debian.run(release="1.24.1")
        assert found["kernel_arguments"][-2:] == ["intel_iommu=on", "iommu=pt"]
        assert bool(found["serving_refused"]) is refused
        assert any("iommu=pt" in said for said in found["reboot"]) is refused
        row = next(row for row in found["items"] if row["item"] == "iommu")
        # GRUB's files do not have it yet: the next update-grub would take it away.
        assert row["state"] == ("wrong" if refused else "ok")
        assert debian.run(release="1.23")["serving_refused"] is None


def test_an_unknown_distribution(debian: DebianHost) -> None:
    (debian.root / "default/grub.cfg").unlink()
    (refusal,) = debian.run()["refusals"]
    assert refusal.startswith("Debian 12 has neither grubby nor update-grub")
    assert debian.run(set_arguments=False)["refusals"] == []
    assert debian.run(refuse=True)["msg"] == refusal


def test_a_read_only_boot(debian: DebianHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, _mode: "grub.cfg" not in str(path))
    (refusal,) = debian.run()["refusals"]
    assert "is mounted read-only" in refusal


@pytest.mark.parametrize("name", ["default/grub.d/zz.cfg", "zz.conf", "limits.conf", "our.service", "our.rules"])
def test_a_file_of_somebody_else_at_our_name(debian: DebianHost, name: str) -> None:
    (debian.root / name).write_text("GRUB_TIMEOUT=1\n")
    found = debian.run()
    assert found["refusals"] == [f"{debian.root / name} was not written by this role. Move it away, then run again."]
    assert found["unit_present"] is False


def test_a_file_grub_cannot_read(debian: DebianHost) -> None:
    typo = debian.root / "default/grub.d/typo.cfg"
    typo.write_text('GRUB_TIMEOUT=1\nGRUB_CMDLINE_LINUX="quiet\n')
    answer = debian.run()
    assert answer["msg"].startswith(f'{typo}:2: the " opened here is never closed')
    assert answer["refused_id"] == "quote_never_closed"


def test_files_that_update_grub_passes_over(debian: DebianHost) -> None:
    folder = debian.root / "default/grub.d"
    (folder / "link.cfg").symlink_to("/nowhere")
    (folder / "folder.cfg").mkdir()
    (folder / "latin.cfg").write_bytes(b"# f\xfcr uns\nGRUB_TIMEOUT=1\n")
    assert debian.run()["refusals"] == []


def test_a_folder_that_cannot_be_written(debian: DebianHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, _mode: not str(path).endswith("grub.d"))
    (refusal,) = debian.run()["refusals"]
    assert refusal.startswith(
        f"{debian.root}/default/grub.d cannot be written, where {debian.root}/default/grub.d/zz.cfg"
    )


def test_a_group_of_settings(debian: DebianHost) -> None:
    assert debian.run(sysctl={"net.ipv4": 1})["msg"].startswith("net.ipv4 is a group of kernel settings, not one.")


def test_absurd_hugepages(debian: DebianHost) -> None:
    (refusal,) = debian.run(sysctl={"vm.nr_hugepages": 999999999})["refusals"]
    assert "host_tuning_max_memory_share allows 50 %" in refusal
    for pages in (-1, True, "many", 1.5):
        assert "Set a whole number of pages" in debian.run(sysctl={"vm.nr_hugepages": pages})["msg"]


@pytest.mark.parametrize(
    ("processors", "size", "pages"), [(128, "2MiB", 14081), (224, "2MiB", 24641), (128, "1GiB", 28)]
)
def test_as_many_hugepages_as_the_installer_reserves(
    debian: DebianHost, monkeypatch: pytest.MonkeyPatch, processors: int, size: str, pages: int
) -> None:
    """14081 is what an owner of eight Gaudi 2 has."""
    monkeypatch.setattr(tuning, "PROC", debian.root / "proc")
    (debian.root / "proc/sys/vm").mkdir(parents=True)
    page = 2048 if size == "2MiB" else 1048576
    for name, text in (
        ("meminfo", f"MemTotal: 527433728 kB\nMemAvailable: 1 kB\nHugePages_Total: 0\nHugepagesize: {page} kB\n"),
        ("cmdline", "ro\n"),
        ("sys/vm/nr_hugepages", "0\n"),
    ):
        (debian.root / "proc" / name).write_text(text)
    (debian.root / "cpuinfo").write_text(
        "".join(f"processor\t: {number}\nflags : fpu\n\n" for number in range(processors))
    )
    found = debian.run(sysctl={"vm.nr_hugepages": "auto"}, hugepage_size=size)
    (row,) = (item for item in found["items"] if item["item"] == "vm.nr_hugepages")
    assert row["wanted"].split()[0] == str(pages)


@pytest.mark.report("H05")
def test_hugepages_of_another_size_than_the_kernels(debian: DebianHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "PROC", debian.root / "proc")
    (debian.root / "proc/sys/vm").mkdir(parents=True)
    for name, text in (
        ("meminfo", "MemTotal: 527433728 kB\nMemAvailable: 1 kB\nHugePages_Total: 200\nHugepagesize: 1048576 kB\n"),
        ("cmdline", "ro default_hugepagesz=1G hugepages=200\n"),
        ("sys/vm/nr_hugepages", "200\n"),
    ):
        (debian.root / "proc" / name).write_text(text)
    found = debian.run(sysctl={"vm.nr_hugepages": 200})
    (refusal,) = found["refusals"]
    assert "200 of 2 MiB (0.4 GiB)" in refusal
    # Somebody else's pages are neither recorded nor given back.
    assert found["former"]["sysctl"] == {}
    (row,) = (item for item in found["items"] if item["item"] == "vm.nr_hugepages")
    assert (row["wanted"], row["now"], row["state"]) == ("200 of 2 MiB", "200 of 1 GiB", "wrong")
    assert debian.run(sysctl={"vm.nr_hugepages": 0})["refusals"] == []
    assert debian.run(sysctl={"vm.nr_hugepages": 200}, hugepage_size="1GiB")["refusals"] == []


def test_a_container_is_asked_for_nothing_it_cannot_give(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = DebianHost(tmp_path, monkeypatch, container="docker")
    found = host.run(always=["iommu"])
    assert found["refusals"] == []
    assert found["container"] is True
    assert found["serving_refused"] is None
    assert found["reboot"] == []
    states = {item["item"]: item["state"] for item in found["items"]}
    assert states["iommu"] == states["governor of every CPU"] == "not here"


def test_correctness_refuses_serving(debian: DebianHost) -> None:
    found = debian.run(always=["iommu"])
    assert "was started without intel_iommu=on iommu=pt" in found["serving_refused"]
    assert found["document"]["serving_refused"] == found["serving_refused"]


def test_a_later_file_without_update_grub(debian: DebianHost) -> None:
    config = debian.root / "default/grub.cfg"
    config.write_text(config.read_text().replace("max_cstate=1", "max_cstate=0"))
    (debian.root / "default/grub.d/zz.cfg").write_text(grub.render(["intel_idle.max_cstate=0"]))

    def row() -> tuple[str, str]:
        (item,) = [item for item in debian.run()["items"] if item["item"] == "intel_idle.max_cstate"]
        return item["after_reboot"], item["state"]

    assert row() == ("0", "reboot")
    (debian.root / "default/grub.d/zzz.cfg").write_text('GRUB_CMDLINE_LINUX_DEFAULT="quiet"\n')
    assert row() == ("0", "wrong")
    assert any("the next update-grub" in sentence for sentence in debian.run()["findings"])


def test_a_file_that_forgets_ours_is_named(debian: DebianHost) -> None:
    late = debian.root / "default/grub.d/zzz.cfg"
    late.write_text("GRUB_CMDLINE_LINUX_DEFAULT=quiet\n")
    found = debian.run(always=["iommu"])
    said = f"{late}:1 overwrites GRUB_CMDLINE_LINUX_DEFAULT, without what {debian.root / 'default/grub.d/zz.cfg'} adds"
    assert any(sentence.startswith(said) for sentence in found["findings"])
    assert said in found["serving_refused"]
    # Where somebody sets the arguments by hand, our drop-in is none of their business.
    assert not any(said in sentence for sentence in debian.run(set_arguments=False)["findings"])


def test_what_only_a_shell_works_out_is_a_finding(debian: DebianHost) -> None:
    late = debian.root / "default/grub.d/zzz.cfg"
    late.write_text("if true; then\nGRUB_CMDLINE_LINUX=a\nfi\n")
    assert any(sentence.startswith(f"{late}:1: what this says is worked") for sentence in debian.run()["findings"])


def test_without_update_grub_nothing_is_begun(debian: DebianHost) -> None:
    del debian.programs["update-grub"]
    (refusal,) = debian.run()["refusals"]
    assert refusal.startswith("Debian 12 has neither grubby nor update-grub")


def test_a_kernel_that_is_installed_counts(debian: DebianHost) -> None:
    (debian.root / "os-release").write_text("ID=ubuntu\n")
    assert "iommu=pt" not in debian.run()["kernel_arguments"]
    (debian.root / "boot").mkdir()
    (debian.root / "boot/vmlinuz-6.8.0-45-generic").touch()
    assert "iommu=pt" in debian.run()["kernel_arguments"]


def test_a_record_that_is_gone_is_said(debian: DebianHost) -> None:
    assert debian.run()["former_lost"] == []
    (debian.root / "zz.conf").write_text(f"{host_files.MARK}\nkernel.numa_balancing = 0\n")
    found = debian.run()
    assert found["former_lost"] == ["kernel.numa_balancing"]
    assert any("what kernel.numa_balancing were before tuning is not known" in said for said in found["findings"])
    (debian.root / "former.json").write_text(json.dumps({"schema": 1, "sysctl": {"vm.nr_hugepages": "0"}}))
    assert debian.run()["former_lost"] == []


def test_a_setting_that_left_the_inventory_is_said(debian: DebianHost) -> None:
    now = Path("/proc/sys/net/core/somaxconn").read_text().strip()
    record = debian.root / "former.json"
    record.write_text(json.dumps({"schema": 1, "sysctl": {"net.core.somaxconn": "17"}}))
    said = f"net.core.somaxconn is {now}, and was 17 before it was set here."
    assert any(sentence.startswith(said) for sentence in debian.run()["findings"])
    # Wanted still, or back already: nothing to say.
    wanted = {"net.core.somaxconn": now}
    assert not any("somaxconn" in sentence for sentence in debian.run(sysctl=wanted)["findings"])
    record.write_text(json.dumps({"schema": 1, "sysctl": {"net.core.somaxconn": now}}))
    assert not any("somaxconn" in sentence for sentence in debian.run()["findings"])


def test_an_argument_that_left_the_inventory(debian: DebianHost, monkeypatch: pytest.MonkeyPatch) -> None:
    drop_in = debian.root / "default/grub.d/zz.cfg"
    drop_in.write_text(grub.render(["intel_idle.max_cstate=0", "nosoftlockup"]))
    real = Path.read_text
    monkeypatch.setattr(
        Path,
        "read_text",
        lambda self, **options: "ro nosoftlockup\n" if str(self) == "/proc/cmdline" else real(self, **options),
    )
    left = "nosoftlockup (speed: the inventory no longer asks for it, and a reboot takes it away)"
    found = debian.run()
    assert found["former"]["arguments"] == {"nosoftlockup": "was ours"}
    assert found["ours"] == ["nosoftlockup", "intel_idle.max_cstate=0"]
    assert found["reboot"] == found["removed_at_reboot"] == [left]
    assert [need["argument"] for need in found["document"]["leaving"]] == ["nosoftlockup"]
    # The next run finds a drop-in without it, and knows it from the record.
    drop_in.write_text(grub.render(["intel_idle.max_cstate=0"]))
    (debian.root / "former.json").write_text(json.dumps(found["former"]))
    assert debian.run()["reboot"] == [left]
    # After untune both are gone.
    drop_in.unlink()
    (debian.root / "former.json").unlink()
    assert debian.run()["removed_at_reboot"] == []
    assert debian.run(formerly=found["ours"])["removed_at_reboot"] == [left]
    # A drop-in of somebody else says nothing about what was ours.
    drop_in.write_text('GRUB_CMDLINE_LINUX_DEFAULT="nosoftlockup"\n')
    assert debian.run()["ours"] == []


def test_the_line_that_keeps_serving_refused_is_named(debian: DebianHost) -> None:
    late = debian.root / "default/grub.d/zzz.cfg"
    late.write_text('GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT iommu=soft"\n')
    found = debian.run(always=["iommu"])
    assert f"{late}:1 says iommu=soft, wanted is iommu=pt. iommu=soft wins" in found["serving_refused"]
    assert "Reboot this node" not in found["serving_refused"]
    kept = {need["argument"]: need["cause"] for need in found["document"]["kernel_arguments"]}
    assert kept["iommu=pt"].startswith(str(late))
    assert kept["intel_iommu=on"] == ""


def test_a_users_line_is_found_with_its_place(debian: DebianHost) -> None:
    (sentence,) = [found for found in debian.run()["findings"] if "max_cstate" in found]
    assert sentence.startswith(f"{debian.root}/default/grub.d/50-user.cfg:3 says intel_idle.max_cstate=1")


def test_what_is_ours_in_the_boot_entries_is_known_without_grubs_defaults(debian: DebianHost) -> None:
    assert debian.run()["drop_in"] is False
    (debian.root / "default/grub.d/zz.cfg").write_text(host_files.MARK + "\n")
    (debian.root / "default/grub").unlink()
    found = debian.run(set_arguments=False)
    assert (found["drop_in"], found["loader"]) == (True, None)
    (item,) = [item for item in found["items"] if item["item"] == "intel_idle.max_cstate"]
    assert item["after_reboot"] == "1"


def test_grubby_that_was_never_asked_has_nothing_to_put_back(debian: DebianHost) -> None:
    debian.programs["grubby"] = lambda _command: (0, (RECORDED / "rhel9/grubby_info_all.txt").read_text(), "")
    assert debian.run(set_arguments=False)["former"]["kernel_arguments"] == {}


def test_grubby_remembers_what_it_will_replace(debian: DebianHost) -> None:
    debian.programs["grubby"] = lambda _command: (0, (RECORDED / "rhel9/grubby_info_all.txt").read_text(), "")
    found = debian.run()
    assert found["loader"] == "grubby"
    assert len(found["former"]["kernel_arguments"]) == 2


def test_the_first_record_is_kept(debian: DebianHost) -> None:
    (debian.root / "former.json").write_text('{"schema": 1, "sysctl": {"vm.nr_hugepages": "777"}}')
    assert debian.run()["former"]["sysctl"] == {"vm.nr_hugepages": "777"}


@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.parametrize("file", ["former.json", "state.json"])
def test_a_damaged_record_is_named_or_written_anew(debian: DebianHost, file: str, kind: str) -> None:
    """To read a pipe waited for ever."""
    damage(debian.root / file, kind)
    answer = debian.run()
    if kind == "a directory":
        assert answer["refusals"] == [
            f"{debian.root / file} is a directory, where a file of this role is to be. Move it away, then run again."
        ]
    elif file == "former.json" and kind not in ("a pipe", "a dangling link"):
        assert answer["refused_id"] == "tuning_record_damaged"
        assert answer["msg"].startswith(f"{debian.root}/former.json is not the record")
    else:
        assert not answer["former_kept" if file == "former.json" else "document_kept"]


def test_a_running_instance_is_asked_itself(debian: DebianHost) -> None:
    (debian.root / "limits.conf").write_text("[Service]\nLimitNOFILE=7\n")
    units = (
        f"Id=vllm-runs.service\nMainPID={os.getpid()}\nLimitNOFILE=7\n\nId=vllm-off.service\nMainPID=0\nLimitNOFILE=7\n"
    )
    debian.programs["systemctl"] = lambda _command: (0, units, "")
    found = debian.run(limits={"nofile": "7"})
    now = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    (item,) = [item for item in found["items"] if item["item"].startswith("nofile")]
    assert (item["configured"], item["now"], item["state"]) == ("7", f"vllm-runs.service {now}", "wrong")
    assert (
        f"vllm-runs.service was started with nofile {now}. Restart it to give it the limits wanted."
        in found["findings"]
    )


def test_files_that_systemd_has_not_read(debian: DebianHost) -> None:
    assert debian.run()["reload_needed"] is False
    shown = "Id=gaudi-host-tuning.service\nNeedDaemonReload=no\n\nId=vllm-a.service\nNeedDaemonReload=yes\n"
    debian.programs["systemctl"] = lambda command: (0, shown if of_units(command) else "", "")
    assert debian.run()["reload_needed"] is True


@pytest.mark.parametrize(("read", "there", "needed"), [(True, True, False), (False, True, True), (True, False, True)])
def test_a_first_drop_in_that_systemd_does_not_tell_of(
    debian: DebianHost, read: bool, there: bool, needed: bool
) -> None:
    limits = debian.root / "limits.conf"
    if there:
        limits.write_text("[Service]\n")
    dropins = f"/own.conf {limits}" if read else "/own.conf"
    shown = "Id=gaudi-host-tuning.service\nDropInPaths=\n\nId=vllm-a.service\nNeedDaemonReload=no\nDropInPaths="
    debian.programs["systemctl"] = lambda command: (0, shown + dropins if of_units(command) else "", "")
    assert debian.run()["reload_needed"] is needed


@pytest.mark.parametrize(
    ("file", "written", "outdated"),
    [
        ("our.service", -60, False),
        ("our.service", 60, True),
        ("lib/program.py", 60, True),
        ("our.service", 10**9, False),
    ],
)
def test_a_unit_that_started_before_its_files_were_written(
    debian: DebianHost, file: str, written: float, outdated: bool
) -> None:
    """A run that was cut off has written them, and changed nothing that runs. Seconds after the unit's start."""
    path = debian.root / file
    path.parent.mkdir(exist_ok=True)
    path.write_text("")
    up = time.clock_gettime(time.CLOCK_MONOTONIC)
    started = time.time() - up / 2
    os.utime(path, (started + written, started + written))
    entered = f"ActiveState=active\nActiveEnterTimestampMonotonic={int(up / 2 * 1e6)}\n"
    shown = f"Id=gaudi-host-tuning.service\n{entered}"
    debian.programs["systemctl"] = lambda command: (0, shown if of_units(command) else "", "")
    assert debian.run()["unit_outdated"] is outdated


DAY = 86400


@pytest.mark.parametrize(
    ("written", "by", "outdated"),
    [
        (60, DAY, True),
        (60, -DAY, True),
        (60 + DAY, DAY, True),
        (60, 0, True),
        (-60, DAY, False),
        (-60, -(10**9), False),
        # A machine without a clock of its own starts in another year, with files of the right one.
        (-60 + 10**9, 10**9, False),
    ],
)
def test_a_unit_that_started_before_its_files_were_written_and_a_clock_set_since(
    debian: DebianHost, written: float, by: float, outdated: bool
) -> None:
    """written: seconds after the unit's start, by the clock as it was set when the file was written."""
    (debian.root / "our.service").write_text("")
    up = time.clock_gettime(time.CLOCK_MONOTONIC)
    started = time.time() - up / 2 - by
    os.utime(debian.root / "our.service", (started + written, started + written))
    # A day that the module's locale has no name for: systemd writes English, and the module may be in German.
    entered = time.strftime("xyz %Y-%m-%d %H:%M:%S UTC", time.gmtime(started))
    monotonic = f"ActiveEnterTimestampMonotonic={int(up / 2 * 1e6)}\n"
    shown = f"Id=gaudi-host-tuning.service\nActiveState=active\nActiveEnterTimestamp={entered}\n{monotonic}"
    debian.programs["systemctl"] = lambda command: (0, shown if of_units(command) else "", "")
    assert debian.run()["unit_outdated"] is outdated


@pytest.mark.parametrize(
    ("enabled", "active", "governor", "settled"),
    [
        (True, "active", "performance", True),
        (False, "active", "performance", False),
        (True, "inactive", "performance", False),
        # Slowed by somebody since; where the driver offers nothing better our unit can do nothing.
        (True, "active", "powersave", False),
        (True, "active", "powersave alone", True),
    ],
)
def test_a_unit_with_nothing_left_to_do(
    debian: DebianHost, monkeypatch: pytest.MonkeyPatch, enabled: bool, active: str, governor: str, settled: bool
) -> None:
    link = debian.root / "wanted"
    if enabled:
        link.symlink_to("/dev/null")
    monkeypatch.setattr(tuning, "UNIT_WANTED", link)
    controls = debian.root / "cpu/cpu0/cpufreq"
    controls.mkdir(parents=True)
    (controls / "scaling_governor").write_text(governor.split()[0])
    (controls / "scaling_available_governors").write_text("powersave" + " performance" * ("alone" not in governor))
    monkeypatch.setattr(tuning, "CPUS", debian.root / "cpu")
    shown = f"Id=gaudi-host-tuning.service\nActiveState={active}\nNeedDaemonReload=no\n"
    shown += "\nId=vllm-a.service\nActiveState=failed\nNeedDaemonReload=no\n"
    debian.programs["systemctl"] = lambda command: (0, shown if of_units(command) else "", "")
    assert debian.run()["unit_settled"] is settled
    # Nobody asked for the processors: how they run is not our unit's concern.
    assert debian.run(cpu=False)["unit_settled"] is (enabled and active == "active")


def test_what_the_node_keeps_is_compared_with_what_is_so(debian: DebianHost) -> None:
    found = debian.run()
    assert not found["former_kept"]
    assert not found["document_kept"]
    (debian.root / "former.json").write_text(json.dumps(found["former"], indent=4))
    (debian.root / "state.json").write_text(json.dumps(found["document"], indent=4))
    found = debian.run()
    assert found["former_kept"]
    assert found["document_kept"]
    (debian.root / "state.json").write_text("{")
    assert debian.run()["document_kept"] is False


@pytest.mark.report("H09")
def test_another_tuner_is_named(debian: DebianHost, monkeypatch: pytest.MonkeyPatch) -> None:
    profile = debian.root / "active_profile"
    profile.write_text("virtual-guest\n")
    monkeypatch.setattr(tuning, "TUNED", profile)
    assert any("TuneD is set to the profile virtual-guest" in sentence for sentence in debian.run()["findings"])


def of_energy(found: dict[str, Any]) -> dict[str, str]:
    """The row about the energy preference."""
    (row,) = (item for item in found["items"] if item["item"].startswith("energy preference"))
    return {key: row[key] for key in ("wanted", "now", "state")}


@pytest.fixture
def sapphire(debian: DebianHost, monkeypatch: pytest.MonkeyPatch) -> DebianHost:
    """Two processors without cpufreq, as on a recorded XE9680 (Ubuntu, kernel 6.8), with the module msr loaded."""
    (debian.root / "cpuinfo").write_text("vendor_id : GenuineIntel\nflags : fpu epb hwp hwp_epp\n")
    monkeypatch.setattr(tuning, "CPUS", debian.root / "cpu")
    monkeypatch.setattr(tuning, "LOCKDOWN", debian.root / "lockdown")
    monkeypatch.setattr(registers, "DEVICES", debian.root / "dev")
    for number, preference in enumerate((0, 0x80)):
        (debian.root / f"cpu/cpu{number}/power").mkdir(parents=True)
        (debian.root / f"cpu/cpu{number}/power/energy_perf_bias").write_text("0\n")
        (debian.root / f"dev/{number}").mkdir(parents=True)
        whole = bytearray(0x800)
        whole[0x774 : 0x774 + 8] = (preference << 24 | 0x2608).to_bytes(8, "little")
        (debian.root / f"dev/{number}/msr").write_bytes(whole)
    return debian


def test_the_energy_preference_is_read_where_it_is_wanted(sapphire: DebianHost) -> None:
    now = "energy bias 0, energy preference 128 on CPU 1, performance on CPU 0"
    found = sapphire.run(energy=True)
    assert of_energy(found) == {"wanted": "performance", "now": now, "state": "wrong"}
    assert found["refusals"] == []
    assert not any(item["item"].startswith("energy preference") for item in sapphire.run()["items"])


def test_without_hwp_the_preference_is_unknown_and_said_to_be(sapphire: DebianHost) -> None:
    (sapphire.root / "dev/1/msr").unlink()
    assert "energy preference unreadable on CPU 1" in of_energy(sapphire.run(energy=True))["now"]


@pytest.mark.parametrize("lockdown", ["none [integrity] confidentiality", "none integrity [confidentiality]"])
def test_registers_of_a_locked_kernel_are_refused(sapphire: DebianHost, lockdown: str) -> None:
    (sapphire.root / "lockdown").write_text(f"{lockdown}\n")
    (refusal,) = sapphire.run(energy=True)["refusals"]
    assert lockdown.partition("[")[2].partition("]")[0] in refusal
    assert sapphire.run()["refusals"] == []
    # The kernel's file for all that this processor has.
    (sapphire.root / "cpuinfo").write_text("vendor_id : GenuineIntel\nflags : fpu epb\n")
    assert sapphire.run(energy=True)["refusals"] == []
    (sapphire.root / "cpuinfo").write_text("vendor_id : GenuineIntel\nflags : fpu epb hwp hwp_epp\n")
    (sapphire.root / "lockdown").write_text("[none] integrity confidentiality\n")
    assert sapphire.run(energy=True)["refusals"] == []


def test_processors_of_a_virtual_machine_are_refused(sapphire: DebianHost) -> None:
    sapphire.programs["systemd-detect-virt"] = lambda command: (0, "none" if "--container" in command else "kvm", "")
    (refusal,) = sapphire.run(energy=True)["refusals"]
    assert "virtual machine" in refusal
    assert sapphire.run()["refusals"] == []


def test_processors_with_cpufreq_have_nothing_to_set(sapphire: DebianHost) -> None:
    for number in (0, 1):
        (sapphire.root / f"cpu/cpu{number}/cpufreq").mkdir()
        (sapphire.root / f"cpu/cpu{number}/cpufreq/scaling_governor").write_text("performance\n")
    found = sapphire.run(energy=True)
    assert of_energy(found)["state"] == "not here"
    assert found["refusals"] == []
