"""Inspect the folders of a weights root quickly: records and sizes, and whether they can be served."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..base import paths
from ..base.command_line import PICKLED
from ..base.documents import Damaged
from ..base.measured import MEASURED, measured_files
from ..base.places import SHARED_TYPES
from ..base.refusal import Refusal
from ..model.headers import CONVERTED, INDEX
from ..model.remote_code import foreign_models
from ..serving import written
from ..weights import record as weights
from ..weights.storage import mount_of
from . import beneath, documents, folders

PLANS = Path(paths.INSTANCES)
MOUNTINFO = Path("/proc/self/mountinfo")
WEIGHT_FILES = ("*.safetensors", *(f"*{ending}" for ending in PICKLED))


def _plans(plans: Path) -> tuple[dict[str, dict[str, Any]], list[Path]]:
    """Return the node's plans by instance, and the files of damaged plans."""
    plans_read, damaged = {}, []
    # A glob pattern would skip a dangling link.
    for folder in folders.of_instances(plans):
        file = folder / "plan.json"
        try:
            plan = documents.read(file, written.parse)
        except Damaged:
            damaged.append(file)
            continue
        if plan is not None:
            plans_read[file.parent.name] = plan
    return plans_read, damaged


def of_plan(plan: Mapping[str, Any]) -> list[Path]:
    """Return the folders of weights that a plan reads, its own first."""
    requires = plan["requires"]
    return [Path(folder) for folder in (requires["weights_path"], *requires.get("weights_beside", []))]


def users(path: Path, plans: Path = PLANS) -> list[str]:
    """Return instances whose plan mounts a folder, running or not; damaged plans are unknown."""
    return [name for name, plan in _plans(plans)[0].items() if weights.used_by(plan, str(path))]


def plans_on_node(plans: Path) -> dict[str, dict[str, Any]]:
    """The plans on the node by instance; damaged ones are left out."""
    return _plans(plans)[0]


def damaged_plans(plans: Path) -> list[Path]:
    """The plan.json of each instance whose plan cannot be read."""
    return _plans(plans)[1]


def bytes_below(folder: Path) -> int:
    """Return the bytes of all files in a folder; symbolic links count as 0 and are not followed."""
    return sum(folders.size_of(path, folder) or 0 for path, _ in beneath.all_in(folder))


def loaded_files(folder: Path) -> list[Path]:
    """Return the files of weights that a server loads from a folder: those of the first kind that is there."""
    kinds = (sorted(path for path in folder.glob(suffix) if path.is_file()) for suffix in WEIGHT_FILES)
    return next((files for files in kinds if files), [])


def _verified(folder: Path) -> dict[str, Any]:
    """Return when every byte was last read, and the result; nothing if that is not recorded or not readable."""
    note = None
    with contextlib.suppress(Damaged):
        note = documents.read_json(folder / weights.VERIFIED, weights.VERIFICATION, place=folder)
    return note or {"verified": "", "wrong": []}


def wrong_files(folder: Path) -> list[str]:
    """Return files that are missing, differ in size from the record, or were found damaged; sorted.

    Empty for a folder without a readable record.
    """
    with contextlib.suppress(Damaged):
        fetched = documents.read(folder / weights.MANIFEST, weights.parse, place=folder)
        if fetched is not None:
            wrong = weights.wrong_sizes(fetched.sizes, folders.sizes_in(folder, fetched.names))
            return sorted({*wrong, *_verified(folder)["wrong"]})
        made = documents.read(folder / CONVERTED, weights.parse_converted, place=folder)
        if made is not None:
            wrong = weights.wrong_sizes(made.sizes, folders.sizes_in(folder, [*made.sizes]))
            return sorted({*wrong, *made.wrong})
    return []


def repair_command(folder: Path) -> str:
    """Return the command that repairs a folder with a record; "" without one."""
    with contextlib.suppress(Damaged):
        fetched = documents.read(folder / weights.MANIFEST, weights.parse, place=folder)
        if fetched is not None:
            return weights.command_for_fetched(fetched, str(folder))
        made = documents.read(folder / CONVERTED, weights.parse_converted, place=folder)
        if made is not None:
            return weights.command_for_converted(made, str(folder))
    return ""


def describe(folder: Path, plans: Path = PLANS) -> dict[str, Any]:
    """Describe a folder of weights: whole, incomplete, damaged (its record), unfinished, converted or unknown."""
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
    # Another node that shares the storage may have changed it just now.
    folders.revalidate_directory(folder / weights.FOLDER)
    try:
        record = documents.read(folder / weights.MANIFEST, weights.parse, place=folder)
    except Damaged:
        described.update(status="damaged", bytes=bytes_below(folder))
        return described
    if record is None:
        wrong = wrong_files(folder)
        staging = folder.name.endswith(weights.STAGING_SUFFIX) and beneath.is_folder(folder / weights.FOLDER, folder)
        made = "incomplete" if wrong else "converted"
        status = "unfinished" if staging else made if beneath.is_file(folder / CONVERTED, folder) else "unknown"
        described.update(status=status, bytes=bytes_below(folder), wrong=wrong)
        return described
    sizes = folders.sizes_in(folder, record.names)
    note = _verified(folder)
    described["verified"] = note["verified"]
    wrong = sorted({*weights.wrong_sizes(record.sizes, sizes), *note["wrong"]})
    described.update(
        status="incomplete" if wrong else "whole",
        bytes=sum(size or 0 for size in sizes.values()),
        wrong=wrong,
        **{key: getattr(record, key) for key in ("source", "repository", "revision", "fetched")},
    )
    return described


def look(root: Path, names: Iterable[str] | None, plans: Path = PLANS) -> list[dict[str, Any]]:
    """Return descriptions of a weights root's folders by name, by default all; missing ones are left out."""
    if not root.is_dir():
        return []
    folders.revalidate_directory(root)
    found = sorted(root.iterdir()) if names is None else [root / name for name in names]
    return [describe(folder, plans) for folder in found if folder.is_dir() and not folder.is_symlink()]


def repository_of(folder: Path) -> str:
    """Return the repository that a folder of weights was fetched from, by its record; "" without a whole record."""
    try:
        record = documents.read(folder / weights.MANIFEST, weights.parse, place=folder)
    except Damaged:
        return ""
    return "" if record is None else str(record.repository)


def mounted(mountinfo: str, path: str) -> tuple[str, str]:
    """Type and source of the file system a path is on, from the text of /proc/self/mountinfo; path is absolute."""
    found = mount_of(mountinfo, path)
    return found.kind, found.source


def lies_on(folder: Path) -> str:
    """Return the file system of a folder, which need not exist, for people."""
    on = mount_of(MOUNTINFO.read_text(encoding="utf-8", errors="replace"), os.path.realpath(folder))
    return f"the file system that is mounted at {on.point} now ({on.source}, {on.kind})"


def shared_by_nodes(folder: str, mountinfo: str) -> str:
    """Return the type of a folder's file system if nodes share it; else "".

    The folder need not exist. mountinfo: the text of /proc/self/mountinfo.
    """
    kind = mounted(mountinfo, os.path.realpath(folder))[0] if folder else ""
    return kind if kind in SHARED_TYPES else ""


def models_named(folder: Path) -> list[str]:
    """Return the models of a hub that the config.json of a folder names; [] for one that cannot be read."""
    try:
        config = documents.read_json(folder / "config.json", within=beneath.within(folder), of_model=True)
    except (Refusal, Damaged):
        # No plan is made for such weights: library/serving_plan.py refuses them.
        return []
    return sorted(foreign_models(config))


def measurement_files(folder: Path, cards: int) -> int:
    """Count the files that are there of a measurement set for so many cards."""
    return sum((folder / name).is_file() for name in measured_files(MEASURED, cards))


def is_whole(folder: Path, measured_cards: int) -> bool:
    """Whether a folder is complete as fetched, or is a site's own model, or complete measurements for so many cards.

    measured_cards: 0 for a model.
    """
    described = describe(folder) if folder.is_dir() else {"status": "absent"}
    if described["status"] != "unknown":
        return described["status"] in ("whole", "converted")
    if measured_cards:
        return measurement_files(folder, measured_cards) == 3 * measured_cards
    return (folder / "config.json").is_file()


def is_occupied(folder: Path) -> bool:
    """Tell whether something other than a fetched model lies at a model's path."""
    if not folder.is_dir():
        return folder.exists()
    return any(folder.iterdir()) and not (folder / weights.MANIFEST).exists()


def changed_weights(directory: Path) -> str | None:
    """Say which file differs from the record beside the weights, and how to repair it; None if all sizes match."""
    wrong = wrong_files(directory)
    if not wrong:
        return None
    size = folders.size_of(directory / wrong[0], directory)
    seen = "is not there" if size is None else f"has {size} bytes"
    others = f", like {len(wrong) - 1} more," if len(wrong) > 1 else ""
    return (
        f"{directory / wrong[0]} {seen}: it is{others} missing, of another size than is on record, or was found "
        f"damaged. Make the weights whole with: {repair_command(directory)}"
    )


def missing_weights(directory: Path) -> str | None:
    """Say what is missing or cannot be right in a model directory; None if nothing is.

    Checks names and sizes, not contents.
    """
    if not directory.is_dir():
        return f"the directory {directory} is not there; its path is on {lies_on(directory)}"
    if not (directory / "config.json").is_file():
        return f"{directory} has no config.json; it is on {lies_on(directory)}"
    if not any(path.is_file() and path.stat().st_size for suffix in WEIGHT_FILES for path in directory.glob(suffix)):
        return f"{directory} holds no weights ({', '.join(WEIGHT_FILES)})"
    try:
        shards = _named_shards(directory / INDEX)
        seen = {name: _seen(directory, name) for name in sorted({"config.json", *shards})}
    except (Damaged, Refusal) as wrong:
        return str(wrong)
    absent = [name for name, facts in seen.items() if facts is None]
    if absent:
        return f"{len(absent)} of {len(shards)} shards named in {INDEX} are missing or empty, first {absent[0]}"
    # Root in the container lacks DAC_OVERRIDE, so it only reads files that it owns or that everybody may read.
    for path, facts in ((directory, directory.stat()), *((directory / name, facts) for name, facts in seen.items())):
        if facts is not None and facts.st_uid != 0 and not facts.st_mode & 0o004:
            return f"{path} is readable by user {facts.st_uid} only, not by the container (chmod o+rX)"
    return None


def lost(plan: Mapping[str, Any]) -> str:
    """Return a clause if weights of a plan are no longer complete; "" if they are."""
    places = of_plan(plan) if plan.get("requires", {}).get("weights_path") else []
    return next(filter(None, (changed_weights(place) or missing_weights(place) for place in places)), "")


def _named_shards(index: Path) -> set[str]:
    """Return the shards that an index names, [] without one. Raises Damaged for another content, and Refusal."""
    listed = documents.read_json(index, {"weight_map": {str: str}}, within=beneath.within(index.parent))
    names = set(listed["weight_map"].values()) if listed is not None else set()
    outside = sorted(filter(weights.unsafe, names))
    if outside:
        raise Damaged(str(index), f"it names the shard {outside[0]!r}, which is no file of its folder")
    return names


def _seen(directory: Path, name: str) -> os.stat_result | None:
    """Return a weights file's stat; None if it is empty or missing.

    Raises Refusal for a link out of the folder, a pipe and other special files.
    """
    try:
        with beneath.open_linked(directory / name, beneath.within(directory)) as stream:
            facts = os.fstat(stream.fileno())
    except FileNotFoundError:
        return None
    return facts if facts.st_size else None
