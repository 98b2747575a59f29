"""Everything that is wrong with a node, judged on the controller from what the node reports."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..base import paths
from ..base.checks import sequence
from ..base.documents import Damaged
from ..base.printable import printable
from ..base.reported import sentence
from ..cards.users import describe_user, instance_of, is_own
from ..fabric import asked, compute
from ..fabric.verdict import read_verdict
from ..faults.entry import CARDS, ERROR, HOST, KERNEL
from ..faults.words import fault, say
from ..host.state import ABSENT, NO_INSTANCE, OK
from ..host.tuned import TUNED
from . import findings
from .findings import Finding, known


def verdict(reported: Mapping[str, Any]) -> tuple[dict[str, Any] | None, str]:
    """Return the last verdict on cards and links, None without a valid one, and why its file cannot be read.

    reported: the part ``acceptance`` of a node's report.
    """
    try:
        if "damage" in reported:
            raise ValueError(reported["damage"])
        return None if reported["text"] is None else read_verdict(reported["text"]), ""
    except ValueError as why:
        return None, asked.damaged(Damaged(paths.ACCEPTANCE, str(why)))


def of_verdict(verdict: Mapping[str, Any] | None) -> list[Finding]:
    """Return the fatal faults and wrong numbers of the last verdict, and what is not proved of the numbers as notes.

    Nothing without a verdict.
    """
    found = [
        Finding(str(fault["id"]), CARDS, printable(str(fault["sentence"])))
        for fault in (verdict["faults"] if verdict else ())
        if fault["fatal"]
    ]
    part: Mapping[str, Any] = (verdict or {}).get("compute_check") or {"rows": []}
    wrong = compute.failed(part, [module for row in part["rows"] for module in row["modules"]])
    found += [Finding("wrong-numbers", CARDS, printable(f"{said} {compute.advice(part)}")) for said in wrong]
    notes = [f"{said} playbooks/accept.yml checks it again." for said in compute.unproved(part)]
    return found + [Finding("numbers_not_proved", CARDS, printable(said), fault=False) for said in notes]


def of_topology(topology_findings: Iterable[Mapping[str, str]]) -> list[Finding]:
    """Return faults of cards and links themselves, in the words of cards/findings.py.

    A link that is down does not stop preflight, so it is a warning in the topology; for the doctor it is a fault.
    """
    return [
        Finding(found["id"], CARDS, printable(found["message"]))
        for found in topology_findings
        if found["severity"] == ERROR or found["id"] == "link-down"
    ]


def of_users(
    cards: Iterable[Mapping[str, Any]], holders: Mapping[int, str], running: Mapping[str, bool]
) -> list[Finding]:
    """Return unexpected users of cards.

    holders: the instance that each module id is reserved for. running: for each instance of the node, whether its unit
    runs.
    """
    return [
        found
        for card in cards
        for user in card["users"]
        if (found := _of_user(card["module_id"], user, holders.get(card["module_id"]), running))
    ]


def _of_user(
    module: int | None, user: Mapping[str, Any], holder: str | None, running: Mapping[str, bool]
) -> Finding | None:
    """Return why a user should not have the card; None if it may."""
    instance, who = instance_of(user), describe_user(user)
    if instance is not None and not running.get(instance, False):
        return known("card-used-by-orphaned-container", module=module, who=who, instance=instance)
    if instance is not None:
        return None
    if holder is not None and not is_own(user, holder):
        return known("card-used-by-other-process", module=module, who=who, holder=holder)
    return known("card-in-use", module=module, who=who)


def of_preflight(problems: Iterable[Mapping[str, str]], findings: Iterable[str]) -> list[Finding]:
    """Return preflight's problems as faults and its findings as notes; both as gaudi_preflight returns them."""
    return [
        *(Finding(problem["id"], HOST, printable(problem["message"])) for problem in problems),
        *(Finding("preflight", HOST, printable(sentence), fault=False) for sentence in findings),
    ]


# Each setting is looked for in each note.
MOST_SETTINGS = 512
# The check of catalog/compatibility.yml about these kernel arguments, without which serving is refused.
_IOMMU = "iommu"
_OF_IOMMU = (_IOMMU, "intel_iommu")


def of_tuning(
    items: Iterable[Mapping[str, Any]],
    refused: str | None,
    findings: Iterable[str],
    allowed: Collection[str] = (),
) -> list[Finding]:
    """Return settings that are not in effect, and why serving is refused; input is as host_tuning_info returns it.

    allowed: checks whose mismatches the site allows (preflight_allow_mismatch). What concerns them is a note.
    """
    findings, may = list(findings), _IOMMU in allowed
    missing = [item for item in items if item["state"] not in (OK, ABSENT)]
    wrong = [replace(_not_in_effect(item, findings), fault=not (may and item["item"] in _OF_IOMMU)) for item in missing]
    barred = [replace(known("serving-refused", refused=refused), fault=not may)] if refused else []
    return [*barred, *wrong, *(Finding("host_tuning", KERNEL, printable(said), fault=False) for said in findings)]


def _not_in_effect(item: Mapping[str, Any], notes: Sequence[str]) -> Finding:
    """Return the finding for one setting; even a right value may not be configured, or belong to no instance yet.

    notes: sentences of the tuning. What TuneD undoes is not set by running the playbook again.
    """
    facts = {name: item[name] for name in ("item", "now", "wanted", "after_reboot")}
    if item["now"] == NO_INSTANCE:
        return known("not-configured", **facts)
    if item["now"] == item["wanted"]:
        return known("not-persistent", **facts)
    entry, tuned = fault("not-in-effect"), [said for said in notes if said.startswith(TUNED)]
    key = "governor" if "governor" in item["item"] else item["item"]
    for said in tuned:
        if re.search(rf"(?<![\w.]){re.escape(key)}=", said):
            return Finding(entry.id, entry.part, printable(f"{entry.sentence.format(**facts)} {said}"))
        if f"{TUNED} " in said and ", which may set" in said and ("." in key or key == "governor"):
            return Finding(entry.id, entry.part, printable(f"{say(entry.id, **facts)} {said}"))
    return known(entry.id, **facts)


def of_node(node: Mapping[str, Any], preflight: Mapping[str, Any], tuning: Mapping[str, Any]) -> list[Finding]:
    """Return all findings of a node, from what node_faults_info, gaudi_preflight and host_tuning_info report.

    What read a thing more closely comes first: of the same sentence, the first counts.
    """
    for key in ("items", "findings"):
        sequence(tuning[key], f"The {key} of the host's settings", MOST_SETTINGS)
    topology = preflight["topology"]
    holders = {int(module): str(instance) for module, instance in node["holders"].items()}
    document, damage = verdict(node["acceptance"])
    found = [
        *of_topology(topology["findings"]),
        *([Finding("verdict_damaged", CARDS, damage)] if damage else []),
        *of_verdict(document),
        *of_users(topology["cards"], holders, node["running"]),
        *(Finding(**each) for each in node["found"]),
        *of_preflight(preflight["problems"], preflight["findings"]),
        *of_tuning(tuning["items"], tuning["serving_refused"], map(sentence, tuning["findings"]), preflight["allowed"]),
    ]
    return findings.once(found)
