"""Decide what an acceptance run measures, whether a measurement is due, and which instances may start."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..base.documents import Damaged
from ..base.paths import ACCEPTANCE_PAGE
from ..base.printable import printable
from ..base.refusal import Refusal
from ..catalogue.compute import ComputeBounds
from ..catalogue.fabric import Fabric, size_text
from . import compute
from .classes import modules_are, modules_text
from .runs import DemoRun, over, requested_tests, runs_for, same_path, seconds
from .static import StaticFault
from .verdict import NOT_MEASURED, Needs, Permission, Policy, VerdictSubject, describe, may_start, rows, to_measure


@dataclass(frozen=True)
class AcceptanceWork:
    """The work of one acceptance run.

    planned: the runs of a complete measurement. runs: those of them to make if ``due`` allows it. why_not: why no run
    is possible, "" if one is. numbers: whose numbers are checked, also where ``due`` allows no measurement.
    """

    planned: tuple[DemoRun, ...]
    runs: tuple[DemoRun, ...]
    due: Permission
    why_not: str
    numbers: compute.ComputePlan = field(default_factory=compute.ComputePlan)

    @property
    def adds(self) -> bool:
        """Whether the runs extend a valid verdict and keep its other figures."""
        return self.due.id == _ADDED

    @property
    def ended(self) -> bool:
        """Whether fatal static checks end the measurement before any run, so that its outcome is known in advance."""
        return self.due.id == _ENDED

    @property
    def settled(self) -> bool:
        """Whether the last verdict stands: no new one is made, and none waits for free cards."""
        return not self.due.allowed and self.due.id in _SETTLED


_ADDED, _ENDED = "cards_added", "static_faults"
_SETTLED = ("fabric_accepted", "fabric_failed", "faults_as_before")
# Decisions that leave a verdict that is about the node as it is; what it lacks of the compute check can be added.
_HOLDS = ("fabric_accepted", "fabric_failed", "fabric_not_measured", "host_nics_new")


def work(
    fabric: Fabric | None,
    modules: Sequence[int],
    given: Mapping[str, Any],
    before: Mapping[str, Any] | None,
    now: VerdictSubject,
    faults: Sequence[StaticFault],
    image: Mapping[str, Any],
    busy: Sequence[int],
) -> AcceptanceWork:
    """Return what an acceptance run does; given: the options of the module fabric_check.

    While cards are in use, only those groups are measured that have none of them and that an instance needs. Raises
    Refusal for tests that hccl_demo does not accept, and if a requested new measurement is not possible.
    """
    whole = planned(fabric, modules, given)
    again = bool(given["again"] or given["burn_in"])
    free = whole if not busy else tuple(run for run in whole if _asked_for(run, busy, given["plans"]))
    why_not = not_measured(faults, image, given["image"], whole, () if free else busy)
    added = tuple(run for run in free if before and before["measurements"] and not covered(run, before))
    fatal = any(fault.fatal for fault in faults)
    if not image and before and before["measurements"] and not fatal and not given["burn_in"]:
        answer = _without_image(before, given)
    else:
        answer = due(
            before, now, faults, busy, why_not, again=again, host_nics=given["host_nics"], free=free, added=added
        )
    made = added if answer.id == _ADDED else free if answer.allowed and free else whole
    return AcceptanceWork(whole, made, answer, why_not)


def with_compute(
    work: AcceptanceWork,
    options: Mapping[str, Any],
    before: Mapping[str, Any] | None,
    cards: Sequence[Mapping[str, Any]],
    fabric: Fabric | None,
    image: Mapping[str, Any],
    bounds: ComputeBounds,
    boot: str,
) -> AcceptanceWork:
    """Return the work with what is due of the compute check; options: those of the module fabric_check.

    It is part of a new verdict, and is added to one that holds, for cards that are free. Nobody is stopped for it
    alone. cards: those of the topology. boot: the id of the node's boot.
    """
    due = work.due
    if not options["compute"] or work.ended or not (due.allowed or due.id in _HOLDS):
        return work
    copy_mib = options["compute_mib"] or bounds.copy_mib
    if not image.get("computes"):
        lacks = f"The image {options['image']} has no PyTorch for the cards." if image else ""
        return replace(work, numbers=compute.ComputePlan(copy_mib=copy_mib, why_not=lacks))
    drained = options["drain"] and due.allowed and not work.why_not
    known = rows(before) if work.adds or not due.allowed else ()
    modules = sorted(card["module_id"] for card in cards if card["module_id"] is not None)
    groups = fabric.grouped(modules) if fabric else ()
    return replace(
        work, numbers=compute.plan(known, modules, groups, busy(cards, drain=drained), boot, copy_mib=copy_mib)
    )


def _without_image(before: Mapping[str, Any], given: Mapping[str, Any]) -> Permission:
    """Return why the last figures stay: without the image nobody can tell whether they are stale.

    Raises Refusal if a new measurement was requested.
    """
    said = f"{image_lacks({}, given['image']).rstrip('.')}, so that nothing is measured and the verdict stays."
    if given["again"]:
        raise Refusal(
            "no_image_to_measure_with",
            f"{said} Have the image fetched (site.yml --tags serving_image), or name another one (-e image=REFERENCE).",
        )
    return Permission(False, "image_absent", said)


def _asked_for(run: DemoRun, busy: Collection[int], plans: Sequence[Mapping[str, Any]]) -> bool:
    """Whether all cards of a run are free, and an instance on several cards lies within them."""
    free = not set(run.modules) & set(busy)
    return free and any(set(_modules(plan)) <= set(run.modules) for plan in plans if _several(plan))


def covered(run: DemoRun, verdict: Mapping[str, Any]) -> bool:
    """Whether a verdict has a figure that covers these cards over the same kind of link."""
    return any(
        same_path(run.as_dict(), each) and set(run.modules) <= set(each["modules"]) for each in verdict["measurements"]
    )


def left_out(work: AcceptanceWork, kept: Sequence[Mapping[str, Any]]) -> str:
    """Return a sentence on cards that were left out because they are in use; "" if none was."""
    seen = {module for run in work.runs for module in run.modules} | {each for row in kept for each in row["modules"]}
    rest = {module for run in work.planned for module in run.modules} - seen
    return f"{modules_are(tuple(rest), 'were')} in use, and not measured yet." if rest else ""


def shows_host_nics(work: AcceptanceWork) -> bool:
    """Whether a measurement shows the state of host NICs: it is complete, or uses them."""
    return set(work.runs) == set(work.planned) or any(run.over_host_nics for run in work.runs)


def planned(fabric: Fabric | None, modules: Sequence[int], given: Mapping[str, Any]) -> tuple[DemoRun, ...]:
    """Return the runs of a complete measurement; none if the catalogue does not describe the cards' links.

    given: tests, host_nics and ranks of the module fabric_check. Raises Refusal for tests that hccl_demo does not
    accept.
    """
    if fabric is None:
        return ()
    tests = requested_tests(given["tests"], fabric)
    return runs_for(fabric, modules, tests, host_nics=given["host_nics"], ranks=given["ranks"] or None)


def busy(cards: Sequence[Mapping[str, Any]], *, drain: bool) -> tuple[int, ...]:
    """Return the module ids of cards in use; with drain, users that are our instances do not count."""

    def is_instance(user: Mapping[str, Any]) -> bool:
        return any(str(user[key]).startswith("vllm-") for key in ("unit", "container_name"))

    used = [card for card in cards if any(not (drain and is_instance(user)) for user in card["users"])]
    return tuple(sorted(card["module_id"] for card in used if card["module_id"] is not None))


def without_user(topology: Mapping[str, Any], container: str) -> dict[str, Any]:
    """Return a topology in which a container uses no card."""
    cards = [
        {**card, "users": [user for user in card["users"] if user["container_name"] != container]}
        for card in topology["cards"]
    ]
    return {**topology, "cards": cards}


def not_measured(
    faults: Sequence[StaticFault],
    image: Mapping[str, Any],
    reference: str,
    runs: Sequence[DemoRun],
    busy: Sequence[int],
) -> str:
    """Return why no measurement is possible, as a sentence; "" if one is.

    image: what was read of it, empty if it is not on the node; its key ``unread`` says why it could not be inspected.
    busy: module ids in use.
    """
    if any(fault.fatal for fault in faults):
        return "The static checks found what has to be repaired first."
    if not runs:
        return "No two cards of this node are joined by links that the catalogue knows."
    lacks = image_lacks(image, reference)
    if lacks:
        return lacks
    return _in_use(busy) if busy else ""


def image_lacks(image: Mapping[str, Any], reference: str) -> str:
    """Return why an image cannot measure, as a sentence; "" if it can."""
    if image.get("unread"):
        return str(image["unread"])
    if not image:
        if not reference:
            return "No image measures: plan an instance, or give playbooks/accept.yml one (-e image=REFERENCE)."
        return f"The image {reference} is not on the node."
    if not image.get("hccl_demo"):
        return f"The image {reference} has no hccl_demo. Have one built (serving_image_build), which has it."
    return ""


def due(
    before: Mapping[str, Any] | None,
    now: VerdictSubject,
    faults: Sequence[StaticFault],
    busy: Sequence[int],
    why_not: str,
    *,
    again: bool,
    host_nics: bool = False,
    free: Sequence[DemoRun] = (),
    added: Sequence[DemoRun] = (),
) -> Permission:
    """Return whether to make a new verdict now; host_nics: host NICs are configured.

    A new verdict is due if the static checks changed, and on a node without one, even if no measurement is possible: an
    instance on one card needs nothing more. why_not: the result of not_measured. free: runs whose cards are free while
    others are busy. added: those of them that the last verdict has no figure for. Raises Refusal if a new measurement
    was requested while cards are in use.
    """
    fatal = sorted(fault.id for fault in faults if fault.fatal)
    known = sorted(fault["id"] for fault in before["faults"] if fault["fatal"]) if before else []
    if fatal:
        if before and fatal == known and not again:
            return Permission(False, "faults_as_before", "The static checks find what they found last time.")
        return Permission(True, _ENDED, "The static checks found what has to be repaired first.")
    used = f"{modules_are(busy)} in use, and a measurement needs all cards to itself."
    if again:
        if busy:
            raise Refusal(
                "cards_in_use_to_measure",
                f"{used} Stop what uses them, or set fabric_check_drain: true, which stops the instances and starts "
                "them again.",
            )
        return Permission(True, "again", "It was asked for.")
    waits = bool(busy) and not free
    if known:
        repaired = "What the static checks found last time is repaired."
        if waits:
            return Permission(False, "faults_gone_but_busy", f"{repaired} {used}")
        return Permission(True, "faults_gone", repaired)
    return _of_last(before, to_measure(before, now, busy if waits else ()), busy, why_not, host_nics, added)


def _of_last(
    before: Mapping[str, Any] | None,
    answer: Permission,
    busy: Sequence[int],
    why_not: str,
    host_nics: bool,
    added: Sequence[DemoRun],
) -> Permission:
    """The same decision for cards without fatal faults: whether the last verdict lacks something that can be added."""
    if before is None:
        return Permission(True, "first_verdict", answer.sentence)
    if _unmeasured(before) and not answer.allowed and not why_not:
        return Permission(True, "measurable_now", f"Nothing was measured: {before['not_measured']} Now it can be.")
    if answer.allowed or answer.warning:
        return answer
    if host_nics and before["host_nics"] is None and not (busy and added):
        new = "Host NICs are configured, and this node's were not looked at yet."
        lacks = why_not or (_in_use(busy) if busy else "")
        return Permission(not lacks, "host_nics_new", f"{new} {lacks}".rstrip())
    if added and not why_not:
        lacking: dict[str, set[int]] = {}
        for run in added:
            lacking.setdefault(f" {over(run.as_dict())}".rstrip(), set()).update(run.modules)
        said = [f"{modules_are(tuple(each), 'were')} not measured{path} last time." for path, each in lacking.items()]
        return Permission(True, _ADDED, f"{' '.join(said)} Now they can be.")
    return answer


def _unmeasured(before: Mapping[str, Any]) -> bool:
    """Whether a verdict has no figure of the links, though its cards may have failed the compute check."""
    wrong = any(row["outcome"] == compute.FAILED for row in rows(before))
    return bool(before["state"] == NOT_MEASURED or (wrong and not before["measurements"]))


def _in_use(busy: Sequence[int]) -> str:
    return f"{modules_are(busy, 'were')} in use."


def measuring_image(plans: Sequence[Mapping[str, Any]]) -> str:
    """Return the image to measure with: that of the first instance on several cards, else of the first instance.

    "" without an instance. An instance on one card needs no measurement.
    """
    return next((str(plan["image"]) for plan in (*filter(_several, plans), *plans)), "")


def other_images(plans: Sequence[Mapping[str, Any]], measures: str) -> tuple[str, ...]:
    """Return the images of instances on several cards other than the measuring one, each once, sorted."""
    return tuple(sorted({str(plan["image"]) for plan in filter(_several, plans)} - {measures}))


def answers(
    verdict: Mapping[str, Any] | None,
    now: VerdictSubject,
    plans: Sequence[Mapping[str, Any]],
    policy: Policy,
    running: Callable[[str], bool],
    others: Mapping[str, VerdictSubject],
) -> tuple[Permission, ...]:
    """Return for each instance whether it may start; ``running`` tells whether it runs already.

    others: the VerdictSubject of each image in other_images; ``now`` is that of the measuring image, for all others.
    """
    return tuple(
        may_start(
            verdict, others.get(plan["image"], now), _needs(plan, others), policy, running=running(plan["instance"])
        )
        for plan in plans
    )


def may_refuse(verdict: Mapping[str, Any], plans: Sequence[Mapping[str, Any]], policy: Policy) -> bool:
    """Whether a verdict keeps any of these plans from starting, if the node is unchanged since then."""
    said = answers(verdict, VerdictSubject(**verdict["made_of"]), plans, policy, lambda _name: False, {})
    return not all(answer.allowed for answer in said)


def _needs(plan: Mapping[str, Any], others: Mapping[str, VerdictSubject]) -> Needs:
    image = plan["image"] if plan["image"] in others else ""
    return Needs(plan["instance"], tuple(_modules(plan)), bool(plan["requires"].get("host_nics")), image)


def _several(plan: Mapping[str, Any]) -> bool:
    """Whether an instance needs a measurement: it has several cards."""
    return len(plan["modules"]) > 1


def _modules(plan: Mapping[str, Any]) -> list[int]:
    return [card["module_id"] for card in plan["modules"]]


def plan_text(runs: Sequence[DemoRun], fabric: Fabric | None, burn_in: Sequence[str] = (), why_not: str = "") -> str:
    """Describe the measurement and its duration on a sound node; burn_in: tests of hl_qual.

    why_not: why no measurement is possible.
    """
    burning = f"{', '.join(burn_in)} of hl_qual, which may reset cards and take an hour each; " if burn_in else ""
    if fabric is None or not runs or why_not:
        return f"{burning}nothing{' else' if burning else ''}" + (f": {why_not.rstrip('.')}" if why_not else "")
    said = [
        " ".join(
            filter(
                None,
                (
                    f"{run.collective} of {size_text(run.size)} over modules {', '.join(map(str, run.modules))}",
                    over(run.as_dict()) if run.over_host else "",
                    f"({run.loop} loops)",
                ),
            )
        )
        for run in runs
    ]
    again = ", with one run made again where there is no Gaudi Direct" if _tries_direct(runs) else ""
    return (
        f"{burning}{'; '.join(said)}; about {total_seconds(runs, fabric)} seconds{again}, more where a fault is located"
    )


def _tries_direct(runs: Sequence[DemoRun]) -> list[DemoRun]:
    """Return the run that first asks for Gaudi Direct and may be repeated without it; empty if none does."""
    return [run for run in runs if run.over_host_nics][:1]


def total_seconds(runs: Sequence[DemoRun], fabric: Fabric | None) -> int:
    """Return the seconds that a measurement takes on a sound node, including the one run that may be repeated."""
    return sum(seconds(run, fabric) for run in (*runs, *_tries_direct(runs))) if fabric else 0


def damaged(damage: Damaged) -> str:
    """Return what the file of a verdict that cannot be read means, as a sentence."""
    text: str = printable(f"{damage}. It counts as no verdict; playbooks/accept.yml makes a new one.")
    return text


def lines(verdict: Mapping[str, Any] | None) -> list[str]:
    """Return a verdict as lines for a summary or status: one with its page, then the reasons; [] without a verdict."""
    if verdict is None:
        return []
    first, *rest = describe(verdict)
    return [f"cards and links: {first}, page on the node: {ACCEPTANCE_PAGE}", *(f"  {line}" for line in rest)]


def foreseen(
    work: AcceptanceWork,
    plans: Sequence[Mapping[str, Any]],
    images: Mapping[str, Mapping[str, Any]],
    *,
    settled: bool = False,
) -> list[Mapping[str, Any]]:
    """Return the plans for which it is known in advance whether they may start.

    It is unknown if a measurement is still to come (unless fatal static checks end it), or if the plan's image is not
    on the node (its entry in ``images`` is empty). With ``settled`` it is also unknown while a new verdict is due, or
    waits for free cards. A card that computed wrongly before a reboot may be sound when it is checked again.
    """
    if (work.due.allowed and not work.ended) or (settled and not work.settled) or work.numbers.repeats:
        return []
    return [plan for plan in plans if images.get(plan["image"], True)]


def result(
    verdict: Mapping[str, Any] | None,
    fabric: Fabric | None,
    work: AcceptanceWork,
    said: Sequence[Permission],
    burn_in: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the result of the module fabric_check; burn_in: the requested tests of hl_qual."""
    runs, due = work.runs, work.due
    times = [seconds(run, fabric) if fabric else 0 for run in runs]
    numbers = compute.text(work.numbers)
    links = plan_text(runs, fabric, burn_in, work.why_not) if due.allowed or not numbers else ""
    added = f"The numbers of modules {modules_text(work.numbers.cards)} are to be proved."
    return {
        "verdict": dict(verdict or {}),
        "measured": due.allowed or work.numbers.due,
        "planned": [{**run.as_dict(), "seconds": time} for run, time in zip(runs, times)],
        "seconds": (total_seconds(runs, fabric) if links else 0) + compute.seconds(work.numbers),
        "plan": "; ".join(filter(None, (links, numbers))),
        "why": due.sentence if due.allowed or not numbers else f"{due.sentence} {added}",
        "lines": lines(verdict),
        "held_back": [answer.sentence for answer in said if not answer.allowed],
        "warnings_of_start": [answer.sentence for answer in said if answer.allowed and answer.warning],
    }
