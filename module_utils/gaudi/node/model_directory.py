"""Whether a model directory can be served from."""

from __future__ import annotations

import json
from pathlib import Path

from .folders import size_of
from .weight_folders import mend, wrong_files

WEIGHT_FILES = ("*.safetensors", "*.bin", "*.pt", "*.pth")


def changed_weights(directory: Path) -> str | None:
    """Say which file is not as the record beside the weights has it, and what mends it; None where all are, by size."""
    wrong = wrong_files(directory)
    if not wrong:
        return None
    size = size_of(directory / wrong[0], directory)
    seen = "is not there" if size is None else f"has {size} bytes"
    others = f", like {len(wrong) - 1} more," if len(wrong) > 1 else ""
    return (
        f"{directory / wrong[0]} {seen}: it is{others} missing, of another size than is on record, or was found "
        f"damaged. Make the weights whole with: {mend(directory)}"
    )


def missing_weights(directory: Path) -> str | None:
    """Say what is missing in a model directory, or None. Looks at names and sizes, not at contents."""
    if not directory.is_dir():
        return f"the directory {directory} is not there"
    if not (directory / "config.json").is_file():
        return f"{directory} has no config.json"
    if not any(path.stat().st_size for suffix in WEIGHT_FILES for path in directory.glob(suffix)):
        return f"{directory} holds no weights ({', '.join(WEIGHT_FILES)})"
    index = directory / "model.safetensors.index.json"
    shards = {"config.json"}
    if index.is_file():
        try:
            shards |= {str(name) for name in json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()}
        except (ValueError, KeyError, AttributeError) as wrong:
            return f"{index} cannot be read ({wrong!r})"
    absent = sorted(s for s in shards if not (directory / s).is_file() or (directory / s).stat().st_size == 0)
    if absent:
        return (
            f"{len(absent)} of {len(shards) - 1} shards named in {index.name} are missing or empty, first {absent[0]}"
        )
    # The container's root has no DAC_OVERRIDE: it reads what it owns or what everybody may read.
    for path in (directory, *(directory / shard for shard in sorted(shards))):
        facts = path.stat()
        if facts.st_uid != 0 and not facts.st_mode & 0o004:
            return f"{path} is readable by user {facts.st_uid} only, not by the container (chmod o+rX)"
    return None
