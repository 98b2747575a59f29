"""Tasks for the workers."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from .checkpoint import Source
from .conversion import Wish
from .progress import Progress
from .shards import SUM


def sample(source: Source, shard: str) -> list[str]:
    """Two tensors of a shard whose conversion is checked by default; the same ones for the same input.

    Neighbours by name, so that mostly a weight is seen with its scale.
    """
    names = sorted(source.actions[shard])
    lot = int(hashlib.sha256(f"{source.fingerprint}/{shard}".encode()).hexdigest(), 16)
    return [names[(lot + n) % len(names)] for n in range(min(2, len(names)))]


def tasks_for(wish: Wish, source: Source, shards: list[str], folder: Path, convert: bool) -> list[dict[str, Any]]:
    """Work for the crew in folder, largest shard first so that no worker ends alone with it.

    Every conversion is checked, by a sample unless all was asked for or the source is given up.
    """
    whole = wish.verify or wish.in_place_space
    return [
        {
            "name": name,
            "source": str(source.folder / name),
            "target": str(folder / name),
            "actions": source.actions[name],
            "factor": [wish.factor.name, wish.factor.numerator, wish.factor.denominator],
            "identity": [source.shards[name].size, source.shards[name].mtime_ns, source.shards[name].inode],
            "convert": convert,
            "only": None if whole else sample(source, name),
        }
        for name in sorted(shards, key=lambda n: -source.shards[n].size)
    ]


def sums_for(folder: Path, files: dict[str, Any]) -> list[dict[str, Any]]:
    """Work for the crew: hold files in folder against their recorded sums."""
    return [
        {"name": name, "target": str(folder / name), "convert": False, **{key: seen[key] for key in SUM}}
        for name, seen in sorted(files.items(), key=lambda item: -item[1]["bytes"])
    ]


def found_wrong(wish: Wish, tasks: list[dict[str, Any]]) -> dict[str, str]:
    """Have the crew compare files; returns a sentence for each wrong one, by name."""
    sizes = {task["name"]: Path(task["target"]).stat().st_size for task in tasks}
    wrong: dict[str, str] = {}
    progress = Progress(wish.progress)
    progress.begin("verify", sum(sizes.values()))

    def finished(name: str, result: dict[str, Any]) -> None:
        progress.advance(sizes[name])
        if "wrong" in result:
            wrong[name] = result["wrong"]

    with wish.crew(max(1, min(wish.jobs, len(tasks)))) as crew:
        crew.run(tasks, progress.advance, finished)
    progress.end()
    return wrong
