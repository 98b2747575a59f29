"""Kernel settings: files in boot order, the share of memory, what the kernel grants, and the module."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.gaudi.host import files as host_files
from ansible.module_utils.gaudi.host import sysctl
from ansible.module_utils.gaudi.node.host import kernel_settings, tuning
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.host.modules import run_main
from tests.unit.refused import refused

OWN = "/etc/sysctl.d/zz-gaudi-serving.conf"
MEMINFO = """MemTotal:       1000000 kB
MemFree:         900000 kB
MemAvailable:    900000 kB
HugePages_Total:     {pages}
Hugepagesize:       2048 kB
"""


def memory(pages: int = 0) -> sysctl.NodeMemory:
    return sysctl.parse_meminfo(MEMINFO.format(pages=pages))


def test_a_kernel_without_hugepages() -> None:
    with refused("kernel_without_hugepages", "'Hugepagesize'"):
        sysctl.parse_meminfo("MemTotal: 1 kB\nMemAvailable: 1 kB\n")


def test_up_to_the_share_and_no_page_more() -> None:
    # Half of 1 000 000 KiB holds 244 pages of 2048 KiB.
    assert sysctl.memory_refusal(244, memory(), 50) is None
    refusal = sysctl.memory_refusal(245, memory(), 50)
    assert refusal is not None
    assert "Set host_tuning_hugepages to 244 or less" in str(refusal)
    assert refusal.id == "too_many_hugepages"


GIB_PAGES = """MemTotal:       527433728 kB
MemAvailable:   300000000 kB
HugePages_Total:     200
Hugepagesize:    1048576 kB
Hugetlb:        {hugetlb} kB
"""


def gib_pages(other_gib: int = 0) -> sysctl.NodeMemory:
    """The memory of a node of 503 GiB that was started with default_hugepagesz=1G hugepages=200."""
    return sysctl.parse_meminfo(GIB_PAGES.format(hugetlb=(200 + other_gib) * 1024 * 1024))


@pytest.mark.report("H05")
@pytest.mark.parametrize("pages", [200, 15000])
def test_pages_of_another_size_than_the_kernel_counts_are_refused(pages: int) -> None:
    refusal = sysctl.memory_refusal(pages, gib_pages(), 50)
    assert refusal is not None
    assert refusal.id == "hugepage_size_differs"
    assert "1 GiB by default (default_hugepagesz=" in str(refusal)
    assert f"{pages} of 2 MiB ({pages / 512:.1f} GiB)" in str(refusal)
    assert f"hugepagesz=2M hugepages={pages}" in str(refusal)
    # No page of ours, so there is nothing to refuse.
    assert sysctl.memory_refusal(0, gib_pages(), 50) is None


@pytest.mark.report("H05")
def test_pages_of_the_kernels_size_are_counted_in_bytes() -> None:
    assert sysctl.memory_refusal(200, gib_pages(), 50, "1GiB") is None
    refusal = sysctl.memory_refusal(15000, gib_pages(), 50, "1GiB")
    assert refusal is not None
    assert "15000 hugepages of 1 GiB are 15000.0 GiB" in str(refusal)
    assert "Set host_tuning_hugepages to 251 or less" in str(refusal)
    refusal = sysctl.memory_refusal(8, memory(), 50, "1GiB")
    assert refusal is not None
    assert refusal.id == "hugepage_size_differs"


def test_pages_of_other_sizes_belong_to_the_share() -> None:
    refusal = sysctl.memory_refusal(200, gib_pages(other_gib=60), 50, "1GiB")
    assert refusal is not None
    assert "beside 60.0 GiB in hugepages of other sizes" in str(refusal)
    assert "to 191 or less" in str(refusal)
    assert sysctl.memory_refusal(0, gib_pages(other_gib=400), 50, "1GiB") is None


@pytest.mark.parametrize("share", [0, -1, 101])
def test_a_share_that_is_none(share: int) -> None:
    with refused("out_of_range", share):
        sysctl.memory_refusal(1, memory(), share)


@given(st.integers(0, 10**9), st.integers(1, 100))
def test_never_above_the_share(pages: int, share: int) -> None:
    allowed = sysctl.memory_refusal(pages, memory(), share) is None
    assert allowed == (pages * 2048 <= 1000000 * share // 100)


@pytest.mark.parametrize(
    ("processors", "size", "pages"), [(128, "2MiB", 14081), (224, "2MiB", 24641), (224, "1GiB", 49)]
)
def test_the_number_of_the_vendors_installer(processors: int, size: str, pages: int) -> None:
    """14081: the pages that the installer reserved on an owner's 8 Gaudi 2 with 128 processors."""
    cpuinfo = "".join(f"processor\t: {number}\nflags\t\t: fpu\n\n" for number in range(processors))
    assert sysctl.counted("auto", cpuinfo, size) == pages
    assert sysctl.counted(64, cpuinfo, size) == 64


@pytest.mark.parametrize("cpuinfo", ["", "flags : fpu\n", "processors : 8\n"])
def test_counted_without_any_processor_is_refused(cpuinfo: str) -> None:
    with refused("processors_not_counted", "/proc/cpuinfo cannot be read or names no processor"):
        sysctl.counted("auto", cpuinfo, "2MiB")
    assert sysctl.counted(64, cpuinfo, "2MiB") == 64


def test_what_was_granted() -> None:
    assert sysctl.grant_refusal(64, memory(64)) is None
    refusal = sysctl.grant_refusal(64, memory(60))
    assert refusal is not None
    assert "granted 60 of the 64" in str(refusal)


@pytest.mark.parametrize(
    ("settings", "id_"),
    [
        ({"vm.nr_hugepages": "-1"}, "not_a_whole_number"),
        ({"vm.nr_hugepages": "many"}, "not_a_whole_number"),
        ({"vm.nr_hugepages": ""}, "wrong_form"),
        ({"vm.swappiness": "1\nkernel.panic = 1"}, "wrong_form"),
        ({"nr_hugepages": "1"}, "not_a_kernel_setting"),
        ({"vm.nr hugepages": "1"}, "not_a_kernel_setting"),
        ({"../../etc/passwd": "1"}, "not_a_kernel_setting"),
    ],
)
def test_wishes_no_kernel_takes(settings: dict[str, str], id_: str) -> None:
    with refused(id_):
        sysctl.check_request(settings)


def test_spellings_of_one_setting() -> None:
    text = "# c\n; c\n\nvm.nr_hugepages=1\n -vm/nr_hugepages = 2 \nkernel.pid_max\t=\t3\nnonsense\n"
    text += "net/ipv4/conf/eth0.1/x=4\n"
    assert [(found.key, found.value, found.line) for found in sysctl.parse("f", text)] == [
        ("vm.nr_hugepages", "1", 4),
        ("vm.nr_hugepages", "2", 5),
        ("kernel.pid_max", "3", 6),
        ("net.ipv4.conf.eth0.1.x", "4", 8),
    ]


@pytest.mark.report("H08")
@pytest.mark.report("H08")
def test_by_name_and_the_important_directory_hides_the_other() -> None:
    paths = [
        "/usr/lib/sysctl.d/50-default.conf",
        "/usr/lib/sysctl.d/99-x.conf",
        "/run/sysctl.d/60-a.conf",
        "/etc/sysctl.d/99-x.conf",
        "/etc/sysctl.d/README",
        "/home/10-mine.conf",
        OWN,
    ]
    assert sysctl.boot_order(paths) == [
        "/usr/lib/sysctl.d/50-default.conf",
        "/run/sysctl.d/60-a.conf",
        "/etc/sysctl.d/99-x.conf",
        OWN,
    ]


def test_conflicts_name_the_place_and_the_winner() -> None:
    files = [
        *sysctl.parse("/etc/sysctl.conf", "vm.nr_hugepages = 8\nkernel.numa_balancing = 0\n"),
        *sysctl.parse(OWN, "vm.nr_hugepages = 64\nkernel.numa_balancing = 0\n"),
        *sysctl.parse("/etc/sysctl.d/zzz.conf", "kernel.numa_balancing = 1\n"),
    ]
    early, late = sysctl.conflicts({"vm.nr_hugepages": "64", "kernel.numa_balancing": "0"}, files, OWN)
    assert early.startswith("/etc/sysctl.conf:1 sets vm.nr_hugepages = 8, wanted is 64.")
    assert f"At boot {OWN} comes later, and 64 wins" in early
    assert late.startswith("/etc/sysctl.d/zzz.conf:1 sets kernel.numa_balancing = 1, wanted is 0.")
    assert "zzz.conf:1 comes later, and 1 wins" in late


def test_what_we_write_is_what_boot_reads() -> None:
    text = sysctl.render({"vm.nr_hugepages": "64", "kernel.numa_balancing": "0"}, ["kernel.numa_balancing"])
    assert text.startswith(host_files.MARK)
    assert "-kernel.numa_balancing = 0\n" in text
    assert {found.key: found.value for found in sysctl.parse("f", text)} == {
        "vm.nr_hugepages": "64",
        "kernel.numa_balancing": "0",
    }


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kernel whose settings are files; it grants the hugepages that /proc/meminfo of the test says."""
    root = tmp_path / "proc"
    for key, value in (("vm/nr_hugepages", "0\n"), ("kernel/numa_balancing", "1\n")):
        (root / "sys" / key).parent.mkdir(parents=True)
        (root / "sys" / key).write_text(value)
    (root / "meminfo").write_text(MEMINFO.format(pages=64))
    monkeypatch.setattr(importlib.import_module("host_tuning_sysctl"), "PROC", root)
    return root


def run(tmp_path: Path, pages: str = "64", **options: Any) -> dict[str, Any]:
    settings = {"vm.nr_hugepages": pages, "kernel.numa_balancing": "0"}
    given = {"path": str(tmp_path / "zz.conf"), "settings": settings, **options}
    return run_main("host_tuning_sysctl", {k: v for k, v in given.items() if k != "check"}, check="check" in options)


def test_set_held_and_settled(proc: Path, tmp_path: Path) -> None:
    assert run(tmp_path, check=True)["changed"] is True
    assert not (tmp_path / "zz.conf").exists()
    first = run(tmp_path)
    assert first["changed"] is True
    assert first["before"] == {"vm.nr_hugepages": "0", "kernel.numa_balancing": "1"}
    assert (proc / "sys/vm/nr_hugepages").read_text() == "64\n"
    assert (proc / "sys/kernel/numa_balancing").read_text() == "0\n"
    assert run(tmp_path)["changed"] is False
    assert run(tmp_path, check=True)["changed"] is False


def test_the_installers_number_is_set_for_this_nodes_processors(proc: Path, tmp_path: Path) -> None:
    (proc / "meminfo").write_text(MEMINFO.format(pages=111))
    (proc / "cpuinfo").write_text("processor\t: 0\nflags\t: fpu\n")
    assert run(tmp_path, "auto")["changed"] is True
    assert (proc / "sys/vm/nr_hugepages").read_text() == "111\n"
    assert run(tmp_path, "auto")["changed"] is False


def test_auto_without_cpuinfo_is_refused_and_sets_nothing(proc: Path, tmp_path: Path) -> None:
    (proc / "meminfo").write_text(MEMINFO.format(pages=1))
    before = (proc / "sys/vm/nr_hugepages").read_text()
    assert not (proc / "cpuinfo").exists()
    assert run(tmp_path, "auto")["refused_id"] == "processors_not_counted"
    assert (proc / "sys/vm/nr_hugepages").read_text() == before


@pytest.mark.report("H05")
def test_pages_of_another_size_are_neither_set_nor_given_back(proc: Path, tmp_path: Path) -> None:
    (proc / "meminfo").write_text(GIB_PAGES.format(hugetlb=200 * 1024 * 1024))
    (proc / "sys/vm/nr_hugepages").write_text("200\n")
    assert run(tmp_path, "15000")["refused_id"] == "hugepage_size_differs"
    assert (proc / "sys/kernel/numa_balancing").read_text() == "1\n"
    assert not (tmp_path / "zz.conf").exists()
    assert run(tmp_path, "0")["before"] == {"kernel.numa_balancing": "1"}
    assert (proc / "sys/vm/nr_hugepages").read_text() == "200\n"
    assert "vm.nr_hugepages" not in (tmp_path / "zz.conf").read_text()
    assert run(tmp_path, "64", hugepage_size="1GiB")["changed"] is True
    assert (proc / "sys/vm/nr_hugepages").read_text() == "64\n"


def test_taken_back(proc: Path, tmp_path: Path) -> None:
    before = run(tmp_path)["before"]
    back = run(tmp_path, settings=before, state="absent")
    assert back["changed"] is True
    assert not (tmp_path / "zz.conf").exists()
    assert (proc / "sys/kernel/numa_balancing").read_text() == "1\n"
    assert run(tmp_path, settings=before, state="absent")["changed"] is False


def test_too_few_granted_puts_everything_back(proc: Path, tmp_path: Path) -> None:
    (proc / "meminfo").write_text(MEMINFO.format(pages=60))
    answer = run(tmp_path)
    assert answer["failed"] is True
    assert "granted 60 of the 64" in answer["msg"]
    assert (proc / "sys/vm/nr_hugepages").read_text() == "0\n"
    assert (proc / "sys/kernel/numa_balancing").read_text() == "1\n"
    assert not (tmp_path / "zz.conf").exists()


@pytest.mark.report("H07")
@pytest.mark.parametrize("pages", ["-1", "999999999", "x"])
def test_a_refusal_changes_nothing(proc: Path, tmp_path: Path, pages: str) -> None:
    assert run(tmp_path, pages)["failed"] is True
    assert (proc / "sys/vm/nr_hugepages").read_text() == "0\n"
    assert not (tmp_path / "zz.conf").exists()


@pytest.mark.report("H07")
def test_a_kernel_without_numa_balancing_is_a_finding(proc: Path, tmp_path: Path) -> None:
    (proc / "sys/kernel/numa_balancing").unlink()
    answer = run(tmp_path)
    assert answer["changed"] is True
    assert answer["findings"] == ["This kernel has no setting kernel.numa_balancing; there is nothing to set."]
    assert "-kernel.numa_balancing = 0" in (tmp_path / "zz.conf").read_text()
    assert run(tmp_path)["changed"] is False


def test_a_read_only_proc_is_a_finding(proc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, _mode: "sys" not in Path(path).parts)
    answer = run(tmp_path)
    assert "/proc/sys is read-only" in answer["findings"][0]
    assert (proc / "sys/vm/nr_hugepages").read_text() == "0\n"
    assert run(tmp_path)["changed"] is False


def test_a_file_of_somebody_else_is_left_alone(proc: Path, tmp_path: Path) -> None:
    (tmp_path / "zz.conf").write_text("vm.nr_hugepages = 3\n")
    answer = run(tmp_path)
    assert "was not written by this role" in answer["msg"]
    assert (proc / "sys/vm/nr_hugepages").read_text() == "0\n"
    assert (tmp_path / "zz.conf").read_text() == "vm.nr_hugepages = 3\n"


def test_a_value_the_kernel_does_not_take_puts_everything_back(proc: Path, tmp_path: Path) -> None:
    (proc / "sys/vm/swappiness").write_text("60\n")
    real = Path.write_text

    def write(self: Path, text: str) -> int:
        if self.name == "swappiness":
            raise OSError(22, "Invalid argument")
        return real(self, text)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "write_text", write)
        answer = run(tmp_path, settings={"kernel.numa_balancing": "0", "vm.swappiness": "1"})
    assert "did not take vm.swappiness = 1 (Invalid argument)" in answer["msg"]
    assert (proc / "sys/kernel/numa_balancing").read_text() == "1\n"
    assert not (tmp_path / "zz.conf").exists()


def test_a_name_that_is_a_group_or_not_shown(proc: Path, tmp_path: Path) -> None:
    (proc / "sys/net/ipv4").mkdir(parents=True)
    answer = run(tmp_path, settings={"net.ipv4": "1"})
    assert "net.ipv4 is a group of kernel settings" in answer["msg"]
    assert answer["refused_id"] == "not_a_kernel_setting"
    assert run(tmp_path, settings={"vm.nr_hugepages": str(10**12)})["refused_id"] == "too_many_hugepages"

    def refuse(_self: Path) -> str:
        raise PermissionError(13, "Permission denied")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "read_text", refuse)
        with refused("kernel_setting_hidden", "vm.nr_hugepages", "host_tuning_sysctl"):
            kernel_settings.running_settings(proc / "sys", ["vm.nr_hugepages"])


def test_where_a_file_of_ours_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tuning.obstacle(tmp_path / "new/deep/file") is None
    (tmp_path / "file").write_text("x")
    assert f"{tmp_path} is a directory" in str(tuning.obstacle(tmp_path))
    assert f"{tmp_path}/file is no directory" in str(tuning.obstacle(tmp_path / "file/one"))
    monkeypatch.setattr(os, "access", lambda _path, _mode: False)
    assert str(tuning.obstacle(tmp_path / "new/file")).startswith(f"{tmp_path} cannot be written")


def test_a_read_only_folder_changes_nothing(proc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, _mode: Path(path) != tmp_path)
    assert f"{tmp_path} cannot be written, where {tmp_path}/zz.conf is to be" in run(tmp_path)["msg"]
    assert (proc / "sys/vm/nr_hugepages").read_text() == "0\n"


def test_a_later_value_of_somebody_else_is_left_and_said(proc: Path, tmp_path: Path) -> None:
    before = run(tmp_path)["before"]
    (proc / "sys/vm/nr_hugepages").write_text("40\n")
    back = run(tmp_path, settings=before, state="absent")
    assert (proc / "sys/vm/nr_hugepages").read_text() == "40\n"
    assert (proc / "sys/kernel/numa_balancing").read_text() == "1\n"
    assert back["findings"] == [
        "vm.nr_hugepages is 40, this role had set 64: somebody changed it since, and it is left. "
        "Before the first change it was 0."
    ]
    assert not (tmp_path / "zz.conf").exists()


def test_a_setting_that_left_the_inventory_is_put_back_all_the_same(proc: Path, tmp_path: Path) -> None:
    before = run(tmp_path)["before"]
    run(tmp_path, settings={"vm.nr_hugepages": "64"})
    assert run(tmp_path, settings=before, state="absent")["findings"] == []
    assert (proc / "sys/kernel/numa_balancing").read_text() == "1\n"


def test_a_wrong_number_of_hugepages_is_said_of_the_option() -> None:
    with refused("not_a_whole_number", "host_tuning_hugepages"):
        sysctl.check_request({"vm.nr_hugepages": "automatic"})
