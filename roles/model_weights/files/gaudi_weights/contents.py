"""Whether files that arrived belong together: shards, safetensors headers, measurement files."""

from __future__ import annotations

import json
import os
import posixpath
import re
from collections.abc import Iterable
from pathlib import Path

from gaudi.base.refusal import Refusal
from gaudi.base.units import human_bytes
from gaudi.node import beneath
from gaudi_fp8 import safetensors

from .model import listed

INDEX = ".safetensors.index.json"
# Bytes of an index that are read. Qwen3-Coder-480B has some 60,000 tensors, whose entries take 6 MB.
MOST_OF_INDEX = 100 * 10**6
# Intel Neural Compressor writes three files for each rank r of N: <stem>_r_N.json, .npz and _mod_list.json.
MEASURED = re.compile(r"(?P<stem>.+)_(?P<rank>\d+)_(?P<cards>\d+)(?P<kind>_mod_list\.json|\.json|\.npz)")
KINDS = (".json", ".npz", "_mod_list.json")


def check_index(folder: Path, name: str, names: Iterable[str]) -> None:
    """Refuse a model some of whose shards are not among names; name is that of the index in the folder."""
    try:
        with beneath.open_file(folder / name, folder) as stream:
            text = stream.read(MOST_OF_INDEX + 1)
        if len(text) > MOST_OF_INDEX:
            raise ValueError(f"it has more than {human_bytes(MOST_OF_INDEX)}")
        shards = set(json.loads(text)["weight_map"].values())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Refusal(
            "index_unreadable", f"{name} is no index of shards ({error}); report it to the model's authors"
        ) from error
    missing = {posixpath.join(posixpath.dirname(name), str(shard)) for shard in shards} - set(names)
    if missing:
        raise Refusal(
            "shards_missing",
            f"{name} names {len(shards)} shards, and the source lacks {listed(missing)}: this copy of the model is not "
            "whole. Use another source or revision",
        )


def check_safetensors(folder: Path, name: str) -> None:
    """Refuse a shard in the folder whose header does not describe it."""
    with beneath.open_file(folder / name, folder) as stream:
        try:
            safetensors.parse_header(stream, os.fstat(stream.fileno()).st_size)
        except Refusal as error:
            raise Refusal("not_safetensors", f"{name} is no proper safetensors file: {error}") from error


def check_measurements(names: Iterable[str], cards: int) -> None:
    """Refuse measurement files that are not three for each of so many ranks."""
    sets: dict[str, set[tuple[int, str]]] = {}
    sizes: set[int] = set()
    for name in names:
        found = MEASURED.fullmatch(name)
        if found:
            sizes.add(int(found["cards"]))
            if int(found["cards"]) == cards:
                sets.setdefault(found["stem"], set()).add((int(found["rank"]), found["kind"]))
    if not sets:
        there = f"there are files for {', '.join(map(str, sorted(sizes)))}" if sizes else "there are none at all"
        raise Refusal(
            "no_measurements",
            f"measurement files for tensor parallel size {cards} are needed, {there}; use another repository",
        )
    wanted = {(rank, kind) for rank in range(cards) for kind in KINDS}
    for stem, there_are in sorted(sets.items()):
        missing = {f"{stem}_{rank}_{cards}{kind}" for rank, kind in wanted - there_are}
        if missing:
            raise Refusal(
                "measurements_missing",
                f"tensor parallel size {cards} needs {len(wanted)} measurement files, and the source lacks "
                f"{listed(missing)}; use another repository or revision",
            )
