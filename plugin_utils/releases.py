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


def named(text: str) -> str:
    """The name of the release that a version stands for, as the vendor's manuals print them: 1.21 for 1.21.3, v1.21
    or 1.21.3-57, and 1.24.1 for v1.24.1. The text itself where it stands for none of the catalogue.

    Several releases have the same software (deepseek-r1 is 1.21.3 as well); a version stands for the one that is
    named after it.
    """
    version = text.removeprefix("v")
    known = names()
    if version in known:
        return version
    numbers = version.partition("-")[0]
    for name in {numbers, numbers.rpartition(".")[0]}.intersection(known):
        software = read(name)["software"]
        if version in (software["release"], software["driver"]):
            return name
    return text


@functools.cache
def _parsed(text: str) -> Any:
    return yaml.load(text, Loader=_LOADER)  # noqa: S506  # a safe loader, in C or in Python


def own(name: str) -> Any:
    """What stands in a release's own file; the caller may change it. The same text is read once a process."""
    return copy.deepcopy(_parsed(Path(FOLDER, f"{name}.yml").read_text(encoding="utf-8")))


def read(name: str) -> dict[str, Any]:
    """A release with what it takes from those it extends. Raises FileNotFoundError where it has no file."""
    brain.on_path(nodes=False)
    from ansible.module_utils.gaudi.catalogue.extends import extended

    return dict(extended(name, names(), own).content)
