"""Releases and recipes for the tests of images."""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import Any

import yaml
from ansible.module_utils.gaudi.catalogue.entries import ReleaseEntry
from ansible.module_utils.gaudi.catalogue.extends import merged
from ansible.module_utils.gaudi.image.recipe import ImageSettings, Recipe, recipe

from plugin_utils import releases

PLUGIN = Path(__file__).parent / "releases" / "plugin.yml"


@functools.cache
def _read(name: str) -> dict[str, Any]:
    return releases.read(name)


def document(name: str = "1.22") -> dict[str, Any]:
    """A release's whole content; "plugin" is the one that only tests have."""
    if name != PLUGIN.stem:
        return copy.deepcopy(_read(name))
    own = yaml.safe_load(PLUGIN.read_text(encoding="utf-8"))
    return merged(_read(own.pop("extends")), own)


def entry(name: str = "1.22") -> ReleaseEntry:
    """A release as the planner reads it."""
    return ReleaseEntry.from_mapping(document(name))


def made(release: str = "1.22", /, needs: tuple[str, ...] = (), registry: str | None = None, **settings: Any) -> Recipe:
    """The recipe for a site that says these ``serving_image_...``."""
    return recipe(entry(release), ImageSettings.from_mapping({"build": True, **settings}), needs, registry)
