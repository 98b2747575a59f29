"""How many blocks of the KV cache an instance's last start logged, and whether they are still to be expected."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# What a plan says of where a server answers, of what it calls itself and of how long others wait for it: none of that
# changes how its memory is divided. Which cards it has does not either, since those of a node are alike.
_ARGUMENTS = ("--host", "--middleware", "--port", "--served-model-name", "--shutdown-timeout")
_VARIABLES = re.compile(
    r"GLOO_SOCKET_IFNAME|HABANA_VISIBLE_\w+|HCCL_SOCKET_IFNAME|HLS_MODULE_ID|VLLM_ENGINE_READY_TIMEOUT_S|VLLM_HOST_IP"
    r"|VLLM_\w*BUCKET\w*"
)


@dataclass(frozen=True)
class LastStart:
    """What a supervisor wrote down: ``sized_by`` of the plan it started, and the blocks that the server then logged."""

    sized_by: str
    kv_blocks: int

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> LastStart | None:
        """Read a supervisor's state; None where it says no number yet."""
        digest, logged = state.get("sized_by"), (state.get("memory") or {}).get("kv_cache_blocks")
        if not isinstance(digest, str) or not re.fullmatch(r"[1-9][0-9]{0,9}", str(logged)):
            return None
        return cls(digest, int(str(logged)))


def sized_by(document: Mapping[str, Any]) -> str:
    """Stand for everything in a plan document that the number of KV blocks follows from; 64 hexadecimal digits."""
    environment = {**document["environment"], **document["container"].get("environment", {})}
    parts = {
        "image": document["image"],
        "cards": len(document["modules"]),
        "arguments": list(_kept(document["arguments"])),
        "environment": {name: value for name, value in environment.items() if not _VARIABLES.fullmatch(name)},
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _kept(arguments: Sequence[str]) -> Iterator[str]:
    """The words of a command without those options that say nothing about memory, and without their values."""
    kept = True
    for word in arguments:
        if word.startswith("-"):
            kept = word.partition("=")[0] not in _ARGUMENTS
        if kept:
            yield word
