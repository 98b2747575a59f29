"""Whether the kernel that runs on a node lets cards be used, and answers be right."""

from __future__ import annotations

from collections.abc import Collection

from ..host import iommu
from ..host.reported import Tuning
from ..serving import unserved


def cards_translated(found: Tuning, release: str, allowed: Collection[str]) -> str:
    """Return why cards must not be used behind an IOMMU that translates; "" if they may.

    release: the one to be used; "" counts as an old one. allowed: the mismatches that the site allows.
    """
    if "iommu" in allowed or not iommu.required(release):
        return ""
    cards = found.translating()
    return unserved.translated({"case": iommu.case(found.running), "cards": cards, "damage": ""} if cards else {})


def serving_refused(found: Tuning) -> str:
    """Return why nothing may be served on the kernel that runs; "" if it may, as on a host that was never tuned.

    It says what the node's own program says at each start. The IOMMU groups are left to cards_translated.
    """
    document = found.renewed()
    return found.damage or str((document or {}).get("serving_refused") or "")
