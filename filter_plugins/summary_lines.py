"""Say in a few lines what runs on a node."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent.parent))
from plugin_utils import brain

brain.on_path()

from ansible.module_utils.gaudi.base.printable import printable
from ansible.module_utils.gaudi.preflight import compatibility
from ansible.module_utils.gaudi.preflight.site import not_in_inventory

LOOPBACK = re.compile(r"http://(127\.|localhost|\[::1\])")


def count(number: int, word: str) -> str:
    """Put a number before a word: 1 card, 2 cards."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def modules_text(modules: Sequence[int]) -> str:
    """Name cards by their module ids: module 0, modules 0, 3, no modules."""
    if not modules:
        return "no modules"
    return f"{'module' if len(modules) == 1 else 'modules'} {', '.join(map(str, modules))}"


def numa_lines(cards: Sequence[Mapping[str, Any]]) -> list[str]:
    """One line for each NUMA node with the modules of its cards; cards without a known node come last."""
    nodes: dict[tuple[bool, int], list[int]] = {}
    for card in cards:
        node = card["numa_node"]
        nodes.setdefault((node is None, node or 0), []).append(int(card["module_id"]))
    return [
        f"  {'NUMA node unknown' if unknown else f'NUMA node {node}'}: {modules_text(sorted(modules))}"
        for (unknown, node), modules in sorted(nodes.items())
    ]


def reached(endpoint: str) -> str:
    """Say where an endpoint is; one of the loopback address is not the reader's own machine."""
    return f"{endpoint} (on the node itself)" if LOOPBACK.match(endpoint) else endpoint


def instance_lines(
    found: Mapping[str, Any], answers: Mapping[str, Mapping[str, str]], pins: Sequence[str] = ()
) -> list[str]:
    """What an instance is doing, where it is reached, what pins its weights and image, and what it answered."""
    state = found["state"]
    modules = [int(card["module_id"]) for card in state.get("cards", [])]
    lines = [
        f"{found['instance']}: {state.get('status', found['active'])}",
        f"  {modules_text(modules)}, unit vllm-{found['instance']}.service",
        f"  endpoint {reached(state.get('endpoint', 'none'))}",
        *([f"  pins:     {', '.join(pins)}"] if pins else []),
    ]
    answer = answers.get(found["instance"])
    if answer:
        lines += [f"  asked:    {answer['question']}", f"  answered: {' '.join(str(answer['answer']).split())}"]
    return lines


def summary_lines(
    topology: Mapping[str, Any],
    host: str,
    release: str,
    instances: Sequence[Mapping[str, Any]],
    answers: Mapping[str, Mapping[str, str]],
    named: Sequence[str],
    let_through: Sequence[str] = (),
    pins: Mapping[str, Sequence[str]] | None = None,
) -> list[str]:
    """Return the lines of a node's summary: cards, what was let through, instances, answers, and strange instances.

    ``pins``: what pins the weights and the image, by instance.
    """
    cards = topology["cards"]
    names = ", ".join(sorted({str(card["name"]) for card in cards})) or "no cards"
    driver = topology["driver_version"] or ("none yet" if topology.get("foreseen") else "none")
    lines = [
        f"{host}: {count(len(cards), 'card')} ({names}), driver {driver}, release {release}",
        # Before a node has its driver, the module ids of its cards are not known.
        *([] if topology.get("foreseen") else numa_lines(cards)),
        *(compatibility.checked(f"  let through by {compatibility.OPTION}: {said}", said) for said in let_through),
    ]
    for found in instances:
        lines += instance_lines(found, answers, (pins or {}).get(str(found["instance"]), ()))
    lines += not_in_inventory(host, [str(found["instance"]) for found in instances], named)
    return [*map(printable, lines), *([] if instances else ["No instances are installed."])]


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., list[str]]]:
        """Name the filters."""
        return {"summary_lines": summary_lines}
