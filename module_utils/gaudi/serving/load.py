"""A server's load by its own metrics: requests, tokens and the use of its KV cache; and how its requests ended."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Metric names in GET /metrics, by what they count, for all releases. catalog/releases lists each release's names, and a
# test checks that every release has one of each. "swapped" requests had lost their slot; the cache was named after the
# GPU.
_NAMES = {
    "num_requests_running": "running",
    "num_requests_waiting": "waiting",
    "num_requests_swapped": "waiting",
    "gpu_cache_usage_perc": "cache",
    "kv_cache_usage_perc": "cache",
    "generation_tokens_total": "generated",
    "num_preemptions_total": "preemptions",
}
# Of one line, and bounded: the text comes from a container, and a search must not grow with its square.
_LABELS = r"[^}\n]{0,4096}"
_LINE = re.compile(rf"^vllm:({'|'.join(_NAMES)})(?:\{{{_LABELS}\}})? (\S+)$", re.MULTILINE)
# Finished requests, a counter for each reason (labelname_finish_reason in vllm/engine/metrics.py of every fork, and
# vllm/v1/metrics/loggers.py). "length": the limit of the request, or of the server.
_ENDED = re.compile(rf"^vllm:request_success_total\{{({_LABELS})\}} (\S+)$", re.MULTILINE)
# A server that makes 10,000 tokens a second counts up to here in 3,000 years. Sums of many stay readable, too.
_MOST = 10**15
_CUT = 'finished_reason="length"'


@dataclass(frozen=True)
class Load:
    """The load of all engines of a server together.

    running, waiting: requests. cache: share of the KV cache in use, 0 to 1, of the fullest engine; None if not
    reported. generated: tokens since the start; None if not counted. preemptions: since the start. finished, cut:
    requests that have ended since the start, and those of them that ended at their length. 0 if not counted.
    """

    running: int
    waiting: int
    cache: float | None
    generated: float | None
    preemptions: int = 0
    finished: int = 0
    cut: int = 0

    @property
    def requests(self) -> int:
        """Requests that the server has accepted, running or waiting."""
        return self.running + self.waiting


def read(metrics: str) -> Load | None:
    """Parse GET /metrics; None if it has no request counts, or cannot be parsed.

    The text comes from a container, so a count that is not a finite number is ignored.
    """
    found: dict[str, list[float]] = {name: [] for name in _NAMES.values()}
    for name, value in _LINE.findall(metrics):
        found[_NAMES[name]].append(_number(value))
    requests = found["running"] + found["waiting"]
    if not requests or not all(map(math.isfinite, requests)):
        return None
    ended = [(_CUT in labels, _number(value)) for labels, value in _ENDED.findall(metrics)]
    cache, generated = max(found["cache"], default=math.nan), sum(found["generated"])
    return Load(
        running=int(sum(found["running"])),
        waiting=int(sum(found["waiting"])),
        cache=min(cache, 1.0) if math.isfinite(cache) else None,
        generated=generated if found["generated"] and math.isfinite(generated) else None,
        preemptions=_total(found["preemptions"]),
        finished=_total([count for _, count in ended]),
        cut=_total([count for cut, count in ended if cut]),
    )


def _total(counts: list[float]) -> int:
    """Add counts up; 0 if one of them is no finite number."""
    return int(sum(counts)) if all(map(math.isfinite, counts)) else 0


def _number(text: str) -> float:
    """Parse a count; NaN if it is not a number, negative, or more than any server counts."""
    try:
        value = float(text)
    except ValueError:
        return math.nan
    return value if 0 <= value <= _MOST else math.nan


def document(load: Load, before: Load | None, seconds: float) -> dict[str, Any]:
    """Return the entry for state.json; before: the previous load and its age in seconds, None without one.

    tokens_per_second is None for a first reading, and if the server's counter was reset.
    """
    rate = None
    if before is not None and load.generated is not None and before.generated is not None and seconds > 0:
        made = load.generated - before.generated
        rate = round(made / seconds, 1) if made >= 0 else None
    cache = None if load.cache is None else round(load.cache, 3)
    return {"running": load.running, "waiting": load.waiting, "cache": cache, "tokens_per_second": rate}


def words(written: Mapping[str, Any]) -> str:
    """Return the load in words, such as: 2 running, 1 waiting, 38.5 tokens/s, cache 12 %."""
    parts = [f"{written['running']} running", f"{written['waiting']} waiting"]
    if not written["running"] and not written["waiting"]:
        parts = ["idle"]
    if written["tokens_per_second"]:
        parts.append(f"{written['tokens_per_second']:g} tokens/s")
    if written["cache"] is not None:
        parts.append(f"cache {written['cache']:.0%}".replace("%", " %"))
    return ", ".join(parts)
