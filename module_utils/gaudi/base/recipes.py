"""Compiled recipes of a server: which servers can use the same ones, and where an instance has its own on the node.

Two servers never write one folder. Those that could use the same recipes have a folder each, side by side.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from . import paths

# Of the digest in a folder's name. The readable part may be cut, this one tells keys apart.
_DIGITS = 12
_LONGEST = 48
# Of a copy that is being made, before the instance's name. No instance is called so.
COPYING = ".copying-"
# The two files of a recipe. One without the other is none. The vendor's bridge (recipe_cache.cpp) takes metadata
# without its recipe for a graph with nothing to do, and never replaces it. Early bridges wrote such metadata for graphs
# that are empty, later ones write nothing for these. To lose it costs the compilation of an empty graph. A recipe
# without metadata is never read.
PARTNERS = {".recipe": ".metadata", ".metadata": ".recipe"}
# Of a folder on its way to another node, after the name of a key's folder.
CARRIED = ".carried"


@dataclass(frozen=True)
class RecipeKey:
    """What recipes are compiled for. Lengths, batch sizes and buckets choose among them, and are none of it.

    model: by its name in the catalogue and its revisions there, or by the folder of its weights. quantization: what
    the weights are quantised with, its file, and the type of the KV cache. image: the base image. driver: the
    driver's version that belongs to the release. cards: of one copy of the model (tensor parallel size).
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
        """The name of the folder of these recipes: for people first, then what stands for all of the key."""
        readable = re.sub(r"[^a-z0-9.]+", "-", self.model.rpartition("/")[2].lower()).strip("-.")[:_LONGEST]
        card = re.sub(r"[^a-z0-9]+", "", self.card_type.lower())
        parts = (readable or "model", self.dtype, card or "card", f"tp{self.cards}")
        said = json.dumps(vars(self), sort_keys=True, separators=(",", ":"))
        return "-".join((*parts, hashlib.sha256(said.encode()).hexdigest()[:_DIGITS]))


def folder_of(key: RecipeKey, instance: str) -> str:
    """Where an instance has its recipes of this key on the node."""
    return f"{paths.RECIPES}/{key.folder}/{instance}"


def is_keyed(folder: str, state: str = paths.STATE) -> bool:
    """Whether a folder is one of those that this project keeps by their keys, and no directory that a person named.

    state: the node's directory for state.
    """
    return folder.startswith(f"{state}{paths.RECIPES[len(paths.STATE) :]}/")


def key_of(folder: str) -> str:
    """The name of a key's folder, which the folder of an instance lies in; empty for one that has no key."""
    return folder.split("/")[-2] if is_keyed(folder) else ""


def whole(names: Iterable[str]) -> list[str]:
    """Of the names of files those that are both files of a recipe, sorted."""
    there = set(names)
    return sorted(
        name
        for name in there
        for kind, partner in PARTNERS.items()
        if name.endswith(kind) and name[: -len(kind)] + partner in there
    )
