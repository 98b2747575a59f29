"""Features of the vendor's manuals that this project does not have, each with the sentence that refuses it.

The README has the same sentences. Whoever builds such a feature deletes its entry here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class MissingFeature:
    """One missing feature: its name, the pattern of names that ask for it, and the refusal sentence."""

    name: str
    asked: re.Pattern[str]
    sentence: str


def _asked(words: str, alone: str | None = None) -> re.Pattern[str]:
    """A pattern for names that contain one of ``words``, or equal ``alone``, which is ambiguous in longer names."""
    anywhere = rf"(?:^|_)(?:{words})(?:_|$)"
    return re.compile(anywhere if alone is None else rf"^{alone}$|{anywhere}")


TWO_NODES = MissingFeature(
    "two nodes",
    _asked(
        "n?nodes|node_rank|pipeline_parallel_size|data_parallel_(?:address|start_rank|size_local|rpc_port)|dpa|dpl"
        "|dp_master_(?:ip|port)|master_addr|ray_address"
    ),
    "One instance over two nodes is not built yet: the cards of an instance are those of one node.",
)
OFFLINE = MissingFeature(
    "offline inference",
    _asked("offline_inference|run_batch|batch_inference", alone="offline"),
    "Offline inference (a script of yours with vLLM's LLM class) is not offered: serve the model and ask the server, "
    "or answer a file of requests with playbooks/batch.yml.",
)
NEURON = MissingFeature(
    "AWS Neuron",
    _asked("neuronx?|neuroncore|trainium|inferentia|trn[12]|inf[12]"),
    "AWS Neuron (Trainium, Inferentia) is not supported: this project serves from Intel Gaudi cards only.",
)
TPU = MissingFeature(
    "Google TPU",
    _asked("tpu|xla"),
    "Google TPU is not supported: this project serves from Intel Gaudi cards only.",
)
PARTS = (TWO_NODES, OFFLINE, NEURON, TPU)

# Options whose value asks for the feature; for all others it is their name.
_DEVICES = ("device", "vllm_target_device")


def absent(name: object, value: object = None) -> str | None:
    """Return the refusal sentence for an option, argument, variable, release or model; None if it asks for no feature.

    ``value`` is only read if the name is that of the device option.
    """
    words = _words(name)
    if words in _DEVICES:
        words = _words(value)
    return next((part.sentence for part in PARTS if part.asked.search(words)), None)


def _words(value: object) -> str:
    """Normalise a name, so that ``--data-parallel-address`` and ``DATA_PARALLEL_ADDRESS`` are equal."""
    return re.sub(r"[^a-z0-9]+", "_", value.lower()).strip("_") if isinstance(value, str) else ""
