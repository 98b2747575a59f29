"""The serving images of a node, from what the node reports: the parts ``images`` and ``plans``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..base import paths
from ..base.checks import mapping, switch
from ..base.documents import Damaged
from ..base.refusal import Refusal
from ..base.reported import part, sentence
from ..image import sbom
from ..image.labels import labelled_versions
from ..serving.reported_plans import plans_in
from .image_record import ImageRecord


def images_of(report: Mapping[str, object]) -> dict[str, Any]:
    """Return what is in the images, and which instance has which, as image.table shows it. Raises Refusal.

    images: those on record, sorted. instances: those with a plan. unknown: sentences on those whose plan is damaged.
    """
    found, plans = part(report, "images"), plans_in(part(report, "plans"))
    try:
        record = ImageRecord.parse(said) if (said := _text(found.get("record"))) is not None else ImageRecord()
    except ValueError as why:
        damage = Damaged(paths.IMAGE_RECORD, str(why))
        raise Refusal("image_record_damaged", f"{damage}. The next run of site.yml writes it again.") from why
    engine = switch(found.get("engine"), "Whether the node has an engine")
    bills, ids, runs_in = (mapping(found.get(key), f"The part images: {key}") for key in ("bills", "ids", "runs_in"))
    there = {name for name, known in record.images.items() if not engine or ids.get(name) == known.get("id")}
    return {
        "images": [_image(name, known, bills, name in there) for name, known in sorted(record.images.items())],
        "instances": [
            {"instance": name, "image": str(each.plan.get("image", "")), "runs_in": sentence(runs_in.get(name))}
            for name, each in plans.items()
            if each.plan is not None
        ],
        "unknown": [
            f"{paths.INSTANCES}/{name}/plan.json is damaged: which image {name} has is not known."
            for name, each in plans.items()
            if each.damage
        ],
    }


def _text(value: object) -> str | None:
    """Return the text of a file of the node; None where it has none. Raises ValueError for one that is damaged."""
    found = mapping(value, "What the node reports of a file")
    if "damage" in found:
        raise ValueError(found["damage"])
    return None if found.get("text") is None else str(found["text"])


def _image(reference: str, known: Mapping[str, Any], bills: Mapping[str, object], there: bool) -> dict[str, Any]:
    """One image: what is on record, and what its bill says."""
    name = sbom.file_name(str(known.get("id", "")))
    file, inside, damaged = f"{paths.SBOMS}/{name}", None, ""
    try:
        inside = sbom.contents(said) if (said := _text(bills.get(name, {}))) is not None else None
    except ValueError as why:
        damaged = str(Damaged(file, str(why)))
    built = known.get("built") or {}
    foretold = {**labelled_versions(built), **(known.get("packages") or {})}
    return {
        "reference": reference,
        "id": str(known.get("id", "")),
        "digest": known.get("digest") or "",
        "present": there,
        "built": built,
        "parts": known.get("parts") or [],
        "python": dict(inside.python) if inside else foretold,
        "system": dict(inside.system) if inside else {},
        "checkouts": dict(inside.checkouts) if inside else {},
        "bill": file if inside else "",
        "damaged": damaged,
    }
