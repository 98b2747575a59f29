"""Which images a node needs no more: which came before which, by instance, and what was built and nothing needs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .recipe import LABEL, TAG_DIGITS
from .versions import UNLABELLED

NOBODY = ""
"""Stands for an instance in a history where images are asked for that no plan names, as on a build host."""


@dataclass(frozen=True)
class Tidying:
    """The images of each instance, newest first, as far as they stay; and built images that nothing needs."""

    history: Mapping[str, tuple[str, ...]]
    superfluous: tuple[str, ...]

    def differs(self, history: Mapping[str, Sequence[str]]) -> bool:
        """Whether there is anything to do, with that history on record."""
        return bool(self.superfluous) or self.history != {name: tuple(names) for name, names in history.items()}


def unlabelled(names: Iterable[str]) -> dict[str, str]:
    """Names that a build gives until its image has all labels, each with the name that it is to have then.

    A build takes it away at its end, whatever the end is; one that lost its power does not.
    """
    form = re.compile(rf"(.+:.+-[0-9a-f]{{{TAG_DIGITS}}}){re.escape(UNLABELLED)}")
    return {name: found[1] for name in names for found in [form.fullmatch(name)] if found}


def is_built(reference: str, known: Mapping[str, Any]) -> bool:
    """Whether an image on record was built by this project and still has the name that its build gave it.

    An image that somebody made of ours has our labels too, and a name of its own.
    """
    release = (known.get("built") or {}).get(f"{LABEL}.release")
    tag = reference.rpartition(":")[2]
    return release is not None and re.fullmatch(rf"{re.escape(str(release))}-[0-9a-f]{{{TAG_DIGITS}}}", tag) is not None


def tidied(
    images: Mapping[str, Mapping[str, Any]],
    history: Mapping[str, Sequence[str]],
    used: Mapping[str, str],
    wanted: Mapping[str, str],
    references: Iterable[str],
    keep: int,
) -> Tidying:
    """What stays: what instances use, what they are to use, and of each as many images as ``keep`` from before.

    images, history: what is on record. used: the image of each instance by the plan on the node; wanted: by the plans
    of this run. references: images that are asked for, whether a plan names them or not.
    """
    unplanned = [reference for reference in references if reference not in wanted.values()]
    stays = {name: _stay(history.get(name, ()), wanted.get(name), used.get(name), keep) for name in {**used, **wanted}}
    if unplanned or not stays:
        stays[NOBODY] = tuple(dict.fromkeys([*unplanned, *history.get(NOBODY, ())]))[: max(len(unplanned), 1) + keep]
    needed = {reference for names in stays.values() for reference in names}
    superfluous = (name for name, known in images.items() if name not in needed and is_built(name, known))
    return Tidying({name: stays[name] for name in sorted(stays) if stays[name]}, tuple(sorted(superfluous)))


def _stay(before: Sequence[str], wanted: str | None, used: str | None, keep: int) -> tuple[str, ...]:
    """The images of one instance that stay: those it is to use and uses, and as many from before the latter."""
    now = tuple(dict.fromkeys(name for name in (wanted, used) if name))
    return tuple(dict.fromkeys([*now, *before]))[: len(now) + keep]
