"""The node that a plan is for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..cards.placement import Reservations
from ..image.recipe import ImageSettings
from ..model.headers import Weights
from ..serving.last_start import LastStart
from .options import path, registry


@dataclass(frozen=True)
class Node:
    """The machine a plan is for, and what is already spoken for on it."""

    topology: Mapping[str, Any]
    reservations: Reservations = field(default_factory=Reservations)
    # Module id and port to the instance that an earlier request of the same call gave them to.
    planned: Mapping[int, str] = field(default_factory=dict)
    ports: Mapping[int, str] = field(default_factory=dict)
    # Instance to the modules that its request of the same call names. It gives up every other one that it has.
    named: Mapping[str, Sequence[int]] = field(default_factory=dict)
    weights_root: str = "/data/models"
    image_registry: str | None = None
    # Whether host NICs that join its cards were verified.
    host_nics: bool = False
    # What the last start of each instance of the node logged.
    last_starts: Mapping[str, LastStart] = field(default_factory=dict)
    # What the site says of its images; without a word they are those at the release's path of the registry.
    image: ImageSettings = field(default_factory=ImageSettings)
    # What lies at a path of the node, and the text there; None where the node is not there to be asked.
    read_weights: Callable[[str], Weights | None] | None = None
    read_file: Callable[[str], str | None] | None = None

    def weights_at(self, path: str) -> Weights | None:
        """What is known of the weights in a directory of the node; None of those that a hub names."""
        return self.read_weights(path) if self.read_weights is not None and path.startswith("/") else None

    def text_at(self, path: str | None) -> str | None:
        """The text of a file of the node, where one is named."""
        return self.read_file(path) if self.read_file is not None and path else None

    @property
    def root(self) -> str:
        """The directory of all weights, without a slash at its end."""
        return path(self.weights_root, "weights_root").rstrip("/")

    @property
    def registry(self) -> str | None:
        """The registry to take the image from; None where the release's own counts."""
        return registry(self.image_registry, "image_registry") if self.image_registry else None
