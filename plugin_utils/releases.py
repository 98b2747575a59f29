"""The releases of the catalogue as programs of this project read them, each whole.

The action ``serving_plan`` reads them with more care, for what people write; which keys count is decided in one place,
``module_utils/gaudi/catalogue/extends.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from plugin_utils import brain

FOLDER = brain.ROOT / "catalog" / "releases"


def names() -> list[str]:
    """The releases that have a file."""
    return sorted(path.stem for path in FOLDER.glob("*.yml"))


def own(name: str) -> Any:
    """What stands in a release's own file."""
    return yaml.safe_load(Path(FOLDER, f"{name}.yml").read_text(encoding="utf-8"))


def read(name: str) -> dict[str, Any]:
    """A release with what it takes from those it extends. Raises FileNotFoundError where it has no file."""
    brain.on_path()
    from ansible.module_utils.gaudi.catalogue.extends import extended

    return dict(extended(name, names(), own).content)
