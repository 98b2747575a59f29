"""Names and places that every part of the simulator shares."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SIMULATOR = ROOT / "simulator"
CACHE = ROOT / ".cache" / "simulator"

# Every container, volume, network and image of ours carries this label; its value is the scope
# (for images, which all scopes share, the value is IMAGES).
LABEL = "gaudi-serving.simulator"
IMAGES = "image"
# Several checkouts may share one engine; this label says whose a container, volume or network is.
CHECKOUT = f"{LABEL}.checkout"

_SCOPE = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")


class SimulatorError(Exception):
    """Something a person has to know; its text is a sentence that says what to do."""


@dataclass(frozen=True)
class Scope:
    """One independent set of simulated nodes: the demo's, or one Molecule scenario's."""

    name: str = "demo"

    def __post_init__(self) -> None:
        if not _SCOPE.fullmatch(self.name):
            raise SimulatorError(
                f"{self.name!r} is no scope name: use lower-case letters, digits and hyphens, at most 32."
            )

    @property
    def prefix(self) -> str:
        """What the names of this scope's containers, volumes and networks begin with."""
        return f"gaudi-simulator-{self.name}"

    @property
    def directory(self) -> Path:
        """Keys, known hosts and the inventory of this scope."""
        return CACHE / "scopes" / self.name

    @property
    def labels(self) -> dict[str, str]:
        """The labels of everything this scope creates."""
        return {LABEL: self.name, CHECKOUT: str(ROOT)}
