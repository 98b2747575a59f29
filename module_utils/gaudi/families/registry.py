"""The families by the key ``rules`` of a release file. A new family needs a module, an import and an entry here."""

from __future__ import annotations

from collections.abc import Mapping

from ..base.checks import choice
from ..catalogue.entries import ReleaseEntry
from .base import Family
from .deepseek import DEEPSEEK
from .defaults import DEFAULTS
from .plugin import PLUGIN
from .r121 import R121
from .r122 import R122

FAMILIES: Mapping[str, Family] = {family.name: family for family in (DEFAULTS, R121, R122, DEEPSEEK, PLUGIN)}


def family_of(release: ReleaseEntry) -> Family:
    """Return the family of a release; an unknown one is refused with the file, the key and the known families."""
    return FAMILIES[choice(release.rules, f"catalog/releases/{release.name}.yml: rules", FAMILIES)]
