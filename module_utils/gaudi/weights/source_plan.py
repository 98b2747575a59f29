"""Where a model's folder of weights comes from: what is fetched from which repository, and what is converted from it.

A source plan is a mapping that survives JSON: ``fetch`` (directory, repositories, bytes, measured_cards) and
``convert`` (source, target, tool, bytes), either of which may be None; 0 bytes are a size nobody knows. Directories are
names below the weights root.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from .hub_kinds import hub_kind

# Published bytes for each byte served: a conversion from bfloat16 halves the size, one from block-quantised FP8 keeps
# one byte a weight.
PUBLISHED_SHARE = {"fp8_block": 1, "fp8_dynamic": 2}


def published(entry: Mapping[str, Any]) -> dict[str, Any]:
    """What is fetched for a model of the catalogue: its weights as they are published."""
    conversion = entry.get("conversion")
    return {
        "directory": conversion["from_directory"] if conversion else entry["directory"],
        "repositories": entry["repositories"],
        "bytes": entry.get("weights_bytes", 0) * (PUBLISHED_SHARE[conversion["tool"]] if conversion else 1),
        "measured_cards": 0,
    }


def measured(entry: Mapping[str, Any]) -> dict[str, Any] | None:
    """What is fetched as a model's measurement files; None where it has none. They are small: no size is known."""
    measurements = entry.get("measurements")
    if not measurements:
        return None
    return {
        "directory": measurements["directory"],
        "repositories": measurements["repositories"],
        "bytes": 0,
        "measured_cards": measurements["tensor_parallel_size"],
    }


def source_plan(entry: Mapping[str, Any], directory: str) -> dict[str, Any] | None:
    """How the folder ``directory`` of a model is made; None where that is not known."""
    conversion = entry.get("conversion")
    fetch = published(entry)
    if not fetch["repositories"]:
        return None
    if conversion is None or directory == conversion["from_directory"]:
        # This card takes the weights as they are published.
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


def source_plans(plan: Mapping[str, Any], entries: Iterable[Mapping[str, Any]], root: str) -> list[dict[str, Any]]:
    """What everything a serving plan needs below the weights root comes from: weights and measurements."""
    entries = list(entries)
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
    """The directory a source plan ends with."""
    return str(plan["convert"]["target"] if plan["convert"] else plan["fetch"]["directory"])


def missing(plan: Mapping[str, Any], there: Collection[str]) -> dict[str, Any] | None:
    """What of a source plan is still to be done; None when its result is ``there``, the directories that are whole."""
    if served(plan) in there:
        return None
    fetch = plan["fetch"]
    return {"fetch": None if fetch["directory"] in there else fetch, "convert": plan["convert"]}


def room(plan: Mapping[str, Any], begun: int, made: int = 0) -> int:
    """Bytes that what ``missing`` gave takes.

    On the node already are ``begun`` bytes of the download, and ``made`` bytes of converted weights that are mended.
    """
    fetched = max(int(plan["fetch"]["bytes"]) - begun, 0) if plan["fetch"] else 0
    return fetched + (max(int(plan["convert"]["bytes"]) - made, 0) if plan["convert"] else 0)


def origin(item: Mapping[str, Any]) -> str:
    """Where a folder comes from, for people: owner/name at a commit, on the first hub that is known to have it."""
    kind, source = next(iter(item["repositories"].items()))
    revision, branch = source.get("revision"), hub_kind(kind).branch
    return f"{source['repository']} at {revision[:12] if revision else f'the commit its {branch} branch names now'}"
