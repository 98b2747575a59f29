"""node_faults_info: what is read of a node for the doctor, each fault caused."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.cards.findings import finding
from ansible.module_utils.gaudi.cards.users import new_user
from ansible.module_utils.gaudi.fabric.static import StaticFault
from ansible.module_utils.gaudi.fabric.verdict import VerdictSubject, new_verdict
from ansible.module_utils.gaudi.node import containers, instances, iommu, startable, states
from ansible.module_utils.gaudi.node.containers import InstanceContainer
from ansible.module_utils.gaudi.node.kept import InstancePaths
from ansible.module_utils.gaudi.node.report import acceptance
from ansible.module_utils.gaudi.serving.counts import Counts
from ansible.module_utils.gaudi.serving.kept import Back, StartsFrom, serves

from filter_plugins.doctor import doctor_findings
from library import node_faults_info
from tests.unit.host.modules import run_main
from tests.unit.node.damages import DAMAGES, damage

OF_DRIVERS = Path(__file__).resolve().parents[1] / "driver/recorded"

CARD = {"module_id": 0, "users": [{**new_user(), "pid": 42, "name": "python3", "container_name": "vllm-tiny"}]}
TOPOLOGY: dict[str, Any] = {"cards": [CARD], "findings": []}
PIECES = "Node 0, zone    DMA32   9000   4000     10      3      1      0      0      0      0      0      0\n"


@pytest.fixture(autouse=True)
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node whose instance serves with what lies on it."""
    for name, text in {
        "plans/tiny/plan.json": json.dumps({"instance": "tiny"}),
        "states/tiny/state.json": json.dumps({"phase": "serving", "status": "serving"}),
        "buddyinfo": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(states, "PLANS", tmp_path / "plans")
    monkeypatch.setattr(states, "STATES", tmp_path / "states")
    monkeypatch.setattr(instances, "systemctl", lambda _module, *_rest: "LoadState=loaded\nActiveState=active\n")
    (tmp_path / "run").mkdir()
    monkeypatch.setattr(startable, "RUN", tmp_path / "run")
    monkeypatch.setattr(acceptance, "VERDICT", tmp_path / "acceptance.json")
    monkeypatch.setattr(node_faults_info, "BUDDYINFO", tmp_path / "buddyinfo")
    monkeypatch.setattr(node_faults_info, "read_holders", lambda: ({0: "tiny"}, []))
    monkeypatch.setattr(node_faults_info, "read_containers", lambda _module, _complaints: ({}, {}))
    monkeypatch.setattr(AnsibleModule, "get_bin_path", lambda _self, program, **_options: f"/usr/bin/{program}")
    monkeypatch.setattr(AnsibleModule, "run_command", lambda _self, _command, **_options: (1, "", ""))
    monkeypatch.setattr(containers, "look", lambda _module, _name: InstanceContainer(True, "label", {}))
    monkeypatch.setattr(containers, "lies_there", lambda _plan, _label: True)
    monkeypatch.setattr(containers, "check_container", lambda _module, _plan, _label: None)
    return tmp_path


def faults(*versions: str) -> list[tuple[str, str]]:
    """What the doctor finds, with a preflight and a tuning that find nothing more."""
    answer = run_main("library.node_faults_info", {"host": "gaudi-01", "versions": [*versions]})
    assert answer["changed"] is False
    preflight = {"topology": TOPOLOGY, "problems": [], "findings": [], "allowed": []}
    tuning: dict[str, Any] = {"items": [], "serving_refused": None, "findings": []}
    return [(found["id"], found["sentence"]) for found in doctor_findings(answer, preflight, tuning)]


@pytest.mark.parametrize("key", ["items", "findings"])
def test_more_settings_than_a_host_has_are_not_compared(key: str) -> None:
    tuning: dict[str, Any] = {"items": [], "serving_refused": None, "findings": [], key: ["x"] * 513}
    with pytest.raises(AnsibleFilterError, match="has 513 entries, the limit is 512"):
        doctor_findings({}, {}, tuning)


def test_a_node_that_serves_has_none() -> None:
    assert faults() == []


@pytest.mark.parametrize(
    ("place", "wrong", "said"),
    [
        ("states/tiny", {"f_flag": os.ST_RDONLY}, "states/tiny/state.json cannot be written: the file system of "),
        ("states/tiny", {"f_bfree": 1}, "has 4.1 kB free, and 20.0 MB are needed"),
        ("plans/tiny", {"f_files": 9, "f_ffree": 0}, "has no room for one more file (df -i)"),
        ("run", {"f_bfree": 4095}, "run/systemd cannot be written: "),
        ("run", {"f_bfree": 4096}, ""),
    ],
)
def test_what_serves_and_can_write_nothing_is_a_fault(
    node: Path, monkeypatch: pytest.MonkeyPatch, place: str, wrong: dict[str, int], said: str
) -> None:
    """Also where its supervisor runs with what is on the disk, and has nothing new to say."""
    usual = {"f_frsize": 4096, "f_bfree": 10**6, "f_files": 9, "f_ffree": 9, "f_flag": 0}
    monkeypatch.setattr(
        os, "statvfs", lambda path: SimpleNamespace(**{**usual, **(wrong if path == node / place else {})})
    )
    found = faults()
    assert [identifier for identifier, _ in found] == ["no-room"] * bool(said)
    assert all(sentence.startswith("tiny: ") and said in sentence for _, sentence in found)


def test_a_container_that_outlived_its_unit_is_an_orphan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instances, "systemctl", lambda _module, *_rest: "LoadState=loaded\nActiveState=inactive\n")
    assert [found for found, _ in faults()] == ["card-used-by-orphaned-container", "stopped"]


def test_a_plan_that_was_changed_after_the_start_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "lies_there", lambda _plan, _label: False)
    ((found, sentence),) = faults()
    assert found == "not-as-planned"
    assert sentence.startswith("tiny does not run with what lies on the node")


def test_who_went_back_without_a_start_is_told_what_starts_it(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """site.yml refuses the plan that runs, since somebody took it back."""
    monkeypatch.setattr(containers, "lies_there", lambda _plan, _label: False)
    place = InstancePaths("tiny", node / "states/tiny", node / "plans")
    (node / "plans/tiny/environment").write_text("")
    kept = serves([], place.files(), StartsFrom("", "", ""), "2026-01-31T08:00:00Z")
    place.keep(kept, ())
    place.go_back(Back("0" * 64, kept.digest, "it was taken back", "2026-01-31T09:00:00Z", "admin", kept.number))
    ((found, sentence),) = faults()
    assert found == "not-as-planned"
    assert f"The way back to the plan {kept.digest[:12]} was cut off" in sentence
    assert "playbooks/restart.yml -e instance=tiny" in sentence
    # Once it has served, something else was changed.
    place.keep(serves(place.kept()[0], place.files(), kept.starts_from, "2026-01-31T10:00:00Z"), ())
    ((_, sentence),) = faults()
    assert "Run site.yml" in sentence
    (node / "states/tiny/back.json").write_text("{")
    ((_, sentence),) = faults()
    assert "Run site.yml" in sentence


def test_a_container_that_is_not_as_planned_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def check_container(_module: object, _plan: object, _label: object) -> None:
        raise Refusal("outlived", "tiny has another image.")

    monkeypatch.setattr(containers, "check_container", check_container)
    assert faults() == [("not-as-planned", "tiny has another image.")]


def test_what_serves_without_its_image_on_the_node_is_a_fault(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on until it starts again, such as after a reboot."""
    (node / "plans/tiny/plan.json").write_text(json.dumps({"instance": "tiny", "image": "image:1"}))
    monkeypatch.setattr(startable, "image_id", lambda _module, _image: "sha256:1")
    assert faults() == []
    monkeypatch.setattr(startable, "image_id", lambda _module, _image: None)
    said = "tiny could not start again: its image image:1 is not on the node; run site.yml, which brings it."
    assert faults() == [("not-as-planned", said)]


def test_an_engine_that_is_silent_is_the_one_fault_where_nobody_can_tell_more(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(_module: object, complaints: list[str]) -> tuple[dict[str, str], dict[str, str]]:
        complaints.append("docker ps failed (status 1)")
        return {}, {}

    def nobody(*_arguments: object) -> None:
        raise AssertionError("no container is asked for where the engine does not answer")

    monkeypatch.setattr(node_faults_info, "read_containers", silent)
    monkeypatch.setattr(containers, "look", nobody)
    ((found, sentence),) = faults()
    assert found == "engine-unreachable"
    assert sentence.startswith("docker ps failed (status 1). Look at journalctl -u docker")


def test_instances_without_docker_are_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AnsibleModule, "get_bin_path", lambda _self, _program, **_options: None)
    ((found, sentence),) = faults()
    assert found == "engine-unreachable"
    assert sentence.startswith("The node has instances and no Docker.")


def test_the_kernel_is_asked(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (node / "buddyinfo").write_text(PIECES)

    def said(_self: object, command: list[str], **_options: object) -> tuple[int, str, str]:
        return (0, "habanalabs: a\n", "") if "--dmesg" in command else (1, "", "")

    monkeypatch.setattr(AnsibleModule, "run_command", said)
    assert [found for found, _ in faults()] == ["driver-errors", "low-memory-fragmented"]


RECORDED = Path(__file__).resolve().parents[1] / "doctor/recorded"


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The type of the IOMMU group of the node's card, a file that a test may change."""
    device = tmp_path / "sys/bus/pci/devices/0000:02:00.0"
    (device / "iommu_group").mkdir(parents=True)
    (device / "vendor").write_text("0x1da3\n")
    (device / "iommu_group/type").write_text("DMA-FQ\n")
    (tmp_path / "cmdline").write_text("ro quiet\n")
    monkeypatch.setattr(iommu, "SYS", tmp_path / "sys")
    monkeypatch.setattr(iommu, "CMDLINE", tmp_path / "cmdline")
    return device / "iommu_group/type"


def with_kernel_log(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    """Have the kernel's log hold these lines, of which journalctl returns those that are asked for."""

    def journalctl(_self: object, command: list[str], **_options: object) -> tuple[int, str, str]:
        sign = next((word.partition("=")[2] for word in command if word.startswith("--grep=")), "nothing")
        # The lines have no priority here; the oops below the driver's errors has none of them.
        found = [line for line in lines if "_TRANSPORT=kernel" in command and re.search(sign, line)]
        return int(not found), "".join(f"{line}\n" for line in found), ""

    monkeypatch.setattr(AnsibleModule, "run_command", journalctl)


def blamed(*versions: str) -> list[str]:
    return [sentence for found, sentence in faults(*versions) if found == "page-tables-overwritten"]


@pytest.mark.parametrize(
    ("record", "release", "who"),
    [
        ("kernel_log_1.24.0_gaudi3.txt", "1.24", "VLLM::Worker"),
        ("kernel_log_1.24.1_gaudi2.txt", "1.24.1", "python3.12"),
    ],
)
def test_recorded_page_tables_are_blamed_on_an_iommu_that_translates_and_on_no_other(
    card: Path, monkeypatch: pytest.MonkeyPatch, record: str, release: str, who: str
) -> None:
    """Both owners repaired it with iommu=pt. The lines name a process, and not the driver."""
    with_kernel_log(monkeypatch, *(RECORDED / record).read_text().splitlines())
    (sentence,) = blamed(release)
    assert f"1 message(s) of corrupted page tables, of {who}: " in sentence
    assert "iommu_group/type DMA-FQ of 0000:02:00.0, identity is required" in sentence
    assert "tune_host.yml with host_tuning_reboot=if_needed" in sentence
    assert blamed("1.23", "1.24.1-b336d5e") == [sentence]
    assert blamed("1.23", "1.23.0-2eae87a") == []
    assert blamed() == []
    card.write_text("identity\n")
    assert blamed(release) == []
    card.unlink()
    # A kernel that does not show it, started without iommu=pt.
    assert "none shown of 0000:02:00.0" in blamed(release)[0]


def test_without_such_a_line_no_page_table_is_corrupted(card: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = "habanalabs 0000:02:00.0: page tables of context 1 are not empty"
    with_kernel_log(monkeypatch, driver, "BUG: Bad page map in process python3")
    assert card.exists()
    assert blamed("1.24") == []


# How aiohttp ends a fetch of vLLM that takes too long (vllm-project/vllm issue 10904), and a retry of 1.24.1 as
# _log_retry in vllm/connections.py writes it.
TIMED_OUT = "    raise asyncio.TimeoutError from exc_val"
RETRIED = (
    "WARNING 11-25 10:00:00 [connections.py:90] HTTP fetch failed for https://example.com/a.jpg?of=me (attempt 1/3,"
    " timeout=5.000s):  -- retrying in 1.000s with timeout=20.000s"
)
REFUSED = (
    "WARNING 11-25 10:00:00 [connections.py:90] HTTP fetch failed for https://example.com/a.jpg (attempt 1/3,"
    " timeout=5.000s): Cannot connect to host example.com:443 -- retrying in 1.000s with timeout=20.000s"
)


def test_pictures_that_did_not_come_in_time_are_counted_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Manual v1.22, 3.4.4: fetch time-outs."""
    log = [TIMED_OUT, RETRIED, REFUSED, "TimeoutError", "INFO serving"]

    def journalctl(_self: object, command: list[str], **_options: object) -> tuple[int, str, str]:
        if "--unit=vllm-tiny.service" not in command:
            return 1, "", ""
        (sign,) = (word.partition("=")[2] for word in command if word.startswith("--grep="))
        return 0, "".join(f"{line}\n" for line in log if re.search(sign, line)), ""

    monkeypatch.setattr(AnsibleModule, "run_command", journalctl)
    ((found, sentence),) = faults()
    assert found == "media-fetch-timeout"
    assert sentence.startswith("tiny: since yesterday, pictures, films or sounds that were asked about did not come in")
    assert "in time: 2. Raise VLLM_IMAGE_FETCH_TIMEOUT" in sentence
    assert "example.com" not in sentence


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("kernel_log_boot_fit_missing_6.8.txt", "no firmware habanalabs/gaudi2/gaudi2-boot-fit.itb, so that its card"),
        (
            "kernel_log_unknown_symbol_1.24.0.txt",
            "load habanalabs_ib: it lacks uverbs_idr_class, ib_uverbs_get_ucontext",
        ),
        ("kernel_log_load_1.24.1.txt", ""),
    ],
)
def test_what_the_kernel_says_of_the_drivers_parts_is_explained(
    monkeypatch: pytest.MonkeyPatch, file: str, words: str
) -> None:
    """As owners of cards recorded it; the kernel prints most of these lines as warnings."""
    lines = (OF_DRIVERS / file).read_text(encoding="utf-8").splitlines()

    def journalctl(_self: object, command: list[str], **_options: object) -> tuple[int, str, str]:
        if "--dmesg" not in command:
            return 1, "", ""
        (sign,) = (word.partition("=")[2] for word in command if word.startswith("--grep="))
        printed = [line for line in lines if re.search(sign, line)]
        if "--priority=err" in command:
            printed = [line for line in printed if "NOT usable" in line or "is not found" in line]
        return 0, "".join(f"{line}\n" for line in printed), ""

    monkeypatch.setattr(AnsibleModule, "run_command", journalctl)
    of_kernel = [(found, sentence) for found, sentence in faults() if found in ("firmware-missing", "symbols-missing")]
    if "boot_fit" in file:
        assert of_kernel[0][0] == "firmware-missing"
    elif words:
        assert of_kernel[0][0] == "symbols-missing"
    assert [words in sentence for _, sentence in of_kernel] == [True] * bool(words)


def test_what_went_badly_while_an_instance_served_is_noted(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = {"phase": "serving", "counts": Counts({"decode 4 1 64": 1}, checks=9, waited=2, most_waiting=1).document()}
    (node / "states/tiny/state.json").write_text(json.dumps(state))
    assert [found for found, _ in faults()] == ["not-warmed-up", "requests-wait"]
    monkeypatch.setattr(instances, "systemctl", lambda _module, *_rest: "LoadState=loaded\nActiveState=inactive\n")
    assert not {"not-warmed-up", "requests-wait"} & {found for found, _ in faults()}


def test_of_what_is_stopped_nobody_reads_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AnsibleModule, "run_command", lambda _self, command, **_options: (0, f"{TIMED_OUT}\n", ""))
    monkeypatch.setattr(instances, "systemctl", lambda _module, *_rest: "LoadState=loaded\nActiveState=inactive\n")
    assert "media-fetch-timeout" not in [found for found, _ in faults()]


@pytest.mark.parametrize(("identifier", "there"), [("link-down", True), ("lost-card", True), ("rows-pending", False)])
def test_a_card_or_link_that_is_not_whole_is_a_fault_before_any_verdict(
    monkeypatch: pytest.MonkeyPatch, identifier: str, there: bool
) -> None:
    facts = dict.fromkeys(("Card", "up", "total", "ports", "who", "bus_id", "counts", "driven"), "x")
    monkeypatch.setitem(TOPOLOGY, "findings", [finding(identifier, **facts)])
    assert [found for found, _ in faults()] == [identifier] * there


def test_the_verdict_is_read(node: Path) -> None:
    document = new_verdict(
        node="n",
        time="now",
        made_of=VerdictSubject({"0": "AM1"}, "1.22.1", None, None, None, None, None),
        faults=[StaticFault("port_down", "A port is down.", (0,), True)],
        nics=None,
        results=(),
        located=(),
        not_measured="",
    )
    (node / "acceptance.json").write_text(json.dumps(document))
    assert faults() == [("port_down", "A port is down.")]


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_verdict_or_state_is_a_fault(node: Path, kind: str) -> None:
    damage(node / "acceptance.json", kind)
    (node / "states/tiny/state.json").unlink()
    damage(node / "states/tiny/state.json", kind)
    assert [found for found, _ in faults()] == ["verdict_damaged", "state-damaged"]
