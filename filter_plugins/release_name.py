"""Find the release of the catalogue that a version names."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from plugin_utils import releases


class FilterModule:
    """What ansible-core asks a file of filters for."""

    def filters(self) -> dict[str, Callable[..., str]]:
        """By name."""
        return {"release_name": releases.named}
