"""The table, what waits for a reboot, what refuses serving, the firmware checklist, the record of former values."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.gaudi.host import cmdline as kernel_cmdline
from ansible.module_utils.gaudi.host import state as host_state
from ansible.module_utils.gaudi.host import sysctl
from ansible.module_utils.gaudi.host.cmdline import NeededArgument
from ansible.module_utils.gaudi.host.grub import BootEntry
from ansible.module_utils.gaudi.host.state import Cpu, Firmware

from tests.unit.refused import refused

CATALOG = yaml.safe_load((Path(__file__).resolve().parents[3] / "catalog/host.yml").read_text())
OWN = "/etc/sysctl.d/zz-gaudi-serving.conf"
SPEED = NeededArgument("intel_idle.max_cstate=0", "speed", "it costs tokens")
CORRECT = NeededArgument("iommu=pt", "correctness", "answers are garbled", ("6.8",))
UBUNTU = "6.8.0-45-generic"


def entry(*arguments: str) -> BootEntry:
    return BootEntry("Linux", "/boot/vmlinuz-1", arguments, 1)


def states(items: list[host_state.Item]) -> dict[str, str]:
    return {item.item: item.state for item in items}


@pytest.mark.parametrize(
    ("files", "running", "state"),
    [
        ([(OWN, "vm.x = 1")], "1", "ok"),
        ([(OWN, "vm.x = 1")], "2", "wrong"),
        ([], "1", "wrong"),
        ([("/etc/sysctl.d/10-a.conf", "vm.x = 1")], "1", "wrong"),
        ([(OWN, "vm.x = 1"), ("/etc/sysctl.d/zzz.conf", "vm.x = 3")], "1", "wrong"),
    ],
)
def test_a_kernel_setting(files: list[tuple[str, str]], running: str, state: str) -> None:
    assignments = [found for path, text in files for found in sysctl.parse(path, text)]
    assert states(host_state.sysctl_items({"vm.x": "1"}, {"vm.x": running}, assignments, OWN)) == {"vm.x": state}


def test_a_setting_the_kernel_or_the_container_does_not_have() -> None:
    assert states(host_state.sysctl_items({"vm.x": "1"}, {}, [], OWN)) == {"vm.x": "not here"}
    assert states(host_state.sysctl_items({"vm.x": "1"}, {"vm.x": "2"}, [], OWN, ["vm.x"])) == {"vm.x": "not here"}


@pytest.mark.parametrize(
    ("entries", "running", "state"),
    [
        ([entry("intel_idle.max_cstate=0")], ["intel_idle.max_cstate=0"], "ok"),
        ([entry("intel_idle.max_cstate=0")], ["quiet"], "reboot"),
        ([entry("quiet")], ["intel_idle.max_cstate=0"], "wrong"),
        ([entry("intel_idle.max_cstate=0"), entry("quiet")], ["intel_idle.max_cstate=0"], "wrong"),
        ([entry("intel_idle.max_cstate=0", "intel_idle.max_cstate=1")], [], "wrong"),
        ([entry("intel_idle.max_cstate=0")], ["intel-idle.max_cstate=0"], "ok"),
        ([], ["intel_idle.max_cstate=0"], "ok"),
        ([], [], "wrong"),
    ],
)
def test_a_kernel_argument(entries: list[BootEntry], running: list[str], state: str) -> None:
    (item,) = host_state.argument_items([SPEED], entries, running, container=False)
    assert item.state == state
    assert item.wanted == "0"


@pytest.mark.report("H13")
def test_an_argument_set_by_hand_under_its_other_name() -> None:
    (item,) = host_state.argument_items([CORRECT], [], ["iommu.passthrough=1"], container=False)
    assert (item.state, item.now) == ("ok", "iommu.passthrough=1")


@pytest.mark.report("H11")
@pytest.mark.parametrize(
    ("written", "state"),
    [(None, "ok"), (["intel_idle.max_cstate=0"], "ok"), (["intel_idle.max_cstate=1"], "wrong"), ([], "wrong")],
)
def test_entries_that_the_files_no_longer_say(written: list[str] | None, state: str) -> None:
    entries = [entry(SPEED.argument)]
    (item,) = host_state.argument_items([SPEED], entries, [SPEED.argument], written, container=False)
    assert item.state == state
    said = host_state.lost_at_next_update_grub([SPEED], entries, written)
    assert [sentence.startswith(f"The boot entries have {SPEED.argument}, but") for sentence in said] == (
        [True] if state == "wrong" else []
    )


def test_a_container_has_no_kernel_arguments_of_its_own() -> None:
    (item,) = host_state.argument_items([SPEED], [], [], container=True)
    assert item.state == "not here"
    assert host_state.absences([item], container=True) == [
        "This is a container: its kernel command line, its processors and the highest limits are the host's to set."
    ]


FAST = [Cpu(n, "performance", {"POLL": True, "C1_ACPI": True, "C2_ACPI": False}) for n in range(2)]
SLOW = [*FAST[:1], Cpu(1, "powersave", {"POLL": True, "C1_ACPI": True, "C6": True})]


def test_processors() -> None:
    assert set(states(host_state.cpu_items(FAST, enabled=True, container=False)).values()) == {"ok"}
    assert set(states(host_state.cpu_items(FAST, enabled=False, container=False)).values()) == {"wrong"}
    governor, idle = host_state.cpu_items(SLOW, enabled=True, container=False)
    assert (governor.now, governor.state) == ("performance on CPU 0, powersave on CPU 1", "wrong")
    assert (idle.now, idle.state) == ("on: C6 on CPU 1", "wrong")


def test_processors_are_reported_one_by_one_and_end_nothing() -> None:
    shallow = {"POLL": True, "C1": True, "C6": False}
    cpus = [
        *(Cpu(number, "performance", shallow, ("performance", "powersave")) for number in range(4)),
        *(Cpu(number, None, {}, online=False) for number in (4, 5)),
        Cpu(6, None, shallow),
        Cpu(7, None, {"POLL": True}, unread=("governor", "idle states")),
        *(Cpu(number, "schedutil", shallow, ("schedutil",)) for number in (8, 9, 11)),
    ]
    governor, idle = host_state.cpu_items(cpus, enabled=True, container=False)
    assert (governor.state, idle.state) == ("ok", "ok")
    assert governor.now == "performance on CPU 0-3, schedutil on CPU 8-9,11"
    said = host_state.cpu_findings(cpus)
    assert [sentence.partition(":")[0] for sentence in said] == ["CPU 4-5", "CPU 6", "CPU 7", "CPU 7", "CPU 8-9,11"]
    for sentence, word in zip(
        said, ("offline", "no cpufreq", "governor not", "idle states not", "stays schedutil"), strict=True
    ):
        assert word in sentence
    governor, _idle = host_state.cpu_items(cpus[-3:], enabled=True, container=False)
    assert (governor.now, governor.state, governor.lacking) == ("schedutil", "not here", False)


def test_processors_of_a_virtual_machine() -> None:
    items = host_state.cpu_items([Cpu(0, None, {})], enabled=True, container=False)
    assert set(states(items).values()) == {"not here"}
    assert host_state.absences(items, container=False) == [
        "governor of every CPU: no cpufreq driver, so there is nothing to set.",
        "C-states deeper than C1: no idle states, so there is nothing to set.",
    ]


def test_what_a_node_lacks_is_known_by_its_field_and_not_by_its_words() -> None:
    (worded,) = host_state.sysctl_items({"kernel.x": "1"}, {"kernel.x": "no way"}, [], OWN, ["kernel.x"])
    (absent,) = host_state.sysctl_items({"kernel.x": "1"}, {}, [], OWN)
    assert (worded.state, worded.lacking) == (absent.state, False)
    assert host_state.absences([worded], container=False) == []
    other = replace(absent, now="the kernel has it not")
    assert host_state.absences([other], container=False) == [
        "kernel.x: the kernel has it not, so there is nothing to set."
    ]


def test_limits_are_read_from_every_unit() -> None:
    wanted = {"nofile": "1048576"}
    good, bad = {"nofile": "1048576"}, {"nofile": "1024"}
    assert host_state.limit_items(wanted, good, {})[0].state == "ok"
    assert host_state.limit_items(wanted, good, {"vllm-a.service": good})[0].state == "ok"
    item = host_state.limit_items(wanted, good, {"vllm-a.service": good, "vllm-b.service": bad})[0]
    assert (item.now, item.state) == ("vllm-b.service 1024", "wrong")
    assert host_state.limit_items(wanted, {}, {})[0].state == "wrong"


# /proc/PID/limits, Linux 6.1.
PROCESS = """Limit                     Soft Limit           Hard Limit           Units
Max processes             6008                 6008                 processes
Max open files            1024                 524288               files
Max locked memory         unlimited            unlimited            bytes
"""


def test_the_limits_a_process_runs_with() -> None:
    assert host_state.process_limits(PROCESS) == {"nofile": "1024", "memlock": "infinity"}


def test_an_instance_from_before_the_limits_is_to_be_restarted() -> None:
    wanted = {"nofile": "1048576", "memlock": "infinity"}
    running = {"vllm-a.service": host_state.process_limits(PROCESS), "vllm-b.service": wanted}
    assert host_state.restarts(wanted, running) == [
        "vllm-a.service was started with nofile 1024. Restart it to give it the limits wanted."
    ]
    states = {item.item: item.state for item in host_state.limit_items(wanted, wanted, running)}
    assert states == {"nofile of vllm-*.service": "wrong", "memlock of vllm-*.service": "ok"}


def test_a_container_reaches_only_its_own_limits() -> None:
    wanted, low = {"nofile": "1048576"}, {"vllm-a.service": {"nofile": "1024"}}
    assert host_state.limit_items(wanted, wanted, low, container=True)[0].state == "not here"
    assert host_state.limit_items(wanted, {}, low, container=True)[0].state == "wrong"


def test_what_waits_for_a_reboot() -> None:
    entries = [entry("intel_idle.max_cstate=0", "iommu=pt")]
    waiting = host_state.waits_for_reboot([SPEED, CORRECT], entries, ["iommu=pt"])
    assert host_state.reboot_reasons(waiting) == ["intel_idle.max_cstate=0 (speed: it costs tokens)"]
    assert host_state.waits_for_reboot([SPEED, CORRECT], [entry("quiet")], []) == []


def test_what_leaves_at_a_reboot() -> None:
    assert host_state.removed_at_reboot([SPEED], [entry("quiet")], [SPEED.argument]) == [SPEED]
    assert host_state.removed_at_reboot([SPEED], [entry(SPEED.argument)], [SPEED.argument]) == []
    assert host_state.removed_at_reboot([SPEED], [], [SPEED.argument]) == []


REFUSALS: list[tuple[list[NeededArgument], str, list[str], bool]] = [
    ([CORRECT], UBUNTU, ["ro"], True),
    ([CORRECT], UBUNTU, ["ro", "iommu=pt"], False),
    ([CORRECT], UBUNTU, ["iommu=pt", "iommu=soft"], True),
    ([CORRECT], "6.11.0-17-generic", ["ro"], False),
    ([CORRECT], "6.80.0", ["ro"], False),
    # The IOMMU that is off stays off, and what stands behind "--" goes to init.
    ([CORRECT], UBUNTU, ["iommu=off", "iommu=pt"], True),
    ([CORRECT], UBUNTU, ["iommu=noforce,off", "iommu=pt"], True),
    ([CORRECT], UBUNTU, ["iommu=pt", "--", "iommu=off"], False),
    ([CORRECT], UBUNTU, ["--", "single", "iommu=pt"], True),
    ([NeededArgument("intel_iommu=on", "correctness", "x")], UBUNTU, ["intel-iommu=off", "intel_iommu=on"], False),
    ([SPEED], UBUNTU, ["ro"], False),
    ([NeededArgument("intel-iommu=on", "correctness", "x")], "6.1.0", ["intel_iommu=on"], False),
    (
        [NeededArgument("intel_iommu=on", "correctness", "x"), CORRECT],
        UBUNTU,
        ["intel_iommu=on,sm_on", "iommu.passthrough=1"],
        False,
    ),
    ([], UBUNTU, ["ro"], False),
]


@pytest.mark.report("H13")
@pytest.mark.parametrize(("needed", "kernel", "running", "refused"), REFUSALS)
def test_serving_is_refused_for_correctness_only(
    needed: list[NeededArgument], kernel: str, running: list[str], refused: bool
) -> None:
    sentence = host_state.serving_refusal(needed, kernel, running, [], {})
    assert (sentence is not None) == refused


def test_the_refusal_says_what_to_do() -> None:
    start = f"The running kernel {UBUNTU} was started without iommu=pt: answers are garbled. "
    for waiting, causes, says in (
        ([CORRECT], {}, "Reboot this node"),
        ([], {"iommu=pt": "f:1 says iommu=soft. Remove it."}, "f:1 says iommu=soft. Remove it. Then run"),
        ([], {}, "A reboot does not bring it; playbooks/verify_host.yml names the file"),
    ):
        sentence = host_state.serving_refusal([CORRECT], UBUNTU, [], waiting, causes)
        assert sentence is not None
        assert sentence.startswith(start + says)


SHOWN = NeededArgument("iommu=pt", "correctness", "answers are wrong", shown=True)
CARD = "DMA-FQ of 0000:33:00.0 (module 3)"


@pytest.mark.parametrize(
    ("entries", "running", "translated", "state", "waits", "refused"),
    [
        ([entry("iommu=pt")], ["ro"], CARD, "reboot", True, "Reboot this node"),
        ([entry("iommu=pt")], ["iommu=pt"], "", "ok", False, ""),
        # The kernel lets the cards through by itself, or there is no IOMMU: nobody has to reboot for the argument.
        ([entry("iommu=pt")], ["ro"], "", "ok", False, ""),
        ([entry("quiet")], ["ro"], "", "ok", False, ""),
        ([], ["ro"], "", "ok", False, ""),
        ([entry("quiet")], ["ro"], CARD, "wrong", False, "A reboot does not bring it"),
        ([], ["ro"], CARD, "wrong", False, "A reboot does not bring it"),
        # The next boot would translate.
        ([entry("quiet")], ["iommu=pt"], "", "wrong", False, ""),
        ([entry("iommu=pt")], ["iommu=pt"], CARD, "ok", False, "dmesg | grep -i iommu tells"),
    ],
)
def test_what_the_kernel_shows_counts_and_not_the_argument(
    entries: list[BootEntry], running: list[str], translated: str, state: str, waits: bool, refused: str
) -> None:
    (item,) = host_state.argument_items([SHOWN], entries, running, container=False, translated=translated)
    assert item.state == state
    waiting = host_state.waits_for_reboot([SHOWN], entries, running, translated)
    assert waiting == ([SHOWN] if waits else [])
    sentence = host_state.serving_refusal([SHOWN], "6.1.0", running, waiting, {}, translated)
    assert (sentence is not None) == bool(refused)
    if sentence:
        assert refused in sentence
        assert CARD in sentence


def check(want: str, **seen: Any) -> tuple[str, str]:
    rows = host_state.checklist(CATALOG["firmware"], Firmware(**seen))
    ids = [setting["id"] for setting in CATALOG["firmware"]]
    row = rows[ids.index(want)]
    return row["state"], row["because"]


def test_firmware_that_can_be_read() -> None:
    assert check("c6", idle_driver="acpi_idle", idle_states=["POLL", "C1", "C2"])[0] == "wrong"
    assert check("c6", idle_driver="acpi_idle", idle_states=["POLL", "C1"])[0] == "ok"
    assert check("c6", idle_driver="intel_idle", idle_states=["POLL", "C1", "C6"])[0] == "cannot be read"
    assert check("pstates", cpufreq=True)[0] == "ok"
    assert check("pstates", cpufreq=False)[0] == "wrong"
    assert check("pstates", virtual=True)[0] == "cannot be read"
    assert check("profile", energy_bias=0)[0] == "ok"
    assert check("profile", energy_bias=6)[0] == "wrong"
    assert check("snc", nodes=2, packages=2)[0] == "ok"
    assert check("snc", nodes=4, packages=2) == ("wrong", "4 NUMA nodes on 2 processors")
    assert check("vtd", iommu_table=True)[0] == "ok"
    assert check("vtd", iommu_table=False)[0] == "wrong"


def test_firmware_that_cannot_be_read_is_said_to_be_so() -> None:
    rows = host_state.checklist(CATALOG["firmware"], Firmware(virtual=True))
    assert {row["state"] for row in rows} == {"cannot be read"}
    assert len(rows) == len(CATALOG["firmware"])
    assert all(row["because"] for row in rows)


def test_the_table_lines_up() -> None:
    items = host_state.cpu_items(SLOW, enabled=True, container=False)
    lines = host_state.items_table(items)
    assert lines[0].split() == ["ITEM", "WANTED", "CONFIGURED", "NOW", "AFTER", "REBOOT", "STATE"]
    assert {line.index(item.state) for line, item in zip(lines[1:], items, strict=True)} == {lines[0].index("STATE")}


def test_the_first_value_is_kept_and_new_settings_join() -> None:
    first = host_state.remember({}, {"sysctl": {"a": "1"}})
    assert first == {"schema": 1, "sysctl": {"a": "1"}}
    assert host_state.remember(first, {"sysctl": {"a": "9", "b": "2"}}) == {"schema": 1, "sysctl": {"a": "1", "b": "2"}}


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "null", '{"schema": 1, "sysctl": "x"}'])
def test_a_damaged_record_is_named_with_what_to_do(text: str) -> None:
    with refused("tuning_record_damaged", "/var/before.json"):
        host_state.record("/var/before.json", text)


def test_a_record_is_read() -> None:
    assert host_state.record("f", None) == {}
    assert host_state.record("f", '{"schema": 1, "sysctl": {"a": "1"}}') == {"schema": 1, "sysctl": {"a": "1"}}


def test_what_the_firmware_does_not_say_is_unknown() -> None:
    assert host_state.server(["QEMU", None, "1.16"]) == "QEMU, firmware 1.16"
    unknown = "server of an unknown model, firmware of an unknown version"
    assert host_state.server([None, None, None]) == unknown


def test_a_virtual_machine_says_nothing_about_its_hosts_numa_nodes() -> None:
    assert check("snc", nodes=1, packages=1)[0] == "ok"
    assert check("snc", nodes=1, packages=1, virtual=True)[0] == "cannot be read"


def test_the_handbooks_are_cited_for_what_they_say_and_for_nothing_else() -> None:
    """Section 1.1.1 of the handbooks of 1.21 and 1.22 has three settings of the firmware, 1.1.2 the kernel's."""
    cited = {entry["id"] for entry in CATALOG["firmware"] if entry["source"].endswith("section 1.1.1")}
    assert cited == {"c6", "pstates", "profile"}
    own = {entry["id"] for entry in CATALOG["firmware"] if entry["source"].startswith("this project's decision")}
    assert own == {"c1e", "snc"}
    (cpu,) = (rule for rule in CATALOG["kernel_arguments"] if rule["id"] == "cpu")
    assert cpu["source"].endswith("releases 1.21 and 1.22, section 1.1.2")


def test_every_rule_of_the_catalogue_has_a_source_and_can_be_read() -> None:
    for rule in CATALOG["kernel_arguments"]:
        assert rule["source"]
        assert rule["because"]
        assert kernel_cmdline.check(rule["arguments"]) == rule["arguments"]
    assert all(entry["source"] for entry in CATALOG["hugepages"]["published"])
    assert {setting["check"] for setting in CATALOG["firmware"]} <= {
        None,
        "deep_cstates",
        "cpufreq",
        "energy_bias",
        "snc",
        "iommu",
    }


def test_the_document_carries_what_a_later_boot_needs() -> None:
    assert asdict(CORRECT) == {
        "argument": "iommu=pt",
        "purpose": "correctness",
        "because": "answers are garbled",
        "kernels": ("6.8",),
        "shown": False,
    }
