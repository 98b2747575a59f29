"""A bfloat16 checkpoint is examined before anything is written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..checkpoint import Identity, Source, carried_files, check_names, read_headers, shards_of
from ..files import PROVENANCE, STATE_FOLDER, read_json
from ..refusals import Refusal
from ..safetensors import MARKER_KEY, Header
from .shard import layout
from .tensors import decide, is_projection, kept


def examine(folder: Path, keep: tuple[str, ...]) -> Source:
    """Read every header, decide every tensor; nothing is written."""
    shards = shards_of(folder)
    identities = {name: Identity.of(folder / name) for name in shards}
    headers = read_headers(folder, shards)
    check_names(folder, headers)
    refuse_quantised(folder, headers)
    everything = [tensor for header in headers.values() for tensor in header.tensors]
    actions = decide(everything, keep)
    for pattern in keep:
        if not any(kept(tensor.name, (pattern,)) for tensor in everything if is_projection(tensor)):
            raise Refusal(f"--keep {pattern} names no projection of this checkpoint")
    by_shard: dict[str, dict[str, str]] = {}
    result_bytes: dict[str, int] = {}
    for name, header in headers.items():
        by_shard[name] = {t.name: actions[t.name] for t in header.tensors if t.name in actions}
        parts, head = layout(header, by_shard[name])
        result_bytes[name] = len(head) + sum(part.result.size for part in parts)
    return Source(folder, identities, by_shard, result_bytes, carried_files(folder, shards))


def refuse_quantised(folder: Path, headers: Mapping[str, Header]) -> None:
    """An input that is quantised in any way, or was converted before, is refused."""
    if (folder / STATE_FOLDER / PROVENANCE).exists():
        raise Refusal(f"{folder} was converted before (see {STATE_FOLDER}/{PROVENANCE} in it)")
    for name, header in headers.items():
        if MARKER_KEY in header.metadata:
            raise Refusal(f"{folder / name} was converted before (its header says {MARKER_KEY})")
    config = folder / "config.json"
    if not config.exists():
        raise Refusal(f"{folder} holds no config.json, which has to say how the weights are to be read")
    document = read_json(config)
    text = document.get("text_config")
    for place in (document, text if isinstance(text, dict) else {}):
        said = place.get("quantization_config")
        if said is not None:
            method = said.get("quant_method", "unknown") if isinstance(said, dict) else said
            raise Refusal(f"{config} says the weights are quantised already (quant_method {method!r})")
