"""What differs between two images, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..base.printable import printable
from .labels import BASE, BASE_DIGEST, LABEL, LOCK
from .table import commits, short


def difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return lines on how the first image differs from the second; both as engine.reported_images describes them."""
    lines = []
    for label, what in (
        (f"{LABEL}.release", "release"),
        (BASE, "base image"),
        (BASE_DIGEST, "digest of the base image"),
        (f"{LABEL}.constraints", "constraints"),
        (LOCK, "lock"),
    ):
        lines += _changed(what, one["built"].get(label, ""), other["built"].get(label, ""))
    lines += _commits(_built_from(one), _built_from(other))
    lines += _parts(one["parts"], other["parts"])
    for key, what in (("python", "Python distribution"), ("system", "package of the system")):
        if one[key] and other[key]:
            lines += _packages(what, one[key], other[key])
        elif one[key] or other[key]:
            silent = other if one[key] else one
            lines.append(f"nothing is known of each {what} in {silent['reference']}: nobody looked into it yet")
    heading = f"{one['reference']} ({short(one['id'])}) against {other['reference']} ({short(other['id'])})"
    return [printable(line) for line in [heading, *(f"  {line}" for line in lines or ["no difference"])]]


def _built_from(image: Mapping[str, Any]) -> dict[str, str]:
    """Return the commits of an image: by repository if labels have them, else by directory of the checkout."""
    return {name: commit for name, (commit, _) in commits(image).items()} or dict(image["checkouts"])


def _changed(what: str, here: str, there: str) -> list[str]:
    return [f"{what}: {here or 'none'} instead of {there or 'none'}"] if here != there else []


def _commits(here: Mapping[str, str], there: Mapping[str, str]) -> list[str]:
    return [
        line for name in sorted({*here, *there}) for line in _changed(name, here.get(name, ""), there.get(name, ""))
    ]


def _parts(here: list[str], there: list[str]) -> list[str]:
    added = [part for part in here if part not in there]
    removed = [part for part in there if part not in here]
    return [*(f"part added: {part}" for part in added), *(f"part removed: {part}" for part in removed)]


def _packages(what: str, here: Mapping[str, str], there: Mapping[str, str]) -> list[str]:
    lines = [f"{what} added: {name} {here[name]}" for name in sorted(here) if name not in there]
    lines += [f"{what} removed: {name} {there[name]}" for name in sorted(there) if name not in here]
    both = [name for name in sorted(here) if name in there and here[name] != there[name]]
    return lines + [f"{what} changed: {name} {here[name]} instead of {there[name]}" for name in both]
