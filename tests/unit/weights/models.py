"""A small model as its makers would upload it, and requests for it."""

from __future__ import annotations

import json
import random
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gaudi_weights.model import StopSwitch
from gaudi_weights.request import HubSource, WeightsRequest

from simulator.hub.server import SimulatedHub

MODEL = "maker/Small-Model"
SHARD = 600_000  # bytes; a few blocks


def safetensors(size: int, seed: int) -> bytes:
    """A proper file with one tensor of so many random bytes."""
    header = json.dumps({"x": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    return struct.pack("<Q", len(header)) + header + random.Random(seed).randbytes(size)


def write_model(folder: Path, shards: int = 3, size: int = SHARD) -> Path:
    """A model in shards, as its makers would upload it."""
    names = [f"model-{number:05}-of-{shards:05}.safetensors" for number in range(1, shards + 1)]
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(names):
        (folder / name).write_bytes(safetensors(size + 1000 * number, number))
    index = {"metadata": {}, "weight_map": {f"layer.{number}": name for number, name in enumerate(names)}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text('{"model_type": "qwen2"}')
    (folder / "pytorch_model.bin").write_bytes(b"the same again")
    (folder / "figures").mkdir(exist_ok=True)
    (folder / "figures/speed.png").write_bytes(b"a picture")
    (folder / "tokenizer").mkdir(exist_ok=True)
    (folder / "tokenizer/merges & more.txt").write_text("a b\n")
    return folder


SERVED = {
    "config.json",
    *(f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3)),
    "model.safetensors.index.json",
    "tokenizer/merges & more.txt",
}


def source(hub: SimulatedHub, **more: Any) -> HubSource:
    """The hub as a source."""
    given = {
        "name": "hub",
        "endpoint": hub.endpoint,
        "repository": MODEL,
        "revision": hub.repositories[MODEL].main,
        "token_file": None,
        "proxy": None,
    }
    return HubSource(**{**given, **more})


def requested(tmp_path: Path, *sources: HubSource, **more: Any) -> WeightsRequest:
    """A request for the model at tmp_path/models/Small-Model."""
    return WeightsRequest(target=tmp_path / "models/Small-Model", sources=sources, **more)


class LeapingClock(StopSwitch):
    """Pauses that take no time; the clock shows them all the same. then is called with the time after each."""

    def __init__(self, then: Callable[[float], None] = lambda now: None) -> None:
        super().__init__()
        self.now = 0.0
        self.then = then

    def clock(self) -> float:
        return self.now

    def wait(self, timeout: float | None = None) -> bool:
        self.now += timeout or 0.0
        self.then(self.now)
        return self.is_set()


def wait_until(true: Callable[[], bool]) -> None:
    """Wait for a condition, five minutes at most, on a busy machine."""
    deadline = time.monotonic() + 300
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)
