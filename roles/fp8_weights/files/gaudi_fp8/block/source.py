"""A block-quantised checkpoint is examined before anything is written."""

from __future__ import annotations

from pathlib import Path

from ..checkpoint import Identity, Source, carried_files, check_names, read_headers, shards_of
from ..e4m3 import CODE_OF_240, MAGNITUDE, NAN_CODE
from ..files import PROVENANCE, STATE_FOLDER
from ..refusals import Refusal
from ..safetensors import MARKER_KEY, Header
from ..shards import chunks
from .shard import layout
from .tables import Factor
from .tensors import decide


def examine(folder: Path, vendor_compatible: bool, assume_unconverted: bool, factor: Factor) -> Source:
    """Read every header, decide every tensor; nothing is written."""
    shards = shards_of(folder)
    identities = {name: Identity.of(folder / name) for name in shards}
    headers = read_headers(folder, shards)
    check_names(folder, headers)
    everything = [tensor for header in headers.values() for tensor in header.tensors]
    actions = decide(everything, vendor_compatible)
    refuse_converted(folder, headers, actions, assume_unconverted)
    by_shard: dict[str, dict[str, str]] = {}
    result_bytes: dict[str, int] = {}
    for name, header in headers.items():
        by_shard[name] = {t.name: actions[t.name] for t in header.tensors if t.name in actions}
        steps, head = layout(header, by_shard[name], factor)
        result_bytes[name] = len(head) + sum(step.result[1] for step in steps)
    return Source(folder, identities, by_shard, result_bytes, carried_files(folder, shards))


def refuse_converted(folder: Path, headers: dict[str, Header], actions: dict[str, str], assume: bool) -> None:
    """An input converted before would lose a second 240/448 without any error: refuse it."""
    if (folder / STATE_FOLDER / PROVENANCE).exists():
        raise Refusal(
            f"{folder} was converted before (see {STATE_FOLDER}/{PROVENANCE} in it); converting twice ruins the weights"
        )
    for name, header in headers.items():
        if MARKER_KEY in header.metadata:
            raise Refusal(
                f"{folder / name} was converted before (its header says {MARKER_KEY}={header.metadata[MARKER_KEY]}); "
                "converting twice ruins the weights"
            )
    if assume:
        return
    # A block-quantised checkpoint reaches 448 in nearly every block, because that is how its scales were
    # chosen. Sixteen tensors without one value above 240 were converted by some other program.
    looked = 0
    for name, header in headers.items():
        weights = [t for t in header.tensors if actions.get(t.name) == "weight" and t.size >= 128 * 128]
        with (folder / name).open("rb") as stream:
            for tensor in weights[: 16 - looked]:
                stream.seek(header.data_start + tensor.begin)
                for piece in chunks(stream, tensor.size, tensor.name):
                    if any(CODE_OF_240 < (code & MAGNITUDE) < NAN_CODE for code in set(piece)):
                        return
                looked += 1
        if looked >= 16:
            break
    if looked:
        raise Refusal(
            f"no value in the first {looked} FP8 tensors of {folder} is above 240, so it looks converted already; "
            "converting twice ruins the weights (--assume-unconverted if you know better)"
        )
