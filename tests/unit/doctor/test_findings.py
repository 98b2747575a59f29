"""The list of a node's faults: nothing of a healthy one, each fault once, in the words of whoever found it."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.module_utils.gaudi.base.kernel_log import CORRUPTED_BY
from ansible.module_utils.gaudi.cards.users import new_user
from ansible.module_utils.gaudi.doctor import findings, judged
from ansible.module_utils.gaudi.doctor.findings import Finding
from ansible.module_utils.gaudi.faults.entry import CARDS, HOST, INSTANCES
from ansible.module_utils.gaudi.host.iommu import IommuGroup

WELL: dict[str, Any] = {
    "instance": "tiny",
    "load": "loaded",
    "active": "active",
    "result": "success",
    "damaged": "",
    "said": "",
    "otherwise": [],
    "state": {"phase": "serving", "status": "serving", "reason": None},
}
OWN = {**new_user(), "pid": 7, "container": "0123456789ab", "container_name": "vllm-tiny"}
STRANGER = {**new_user(), "pid": 42, "name": "python3"}
HEALTHY = "Node 0, zone      DMA      0      0      0      0      0      0      0      0      1      1      2\n"
PIECES = "Node 0, zone    DMA32   9000   4000     10      3      1      0      0      0      0      0      0\n"
NORMAL = "Node 0, zone   Normal   9000   4000     10      3      1      0      0      0      0      0      9\n"


def of_instance(**changed: Any) -> list[Finding]:
    return findings.of_instances([{**WELL, **changed}], "gaudi-01")


def failed(phase: str, status: str, **reason: Any) -> list[Finding]:
    return of_instance(state={"phase": phase, "status": status, "reason": reason})


def test_a_healthy_node_has_no_fault() -> None:
    healthy = [
        *judged.of_preflight([], []),
        *judged.of_tuning([{"item": "x", "state": "ok"}, {"item": "y", "state": "not here"}], None, []),
        *judged.of_verdict(None),
        *judged.of_verdict({"faults": [{"id": "slow", "sentence": "Slow.", "fatal": False}]}),
        *judged.of_users([{"module_id": 0, "users": [OWN]}], {0: "tiny"}, {"tiny": True}),
        *findings.of_low_memory(HEALTHY + NORMAL, 4096),
        *findings.of_low_memory("", 4096),
        *findings.of_kernel_log([]),
        *of_instance(),
    ]
    assert healthy == []
    assert findings.report("gaudi-01", []) == [
        "gaudi-01: no fault (cards and links, host, kernel settings, engine, instances looked at)"
    ]


def test_what_keeps_a_node_from_being_set_up_is_a_fault_and_the_rest_a_note() -> None:
    fault, note = judged.of_preflight([{"id": "clock", "message": "It is late.\x1b[2J"}], ["Docker is old."])
    assert (fault.id, fault.fault) == ("clock", True)
    assert "\x1b" not in fault.sentence
    assert (note.sentence, note.fault) == ("Docker is old.", False)


def test_a_setting_that_is_not_in_effect_says_what_is_and_what_should_be() -> None:
    item = {"item": "vm.nr_hugepages", "wanted": "1024", "now": "0", "after_reboot": "0", "state": "wrong"}
    barred, wrong, note = judged.of_tuning([item], "iommu=pt is missing.", ["tuned runs, too."])
    assert (barred.id, wrong.id) == ("serving-refused", "not-in-effect")
    assert barred.sentence.startswith("Serving is refused. iommu=pt is missing. ")
    assert wrong.sentence.startswith("vm.nr_hugepages is 0, and 1024 is wanted (after a reboot: 0).")
    assert not note.fault


def test_what_the_site_allows_of_the_iommu_is_a_note() -> None:
    item = {"item": "iommu", "wanted": "pt", "now": "-", "after_reboot": "pt", "state": "reboot"}
    items = [item, {**item, "item": "intel_iommu", "wanted": "on"}, {**item, "item": "intel_idle.max_cstate"}]
    for allowed, faults in (([], 4), (["driver"], 4), (["iommu"], 1)):
        found = judged.of_tuning(items, "iommu=pt is missing.", [], allowed)
        assert len(found) == 4
        assert sum(each.fault for each in found) == faults
    assert next(each for each in found if each.fault).sentence.startswith("intel_idle.max_cstate is -")


def test_page_tables_that_were_corrupted_are_counted_by_process() -> None:
    log = [
        "[  540.942980] python3.12: Corrupted page table at address 798d48680000",
        "[  540.943586] Bad pagetable: 000f [#1] PREEMPT SMP PTI",
        "VLLM::Worker_TP0: Corrupted page table at address 7f00",
        "python3.12: Corrupted page table at address 798d48680000",
    ]
    translated = [IommuGroup("0000:33:00.0", "4", "DMA", 3), IommuGroup("0000:34:00.0", "5", "identity", 1)]
    (found,) = findings.of_page_tables(log, translated, ["ro"])
    assert (found.id, found.fault) == ("page-tables-overwritten", True)
    assert "3 message(s) of corrupted page tables, of python3.12, VLLM::Worker_TP0: " in found.sentence
    assert "DMA of 0000:33:00.0 (module 3), identity" in found.sentence
    (despite,) = findings.of_page_tables(log, translated, ["iommu=pt"])
    assert "still translates" in despite.sentence
    (second,) = findings.of_page_tables(log[1:2], translated, [])
    assert "1 message(s) of corrupted page tables, of an unnamed process" in second.sentence
    assert findings.of_page_tables(log, translated[1:], []) == []
    assert findings.of_page_tables([], translated, []) == []


@pytest.mark.parametrize("before", ["", "[  540.942980] ", "<1>", "<1>[  540.942980][ T7816] ", "kern  :alert : "])
def test_a_process_with_corrupted_page_tables_is_named_without_the_level(before: str) -> None:
    found = CORRUPTED_BY.search(f"{before}VLLM::Worker: Corrupted page table at address 7f00")
    assert found is not None
    assert found["name"] == "VLLM::Worker"


def test_a_setting_that_tuned_undoes_names_its_profile_and_not_the_playbook_that_set_it() -> None:
    item = {"item": "kernel.numa_balancing", "wanted": "0", "now": "1", "after_reboot": "0", "state": "wrong"}
    other = {**item, "item": "vm.swappiness"}
    note = (
        "TuneD is set to the profile balanced, which sets kernel.numa_balancing=1 (/etc/tuned/balanced/tuned.conf), "
        "and may do so after this role. Choose a profile that leaves them alone, or switch TuneD off (tuned-adm off)."
    )
    undone, unset, _ = judged.of_tuning([item, other], None, [note])
    assert undone.sentence == f"kernel.numa_balancing is 1, and 0 is wanted (after a reboot: 0). {note}"
    assert unset.sentence.endswith("playbooks/tune_host.yml sets it.")
    unknown = "TuneD is set to the profile own, which may set the governor and kernel settings after this role (why)."
    undone, _ = judged.of_tuning([item], None, [unknown])
    assert undone.sentence.endswith(f"playbooks/tune_host.yml sets it. {unknown}")


def test_the_fatal_faults_of_the_verdict_are_faults() -> None:
    (found,) = judged.of_verdict({"faults": [{"id": "port_down", "sentence": "A port is down.", "fatal": True}]})
    assert found == Finding("port_down", CARDS, "A port is down.")


@pytest.mark.parametrize(("outcome", "notes"), [("unknown", 1), ("differs", 1), ("skipped", 0), ("passed", 0)])
def test_numbers_that_are_not_proved_are_a_note(outcome: str, notes: int) -> None:
    said = "The numbers of module 3 could not be checked (it hangs)."
    row = {"modules": [3], "outcome": outcome, "sentence": said}
    found = judged.of_verdict({"faults": [], "compute_check": {"rows": [row]}})
    assert [(each.fault, each.sentence.startswith(said)) for each in found] == [(False, True)] * notes


@pytest.mark.parametrize(
    ("user", "holders", "running", "id_", "fault", "says"),
    [
        (OWN, {0: "tiny"}, {"tiny": False}, "card-used-by-orphaned-container", True, "docker rm --force vllm-tiny"),
        (OWN, {}, {}, "card-used-by-orphaned-container", True, "docker rm --force vllm-tiny"),
        (STRANGER, {0: "tiny"}, {"tiny": True}, "card-used-by-other-process", True, "pid 42 python3 uses it"),
        (STRANGER, {1: "tiny"}, {"tiny": True}, "card-in-use", False, "which is no instance"),
    ],
)
def test_who_holds_a_card_and_should_not_is_named(
    user: dict[str, Any], holders: dict[int, str], running: dict[str, bool], id_: str, fault: bool, says: str
) -> None:
    (found,) = judged.of_users([{"module_id": 0, "users": [user]}], holders, running)
    assert (found.id, found.fault) == (id_, fault)
    assert says in found.sentence


def test_an_instance_says_why_it_does_not_serve() -> None:
    (found,) = failed("failed", "Held. Gave up after 5 attempts.", kind="card-busy", message="Held.")
    assert (found.id, found.sentence) == ("card-busy", "tiny: Held. Gave up after 5 attempts.")
    (found,) = failed("pausing", "waiting 20 s before attempt 3 of 5; last: The driver does not offer the cards.")
    assert (found.id, found.fault) == ("crash-loop", True)
    assert "attempt 3 of 5; last: The driver does not offer the cards. What it says last has to be" in found.sentence
    (found,) = failed("not-answering", "not answering (no answer: timed out); ended after 180 s of this")
    assert (found.id, found.fault) == ("not-answering", True)
    assert found.sentence == "tiny: not answering (no answer: timed out); ended after 180 s of this."
    (found,) = of_instance(state={"phase": "waiting", "status": "waiting for its cards: The card is not there."})
    assert (found.id, found.fault) == ("waiting", True)
    assert found.sentence.startswith("tiny does not serve: waiting for its cards: The card is not there. It goes on")
    said = "waiting for its lock: Another supervisor runs tiny already"
    (found,) = of_instance(active="activating", said=said, state={"phase": "failed", "status": "An old failure."})
    assert (found.id, found.fault) == ("waiting", True)
    assert found.sentence.startswith(f"tiny does not serve: {said}. It goes on")
    (found,) = of_instance(load="not-found")
    assert found.id == "no-unit"
    assert found.sentence.startswith("tiny has no unit")
    assert "--limit gaudi-01" in found.sentence
    (found,) = of_instance(damaged="state.json is damaged")
    assert found.id == "state-damaged"
    assert found.sentence == "tiny: state.json is damaged. Its supervisor writes it again when it starts."
    (found,) = of_instance(active="failed", result="signal")
    assert found.id == "unit-failed"
    assert "its unit ended with signal" in found.sentence
    (found,) = of_instance(active="failed", result="exit-code", said="Another supervisor runs tiny already.")
    assert found.sentence == "tiny: Another supervisor runs tiny already."
    (found,) = of_instance(otherwise=["tiny does not run with what lies on the node."])
    assert (found.id, found.fault) == ("not-as-planned", True)


def test_what_cannot_be_written_is_said_once_for_all_instances() -> None:
    full = "/run/systemd cannot be written: the file system of /run is read-only"
    lacking = {"chat": [full], "tiny": [full, "/x cannot be written: the file system of / is read-only"], "other": []}
    of_run, of_disk = findings.of_room(lacking)
    assert (of_run.id, of_run.seen_in, of_run.fault) == ("no-room", "host", True)
    assert of_run.sentence.startswith(f"chat, tiny: {full}. What serves goes on, but")
    assert of_disk.sentence.startswith("tiny: /x cannot be written: ")


@pytest.mark.parametrize("phase", ["not-answering", "pausing", "waiting"])
def test_what_a_supervisor_was_at_counts_for_nothing_once_its_unit_is_down(phase: str) -> None:
    (found,) = of_instance(active="failed", result="signal", state={"phase": phase, "status": "It goes on."})
    assert found.id == "unit-failed"
    (found,) = of_instance(active="inactive", state={"phase": phase, "status": "It goes on."})
    assert found.id == "stopped"


def test_a_server_that_answers_again_is_no_fault_where_that_cannot_be_written_down() -> None:
    assert of_instance(state={"phase": "not-answering", "status": "not answering"}, said="serving tiny on x") == []


def test_an_instance_that_was_stopped_is_no_fault() -> None:
    (found,) = of_instance(active="inactive", state={"phase": "stopped", "status": "stopped as asked"})
    assert (found.id, found.fault) == ("stopped", False)


def test_low_memory_in_pieces_is_a_note() -> None:
    (found,) = findings.of_low_memory(PIECES + NORMAL, 4096)
    assert (found.id, found.fault) == ("low-memory-fragmented", False)
    # Every host has free pieces in its first 16 MiB, and the driver gets none of them.
    assert [each.id for each in findings.of_low_memory(HEALTHY + PIECES, 4096)] == ["low-memory-fragmented"]


def test_errors_of_the_driver_are_counted_and_the_last_is_shown() -> None:
    (found,) = findings.of_kernel_log(["habanalabs hl0: first", "habanalabs hl1: last\x1b[2J"])
    assert "2 error(s)" in found.sentence
    assert "habanalabs hl1: last" in found.sentence
    assert "\x1b" not in found.sentence


def test_a_fault_that_two_found_is_said_once_and_the_parts_come_in_order() -> None:
    low = Finding("a", INSTANCES, "a")
    high = Finding("b", HOST, "b")
    again = Finding("c", CARDS, "b")
    assert findings.once([low, high, again]) == [high, low]


def test_the_report_numbers_faults_and_marks_notes() -> None:
    found = [
        Finding("a", CARDS, "A."),
        Finding("b", HOST, "B."),
        Finding("c", HOST, "C.", fault=False),
    ]
    assert findings.report("gaudi-01", found)[0].startswith("gaudi-01: 2 faults (")
    assert findings.report("gaudi-01", found)[1:] == [
        "  1. cards and links: A.",
        "  2. host: B.",
        "  note, host: C.",
    ]
    assert findings.report("gaudi-01", found[:1])[0].startswith("gaudi-01: 1 fault (")


def test_report_a_fault_of_the_list_is_told_with_its_id() -> None:
    (told,) = findings.report("gaudi-01", failed("failed", "It crashed", kind="crashed"))[1:]
    assert told == "  1. instances: tiny: It crashed [crashed]"
