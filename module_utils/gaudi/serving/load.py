"""What a server's own metrics say of its load: requests, tokens and the use of its KV cache."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Names of GET /metrics by what they count, in all releases: catalog/releases lists each one's, and a test holds that
# every release has one of each. Requests were "swapped" when they had lost their slot; the cache was the GPU's.
_NAMES = {
    "num_requests_running": "running",
    "num_requests_waiting": "waiting",
    "num_requests_swapped": "waiting",
    "gpu_cache_usage_perc": "cache",
    "kv_cache_usage_perc": "cache",
    "generation_tokens_total": "generated",
}
_LINE = re.compile(rf"^vllm:({'|'.join(_NAMES)})(?:\{{[^}}]*\}})? (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Load:
    """Of all engines of a server together.

    running, waiting: requests. cache: the share of the KV cache in use, 0 to 1, of the fullest engine; None where it
    is not told. generated: tokens since the start; None where they are not counted.
    """

    running: int
    waiting: int
    cache: float | None
    generated: float | None

    @property
    def requests(self) -> int:
        """Requests that the server has, whether or not they run yet."""
        return self.running + self.waiting


def read(metrics: str) -> Load | None:
    """Read what GET /metrics answers; None where it tells of no requests, or what it tells is none.

    The text is a container's: a count that is no number, or is endless, says nothing.
    """
    found: dict[str, list[float]] = {name: [] for name in _NAMES.values()}
    for name, value in _LINE.findall(metrics):
        found[_NAMES[name]].append(_number(value))
    requests = found["running"] + found["waiting"]
    if not requests or not all(map(math.isfinite, requests)):
        return None
    cache, generated = max(found["cache"], default=math.nan), sum(found["generated"])
    return Load(
        running=int(sum(found["running"])),
        waiting=int(sum(found["waiting"])),
        cache=min(cache, 1.0) if math.isfinite(cache) else None,
        generated=generated if found["generated"] and math.isfinite(generated) else None,
    )


def _number(text: str) -> float:
    """A count; not a number where it is none, or below zero."""
    try:
        value = float(text)
    except ValueError:
        return math.nan
    return value if value >= 0 else math.nan


def document(load: Load, before: Load | None, seconds: float) -> dict[str, Any]:
    """What a supervisor writes of it; before: what it was so many seconds ago, None where nobody looked.

    tokens_per_second is None where it cannot be told: after a first look, and where the server began to count anew.
    """
    rate = None
    if before is not None and load.generated is not None and before.generated is not None and seconds > 0:
        made = load.generated - before.generated
        rate = round(made / seconds, 1) if made >= 0 else None
    cache = None if load.cache is None else round(load.cache, 3)
    return {"running": load.running, "waiting": load.waiting, "cache": cache, "tokens_per_second": rate}


def words(written: Mapping[str, Any]) -> str:
    """The same for people, such as: 2 running, 1 waiting, 38.5 tokens/s, cache 12 %."""
    parts = [f"{written['running']} running", f"{written['waiting']} waiting"]
    if not written["running"] and not written["waiting"]:
        parts = ["idle"]
    if written["tokens_per_second"]:
        parts.append(f"{written['tokens_per_second']:g} tokens/s")
    if written["cache"] is not None:
        parts.append(f"cache {written['cache']:.0%}".replace("%", " %"))
    return ", ".join(parts)
