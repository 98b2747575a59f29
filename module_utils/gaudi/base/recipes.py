"""Compiled recipes of a server: which servers can share them, and each instance's own folder for them on the node.

Two servers never write to one folder. Instances with the same key have one folder each, side by side.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from . import paths

# Hexadecimal digits of the digest in a folder's name. The digest tells keys apart; the readable part may be shortened.
_DIGITS = 12
_LONGEST = 48
# Prefix of a copy in progress, before the instance's name. No instance has such a name.
COPYING = ".copying-"
# The two files of a recipe; neither works alone. The vendor's bridge (recipe_cache.cpp) reads metadata without a recipe
# as a graph with nothing to do, and never replaces it. Early bridges wrote such metadata for empty graphs, later ones
# write nothing for them. Deleting it costs one compilation of an empty graph. A recipe without metadata is never read.
PARTNERS = {".recipe": ".metadata", ".metadata": ".recipe"}
# Suffix of a key's folder while it is copied to another node.
CARRIED = ".carried"


@dataclass(frozen=True)
class RecipeKey:
    """Everything that decides whether a compiled recipe can be reused.

    Lengths, batch sizes and buckets are not part of it: they only select among the recipes. model: its catalogue name
    and revisions, or the folder of its weights. quantization: the method, its file, and the data type of the KV cache.
    image: the base image. driver: the release's driver version. cards: those of one copy of the model
    (tensor_parallel_size).
    """

    model: str
    revision: str
    quantization: str
    image: str
    driver: str
    card_type: str
    cards: int
    dtype: str
    block_size: int

    @property
    def folder(self) -> str:
        """The folder's name: a readable part, then a digest of the whole key."""
        readable = re.sub(r"[^a-z0-9.]+", "-", self.model.rpartition("/")[2].lower()).strip("-.")[:_LONGEST]
        card = re.sub(r"[^a-z0-9]+", "", self.card_type.lower())
        parts = (readable or "model", self.dtype, card or "card", f"tp{self.cards}")
        said = json.dumps(vars(self), sort_keys=True, separators=(",", ":"))
        return "-".join((*parts, hashlib.sha256(said.encode()).hexdigest()[:_DIGITS]))


def folder_of(key: RecipeKey, instance: str) -> str:
    """Return the folder on the node where an instance keeps its recipes of this key."""
    return f"{paths.RECIPES}/{key.folder}/{instance}"


def is_keyed(folder: str, state: str = paths.STATE) -> bool:
    """Whether this project named the folder by a key; False for a directory that a site chose.

    state: the project's state directory on the node.
    """
    return folder.startswith(f"{state}{paths.RECIPES[len(paths.STATE) :]}/")


def key_of(folder: str) -> str:
    """Return the key's folder name from the path of an instance's folder; "" if the folder has no key."""
    return folder.split("/")[-2] if is_keyed(folder) else ""


def whole(names: Iterable[str]) -> list[str]:
    """Return the files whose partner is present too (see PARTNERS), sorted."""
    there = set(names)
    return sorted(
        name
        for name in there
        for kind, partner in PARTNERS.items()
        if name.endswith(kind) and name[: -len(kind)] + partner in there
    )
