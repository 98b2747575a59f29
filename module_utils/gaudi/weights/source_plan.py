"""The source plan of a folder of weights: what is fetched from which repository, and what is converted from it.

A source plan is a mapping for JSON: ``fetch`` (directory, repositories, bytes, measured_cards) and ``convert`` (source,
target, tool, bytes), either of which may be None; 0 bytes mean an unknown size. Directories are names below the weights
root.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ..base.command_line import needs_pins
from ..base.places import CALIBRATIONS
from . import pin_file
from .hub_kinds import hub_kind
from .record import STAGING_SUFFIX

# Published bytes for each served byte: a conversion from bfloat16 halves the size, one from block-quantised FP8 keeps
# one byte a weight.
PUBLISHED_SHARE = {"fp8_block": 1, "fp8_dynamic": 2}
# Files beside weights that a conversion writes itself; it copies all others.
REWRITTEN = {
    "fp8_block": ("model.safetensors.index.json",),
    "fp8_dynamic": ("model.safetensors.index.json", "config.json"),
}


def published(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fetch of a catalogue model: its weights as published."""
    conversion = entry.get("conversion")
    return {
        "directory": conversion["from_directory"] if conversion else entry["directory"],
        "repositories": entry["repositories"],
        "bytes": entry.get("weights_bytes", 0) * (PUBLISHED_SHARE[conversion["tool"]] if conversion else 1),
        "measured_cards": 0,
    }


def measured(entry: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the fetch of a model's measurement files; None without any. They are small, so no size is known."""
    measurements = entry.get("measurements")
    if not measurements:
        return None
    return {
        "directory": measurements["directory"],
        "repositories": measurements["repositories"],
        "bytes": 0,
        "measured_cards": measurements["tensor_parallel_size"],
    }


def taken_from(entry: Mapping[str, Any], others: Iterable[Mapping[str, Any]]) -> str:
    """Return what the folder of an entry is for already: a repository of one of the ``others``; "" if for no other."""
    if entry["directory"] == CALIBRATIONS:
        return "all calibrations"
    if entry["directory"].endswith(STAGING_SUFFIX):
        return "an unfinished download"
    own = {source["repository"] for source in entry["repositories"].values()}
    for other in others:
        for fetch in (published(other), {**published(other), "directory": other["directory"]}, measured(other)):
            if fetch is None or fetch["directory"] != entry["directory"]:
                continue
            names = [source["repository"] for source in fetch["repositories"].values()]
            if names and own.isdisjoint(names):
                return str(names[0])
    return ""


def source_plan(entry: Mapping[str, Any], directory: str) -> dict[str, Any] | None:
    """Return the source plan of the folder ``directory`` of a model; None if its origin is not known."""
    conversion = entry.get("conversion")
    fetch = published(entry)
    if not fetch["repositories"]:
        return None
    if conversion is None or directory == conversion["from_directory"]:
        # This card uses the weights as published.
        return {"fetch": fetch, "convert": None} if directory == fetch["directory"] else None
    if directory != entry["directory"]:
        return None
    convert = {
        "source": conversion["from_directory"],
        "target": directory,
        "tool": conversion["tool"],
        "bytes": entry.get("weights_bytes", 0),
    }
    return {"fetch": fetch, "convert": convert}


def for_code(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry whose code is to run: only with the repositories that checksums pin, if there are any.

    Without any, what needs the code is to be refused.
    """
    return {**entry, "repositories": pin_file.with_checksums(entry["repositories"]) or entry["repositories"]}


def source_plans(plan: Mapping[str, Any], entries: Iterable[Mapping[str, Any]], root: str) -> list[dict[str, Any]]:
    """Return the source plans of a serving plan's folders below the weights root: weights and measurements.

    What a server runs (code, pickled tensors) comes only from repositories with checksums, if there are any.
    """
    entries = [for_code(entry) if needs_pins(plan) or entry.get("trust_remote_code") else entry for entry in entries]
    requires = plan["requires"]
    made = []
    for path in [requires.get("weights_path"), *requires.get("weights_beside", [])]:
        folder, _, name = str(path or "").rpartition("/")
        if folder and folder == root.rstrip("/"):
            known = (source_plan(entry, name) for entry in entries)
            made += [one for one in known if one is not None][:1]
    measurements = requires.get("measurements")
    for entry in entries if measurements else []:
        item = measured(entry)
        if item and item["repositories"] and measurements["path"] == f"{root.rstrip('/')}/{item['directory']}":
            made.append({"fetch": item, "convert": None})
    return made


def served(plan: Mapping[str, Any]) -> str:
    """Return the directory that a source plan produces."""
    return str(plan["convert"]["target"] if plan["convert"] else plan["fetch"]["directory"])


def copied_folders(plan: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the directories of a source plan with the published files, and the names of files that differ there."""
    fetched: dict[str, tuple[str, ...]] = {str(plan["fetch"]["directory"]): ()}
    return {**fetched, **({served(plan): REWRITTEN[plan["convert"]["tool"]]} if plan["convert"] else {})}


def pinned_folders(sources: Iterable[Mapping[str, Any]], root: str) -> list[dict[str, Any]]:
    """Return the folders of weights whose files checksums pin: ``folder``, ``repositories``, ``written``.

    ``root``: the weights root. ``written``: names of files that a conversion wrote, which no repository has.
    """
    return [
        {"folder": f"{root.rstrip('/')}/{directory}", "repositories": list(known.values()), "written": list(written)}
        for source in sources
        if not source["fetch"]["measured_cards"] and (known := pin_file.with_checksums(source["fetch"]["repositories"]))
        for directory, written in copied_folders(source).items()
    ]


def missing(plan: Mapping[str, Any], there: Collection[str]) -> dict[str, Any] | None:
    """Return the remaining part of a source plan; None if its result is ``there``, the complete directories."""
    if served(plan) in there:
        return None
    fetch = plan["fetch"]
    return {"fetch": None if fetch["directory"] in there else fetch, "convert": plan["convert"]}


def directories(plan: Mapping[str, Any]) -> set[str]:
    """Return the directories of a source plan or a part of one: the one that is fetched, and the one that is served."""
    return {served(plan), *([plan["fetch"]["directory"]] if plan["fetch"] else [])}


def all_missing(plans: Mapping[str, Iterable[Mapping[str, Any]]], there: Collection[str]) -> list[dict[str, Any]]:
    """Return the remaining parts of source plans by instance, each directory once, with the first ``instance``."""
    found: dict[str, dict[str, Any]] = {}
    for instance, sources in plans.items():
        for source in sources:
            todo = missing(source, there)
            if todo is not None:
                found.setdefault(served(source), {**todo, "instance": instance})
    return list(found.values())


def lacking(parts: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the directories of remaining parts: what a node reports, and ``all_missing`` yields these parts again."""
    return sorted({directory for part in parts for directory in directories(part)})


def room(plan: Mapping[str, Any], begun: int, made: int = 0) -> int:
    """Return the bytes that a remaining part (of ``missing``) still needs.

    ``begun``: bytes of its unfinished download on the node. ``made``: bytes of converted weights that are being
    repaired.
    """
    fetched = max(int(plan["fetch"]["bytes"]) - begun, 0) if plan["fetch"] else 0
    return fetched + (max(int(plan["convert"]["bytes"]) - made, 0) if plan["convert"] else 0)


def origin(item: Mapping[str, Any]) -> str:
    """Return where a folder comes from, for people: owner/name at a commit, on the first hub that has it."""
    kind, source = next(iter(item["repositories"].items()))
    revision, branch = source.get("revision"), hub_kind(kind).branch
    return f"{source['repository']} at {revision[:12] if revision else f'the commit its {branch} branch names now'}"
