"""A block-quantised checkpoint is examined before anything is written."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from gaudi.base.checks import shown
from gaudi.base.refusal import Refusal

from ..checkpoint import SourceCheckpoint, decided, headers_of
from ..e4m3 import CODE_OF_240, MAGNITUDE, NAN_CODE
from ..files import PROVENANCE, STATE_FOLDER, open_in
from ..safetensors import MARKER_KEY, Header, ShardTensor
from ..shards import chunks
from .shard import result_size
from .tables import Factor
from .tensors import decide


def examine(folder: Path, vendor_compatible: bool, assume_unconverted: bool, factor: Factor) -> SourceCheckpoint:
    """Read every header, decide every tensor; nothing is written."""
    identities, headers = headers_of(folder)
    everything = [tensor for header in headers.values() for tensor in header.tensors]
    actions = decide(everything, vendor_compatible)
    refuse_converted(folder, headers, actions, assume_unconverted)
    return decided(folder, identities, headers, actions, partial(result_size, factor=factor))


def refuse_converted(folder: Path, headers: dict[str, Header], actions: dict[str, str], assume: bool) -> None:
    """Refuse an input that was converted before: it would lose a second 240/448 without any error."""
    if (folder / STATE_FOLDER / PROVENANCE).exists():
        raise Refusal(
            "converted_before",
            f"{folder} was converted before (see {STATE_FOLDER}/{PROVENANCE} in it); converting twice ruins the "
            "weights",
        )
    for name, header in headers.items():
        if MARKER_KEY in header.metadata:
            raise Refusal(
                "converted_before",
                f"{folder / name} was converted before (its header says {MARKER_KEY}="
                f"{shown(header.metadata[MARKER_KEY])}); converting twice ruins the weights",
            )
    if assume:
        return
    # Block scales are chosen so that nearly every block reaches 448. Where 16 tensors have no value above 240, another
    # program converted them.
    weights = list(itertools.islice(large_weights(headers, actions), 16))
    if weights and not any(exceeds_240(folder / name, headers[name], tensor) for name, tensor in weights):
        raise Refusal(
            "looks_converted",
            f"no value in the first {len(weights)} FP8 tensors of {folder} is above 240, so it looks converted "
            "already; converting twice ruins the weights (--assume-unconverted if you know better)",
        )


def large_weights(headers: dict[str, Header], actions: dict[str, str]) -> Iterator[tuple[str, ShardTensor]]:
    """FP8 weights of at least one block, each with its shard's name."""
    for name, header in headers.items():
        for tensor in header.tensors:
            if actions.get(tensor.name) == "weight" and tensor.size >= 128 * 128:
                yield name, tensor


def exceeds_240(path: Path, header: Header, tensor: ShardTensor) -> bool:
    """Whether a tensor holds a value above 240, the end of Gaudi2's range."""
    with open_in(path.parent, path.name) as stream:
        stream.seek(header.data_start + tensor.begin)
        for piece in chunks(stream, tensor.size, tensor.name):
            if any(CODE_OF_240 < (code & MAGNITUDE) < NAN_CODE for code in set(piece)):
                return True
    return False
