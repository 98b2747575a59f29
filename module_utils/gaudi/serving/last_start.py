"""The KV blocks that an instance's last start logged, and whether the next start will have as many."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# Options for the server's address, its names and timeouts of clients. None of them affects how memory is divided.
# Neither does the choice of cards, as all cards of a node are alike.
_ARGUMENTS = ("--host", "--middleware", "--port", "--served-model-name", "--shutdown-timeout")
_VARIABLES = re.compile(
    r"GLOO_SOCKET_IFNAME|HABANA_VISIBLE_\w+|HCCL_SOCKET_IFNAME|HLS_MODULE_ID|VLLM_ENGINE_READY_TIMEOUT_S|VLLM_HOST_IP"
    r"|VLLM_\w*BUCKET\w*"
)
# What ``sized_by`` returns, and the most KV blocks that are believed.
DIGEST = re.compile(r"[0-9a-f]{1,128}")
MOST_BLOCKS = 10**10 - 1


@dataclass(frozen=True)
class LastStart:
    """The supervisor's record of a start: ``sized_by`` of its plan, and the KV blocks that the server logged."""

    sized_by: str
    kv_blocks: int

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> LastStart | None:
        """Return the start from a supervisor's state; None without a number of blocks."""
        digest, logged = state.get("sized_by"), (state.get("memory") or {}).get("kv_cache_blocks")
        if not isinstance(digest, str) or not re.fullmatch(r"[1-9][0-9]{0,9}", str(logged)):
            return None
        return cls(digest, int(str(logged)))


def sized_by(document: Mapping[str, Any]) -> str:
    """Return a digest of everything in a plan that the KV blocks follow from; 64 hexadecimal digits."""
    environment = {**document["environment"], **document["container"].get("environment", {})}
    parts = {
        "image": document["image"],
        "cards": len(document["modules"]),
        "arguments": list(_kept(document["arguments"])),
        "environment": {name: value for name, value in environment.items() if not _VARIABLES.fullmatch(name)},
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _kept(arguments: Sequence[str]) -> Iterator[str]:
    """Return a command's words without options that do not affect memory, and without the values of these."""
    kept = True
    for word in arguments:
        if word.startswith("-"):
            kept = word.partition("=")[0] not in _ARGUMENTS
        if kept:
            yield word
