"""Check a site's inventory before its values are used: each variable has a type and a range.

A wrong value gives a sentence with the variable's name and the expected form. Ansible does not say which file sets it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..base.checks import integer, shown, switch, text
from ..base.refusal import Refusal
from ..host.sysctl import AUTO, SIZE, SIZES, counted, memory_refusal, parse_meminfo
from .checks import Problem

INSTANCES = "gaudi_serving_instances"
PINS = "gaudi_require_pins"
AT_ONCE = "gaudi_nodes_at_once"
PAUSE = "gaudi_nodes_pause"
HUGEPAGES = "host_tuning_hugepages"
HUGEPAGE_SIZE = "host_tuning_hugepage_size"
MEMORY_SHARE = "host_tuning_max_memory_share"

# Upper bounds against nonsense: more cards than any node has, more pages than any memory holds.
MOST_CARDS = 64
MOST_HUGEPAGES = 1 << 32
# Seconds of a day: nobody follows a run for longer.
LONGEST_PAUSE = 86400


def _release(value: object) -> None:
    # YAML reads an unquoted 1.22 as a number.
    text(str(value) if isinstance(value, float) else value, "", longest=32)


def _path(value: object) -> None:
    if not text(value, "").startswith("/"):
        raise Refusal("not_an_absolute_path", "A path must begin with /.")


def _list(value: object) -> None:
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise Refusal("not_a_list", "A list is needed.")


def _size(value: object) -> None:
    if value not in SIZES:
        raise Refusal("unknown_size", f"One of {', '.join(SIZES)} is needed.")


def _at_once(value: object) -> None:
    if not re.fullmatch(r"auto|[1-9][0-9]{0,3}|([1-9][0-9]?|100)%", str(value)) or isinstance(value, bool):
        raise Refusal("not_a_batch", "A number of nodes, a percentage or auto is needed.")


def _hugepages(value: object) -> None:
    if value != AUTO:
        integer(value, "", 0, MOST_HUGEPAGES)


# For each variable its parser, and the expected form in words. Variables that were not passed are not checked.
VARIABLES: Mapping[str, tuple[Callable[[object], object], str]] = {
    "gaudi_release": (_release, 'the name of a file in catalog/releases, in quotes, such as "1.22"'),
    "gaudi_expected_cards": (
        lambda value: integer(value, "", 1, MOST_CARDS),
        f"the number of cards of the node, a whole number from 1 to {MOST_CARDS}",
    ),
    "gaudi_image_registry": (lambda value: text(value, ""), "the name of a registry, such as vault.habana.ai"),
    "gaudi_weights_root": (_path, "an absolute path on the node, such as /data/models"),
    "gaudi_weights_fetch": (lambda value: switch(value, ""), "true or false"),
    AT_ONCE: (_at_once, 'auto, a number of nodes, or a percentage of them such as "25%"'),
    PAUSE: (
        lambda value: integer(value, "", 0, LONGEST_PAUSE),
        f"a number of seconds, a whole number from 0 to {LONGEST_PAUSE}",
    ),
    PINS: (lambda value: switch(value, ""), "true or false"),
    INSTANCES: (
        _list,
        "a list of requests, such as [{instance: chat, model: qwen3-8b, port: 30001}], or [] to serve nothing",
    ),
    HUGEPAGES: (_hugepages, "a whole number of hugepages, 0 or more, or auto"),
    HUGEPAGE_SIZE: (_size, " or ".join(SIZES)),
    MEMORY_SHARE: (lambda value: integer(value, "", 1, 100), "a percentage from 1 to 100"),
}


@dataclass(frozen=True)
class Inventory:
    """The valid values; None for one that is wrong or was not passed."""

    release: str | None
    expected_cards: int | None
    hugepages: int | str | None
    hugepage_size: str
    max_memory_share: int | None
    # Whether unpinned names are refused; False if unset.
    require_pins: bool
    # Positions of those requests in the list of instances that are mappings.
    positions: tuple[int, ...]


def read(values: Mapping[str, object]) -> tuple[Inventory, list[Problem]]:
    """Return the inventory, and a problem for each wrong variable."""
    problems = []
    right: dict[str, object] = {}
    for name, value in values.items():
        reader, form = VARIABLES[name]
        if value is None:
            problems.append(Problem("inventory", f"{name} is not set, or is null. Give {form}."))
            continue
        try:
            reader(value)
            right[name] = value
        except Refusal:
            problems.append(Problem("inventory", f"{name} is {shown(value)}, but must be {form}."))
    positions = []
    instances = right.get(INSTANCES)
    for place, request in enumerate(instances if isinstance(instances, Sequence) else ()):
        if isinstance(request, Mapping):
            positions.append(place)
        else:
            problems.append(
                Problem(
                    "inventory",
                    f"{INSTANCES}[{place}] is {shown(request)}, but must be a mapping of options, such as "
                    "{instance: chat, model: qwen3-8b}.",
                )
            )

    def number(name: str) -> int | None:
        return int(str(right[name])) if name in right else None

    release = right.get("gaudi_release")
    found = Inventory(
        release=None if release is None else str(release),
        expected_cards=number("gaudi_expected_cards"),
        hugepages=AUTO if right.get(HUGEPAGES) == AUTO else number(HUGEPAGES),
        hugepage_size=str(right.get(HUGEPAGE_SIZE, SIZE)),
        max_memory_share=number(MEMORY_SHARE),
        require_pins=switch(right.get(PINS, False), ""),
        positions=tuple(positions),
    )
    return found, problems


def check_hugepages(inventory: Inventory, meminfo: str, cpuinfo: str) -> list[Problem]:
    """Refuse hugepages that leave too little memory for the rest.

    ``meminfo`` and ``cpuinfo``: the texts of these files of /proc.

    The rule is that of the role host_tuning, checked before any node is changed.
    """
    if inventory.hugepages is None or inventory.max_memory_share is None:
        return []
    try:
        memory, size = parse_meminfo(meminfo), inventory.hugepage_size
        pages = int(str(counted(inventory.hugepages, cpuinfo, size)))
        refusal = memory_refusal(pages, memory, inventory.max_memory_share, size)
    except Refusal as error:
        refusal = error
    return [Problem("hugepages", str(refusal))] if refusal else []


def not_in_inventory(host: str, installed: Sequence[str], named: Sequence[str] | None) -> list[str]:
    """Say which instances on a node are not in its inventory, and how to remove each.

    ``named``: the inventory's names; None if it has no list.
    """
    if named is None:
        return []
    return [
        f"{name} is on {host}, but not in {INSTANCES}: site.yml leaves it as it is. Name it there, or end it with "
        f"ansible-playbook playbooks/remove.yml --limit {host} -e instance={shlex.quote(name)}"
        for name in installed
        if name not in named
    ]
