"""The kernel command line: what is needed where, what wins, what grubby is told."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible.module_utils.gaudi.host import cmdline as kernel_cmdline
from ansible.module_utils.gaudi.host import grub
from ansible.module_utils.gaudi.host.grub import BootEntry, Word
from ansible.module_utils.gaudi.host.shell import TextPosition

from tests.unit.refused import refused

ROOT = Path(__file__).resolve().parents[3]
RULES = yaml.safe_load((ROOT / "catalog/host.yml").read_text())["kernel_arguments"]
IOMMU = ["intel_iommu=on", "iommu=pt"]
OWN = "/etc/default/grub.d/zz-gaudi-serving.cfg"


def entry(*arguments: str, kernel: str = "/boot/vmlinuz-1") -> BootEntry:
    return BootEntry("Linux", kernel, arguments, 1)


@pytest.mark.parametrize(
    ("system", "kernels", "iommu"),
    [
        ("ubuntu", ["6.8.0-45-generic"], True),
        ("ubuntu", ["6.8"], True),
        ("ubuntu", ["5.15.0-130-generic"], False),
        ("ubuntu", ["6.80.1"], False),
        ("ubuntu", ["6.11.0-17-generic"], False),
        # It runs another, and the next boot may choose this one.
        ("ubuntu", ["5.15.0-130-generic", "6.8.0-45-generic"], True),
        ("debian", ["6.8.12-1"], False),
        ("rhel", ["5.14.0-427.13.1.el9_4.x86_64"], False),
    ],
)
def test_iommu_exactly_where_it_is_needed(system: str, kernels: list[str], iommu: bool) -> None:
    needed = kernel_cmdline.needed(RULES, system, kernels)
    assert [need.argument for need in needed if need.purpose == "correctness"] == (IOMMU if iommu else [])
    assert [need.argument for need in needed if need.purpose == "speed"] == [
        "cpufreq.default_governor=performance",
        "intel_idle.max_cstate=0",
    ]


def test_iommu_concerns_only_the_kernel_it_is_for() -> None:
    need = kernel_cmdline.needed(RULES, "ubuntu", ["6.8.0-45-generic"])[-1]
    assert need.concerns("6.8.0-45-generic")
    assert not need.concerns("6.11.0-17-generic")


def test_always_is_for_every_kernel() -> None:
    need = kernel_cmdline.needed(RULES, "debian", ["6.1.0-56-amd64"], ["iommu"])[-1]
    assert need.argument == "iommu=pt"
    assert need.concerns("6.1.0-56-amd64")


def test_an_unreadable_rule_is_refused() -> None:
    with refused("wrong_catalogue_file", "'x'"):
        kernel_cmdline.needed([{"id": "x", "arguments": "quiet", "purpose": "speed"}], "debian", ["6.1"])


@pytest.mark.parametrize(
    "argument", [7, None, {"a": 1}, "", "two words", 'a="b"', "a=$(reboot)", "a=b\nc", "-a", "a=`b`"]
)
def test_what_no_kernel_argument_looks_like(argument: object) -> None:
    with refused("not_a_kernel_argument"):
        kernel_cmdline.check([argument])


def test_arguments_that_contradict_each_other() -> None:
    with refused("kernel_arguments_contradict", "'iommu=pt'", "'iommu=soft'"):
        kernel_cmdline.check(["iommu=pt", "iommu=soft"])
    assert kernel_cmdline.check(["quiet", "quiet"]) == ["quiet"]
    assert kernel_cmdline.check(["pci=realloc=off"]) == ["pci=realloc=off"]


def test_the_last_one_wins_and_dashes_are_underscores() -> None:
    assert (
        kernel_cmdline.holds("intel_idle.max_cstate=0", ["intel_idle.max_cstate=1", "intel-idle.max_cstate=0"]) is True
    )
    assert kernel_cmdline.value_of("intel_idle.max_cstate=0", ["intel-idle.max_cstate=1"]) == "intel-idle.max_cstate=1"
    assert kernel_cmdline.holds("iommu=pt", ["iommu=pt", "iommu=soft"]) is False
    assert kernel_cmdline.holds("iommu=pt", ["iommu=soft", "iommu=pt"]) is True
    assert kernel_cmdline.holds("quiet", []) is False


@pytest.mark.report("H13")
@pytest.mark.parametrize(
    ("line", "passthrough"),
    [
        ("iommu=pt iommu.passthrough=0", False),
        ("iommu=pt iommu.passthrough=off", False),
        ("iommu.passthrough=no iommu=pt", True),
        ("iommu=pt iommu.passthrough=1", True),
        ("iommu.passthrough=1", True),
        ("iommu.passthrough=on", True),
        ("iommu.passthrough=Y", True),
        ("iommu-passthrough=1", False),
        ("iommu.passthrough", False),
        # The kernel says no to that value, and keeps what it had.
        ("iommu=pt iommu.passthrough=maybe", True),
        ("iommu=pt,force", True),
        ("iommu=force,pt", True),
        ("iommu=force iommu=pt", True),
        ("iommu=pt iommu=force", True),
        ("iommu=pt,nopt", False),
        ("iommu=pt iommu=nopt", False),
        ("iommu=nopt iommu.passthrough=1", True),
        ("iommu=off iommu=pt", False),
        ("iommu=off,pt", False),
        ("iommu=pt iommu.passthrough=1 iommu=off", False),
        ("iommu.passthrough=1 iommu=soft", False),
        ('iommu="pt"', True),
        ('"iommu=pt"', True),
        ("iommu", False),
        ("iommu=pt -- iommu.passthrough=0", True),
        ("-- iommu=pt", False),
    ],
)
def test_passthrough_in_all_its_spellings(line: str, passthrough: bool) -> None:
    assert kernel_cmdline.holds("iommu=pt", kernel_cmdline.split(line)) is passthrough


@pytest.mark.report("H13")
@pytest.mark.parametrize(
    ("line", "on"),
    [
        ("intel_iommu=on", True),
        ("intel_iommu=on,sm_on", True),
        ("intel_iommu=sm_on,on", True),
        ("intel_iommu=on intel_iommu=sm_on", True),
        ("intel_iommu=sm_on", False),
        ("intel_iommu=on,off", False),
        ("intel_iommu=off intel_iommu=on", True),
        ("intel_iommu=on intel_iommu=igfx_off", True),
        ("intel-iommu=on", True),
        ("amd_iommu=on", False),
    ],
)
def test_an_iommu_of_intel_in_all_its_spellings(line: str, on: bool) -> None:
    assert kernel_cmdline.holds("intel_iommu=on", line.split()) is on


@pytest.mark.report("H05")
def test_hugepages_of_two_sizes_do_not_contradict_each_other() -> None:
    ours = ["hugepagesz=2M", "hugepages=15000"]
    theirs = ["default_hugepagesz=1G", "hugepagesz=1G", "hugepages=200"]
    assert kernel_cmdline.check([*ours, *theirs]) == [*ours, *theirs]
    line = words(*((text, "/etc/default/grub", 6) for text in theirs), *((text, OWN, 3) for text in ours))
    assert kernel_cmdline.conflicts(ours, line, OWN) == []
    assert kernel_cmdline.held(ours, [word.text for word in line]) == ours
    assert kernel_cmdline.held(ours, theirs) == []


@pytest.mark.report("H13")
@pytest.mark.parametrize(
    ("vendor", "wrong_without"), [("GenuineIntel", IOMMU), ("AuthenticAMD", ["iommu=pt"]), ("", IOMMU)]
)
def test_intel_iommu_is_not_missed_on_processors_of_amd(vendor: str, wrong_without: list[str]) -> None:
    needed = kernel_cmdline.needed(RULES, "ubuntu", ["6.8.0-45-generic"])
    here = kernel_cmdline.on_processor(needed, f"processor\t: 0\nvendor_id\t: {vendor}\n")
    assert [need.argument for need in here] == [need.argument for need in needed]
    assert [need.argument for need in here if need.purpose == "correctness"] == wrong_without


def test_another_part_of_the_same_list_is_no_contradiction() -> None:
    both = ["intel_iommu=on", "intel_iommu=on,sm_on"]
    assert kernel_cmdline.check(both) == both
    assert not kernel_cmdline.holds(both[1], ["intel_iommu=on"])
    assert kernel_cmdline.conflicts(["intel_iommu=on"], words(("intel_iommu=sm_on,on", "f", 1)), OWN) == []
    with refused("kernel_arguments_contradict"):
        kernel_cmdline.check(["iommu=pt", "iommu.passthrough=0"])


def test_no_entry_is_not_every_entry() -> None:
    assert kernel_cmdline.holds_in_all("quiet", []) is False
    assert kernel_cmdline.holds_in_all("quiet", [entry("quiet"), entry("ro")]) is False
    assert kernel_cmdline.holds_in_all("quiet", [entry("quiet"), entry("ro", "quiet")]) is True


def words(*pairs: tuple[str, str, int]) -> list[Word]:
    return [Word(text, TextPosition(path, line)) for text, path, line in pairs]


def test_a_users_line_in_front_of_ours() -> None:
    line = words(("intel_idle.max_cstate=1", "/etc/default/grub", 9), ("intel_idle.max_cstate=0", OWN, 3))
    (sentence,) = kernel_cmdline.conflicts(["intel_idle.max_cstate=0"], line, OWN)
    assert sentence.startswith("/etc/default/grub:9 says intel_idle.max_cstate=1, wanted is intel_idle.max_cstate=0.")
    assert "intel_idle.max_cstate=0 wins, because it stands last" in sentence


def test_a_users_line_behind_ours() -> None:
    line = words(("iommu=pt", OWN, 3), ("iommu=soft", "/etc/default/grub.d/zzz.cfg", 1))
    (sentence,) = kernel_cmdline.conflicts(["iommu=pt"], line, OWN)
    assert "iommu=soft wins, because it stands behind ours" in sentence


def test_a_later_file_that_forgets_ours() -> None:
    files = [(OWN, grub.render(["iommu=pt"])), ("/etc/default/grub.d/zzz.cfg", f'{grub.DEFAULT}="iommu=soft"')]
    (sentence,) = kernel_cmdline.conflicts(["iommu=pt"], grub.command_line(grub.evaluate(files)), OWN)
    assert "iommu=soft wins, because a file behind" in sentence


def test_an_iommu_that_is_off_stays_off() -> None:
    line = words(("iommu=off", "/etc/default/grub", 9), ("iommu=pt", OWN, 3))
    (sentence,) = kernel_cmdline.conflicts(["iommu=pt"], line, OWN)
    assert sentence.startswith(
        "/etc/default/grub:9 says iommu=off, wanted is iommu=pt. iommu=off wins, because no later"
    )
    assert kernel_cmdline.value_of("iommu=off", ["iommu=off"]) == "iommu=off"


def test_what_stands_behind_two_dashes_counts_for_nothing() -> None:
    line = words(("iommu=soft", "f", 1), ("--", "f", 2), ("iommu=off", "f", 2), ("iommu=pt", OWN, 3))
    dashes, soft = kernel_cmdline.conflicts(["iommu=pt"], line, OWN)
    assert dashes.startswith("f:2 says --, and what stands behind it goes to init, not to the kernel")
    assert soft.startswith("f:1 says iommu=soft")
    assert kernel_cmdline.conflicts(["iommu=pt"], [line[3], *line[1:3]], OWN) == []


def test_the_same_value_is_no_conflict() -> None:
    assert kernel_cmdline.conflicts(["iommu=pt"], words(("iommu=pt", "/etc/default/grub", 9)), OWN) == []


def test_split_keeps_quoted_values_whole() -> None:
    assert kernel_cmdline.split('ro dyndbg="file a +p; file b +p"  quiet\n') == [
        "ro",
        'dyndbg="file a +p; file b +p"',
        "quiet",
    ]


def test_grubby_is_told_all_kernels_at_once() -> None:
    assert kernel_cmdline.grubby_set(["a=1", "b"]) == ["--update-kernel=ALL", "--args=a=1 b"]


def test_grubby_puts_back_what_it_replaced() -> None:
    entries = [
        entry("ro", "intel_idle.max_cstate=0", "iommu=pt", kernel="/boot/vmlinuz-1"),
        entry("ro", "intel_idle.max_cstate=0", "iommu=pt", kernel="/boot/vmlinuz-2"),
    ]
    former = {"/boot/vmlinuz-1": "ro intel_idle.max_cstate=1 iommu=pt"}
    assert kernel_cmdline.grubby_restore(["intel_idle.max_cstate=0", "iommu=pt"], entries, former) == [
        ["--update-kernel=/boot/vmlinuz-1", "--remove-args=intel_idle.max_cstate=0"],
        ["--update-kernel=/boot/vmlinuz-1", "--args=intel_idle.max_cstate=1"],
        ["--update-kernel=/boot/vmlinuz-2", "--remove-args=intel_idle.max_cstate=0 iommu=pt"],
    ]


def test_grubby_has_nothing_to_put_back_where_nothing_of_ours_is() -> None:
    assert kernel_cmdline.grubby_restore(["iommu=pt"], [entry("ro")], {"/boot/vmlinuz-1": "ro"}) == []
