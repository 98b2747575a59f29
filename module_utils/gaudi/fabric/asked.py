"""What a run of the check measures, whether that is due, and what it lets start."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..base.paths import ACCEPTANCE_PAGE
from ..base.refusal import Refusal
from ..catalogue.fabric import Fabric, size_text
from .classes import modules_are
from .runs import Run, runs_for, seconds, wished_tests
from .static import Fault
from .verdict import NOT_MEASURED, Answer, MadeOf, Needs, Policy, describe, may_start, to_measure


@dataclass(frozen=True)
class Work:
    """What a run of the check does.

    planned: the runs of a whole measurement; runs: those that are made where due allows it; why_not: why none can be
    made, "" where some can.
    """

    planned: tuple[Run, ...]
    runs: tuple[Run, ...]
    due: Answer
    why_not: str

    @property
    def adds(self) -> bool:
        """Whether the runs add to a verdict that holds, and keep its other figures."""
        return self.due.id == _ADDED

    @property
    def ended(self) -> bool:
        """Whether the static checks end it before anything is run: what comes of it is known beforehand."""
        return self.due.id == _ENDED

    @property
    def settled(self) -> bool:
        """Whether the verdict is judged as it stands: it is neither made anew nor waits for cards to be free."""
        return not self.due.allowed and self.due.id in _SETTLED


_ADDED, _ENDED = "cards_added", "static_faults"
_SETTLED = ("fabric_accepted", "fabric_failed", "faults_as_before")


def work(
    fabric: Fabric | None,
    modules: Sequence[int],
    wish: Mapping[str, Any],
    before: Mapping[str, Any] | None,
    now: MadeOf,
    faults: Sequence[Fault],
    image: Mapping[str, Any],
    busy: Sequence[int],
) -> Work:
    """Return what a run of the check does; wish has the options of the module fabric_check.

    While cards are in use, those groups are measured that have none of them and that an instance asks for. Raises
    Refusal for what hccl_demo does not take, and where somebody wants to measure again and cannot.
    """
    whole = planned(fabric, modules, wish)
    again = bool(wish["again"] or wish["burn_in"])
    free = whole if not busy else tuple(run for run in whole if _asked_for(run, busy, wish["plans"]))
    why_not = not_measured(faults, image, wish["image"], whole, () if free else busy)
    added = tuple(run for run in free if before and before["measurements"] and not covered(run, before))
    fatal = any(fault.fatal for fault in faults)
    if not image and before and before["measurements"] and not fatal and not wish["burn_in"]:
        answer = _without_image(before, wish)
    else:
        answer = due(
            before, now, faults, busy, why_not, again=again, host_nics=wish["host_nics"], free=free, added=added
        )
    made = added if answer.id == _ADDED else free if answer.allowed and free else whole
    return Work(whole, made, answer, why_not)


def _without_image(before: Mapping[str, Any], wish: Mapping[str, Any]) -> Answer:
    """Return why the figures that are there stay: without the image nobody can tell whether they are stale.

    Raises Refusal where somebody wants to measure again.
    """
    said = f"{image_lacks({}, wish['image']).rstrip('.')}, so that nothing is measured and the verdict stays."
    if wish["again"]:
        raise Refusal(
            "no_image_to_measure_with",
            f"{said} Have the image fetched (site.yml --tags serving_image), or name another one (-e image=REFERENCE).",
        )
    return Answer(False, "image_absent", said)


def _asked_for(run: Run, busy: Collection[int], plans: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a run has free cards only, and all those of an instance on several cards."""
    free = not set(run.modules) & set(busy)
    return free and any(set(_modules(plan)) <= set(run.modules) for plan in plans if _several(plan))


def covered(run: Run, verdict: Mapping[str, Any]) -> bool:
    """Whether a verdict has a figure of these cards, in the same way."""
    return any(
        each["over_host_nics"] == run.over_host_nics and set(run.modules) <= set(each["modules"])
        for each in verdict["measurements"]
    )


def left_out(work: Work, kept: Sequence[Mapping[str, Any]]) -> str:
    """Say which cards a measurement leaves out as they are in use, as a sentence; empty where it leaves out none."""
    seen = {module for run in work.runs for module in run.modules} | {each for row in kept for each in row["modules"]}
    rest = {module for run in work.planned for module in run.modules} - seen
    return f"{modules_are(tuple(rest), 'were')} in use, and not measured yet." if rest else ""


def shows_host_nics(work: Work) -> bool:
    """Whether a measurement tells of host NICs: it is a whole one, or goes over them."""
    return set(work.runs) == set(work.planned) or any(run.over_host_nics for run in work.runs)


def planned(fabric: Fabric | None, modules: Sequence[int], wish: Mapping[str, Any]) -> tuple[Run, ...]:
    """Return the runs of a measurement; none for cards of which the catalogue has no links.

    wish: tests, host_nics and ranks of the module fabric_check. Raises Refusal for what hccl_demo does not take.
    """
    if fabric is None:
        return ()
    tests = wished_tests(wish["tests"], fabric)
    return runs_for(fabric, modules, tests, host_nics=wish["host_nics"], ranks=wish["ranks"] or None)


def busy(cards: Sequence[Mapping[str, Any]], *, drain: bool) -> tuple[int, ...]:
    """Return the module ids of a topology's cards that somebody uses; with drain, somebody else than an instance."""

    def is_instance(user: Mapping[str, Any]) -> bool:
        return any(str(user[key]).startswith("vllm-") for key in ("unit", "container_name"))

    used = [card for card in cards if any(not (drain and is_instance(user)) for user in card["users"])]
    return tuple(sorted(card["module_id"] for card in used if card["module_id"] is not None))


def not_measured(
    faults: Sequence[Fault], image: Mapping[str, Any], reference: str, runs: Sequence[Run], busy: Sequence[int]
) -> str:
    """Return why nothing can be measured, as a sentence; empty where something can.

    image: what was read of it, empty where it is not there; unread says why nobody could look into it. busy: module ids
    in use.
    """
    if any(fault.fatal for fault in faults):
        return "The static checks found what has to be mended first."
    if not runs:
        return "No two cards of this node are joined by links that the catalogue knows."
    lacks = image_lacks(image, reference)
    if lacks:
        return lacks
    return _in_use(busy) if busy else ""


def image_lacks(image: Mapping[str, Any], reference: str) -> str:
    """Return why an image measures nothing, as a sentence; empty where it does."""
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
    now: MadeOf,
    faults: Sequence[Fault],
    busy: Sequence[int],
    why_not: str,
    *,
    again: bool,
    host_nics: bool = False,
    free: Sequence[Run] = (),
    added: Sequence[Run] = (),
) -> Answer:
    """Return whether a new verdict is made now; host_nics: they are configured.

    What the static checks find is news wherever the last verdict says something else, and a node's first verdict is
    made even where nothing can be measured: an instance on one card asks for no more. why_not: what not_measured says.
    free: the runs that can be made though cards are busy; added: those of them that the last verdict has no figure of.
    Raises Refusal where somebody wants to measure again, and cards are in use.
    """
    fatal = sorted(fault.id for fault in faults if fault.fatal)
    known = sorted(fault["id"] for fault in before["faults"] if fault["fatal"]) if before else []
    if fatal:
        if before and fatal == known and not again:
            return Answer(False, "faults_as_before", "The static checks find what they found last time.")
        return Answer(True, _ENDED, "The static checks found what has to be mended first.")
    used = f"{modules_are(busy)} in use, and a measurement needs all cards to itself."
    if again:
        if busy:
            raise Refusal(
                "cards_in_use_to_measure",
                f"{used} Stop what uses them, or set fabric_check_drain: true, which stops the instances and starts "
                "them again.",
            )
        return Answer(True, "again", "It was asked for.")
    waits = bool(busy) and not free
    if known:
        mended = "What the static checks found last time is mended."
        if waits:
            return Answer(False, "faults_gone_but_busy", f"{mended} {used}")
        return Answer(True, "faults_gone", mended)
    return _of_last(before, to_measure(before, now, busy if waits else ()), busy, why_not, host_nics, added)


def _of_last(
    before: Mapping[str, Any] | None,
    answer: Answer,
    busy: Sequence[int],
    why_not: str,
    host_nics: bool,
    added: Sequence[Run],
) -> Answer:
    """Return the same for sound cards, where the last verdict holds (answer does not allow it) and lacks something."""
    if before is None:
        return Answer(True, "first_verdict", answer.sentence)
    if before["state"] == NOT_MEASURED and not answer.allowed and not why_not:
        return Answer(True, "measurable_now", f"Nothing was measured: {before['not_measured']} Now it can be.")
    if answer.allowed or answer.warning:
        return answer
    if host_nics and before["host_nics"] is None and not (busy and added):
        new = "Host NICs are configured, and this node's were not looked at yet."
        lacks = why_not or (_in_use(busy) if busy else "")
        return Answer(not lacks, "host_nics_new", f"{new} {lacks}".rstrip())
    if added and not why_not:
        modules = tuple({module for run in added for module in run.modules})
        return Answer(True, _ADDED, f"{modules_are(modules, 'were')} not measured last time. Now they can be.")
    return answer


def _in_use(busy: Sequence[int]) -> str:
    return f"{modules_are(busy, 'were')} in use."


def measuring_image(plans: Sequence[Mapping[str, Any]]) -> str:
    """Return the image that measures: that of the first instance on several cards, else of the first one.

    Empty without an instance. One card asks for no measurement.
    """
    return next((str(plan["image"]) for plan in (*filter(_several, plans), *plans)), "")


def other_images(plans: Sequence[Mapping[str, Any]], measures: str) -> tuple[str, ...]:
    """Return the images of instances on several cards beside the one that measures, each once, sorted."""
    return tuple(sorted({str(plan["image"]) for plan in filter(_several, plans)} - {measures}))


def answers(
    verdict: Mapping[str, Any] | None,
    now: MadeOf,
    plans: Sequence[Mapping[str, Any]],
    policy: Policy,
    running: Callable[[str], bool],
    others: Mapping[str, MadeOf],
) -> tuple[Answer, ...]:
    """Return for each instance whether it may start; running tells whether it does already.

    others: what holds for the images of other_images, now for all the others.
    """
    return tuple(
        may_start(
            verdict, others.get(plan["image"], now), _needs(plan, others), policy, running=running(plan["instance"])
        )
        for plan in plans
    )


def may_refuse(verdict: Mapping[str, Any], plans: Sequence[Mapping[str, Any]], policy: Policy) -> bool:
    """Whether a verdict keeps any of these plans from starting, if all on the node is as it was then."""
    said = answers(verdict, MadeOf(**verdict["made_of"]), plans, policy, lambda _name: False, {})
    return not all(answer.allowed for answer in said)


def _needs(plan: Mapping[str, Any], others: Mapping[str, MadeOf]) -> Needs:
    image = plan["image"] if plan["image"] in others else ""
    return Needs(plan["instance"], tuple(_modules(plan)), bool(plan["requires"].get("host_nics")), image)


def _several(plan: Mapping[str, Any]) -> bool:
    """Whether an instance asks for a measurement."""
    return len(plan["modules"]) > 1


def _modules(plan: Mapping[str, Any]) -> list[int]:
    return [card["module_id"] for card in plan["modules"]]


def plan_text(runs: Sequence[Run], fabric: Fabric | None, burn_in: Sequence[str] = (), why_not: str = "") -> str:
    """Say what would be measured, and how long that takes where all is sound; burn_in are tests of hl_qual.

    why_not: why nothing can be measured.
    """
    burning = f"{', '.join(burn_in)} of hl_qual, which may reset cards and take an hour each; " if burn_in else ""
    if fabric is None or not runs or why_not:
        return f"{burning}nothing{' else' if burning else ''}" + (f": {why_not.rstrip('.')}" if why_not else "")
    said = [
        f"{run.collective} of {size_text(run.size)} over modules {', '.join(map(str, run.modules))} ({run.loop} loops)"
        for run in runs
    ]
    again = ", with one run made again where there is no Gaudi Direct" if _tries_direct(runs) else ""
    return (
        f"{burning}{'; '.join(said)}; about {total_seconds(runs, fabric)} seconds{again}, more where a fault is located"
    )


def _tries_direct(runs: Sequence[Run]) -> list[Run]:
    """Return the run that asks for Gaudi Direct first, and is made again without it; empty where none does."""
    return [run for run in runs if run.over_host_nics][:1]


def total_seconds(runs: Sequence[Run], fabric: Fabric | None) -> int:
    """Return how long a measurement takes where all is sound, with the one run that may be made again."""
    return sum(seconds(run, fabric) for run in (*runs, *_tries_direct(runs))) if fabric else 0


def lines(verdict: Mapping[str, Any] | None) -> list[str]:
    """Return a verdict for a summary or a status: in a line with its page, then why; nothing without one."""
    if verdict is None:
        return []
    first, *rest = describe(verdict)
    return [f"cards and links: {first}, page on the node: {ACCEPTANCE_PAGE}", *(f"  {line}" for line in rest)]


def foreseen(
    work: Work, plans: Sequence[Mapping[str, Any]], images: Mapping[str, Mapping[str, Any]], *, settled: bool = False
) -> list[Mapping[str, Any]]:
    """Return the plans of which it can be said before anything is done whether they may start.

    A measurement is work to come, unless the static checks end it, and so is an image that is not there yet (empty in
    images, the other ones). With settled, a new verdict is, and one that waits for cards to be free.
    """
    if (work.due.allowed and not work.ended) or (settled and not work.settled):
        return []
    return [plan for plan in plans if images.get(plan["image"], True)]


def result(
    verdict: Mapping[str, Any] | None,
    fabric: Fabric | None,
    work: Work,
    said: Sequence[Answer],
    burn_in: Sequence[str] = (),
) -> dict[str, Any]:
    """Return what the module fabric_check returns; burn_in are the tests of hl_qual that are wished."""
    runs, due = work.runs, work.due
    times = [seconds(run, fabric) if fabric else 0 for run in runs]
    return {
        "verdict": dict(verdict or {}),
        "measured": due.allowed,
        "planned": [{**run.as_dict(), "seconds": time} for run, time in zip(runs, times)],
        "seconds": total_seconds(runs, fabric),
        "plan": plan_text(runs, fabric, burn_in, work.why_not),
        "why": due.sentence,
        "lines": lines(verdict),
        "held_back": [answer.sentence for answer in said if not answer.allowed],
        "warnings_of_start": [answer.sentence for answer in said if answer.allowed and answer.warning],
    }
