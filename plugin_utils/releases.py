"""The releases of the catalogue as programs of this project read them, each whole.

The action ``serving_plan`` reads them with more care, for what people write; which keys count is decided in one place,
``module_utils/gaudi/catalogue/extends.py``.
"""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import Any

import yaml

from plugin_utils import brain

FOLDER = brain.ROOT / "catalog" / "releases"
# The files are ours; libyaml reads them eight times as fast.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def names() -> list[str]:
    """The releases that have a file."""
    return sorted(path.stem for path in FOLDER.glob("*.yml"))


@functools.cache
def _parsed(text: str) -> Any:
    return yaml.load(text, Loader=_LOADER)  # noqa: S506  # a safe loader, in C or in Python


def own(name: str) -> Any:
    """What stands in a release's own file; the caller may change it. The same text is read once a process."""
    return copy.deepcopy(_parsed(Path(FOLDER, f"{name}.yml").read_text(encoding="utf-8")))


def read(name: str) -> dict[str, Any]:
    """A release with what it takes from those it extends. Raises FileNotFoundError where it has no file."""
    brain.on_path()
    from ansible.module_utils.gaudi.catalogue.extends import extended

    return dict(extended(name, names(), own).content)
