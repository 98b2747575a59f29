"""Look at the folders of a weights root, quickly: records and sizes, no content."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..base import paths
from ..base.documents import Damaged
from ..model.headers import CONVERTED
from ..pages import written
from ..weights import record as weights
from . import beneath, documents, folders

PLANS = Path(paths.INSTANCES)


def _plans(plans: Path) -> tuple[dict[str, dict[str, Any]], list[Path]]:
    """The plans on the node by instance, and the files of those that are damaged."""
    read, damaged = {}, []
    for file in sorted(plans.glob("*/plan.json")):
        try:
            read[file.parent.name] = written.parse(file.read_bytes())
        except FileNotFoundError:
            # Removed a moment ago.
            continue
        except (OSError, ValueError):
            damaged.append(file)
    return read, damaged


def users(path: Path, plans: Path = PLANS) -> list[str]:
    """Names of the instances whose plan mounts a folder, whether they run or not; damaged plans do not say."""
    return [name for name, plan in _plans(plans)[0].items() if weights.used_by(plan, str(path))]


def damaged_plans(plans: Path) -> list[Path]:
    """The plan.json of each instance whose plan nobody can read."""
    return _plans(plans)[1]


def bytes_below(folder: Path) -> int:
    """Bytes of all files in a folder; symbolic links count nothing and are not followed."""
    return sum(folders.size_of(path, folder) or 0 for path, _ in beneath.all_in(folder))


def describe(folder: Path, plans: Path = PLANS) -> dict[str, Any]:
    """One folder of weights: whole, incomplete, damaged (its record), unfinished, converted, or unknown (not ours)."""
    described: dict[str, Any] = {
        "directory": folder.name,
        "status": "unknown",
        "bytes": 0,
        "source": "",
        "repository": "",
        "revision": "",
        "fetched": "",
        "verified": "",
        "wrong": [],
        "used_by": users(folder, plans),
    }
    # Another node that shares it may have published, mended or verified it just now.
    folders.revalidate_directory(folder / weights.FOLDER)
    try:
        record = documents.read(folder / weights.MANIFEST, weights.parse, place=folder)
    except Damaged:
        described.update(status="damaged", bytes=bytes_below(folder))
        return described
    if record is None:
        staging = folder.name.endswith(weights.STAGING_SUFFIX) and beneath.is_folder(folder / weights.FOLDER, folder)
        converted = beneath.is_file(folder / CONVERTED, folder)
        status = "unfinished" if staging else "converted" if converted else "unknown"
        described.update(status=status, bytes=bytes_below(folder))
        return described
    sizes = folders.sizes_in(folder, record.names)
    wrong = weights.wrong_sizes(record, sizes)
    try:
        note = documents.read_json(folder / weights.VERIFIED, weights.VERIFICATION, place=folder)
    except Damaged:
        # What was found when every byte was read is not known any more.
        note = None
    if note is not None:
        described["verified"] = note["verified"]
        wrong = sorted({*wrong, *note["wrong"]})
    described.update(
        status="incomplete" if wrong else "whole",
        bytes=sum(size or 0 for size in sizes.values()),
        wrong=wrong,
        **{key: getattr(record, key) for key in ("source", "repository", "revision", "fetched")},
    )
    return described


def look(root: Path, names: Iterable[str] | None, plans: Path = PLANS) -> list[dict[str, Any]]:
    """The folders of a weights root by name, all of them without names; those that are not there are left out."""
    if not root.is_dir():
        return []
    folders.revalidate_directory(root)
    found = sorted(root.iterdir()) if names is None else [root / name for name in names]
    return [describe(folder, plans) for folder in found if folder.is_dir() and not folder.is_symlink()]


def mounted(mountinfo: str, path: str) -> tuple[str, str]:
    """Type and source of the file system a path is on, from the text of /proc/self/mountinfo; path is absolute."""
    best = ("", "", "")
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, rest = before.split(), after.split()
        if len(fields) > 4 and len(rest) > 1:
            point = fields[4].replace("\\040", " ")
            inside = path == point or path.startswith(point.rstrip("/") + "/")
            # The last mount over a point is the one that is seen.
            if inside and len(point) >= len(best[0]):
                best = (point, rest[0], rest[1])
    return best[1], best[2]
