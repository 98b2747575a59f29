"""What the nodes of a run fetch.

The controller knows it from the inventory and the catalogue (source_plan). A node only reports the names of directories
that it lacks. A name counts for the node that reports it, and only if an instance of this node uses that directory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..base.checks import shown, switch
from ..base.refusal import Refusal
from ..weights import source_plan

# What a run needs of each host: its variables after the preflight.
Hosts = Mapping[str, Mapping[str, Any]]
# Host, instance, and what ends up in a directory.
Use = tuple[str, str, Mapping[str, Any]]


def weights_to_bring(host: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the source plans, or parts of them, that a host still has to carry out, as the controller knows them."""
    plans = _source_plans(host)
    lacking = _planned(plans).intersection(_reported(host))
    found: list[dict[str, Any]] = source_plan.all_missing(plans, _planned(plans) - lacking) if _fetches(host) else []
    return found


def weights_wanted(hosts: Hosts, among: Iterable[str]) -> list[dict[str, Any]]:
    """Return the ``fetch`` of each directory that any of these hosts lacks, once.

    Raises Refusal for hosts that must not fetch anything in one run (see weights_faults).
    """
    among = list(among)
    for refusal in weights_faults(hosts, among).values():
        raise refusal
    found: dict[str, dict[str, Any]] = {}
    for name in among:
        for source in weights_to_bring(hosts[name]):
            if source["fetch"]:
                found.setdefault(source["fetch"]["directory"], source["fetch"])
    return list(found.values())


def weights_faults(hosts: Hosts, among: Iterable[str]) -> dict[str, Refusal]:
    """Return, by host, why these hosts must not fetch anything in one run.

    A host reports a directory that none of its instances uses, or two of them differ on a directory that a host lacks.
    """
    among = list(among)
    found = {name: refusal for name in among for refusal in _foreign(hosts[name])}
    lacked = {
        directory
        for name in among
        for source in weights_to_bring(hosts[name])
        for directory in source_plan.directories(source)
    }
    first: dict[str, Use] = {}
    for name in among:
        for instance, directory, facts in _facts(_source_plans(hosts[name])):
            one, other, expected = first.setdefault(directory, (name, instance, facts))
            if directory in lacked and facts != expected:
                refusal = _differ(directory, (one, other, expected), (name, instance, facts))
                found = {one: refusal, name: refusal, **found}
    return found


def _source_plans(host: Mapping[str, Any]) -> Mapping[str, Sequence[Mapping[str, Any]]]:
    """Return a host's source plans by instance, as the action serving_plan computed them on the controller."""
    found: Mapping[str, Any] = host.get("preflight_serving") or {}
    return found.get("source_plans") or {}


def _fetches(host: Mapping[str, Any]) -> bool:
    """Whether the inventory lets the run fetch weights for a host. A wrong value is a problem of its own."""
    try:
        return switch(host.get("gaudi_weights_fetch", False), "gaudi_weights_fetch")
    except Refusal:
        return False


def _planned(plans: Mapping[str, Sequence[Mapping[str, Any]]]) -> set[str]:
    return {
        directory for sources in plans.values() for source in sources for directory in source_plan.directories(source)
    }


def _reported(host: Mapping[str, Any]) -> list[str]:
    """Return the names of directories that a node reports as missing.

    Anything else, as a changed module may return it, becomes a text that names no directory of an instance.
    """
    names = (host.get("preflight_node") or {}).get("missing_weights")
    if names is None:
        return []
    if not isinstance(names, list):
        return [shown(names)]
    return [name if isinstance(name, str) else shown(name) for name in names]


def _foreign(host: Mapping[str, Any]) -> Iterator[Refusal]:
    """Refuse the first directory that a node reports as missing and that none of its instances uses."""
    planned = _planned(_source_plans(host)) if _fetches(host) else set()
    for name in [name for name in _reported(host) if name not in planned][:1]:
        yield Refusal(
            "weights_not_planned",
            f"The node reports missing weights in {shown(name)}, but this run fetches "
            f"{', '.join(sorted(planned)) or 'no weights'} for it. A node can only ask for weights of its own "
            "instances. Find out what changed the modules' answers on this node, or leave it out with --limit.",
        )


def _facts(
    plans: Mapping[str, Sequence[Mapping[str, Any]]],
) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield instance, directory and what ends up in it, without sizes, which are only estimates of the disk space."""
    for instance, sources in plans.items():
        for source in sources:
            fetch, convert = source["fetch"], source["convert"]
            yield instance, fetch["directory"], {key: fetch[key] for key in ("repositories", "measured_cards")}
            if convert:
                yield instance, convert["target"], {key: convert[key] for key in ("source", "tool")}


def _differ(directory: str, one: Use, two: Use) -> Refusal:
    ours, theirs = dict(_flat(one[2])), dict(_flat(two[2]))
    key = next(key for key in sorted({**ours, **theirs}) if ours.get(key) != theirs.get(key))
    first, second = (shown(facts[key]) if key in facts else "not set" for facts in (ours, theirs))
    return Refusal(
        "weights_differ",
        f"{one[0]} (instance {shown(one[1])}) and {two[0]} (instance {shown(two[1])}) both use the directory "
        f"{directory}, but differ in {key}: {first} and {second}. In one run a directory has the same content on all "
        "nodes. Use the same model of the catalogue, give one of the models another directory, or run the nodes "
        "separately with --limit.",
    )


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested mappings, each with the path of its keys."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _flat(inner, f"{path}.{key}" if path else str(key))
    else:
        yield path, value
