#!/usr/bin/python
"""Ansible module: prove the cards and links of a node, and keep the verdict."""

from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_check
short_description: Prove the cards and links of a node, and say what may start
version_added: "0.3.0"
author: The gaudi-serving authors
description:
  - Looks at cards and ports, and where all is sound there measures the bandwidth between the cards with hccl_demo, in a
    container of the serving image that is gone afterwards. Below the floor it runs fewer and fewer cards until the slow
    card or link is named.
  - With O(compute) every card computes as well, and the results are compared with those of the CPU - copies, rows of a
    large table, long matrix products, and a sum over each group. A wrong copy, row or sum fails the card; a product has
    a tolerance, and warns. It is part of a new verdict, and is added to one that holds once cards are free, after a
    reboot in a short form. Cards that nobody has reserved are reserved meanwhile.
  - A verdict that holds is not measured again. It is stale after another card, driver, firmware, base image, libfabric,
    wrapper or links.
  - Cards that somebody uses are not measured. Where they are of another group, a group that an instance asks for is,
    and the verdict says which cards it is not about. Two runs at a time are refused.
  - Check mode says what would be measured and how long that takes.
options:
  node:
    description: What the node is called.
    type: str
    required: true
  image:
    description: >-
      Image with hccl_demo, as the engine knows it. Empty measures nothing. A plan on several cards with another image
      starts only where base, libfabric, wrapper and hccl_demo are the same.
    type: str
    default: ""
  demo:
    description: >-
      Where hccl_demo comes from for an image that has none, a mapping with C(repository), C(commit) and, optionally,
      C(mirrors) from beginnings of addresses to others and the C(network) of the build, V(default) or V(host). An
      image with it is built on top, and measures. Empty builds none.
    type: dict
    default: {}
  proxies:
    description: Proxies of such a build, by the variables that they are in, such as C(https_proxy).
    type: dict
    default: {}
  card_types:
    description: What C(catalog/cards.yml) holds.
    type: dict
    required: true
  expected_cards:
    description: Number of cards that the node should have. Without it the number is not checked.
    type: int
  external:
    description: >-
      Whether the cards talk to other nodes over their own external ports, which must then be up, with their interfaces.
    type: bool
    default: false
  external_mtu:
    description: MTU in bytes that the interfaces of external ports must have. 0 takes any.
    type: int
    default: 0
  external_speed:
    description: Speed in Mb/s that the interfaces of external ports must have. 0 takes any.
    type: int
    default: 0
  plans:
    description: Instances that are to start, as plans of the action M(serving_plan).
    type: list
    elements: dict
    default: []
  tests:
    description: >-
      What is measured, mappings with C(collective), C(size) and C(loop), or names of collectives. Empty takes what the
      catalogue has for the card type.
    type: list
    elements: raw
    default: []
  floors:
    description: The site's own floors, mappings with C(collective), C(nw_gb_s) and, optionally, C(ranks) and C(size).
    type: list
    elements: raw
    default: []
  ranks:
    description: How many cards of a group take part; 0 is all of them.
    type: int
    default: 0
  host_nics:
    description: Whether host NICs are configured, so that groups of cards are measured together.
    type: bool
    default: false
  provider:
    description: Provider of libfabric that carries the traffic over host NICs.
    type: str
    default: verbs
  limit:
    description: Seconds after which a run counts as hanging. 0 takes ten times what it should take.
    type: int
    default: 0
  burn_in:
    description: >-
      Tests of hl_qual that are run before anything is measured, of C(memory), C(pci), C(serdes) and C(power). They may
      reset cards, and take minutes to hours. Naming one measures again.
    type: list
    elements: raw
    default: []
  burn_in_limit:
    description: Seconds after which a test of hl_qual is stopped. 0 takes an hour.
    type: int
    default: 0
  compute:
    description: Whether the cards' numbers are checked. Without it, what the verdict has of them stays and counts.
    type: bool
    default: false
  compute_mib:
    description: MiB that each card copies, from which the other sizes follow. 0 takes what the catalogue has.
    type: int
    default: 0
  compute_limit:
    description: Seconds after which such a check counts as hanging. 0 takes five times what it should take.
    type: int
    default: 0
  compute_program:
    description: The program that computes, as text; it runs in the image. Needed with O(compute).
    type: str
    default: ""
  again:
    description: Whether to measure although the verdict holds.
    type: bool
    default: false
  drain:
    description: >-
      Whether the instances of the node are stopped for a measurement, and started again after it, however it ended.
      Cards that only they use then count as free. Where nothing is measured nobody is stopped.
    type: bool
    default: false
  required:
    description: Whether an instance needs the verdict to start.
    type: bool
    default: true
  override:
    description: Reason to let instances start whatever the verdict says; every status shows it. Empty for none.
    type: str
    default: ""
requirements:
  - root (C(become))
extends_documentation_fragment: attributes.node
attributes:
  check_mode:
    description: Measures nothing, and says what would be.
    support: full
  diff_mode:
    description: Shows no text.
    support: none
"""

EXAMPLES = r"""
- name: Prove the cards and links
  fabric_check:
    node: "{{ inventory_hostname }}"
    image: vault.habana.ai/gaudi-serving/vllm:1.22
    card_types: "{{ lookup('ansible.builtin.file', 'catalog/cards.yml') | from_yaml }}"
    expected_cards: 8
  register: fabric
"""

RETURN = r"""
verdict:
  description: What C(/var/lib/gaudi-serving/acceptance.json) holds; empty before the first one.
  returned: success
  type: dict
  sample: {schema: 1, node: gaudi-01}
measured:
  description: Whether this run measured, or would have without check mode.
  returned: success
  type: bool
  sample: true
planned:
  description: >-
    The runs of a measurement of this node, each with its cards and the seconds it takes; of this measurement, where it
    leaves out cards that are in use or known.
  returned: success
  type: list
  elements: dict
  sample: [{modules: [0, 1, 2, 3], collective: all_reduce, size: 33554432, loop: 10000, seconds: 62}]
seconds:
  description: >-
    How long these runs take where all is sound; one over host NICs counts twice, as it is made again without Gaudi
    Direct.
  returned: success
  type: int
  sample: 62
plan:
  description: The same as a sentence.
  returned: success
  type: str
  sample: "all_reduce of 32m over modules 0, 1, 2, 3 (10000 loops), about 62 seconds"
why:
  description: Why this run measures, or why it does not.
  returned: success
  type: str
  sample: The node had no verdict.
lines:
  description: The verdict in a few lines for people; empty before the first one.
  returned: success
  type: list
  elements: str
  sample: ["cards and links: accepted at 2026-11-24T00:00:00+00:00"]
held_back:
  description: Why an instance may not start, a sentence each.
  returned: success
  type: list
  elements: str
  sample: []
warnings_of_start:
  description: Warnings about instances that may start, a sentence each.
  returned: success
  type: list
  elements: str
  sample: []
refused_id:
  description: Id of the refusal, which stays the same between releases; C(msg) has the sentence.
  returned: when an option is refused, or the node cannot be measured
  type: str
  sample: measured_by_another_run
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gaudi.base import paths
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.catalogue.compute import ComputeBounds
from ansible.module_utils.gaudi.catalogue.fabric import Fabric
from ansible.module_utils.gaudi.fabric import (
    asked,
    burn_in,
    classes,
    compute,
    locating,
    nics,
    report,
    runs,
    verdict,
)
from ansible.module_utils.gaudi.fabric.output import NOT_OF_CARDS, OF_ALL_CARDS, RunOutput
from ansible.module_utils.gaudi.faults.words import with_id
from ansible.module_utils.gaudi.node import computing, instances, links, states
from ansible.module_utils.gaudi.node.documents import make_room
from ansible.module_utils.gaudi.node.files import write_json, write_text
from ansible.module_utils.gaudi.node.module import NodeModule, systemctl
from ansible.module_utils.gaudi.serving.state import RUNNING

ARGUMENT_SPEC: dict[str, Any] = {
    "node": {"type": "str", "required": True},
    "image": {"type": "str", "default": ""},
    "demo": {"type": "dict", "default": {}},
    "proxies": {"type": "dict", "default": {}, "no_log": True},
    "card_types": {"type": "dict", "required": True},
    "expected_cards": {"type": "int"},
    "external": {"type": "bool", "default": False},
    "external_mtu": {"type": "int", "default": 0},
    "external_speed": {"type": "int", "default": 0},
    "plans": {"type": "list", "elements": "dict", "default": []},
    "tests": {"type": "list", "elements": "raw", "default": []},
    "floors": {"type": "list", "elements": "raw", "default": []},
    "ranks": {"type": "int", "default": 0},
    "host_nics": {"type": "bool", "default": False},
    "provider": {"type": "str", "default": "verbs"},
    "limit": {"type": "int", "default": 0},
    "burn_in": {"type": "list", "elements": "raw", "default": []},
    "burn_in_limit": {"type": "int", "default": 0},
    "compute": {"type": "bool", "default": False},
    "compute_mib": {"type": "int", "default": 0},
    "compute_limit": {"type": "int", "default": 0},
    "compute_program": {"type": "str", "default": ""},
    "again": {"type": "bool", "default": False},
    "drain": {"type": "bool", "default": False},
    "required": {"type": "bool", "default": True},
    "override": {"type": "str", "default": ""},
}

REPORT = Path(paths.ACCEPTANCE_PAGE)
LOG = Path(paths.ACCEPTANCE_BURN_IN)
KALLSYMS = Path("/proc/kallsyms")


def now() -> str:
    """Now, in UTC, to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def perform(
    module: AnsibleModule, node: links.MeasuredNode, fabric: Fabric, run: runs.DemoRun, *, direct: bool = False
) -> RunOutput:
    """Run hccl_demo over a run's cards, in a container without other cards.

    direct: a run over host NICs asks for Gaudi Direct, and fails without it.
    """
    given = module.params
    command = runs.command(run, port=links.free_port(), directory=links.DEMO, direct=direct)
    seconds = given["limit"] or runs.limit_seconds(run, fabric)
    known = {"driver": node.cards.topology["driver_version"], "release": node.image.get("release")}
    return links.perform(module, node.image["measures"], run, node.cards.indexes, command, seconds, **known)


def perform_all(
    module: AnsibleModule, node: links.MeasuredNode, fabric: Fabric, planned: Sequence[runs.DemoRun]
) -> tuple[list[tuple[runs.DemoRun, RunOutput]], RunOutput | None]:
    """Return what each run printed, and the output that shows whether Gaudi Direct is in use.

    That output is from the run that had to do without it, else from the first one. It is None if no run asked for it. A
    run that has to do without it is repeated, and the repetition counts; later runs do not ask any more.
    """
    outputs: list[tuple[runs.DemoRun, RunOutput]] = []
    direct: RunOutput | None = None
    for run in planned:
        asks = run.over_host_nics and not (direct and nics.goes_without(direct))
        output = perform(module, node, fabric, run, direct=asks)
        if asks and nics.goes_without(output):
            direct, output = output, perform(module, node, fabric, run)
        elif asks:
            direct = direct or output
        outputs.append((run, output))
    return outputs, direct


def locate(
    module: AnsibleModule, node: links.MeasuredNode, fabric: Fabric, result: classes.ClassifiedRun
) -> tuple[locating.FaultyPart, ...]:
    """Run ever smaller sets of a run's cards until the faulty part is identified."""
    tried = [locating.CardsRun(result.run.modules, result.nw_gb_s)]
    step = locating.next_step(result.run.modules, tried)
    while step.next:
        for modules in step.next:
            output = perform(module, node, fabric, result.run.over(modules))
            if output.failure and output.failure.id in NOT_OF_CARDS:
                said = with_id(output.failure.sentence, output.failure.id)
                why = f"Which of them is at fault was not found: {said}"
                return (locating.FaultyPart("group", result.run.modules, why),)
            figures = [] if output.failure else [figure.nw_gb_s for figure in output.figures if figure.nw_gb_s]
            tried.append(locating.CardsRun(tuple(modules), figures[0] if figures else None))
        step = locating.next_step(result.run.modules, tried)
    return step.located


def burn(module: AnsibleModule, node: links.MeasuredNode) -> dict[str, Any] | None:
    """Run hl_qual if that is requested, keep its output, and return the result.

    Otherwise return the last result for the same cards.
    """
    given, kind = module.params, node.cards.kind
    tests = burn_in.requested_tests(given["burn_in"])
    if not tests:
        return verdict.burnt(node.before, node.made_of)
    program = Path(burn_in.program(kind.generation)) if kind else None
    if kind is None or any(fault.fatal for fault in node.cards.faults):
        why = "hl_qual was not run: the static checks found what has to be repaired first."
    elif program is None or not program.exists():
        why = (
            f"hl_qual was not run: {program} is not there. Install the package habanalabs-qual of the driver's release."
        )
    else:
        outcome, said = links.hl_qual(module, kind, tests, given["burn_in_limit"] or burn_in.LIMIT_SECONDS)
        make_room(LOG)
        write_text(LOG, said, mode=0o644)
        return outcome.as_dict()
    return burn_in.BurnIn(None, (), why).as_dict()


def measure(
    module: AnsibleModule, node: links.MeasuredNode, work: asked.AcceptanceWork, floors: Sequence[classes.Floor]
) -> dict[str, Any]:
    """Measure, locate, and return the new verdict."""
    given, fabric, why_not = module.params, node.cards.fabric, work.why_not
    kept = verdict.keep(node.before, work.runs) if work.adds and node.before else verdict.RetainedResults()
    results: tuple[classes.ClassifiedRun, ...] = ()
    located: list[locating.FaultyPart] = []
    host_nics = None
    burnt = burn(module, node)
    if not why_not and fabric is not None:
        outputs, direct = perform_all(module, node, fabric, work.runs)
        ended = [output.failure for _, output in outputs if output.failure and output.failure.id in NOT_OF_CARDS]
        why_not, outputs = (
            (with_id(ended[0].sentence, ended[0].id), [])
            if ended
            else (asked.left_out(work, kept.measurements), outputs)
        )
        results = classes.judge(outputs, fabric, floors, verdict.record(node.before, node.made_of))
        for result in results:
            # Over several groups a fault is that of what joins them, not of a card.
            if not result.passed and not result.run.between_groups and result.failure not in OF_ALL_CARDS:
                located += locate(module, node, fabric, result)
        if given["host_nics"] and asked.shows_host_nics(work):
            host_nics = nics.judge_nics(seen_nics(node.image), given["provider"], direct)
    return verdict.new_verdict(
        node=given["node"],
        time=now(),
        made_of=node.made_of,
        faults=node.cards.faults,
        nics=host_nics,
        results=results,
        located=located,
        not_measured=why_not,
        burn_in=burnt,
        compute_check=compute_numbers(module, node, work),
        before=node.before,
        kept=kept,
        override=given["override"],
    )


def compute_numbers(
    module: AnsibleModule, node: links.MeasuredNode, work: asked.AcceptanceWork
) -> dict[str, Any] | None:
    """Check the numbers of the cards for which that is due, and return the compute check of the verdict.

    None for a verdict without one: it was not asked for, and the verdict has nothing of it that holds.
    """
    planned, part = work.numbers, (node.before or {}).get("compute_check")
    kept = compute.keep(part, planned) if work.adds or not work.due.allowed else []
    if not planned.due:
        return compute.document(kept, planned.copy_mib, planned.why_not) if kept or planned.why_not else None
    time, cards = now(), node.cards.topology["cards"]
    program, image = module.params["compute_program"], node.image["measures"]
    ended = computing.perform(module, image, program, planned, cards, time)
    bounds = ComputeBounds.from_cards(module.params["card_types"])
    rows, why_not = compute.judge(planned, ended, node.cards.indexes, bounds, time, links.boot())
    return compute.document([*kept, *rows], planned.copy_mib, why_not)


def seen_nics(image: Mapping[str, Any]) -> nics.HostNicFacts:
    """Return the facts about libfabric in the image, and about its requirements of the kernel."""
    told = ("version_text", "info_text", "info_status", "loader_text", "loader_status")
    dmabuf: bool | None = None
    with contextlib.suppress(OSError), KALLSYMS.open(encoding="utf-8", errors="replace") as symbols:
        dmabuf = any(" ib_umem_dmabuf_get" in line for line in symbols)
    return nics.HostNicFacts(**{key: image[key] for key in told}, dmabuf=dmabuf)


@contextlib.contextmanager
def drained(module: AnsibleModule, stop: bool) -> Iterator[None]:
    """Stop the instances that run or start, if that is requested, and start them again however the measurement ends."""
    known = instances.read(module, states.installed()) if stop else []
    units = [f"vllm-{found['instance']}.service" for found in known if found["active"] in RUNNING]
    if not units:
        yield
        return
    try:
        systemctl(module, "stop", *units)
        yield
    finally:
        systemctl(module, "start", *units)


def keep(document: Mapping[str, Any]) -> None:
    """Write the verdict, and its page beside it."""
    for path in (links.VERDICT, REPORT):
        make_room(path)
    write_json(links.VERDICT, document, mode=0o644)
    write_text(REPORT, report.report([document], None, now()), mode=0o644)


def settled(
    module: AnsibleModule, node: links.MeasuredNode, work: asked.AcceptanceWork
) -> tuple[dict[str, Any] | None, bool]:
    """Return the verdict, measured now if that is due, and whether it changes; keep it.

    Check mode keeps nothing, and can only make a verdict that needs no measurement.
    """
    given, before = module.params, node.before
    floors = classes.read_floors(given["floors"])
    if work.due.allowed and not module.check_mode:
        measures = not any(fault.fatal for fault in node.cards.faults) and bool(not work.why_not or given["burn_in"])
        with links.alone(links.LOCK), drained(module, given["drain"] and measures):
            document = measure(module, node, work, floors)
            keep(document)
        return document, True
    if work.ended:
        return measure(module, node, work, floors), True
    if work.due.allowed or before is None:
        return before, work.due.allowed
    # An override that was added or removed is shown from now on.
    document = verdict.overridden(before, given["override"])
    if work.numbers.due and not module.check_mode:
        with links.alone(links.LOCK):
            document = verdict.computed(document, compute_numbers(module, node, work) or {})
    if document != before and not module.check_mode:
        keep(document)
    return document, bool(document != before or work.numbers.due)


def main() -> None:
    """Look, measure where that is due, keep the verdict, say what may start."""
    needs = [("compute", True, ["compute_program"])]
    module = NodeModule(argument_spec=ARGUMENT_SPEC, required_if=needs, supports_check_mode=True)
    given = module.params
    _, damage = links.last_verdict()
    if damage:
        module.warn(asked.damaged(damage))
    try:
        tests = burn_in.requested_tests(given["burn_in"])
        node = links.look(module, given, build=not module.check_mode)
        work = links.work(node, given)
        document, changed = settled(module, node, work)
        plans = asked.foreseen(work, given["plans"], node.others) if module.check_mode else given["plans"]
        answers = links.answers(module, node, document, given, plans)
    except Refusal as refusal:
        module.fail_json(msg=str(refusal), refused_id=refusal.id)
        return
    module.exit_json(changed=changed, **asked.result(document, node.cards.fabric, work, answers, tests))


if __name__ == "__main__":
    main()
