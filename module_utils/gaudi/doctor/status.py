"""What a person should know of a node and its instances, as lines, from the node's report."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ..base import paths, reported, values
from ..base.checks import sequence
from ..base.refusal import Refusal
from ..cards.findings import finding
from ..cards.given import reported_topology
from ..cards.reservations import holders
from ..cards.text import describe_node
from ..driver.dkms import DkmsBuild
from ..driver.next_boot import NextBoot
from ..fabric import asked
from ..faults.words import with_id
from ..host import document, iommu
from ..jobs.decisions import unfinished
from ..jobs.report import jobs_in
from ..preflight.compatibility import remembered
from ..preflight.site import not_in_inventory
from ..serving.state import RUNNING
from ..serving.unserved import no_other_start
from . import judged, while_serving
from .covering import Cover

PARTS = ("cards", "reservations", "tuning", "next_boot", "acceptance", "instances", "jobs")
# Each argument is looked for among all words. Linux on x86 reads 2048 bytes (COMMAND_LINE_SIZE).
MOST_ARGUMENTS, MOST_WORDS = 64, 1024


def lines(report: object, host: str, wanted: Sequence[str] | None) -> list[str]:
    """Return the lines of a node's status; for a part that the node could not read, one that says why.

    report: PARTS of the node's report, from the module node_report. host: its name in the inventory. wanted: the
    instances that the inventory names; None if it has no list.
    """
    try:
        parts = reported.document(report, reported.LONGEST_ON_PAGE)
    except Refusal as refusal:
        return [f"{host} {reported.UNREADABLE}. {refusal}"]
    found = []
    for part, describe in (
        ("cards", partial(_cards, parts.get("reservations"))),
        ("tuning", _tuning),
        ("next_boot", _next_boot),
        ("acceptance", _acceptance),
        ("instances", _instances),
        ("jobs", _jobs),
        ("instances", partial(_unknown, host, wanted)),
    ):
        try:
            content = parts[part]
            found += [f"{part}: {content['error']}"] if "error" in content else [*describe(content)]
        # Values of another form than ours.
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            found.append(f"{part}: the node {reported.UNREADABLE}")
    return [reported.sentence(line) for text in dict.fromkeys(found) if text for line in text.splitlines()]


def _cards(kept: Any, said: Mapping[str, Any]) -> Iterator[str]:
    # A picture is as wide as its longest cell, in each line.
    topology, damage = reported_topology(said), kept.get("damage")
    if "error" in kept:
        damage = f"{paths.RESERVATIONS} does not show who has which card: {kept['error']}"
    unreadable = [finding("unreadable", what=damage)] if damage else []
    findings = [*topology["findings"], *unreadable]
    held = {name: cards for name, cards in kept.get("reservations", {}).items() if values.INSTANCE.fullmatch(name)}
    yield describe_node({**topology, "findings": findings}, holders(held))


def _next_boot(boot: Mapping[str, Any]) -> Iterator[str]:
    """Whether a chosen kernel waits for a reboot, and whether a reboot would lose the driver."""
    kernels = NextBoot(**{**boot, "built": tuple(DkmsBuild(**each) for each in boot["built"])})
    yield kernels.kernel_waits
    yield kernels.loses_driver


def _tuning(facts: Mapping[str, Any]) -> list[str]:
    """What waits for a reboot, and whether serving is refused until then."""
    state, running = facts["state"], facts["command_line"]
    sequence(running, "The words of the command line", MOST_WORDS)
    sequence(facts["groups"], "The groups of cards", reported.MOST_CARDS)
    try:
        if "damage" in state:
            raise ValueError(state["damage"])
        if state["text"] is None:
            return []
        recorded = document.parse(state["text"])
        for key in ("kernel_arguments", "leaving"):
            sequence(recorded[key], key, MOST_ARGUMENTS)
    except ValueError as why:
        return [document.damaged(paths.HOST_TUNING, str(why))]
    cards = iommu.translating([iommu.IommuGroup(**each) for each in facts["groups"]], running)
    found: list[str] = document.waits(document.refresh(recorded, facts["kernel"], running, iommu.shown(cards)))
    return found


def _acceptance(reported_verdict: Mapping[str, Any]) -> list[str]:
    document, damage = judged.verdict(reported_verdict)
    said: list[str] = [f"cards and links: {damage}"] if damage else asked.lines(document)
    return said


def _instances(facts: Mapping[str, Any]) -> Iterator[str]:
    found = facts["instances"]
    yield from remembered(found)
    for each in found:
        if each["drop_ins"]:
            theirs = ", ".join(each["drop_ins"])
            yield f"vllm-{each['instance']}.service runs with drop-ins that are not ours and are kept: {theirs}"
    for name, why in facts["lost_weights"].items():
        yield no_other_start(name, why)
    # Only of instances that run: counts of others are from before they stopped.
    for each in (each for each in found if each["active"] in RUNNING):
        cover = facts["covers"].get(each["instance"])
        notes = while_serving.of_counts(each["instance"], each["state"], Cover(**cover) if cover else None)
        yield from (with_id(note.sentence, note.id) for note in notes)


def _jobs(facts: Mapping[str, Any]) -> list[str]:
    found: list[str] = unfinished(jobs_in(facts))
    return found


def _unknown(host: str, wanted: Sequence[str] | None, facts: Mapping[str, Any]) -> Iterator[str]:
    yield from not_in_inventory(host, [each["instance"] for each in facts["instances"]], wanted)
    for path in facts["strangers"]:
        what = "belongs to no instance, and nothing here reads or changes it. Remove it by hand if nobody needs it."
        yield f"{shlex.quote(path)} {what}"
