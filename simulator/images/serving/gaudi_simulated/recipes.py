"""The cache of compiled recipes on disk, as the bridge of the vendor's PyTorch keeps it (recipe_cache.cpp).

All processes of a server share one flat folder. A graph has two files there, ID.recipe and ID.metadata; its identity is
that of what is compiled, so shapes find theirs again whatever else a plan says.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Mapping
from pathlib import Path

from .processes import StartError

VARIABLE = "PT_HPU_RECIPE_CACHE_CONFIG"
# What a graph takes whose recipe is read, of what it takes to compile it. Llama 3.1 8B: 66 to 23 s, in bfloat16.
READ = 0.35
# The bridge locks it before it looks for what is too much, and leaves it there.
LOCK = "eviction.lock"
_BEGIN = b"simulated recipe\n"
# The real ones are megabytes.
_BYTES = 4096


def graph_of(line: str) -> str:
    """What a line of the warm-up says is compiled: not its place, and not the memory that is left."""
    return re.sub(r"\[\d+/\d+\]| free_mem:.*", "", line)


class Cache:
    """A folder of recipes; without one every graph is compiled."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        folder, delete, size = (*environment.get(VARIABLE, "").split(",")[:3], "", "", "")[:3]
        self.folder = Path(folder) if folder else None
        self.most = int(size or 1024) * 1024**2
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            if delete == "true":
                for path in self.folder.iterdir():
                    path.unlink()

    def warm(self, graph: str, pause: float) -> None:
        """Read a graph's recipe, or compile it and write that; ``pause`` is what the compilation takes."""
        if self.folder is None:
            time.sleep(pause)
            return
        name = str(int.from_bytes(hashlib.sha256(graph.encode()).digest()[:8], "big"))
        recipe, metadata = self.folder / f"{name}.recipe", self.folder / f"{name}.metadata"
        known = metadata.is_file()
        if known and not metadata.stat().st_size:
            metadata.unlink()
            known = False
        if known and not recipe.exists():
            # Taken for a graph in which there is nothing to do.
            raise StartError(f"simulated: {metadata} has no recipe beside it, so its graph would compute nothing")
        if known and recipe.read_bytes().startswith(_BEGIN):
            time.sleep(pause * READ)
            return
        time.sleep(pause)
        # What cannot be read stays as it is: metadata that is not empty counts as a recipe that is stored.
        if not known:
            recipe.write_bytes(_BEGIN.ljust(_BYTES, b"."))
            metadata.write_text(f"simulated: {graph}\n", encoding="utf-8")
            self._evict()

    def _evict(self) -> None:
        """Remove the oldest recipes where there is more than the site allows."""
        if self.folder is None:
            return
        (self.folder / LOCK).touch()
        pairs = [
            (path.stat().st_mtime, path, other, path.stat().st_size + other.stat().st_size)
            for path in self.folder.glob("*.recipe")
            if (other := path.with_suffix(".metadata")).exists()
        ]
        left = sum(size for *_, size in pairs)
        for _, recipe, metadata, size in sorted(pairs):
            if left <= self.most:
                return
            recipe.unlink()
            metadata.unlink()
            left -= size
