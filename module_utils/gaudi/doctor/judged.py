"""Everything that is wrong with a node, judged on the controller from what the node reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..base import paths
from ..base.documents import Damaged
from ..base.printable import printable
from ..fabric import asked, compute
from ..fabric.verdict import read_verdict
from ..faults.entry import CARDS
from . import findings
from .findings import Finding


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


def of_node(node: Mapping[str, Any], preflight: Mapping[str, Any], tuning: Mapping[str, Any]) -> list[Finding]:
    """Return all findings of a node, from what node_faults_info, gaudi_preflight and host_tuning_info report.

    What read a thing more closely comes first: of the same sentence, the first counts.
    """
    topology = preflight["topology"]
    holders = {int(module): str(instance) for module, instance in node["holders"].items()}
    document, damage = verdict(node["acceptance"])
    found = [
        *findings.of_topology(topology["findings"]),
        *([Finding("verdict_damaged", CARDS, damage)] if damage else []),
        *of_verdict(document),
        *findings.of_users(topology["cards"], holders, node["running"]),
        *(Finding(**each) for each in node["found"]),
        *findings.of_preflight(preflight["problems"], preflight["findings"]),
        *findings.of_tuning(tuning["items"], tuning["serving_refused"], tuning["findings"], preflight["allowed"]),
    ]
    return findings.once(found)
