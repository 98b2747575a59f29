"""Find the release of the catalogue that a version names, and what is known of its server."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from plugin_utils import releases


def unpickles(version: str) -> bool:
    """Return whether the server of the release that a version names runs what is in pickled tensors."""
    name = releases.named(version)
    return name in releases.names() and bool(releases.read(name).get("unpickles"))


class FilterModule:
    """What ansible-core asks a file of filters for."""

    def filters(self) -> dict[str, Callable[..., object]]:
        """By name."""
        return {"release_name": releases.named, "release_unpickles": unpickles}
