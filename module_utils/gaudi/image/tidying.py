"""Decide which images a node no longer needs, from each instance's image history and from what this project built."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .labels import LABEL
from .recipe import TAG_DIGITS
from .versions import UNLABELLED

NOBODY = ""
"""Stands for an instance in a history where images are asked for that no plan names, as on a build host."""


@dataclass(frozen=True)
class Tidying:
    """The result: the images of each instance that stay, newest first, and built images that nothing needs."""

    history: Mapping[str, tuple[str, ...]]
    superfluous: tuple[str, ...]

    def differs(self, history: Mapping[str, Sequence[str]]) -> bool:
        """Whether anything changes, given the recorded history."""
        return bool(self.superfluous) or self.history != {name: tuple(names) for name, names in history.items()}


def unlabelled(names: Iterable[str]) -> dict[str, str]:
    """Return names ending in UNLABELLED, each with the final name that the image gets once it has all labels.

    A build removes the temporary name when it ends; one that lost power does not.
    """
    form = re.compile(rf"(.+:.+-[0-9a-f]{{{TAG_DIGITS}}}){re.escape(UNLABELLED)}")
    return {name: found[1] for name in names for found in [form.fullmatch(name)] if found}


def is_built(reference: str, known: Mapping[str, Any]) -> bool:
    """Whether this project built a recorded image, and it still has the name that its build gave it.

    An image that somebody derived from ours has our labels too, but another name.
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
    """Decide which images stay: those used now, those wanted next, and ``keep`` earlier ones of each instance.

    images, history: the record. used: each instance's image by the plan on the node; wanted: by the plans of this run.
    references: further requested images, which need not be in a plan.
    """
    unplanned = [reference for reference in references if reference not in wanted.values()]
    stays = {name: _stay(history.get(name, ()), wanted.get(name), used.get(name), keep) for name in {**used, **wanted}}
    if unplanned or not stays:
        stays[NOBODY] = tuple(dict.fromkeys([*unplanned, *history.get(NOBODY, ())]))[: max(len(unplanned), 1) + keep]
    needed = {reference for names in stays.values() for reference in names}
    superfluous = (name for name, known in images.items() if name not in needed and is_built(name, known))
    return Tidying({name: stays[name] for name in sorted(stays) if stays[name]}, tuple(sorted(superfluous)))


def _stay(before: Sequence[str], wanted: str | None, used: str | None, keep: int) -> tuple[str, ...]:
    """Return an instance's images that stay: the wanted and the used one, then as many earlier ones as ``keep``."""
    now = tuple(dict.fromkeys(name for name in (wanted, used) if name))
    return tuple(dict.fromkeys([*now, *before]))[: len(now) + keep]


@dataclass(frozen=True)
class ImageRemoval:
    """What a removal of this project does with images. stays: the others of the record, each with the reason."""

    ours: tuple[str, ...]
    stays: Mapping[str, str]


def leaving(images: Mapping[str, Mapping[str, Any]], there: Mapping[str, str], labelled: Iterable[str]) -> ImageRemoval:
    """Decide which images are removed with this project: those of its record that also have its labels.

    images: the record. there: ids of the recorded images that the engine has, by reference. labelled: all images of the
    engine with this project's label, by reference.
    """
    names = [name for name in dict.fromkeys(labelled) if "<none>" not in name]
    same = [name for name, known in images.items() if known.get("id") and there.get(name) == known["id"]]
    ours = tuple(sorted(name for name in same if name in names and is_built(name, images[name])))
    pulled = {name: "this project did not build it on this node" for name in sorted(same) if name not in ours}
    unknown = {name: "it has this project's label but is not in its record" for name in names if name not in same}
    return ImageRemoval(ours, {**pulled, **unknown})
