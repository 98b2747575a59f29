"""Tasks for the workers: their content, how they are handed out, and how one is done."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gaudi.base.refusal import Refusal
from gaudi.node import beneath

from .checkpoint import Identity, SourceCheckpoint
from .conversion import Conversion
from .progress import ConversionProgress
from .refusals import WrongResult
from .shards import SUM
from .staging import nothing_half


def sample(source: SourceCheckpoint, shard: str) -> list[str]:
    """Two tensors of a shard whose conversion is checked by default, the same ones for the same input.

    They are neighbours by name: mostly a weight and its scale.
    """
    names = sorted(source.actions[shard])
    lot = int(hashlib.sha256(f"{source.fingerprint}/{shard}".encode()).hexdigest(), 16)
    return [names[(lot + n) % len(names)] for n in range(min(2, len(names)))]


def tasks_for(
    conversion: Conversion, source: SourceCheckpoint, shards: list[str], folder: Path, convert: bool
) -> list[dict[str, Any]]:
    """Tasks for shards in folder, largest first: begun last, it would keep one worker busy alone.

    Every conversion is checked: every tensor where --verify asks for it or the source is given up, else a sample.
    """
    whole = conversion.verify or conversion.in_place_space
    return [
        {
            "name": name,
            "source": str(source.folder / name),
            "target": str(folder / name),
            "actions": source.actions[name],
            **conversion.task_options(),
            "identity": [source.shards[name].size, source.shards[name].mtime_ns, source.shards[name].inode],
            "convert": convert,
            "only": None if whole else sample(source, name),
        }
        for name in sorted(shards, key=lambda n: -source.shards[n].size)
    ]


def sums_for(folder: Path, files: dict[str, Any]) -> list[dict[str, Any]]:
    """Tasks that compare files in folder with their recorded sizes and checksums."""
    return [
        {"name": name, "target": str(folder / name), "convert": False, **{key: seen[key] for key in SUM}}
        for name, seen in sorted(files.items(), key=lambda item: -item[1]["bytes"])
    ]


def found_wrong(conversion: Conversion, tasks: list[dict[str, Any]]) -> dict[str, Refusal]:
    """Have the crew compare files; returns why, for each wrong one, by name."""
    sizes = {task["name"]: Path(task["target"]).stat().st_size for task in tasks}
    wrong: dict[str, Refusal] = {}
    progress = ConversionProgress(conversion.progress)
    progress.begin("verify", sum(sizes.values()))

    def finished(name: str, result: dict[str, Any]) -> None:
        progress.advance(sizes[name])
        if "wrong" in result:
            wrong[name] = WrongResult(result["refused_id"], result["wrong"])

    with conversion.crew(len(tasks)) as crew:
        crew.run(tasks, progress.advance, finished)
    progress.end()
    return wrong


def convert_shards(
    conversion: Conversion,
    source: SourceCheckpoint,
    shards: list[str],
    folder: Path,
    total: int,
    finished: Callable[[str, dict[str, Any]], None],
    save: Callable[[], None] = lambda: None,
) -> int:
    """Have the crew convert shards into folder; returns the number of tensors compared.

    total is in bytes, for the progress. finished gets each shard and its result; save is called when the work ends
    early.
    """
    compared = 0
    progress = ConversionProgress(conversion.progress)
    progress.begin("convert", total)

    def count(name: str, result: dict[str, Any]) -> None:
        nonlocal compared
        compared += result["compared"]
        finished(name, result)

    with nothing_half(folder, save), conversion.crew(len(shards)) as crew:
        crew.run(tasks_for(conversion, source, shards, folder, convert=True), progress.advance, count)
    progress.end()
    return compared


def do_task(
    task: dict[str, Any],
    convert: Callable[[Path, Path], dict[str, Any]],
    compare: Callable[[Path, Path], int],
    meanwhile: str,
) -> dict[str, Any]:
    """In a worker: convert one shard, unless it is done, and compare it.

    Raises Refusal when the source is not the one that was examined, before or after; meanwhile says when it changed.
    """
    source, target = Path(task["source"]), Path(task["target"])
    result: dict[str, Any] = {}
    if task["convert"]:
        identity = Identity(*task["identity"])
        if Identity.of(source) != identity:
            raise Refusal(
                "source_changed", f"{source} changed since the conversion began; remove {target.parent} to start over"
            )
        result = convert(source, target)
        if Identity.of(source) != identity:
            beneath.remove(target, target.parent)
            raise Refusal("source_changed", f"{source} changed {meanwhile}; remove {target.parent} to start over")
    result["whole"] = task["only"] is None
    result["compared"] = compare(source, target)
    return result
