"""A bfloat16 checkpoint is examined before anything is written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gaudi.base.checks import shown
from gaudi.base.refusal import Refusal

from ..checkpoint import SourceCheckpoint, decided, headers_of
from ..files import PROVENANCE, STATE_FOLDER, read_json
from ..safetensors import MARKER_KEY, Header
from .shard import result_size
from .tensors import decide, is_projection, kept


def examine(folder: Path, keep: tuple[str, ...]) -> SourceCheckpoint:
    """Read every header, decide every tensor; nothing is written."""
    identities, headers = headers_of(folder)
    refuse_quantised(folder, headers)
    everything = [tensor for header in headers.values() for tensor in header.tensors]
    actions = decide(everything, keep)
    for pattern in keep:
        if not any(kept(tensor.name, (pattern,)) for tensor in everything if is_projection(tensor)):
            raise Refusal("keep_names_nothing", f"--keep {pattern} names no projection of this checkpoint")
    return decided(folder, identities, headers, actions, result_size)


def refuse_quantised(folder: Path, headers: Mapping[str, Header]) -> None:
    """An input that is quantised in any way, or was converted before, is refused."""
    if (folder / STATE_FOLDER / PROVENANCE).exists():
        raise Refusal("converted_before", f"{folder} was converted before (see {STATE_FOLDER}/{PROVENANCE} in it)")
    for name, header in headers.items():
        if MARKER_KEY in header.metadata:
            raise Refusal("converted_before", f"{folder / name} was converted before (its header says {MARKER_KEY})")
    config = folder / "config.json"
    if not config.exists():
        raise Refusal("no_config", f"{folder} holds no config.json, which has to say how the weights are to be read")
    document = read_json(config)
    text = document.get("text_config")
    for place in (document, text if isinstance(text, dict) else {}):
        said = place.get("quantization_config")
        if said is not None:
            method = said.get("quant_method", "unknown") if isinstance(said, dict) else said
            raise Refusal(
                "quantised_already", f"{config} says the weights are quantised already (quant_method {shown(method)})"
            )
