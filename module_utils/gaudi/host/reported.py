"""What a node reports of its tuning and of the kernel that runs, checked: the part ``tuning`` of its report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..base import paths, reported
from ..base.checks import sequence
from ..base.documents import misfit
from ..base.refusal import Refusal
from . import iommu
from .document import damaged, parse, refresh

# Each argument is looked for among all words. Linux on x86 reads 2048 bytes (COMMAND_LINE_SIZE).
MOST_ARGUMENTS, MOST_WORDS = 64, 1024
_NONE = type(None)
_GROUP = {"bus_id": str, "number": str, "type": str, "module": (int, _NONE), "driver": str}
_FORM = {
    "state": {"text?": (str, _NONE), "damage?": str},
    "kernel": str,
    "command_line": [str],
    "groups": [_GROUP],
}


@dataclass(frozen=True)
class Tuning:
    """What the role host_tuning recorded, and what the running kernel shows."""

    kernel: str
    running: Sequence[str]
    """The words of /proc/cmdline."""
    groups: tuple[iommu.IommuGroup, ...]
    recorded: Mapping[str, Any] | None = None
    """The document of the role; None on a host that was never tuned."""
    damage: str = ""
    """Why the document is not known, as a sentence."""

    def renewed(self, translated: str = "") -> dict[str, Any] | None:
        """Return the document for the kernel that runs; None without one. translated: iommu.shown."""
        return refresh(self.recorded, self.kernel, self.running, translated) if self.recorded is not None else None

    def translating(self) -> str:
        """Return the cards whose addresses an IOMMU translates, as iommu.shown has them."""
        return iommu.shown(iommu.translating(self.groups, self.running))


def tuning(facts: Mapping[str, Any]) -> Tuning:
    """Check the part. Raises Refusal where it has another form; a damaged document is part of it."""
    for key, most in (("command_line", MOST_WORDS), ("groups", reported.MOST_CARDS)):
        sequence(facts.get(key), f"The part tuning: {key}", most)
    if wrong := misfit(facts, _FORM):
        raise Refusal("tuning_unreadable", f"The node reports no {wrong} of its tuning, or of another type.")
    groups = tuple(iommu.IommuGroup(**{key: group[key] for key in _GROUP}) for group in facts["groups"])
    kernel, running, state = facts["kernel"], facts["command_line"], facts["state"]
    try:
        if "damage" in state:
            raise ValueError(state["damage"])
        if state.get("text") is None:
            return Tuning(kernel, running, groups)
        recorded = parse(state["text"])
        for key in ("kernel_arguments", "leaving"):
            sequence(recorded[key], key, MOST_ARGUMENTS)
    except ValueError as why:
        return Tuning(kernel, running, groups, damage=damaged(paths.HOST_TUNING, str(why)))
    return Tuning(kernel, running, groups, recorded)
