"""Each fault that the doctor promises to find, caused where it is recognised, and told with its remedy."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest
from ansible.module_utils.gaudi.base.places import Room
from ansible.module_utils.gaudi.cards.findings import finding
from ansible.module_utils.gaudi.cards.users import new_user
from ansible.module_utils.gaudi.doctor import findings, judged
from ansible.module_utils.gaudi.doctor.findings import Finding
from ansible.module_utils.gaudi.fabric import static
from ansible.module_utils.gaudi.fabric.verdict import VerdictSubject, new_verdict
from ansible.module_utils.gaudi.host import state
from ansible.module_utils.gaudi.host.cmdline import NeededArgument
from ansible.module_utils.gaudi.preflight import checks, compatibility
from ansible.module_utils.gaudi.preflight.compatibility import ImageFacts

from tests.unit.doctor.test_findings import PIECES, of_instance
from tests.unit.fabric import test_static as links
from tests.unit.fabric.made import TYPES
from tests.unit.fabric.pages import numbers
from tests.unit.preflight.test_compatibility import IMAGE, RIGHT, judge

NEEDED = (NeededArgument("iommu=pt", "correctness", "answers may be wrong without it"),)


def of_release(**changes: Any) -> list[Finding]:
    """What preflight says of a node against its release, as the doctor has it."""
    problems = compatibility.problems(judge(dataclasses.replace(RIGHT, **changes)))
    return judged.of_preflight([problem.as_dict() for problem in problems], [])


def of_checks(problems: list[checks.Problem]) -> list[Finding]:
    return judged.of_preflight([problem.as_dict() for problem in problems], [])


def no_driver() -> list[Finding]:
    return judged.of_topology([finding("no-driver", on_pci="8 Gaudi cards", and_hl_smi="")])


def links_in_the_verdict() -> list[Finding]:
    down = links.changed(links.ports(), lambda port: (port.module, port.number) == (3, 9), up=False)
    faults = static.check(links.topology(), TYPES, down, links.interfaces(), links.ALL)
    made_of = VerdictSubject({"0": "AM1"}, "1.22.1", None, None, None, None, None)
    facts: dict[str, Any] = {"made_of": made_of, "results": (), "located": (), "not_measured": "", "nics": None}
    return judged.of_verdict(new_verdict(node="n", time="now", faults=list(faults), **facts))


def wrong_numbers() -> list[Finding]:
    found = judged.of_verdict({"faults": [], "compute_check": numbers()})
    return [each for each in found if each.fault]


def hugepages() -> list[Finding]:
    items = state.sysctl_items({"vm.nr_hugepages": "1024"}, {"vm.nr_hugepages": "0"}, [], "/etc/sysctl.d/ours.conf")
    return judged.of_tuning(map(asdict, items), None, [])


def until_a_reboot() -> list[Finding]:
    items = state.sysctl_items({"vm.nr_hugepages": "64"}, {"vm.nr_hugepages": "64"}, [], "/etc/sysctl.d/ours.conf")
    return judged.of_tuning(map(asdict, items), None, [])


def limits_of_nobody() -> list[Finding]:
    return judged.of_tuning(map(asdict, state.limit_items({"memlock": "infinity"}, {}, {})), None, [])


def governor() -> list[Finding]:
    cpus = [state.Cpu(0, "powersave", {}, ("powersave", "performance"))]
    return judged.of_tuning(map(asdict, state.cpu_items(cpus, enabled=True, container=False)), None, [])


def kernel_arguments() -> list[Finding]:
    refused = state.serving_refusal(NEEDED, "6.8.0", [], NEEDED, {})
    return judged.of_tuning([], refused, [])


def disk() -> list[Finding]:
    return of_checks(checks.check_room([Room("the weights in x", "/data/x", "/data", 200 << 30, 100 << 30)]))


def orphan() -> list[Finding]:
    user = {**new_user(), "pid": 7, "container": "0123456789ab", "container_name": "vllm-tiny"}
    return judged.of_users([{"module_id": 3, "users": [user]}], {3: "tiny"}, {"tiny": False})


def crash_loop() -> list[Finding]:
    return of_instance(state={"phase": "pausing", "status": "waiting 20 s before attempt 3 of 5; last: killed"})


@pytest.mark.parametrize(
    ("cause", "identifier", "says", "to_do"),
    [
        (no_driver, "no-driver", "No habanalabs driver is loaded", "modprobe habanalabs"),
        (
            lambda: of_release(driver="1.21.3-1a2b3c4", nic_drivers=frozenset(), packages={}),
            "driver",
            "found 1.21.3-1a2b3c4",
            "Install the driver 1.22.2-32",
        ),
        (links_in_the_verdict, "internal-port-down", "has internal ports down: 9", "neighbours on the board"),
        (wrong_numbers, "wrong-numbers", "Module 3 computes wrong numbers", "have a card that stays wrong replaced"),
        (hugepages, "not-in-effect", "vm.nr_hugepages is 0, and 1024 is wanted", "playbooks/tune_host.yml"),
        (
            until_a_reboot,
            "not-persistent",
            "vm.nr_hugepages is 64, as wanted, but nothing of ours keeps it so (after a reboot: the kernel's default).",
            "playbooks/tune_host.yml",
        ),
        (
            limits_of_nobody,
            "not-configured",
            "memlock of vllm-*.service is not set to infinity yet",
            "playbooks/tune_host.yml",
        ),
        (governor, "not-in-effect", "governor of every CPU is powersave", "playbooks/tune_host.yml"),
        (kernel_arguments, "serving-refused", "without iommu=pt", "eboot"),
        (lambda: of_release(kernel_lacks=NEEDED), "iommu", "iommu=pt on its command line", "playbooks/tune_host.yml"),
        (disk, "disk", "100.0 GiB are free on /data", "Free 100.0 GiB"),
        (lambda: of_checks(checks.check_clock(1000.0, 0.0, 60.0)), "clock", "ahead of the controller's", "NTP"),
        (orphan, "card-used-by-orphaned-container", "Module 3 is held by", "docker rm --force vllm-tiny"),
        (
            lambda: findings.of_low_memory(PIECES, 4096),
            "low-memory-fragmented",
            "no free piece of 4 MiB",
            "compact_memory",
        ),
        (
            lambda: of_release(images={IMAGE: ImageFacts("1.21.3.57")}),
            "image",
            "habana-torch-plugin 1.21.3.57",
            "Correct",
        ),
        (crash_loop, "crash-loop", "ends again and again: waiting 20 s before attempt 3 of 5", "logs.yml"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_it_is_found_and_told_with_its_remedy(
    cause: Callable[[], list[Finding]], identifier: str, says: str, to_do: str
) -> None:
    (found,) = cause()
    assert found.id == identifier
    assert says in found.sentence
    assert to_do in found.sentence
    # Nobody knows how large the pieces of low memory have to be, so that it is a note until a start fails.
    assert found.fault is (identifier != "low-memory-fragmented")
