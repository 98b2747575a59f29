"""How quickly an instance writes: time to the first token and tokens a second of one streamed question.

Each measurement is compared with earlier ones of the same plan. Pure: library/vllm_service_verify.py sends the question
and takes the times.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

SCHEMA = 2
TASKS = ("generate", "complete")
"""What a model is for that writes text."""
TOKENS = 64
MOST_TOKENS = 1 << 20
"""More than any server writes of so many: one counts wrong."""
TEXT = "Write the numbers from one to one hundred in words."
MOST = 5
"""Plans of an instance whose figures are kept."""
EARLY = 9
"""Measurements that say what is usual for a plan: its first. What a node slows down to later does not become usual."""
# Seconds. A first token that is later than usual by less than this does not count as slow: most of it is the
# connection.
_NO_DELAY = 0.2

_FIGURES = {"first_token_seconds": (int, float), "tokens_per_second": (int, float), "at": str}
FORM = {"plans": {str: {"early": [_FIGURES], "last": _FIGURES}}}
"""The form of a record: by the label of the container of a plan, its first figures, and the last."""


@dataclass(frozen=True)
class Pace:
    """One measurement: time to the first token, and the rate of the following ones."""

    first_token_seconds: float
    tokens_per_second: float

    def document(self, at: str) -> dict[str, Any]:
        """Return the entry for the record."""
        return {**vars(self), "at": at}


def question_of(plan: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return path and body of the question for a plan's instance: always the same text and number of tokens."""
    asks: dict[str, tuple[str, dict[str, Any]]] = {
        "generate": ("/v1/chat/completions", {"messages": [{"role": "user", "content": TEXT}]}),
        "complete": ("/v1/completions", {"prompt": TEXT}),
    }
    path, body = asks[plan["task"]]
    bounds = {"max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
    streamed = {"stream": True, "stream_options": {"include_usage": True}}
    return path, {"model": plan["served_model_name"], **body, **bounds, **streamed}


def read(lines: Iterable[tuple[float, bytes]]) -> Pace:
    """Read a streamed answer: its lines, each with the seconds since the question was sent.

    Raises ValueError, with a clause, if no rate follows from it.
    """
    times, tokens = [], 0
    for seconds, line in lines:
        chunk = _chunk(line)
        if any(map(_has_text, chunk.get("choices") or ())):
            times.append(seconds)
        tokens = (chunk.get("usage") or {}).get("completion_tokens") or tokens
    if len(times) < 2 or not isinstance(tokens, int) or not 2 <= tokens <= MOST_TOKENS or times[-1] <= times[0]:
        raise ValueError(f"{len(times)} pieces of text came for {tokens} tokens")
    return Pace(round(times[0], 3), round((tokens - 1) / (times[-1] - times[0]), 2))


def _chunk(line: bytes) -> Mapping[str, Any]:
    """Parse one piece of the stream; empty for lines between pieces, and for its end."""
    said = line.strip()
    if not said.startswith(b"data:") or said == b"data: [DONE]":
        return {}
    chunk = json.loads(said[len(b"data:") :])
    if not isinstance(chunk, dict):
        raise ValueError("a piece of the stream is no mapping")
    return chunk


def _has_text(choice: Mapping[str, Any]) -> bool:
    delta = choice.get("delta") or {}
    return bool(choice.get("text") or delta.get("content") or delta.get("reasoning_content") or delta.get("reasoning"))


def recorded(before: Mapping[str, Any] | None, label: str, pace: Pace, at: str) -> dict[str, Any]:
    """Add a measurement to the record, which keeps the plans measured last; before: None without a record."""
    plans = dict((before or {}).get("plans", {}))
    now = pace.document(at)
    plans[label] = {"early": [*plans.get(label, {}).get("early", ()), now][:EARLY], "last": now}
    newest = sorted(plans, key=lambda each: str(plans[each]["last"]["at"]), reverse=True)[:MOST]
    return {"schema": SCHEMA, "plans": {each: plans[each] for each in sorted({label, *newest})}}


def usual(record: Mapping[str, Any] | None, label: str) -> Pace | None:
    """Return the median of a plan's first measurements (of two, the slower one); None without any.

    The best value would not do: a simulated node wrote 770 tokens/s once, and 17 to 26 every other time.
    """
    early = (record or {}).get("plans", {}).get(label, {}).get("early")
    if not early:
        return None
    return Pace(
        statistics.median_high(each["first_token_seconds"] for each in early),
        statistics.median_low(each["tokens_per_second"] for each in early),
    )


def slower(before: Mapping[str, Any] | None, label: str, pace: Pace, instance: str) -> list[str]:
    """Return a sentence for each figure that is less than half as good as usual for the same plan."""
    known = usual(before, label)
    if known is None:
        return []
    found = []
    if pace.tokens_per_second < known.tokens_per_second / 2:
        found.append(f"writes {pace.tokens_per_second:g} tokens/s, less than half of {known.tokens_per_second:g}")
    first, late = known.first_token_seconds, pace.first_token_seconds
    if late - first > max(first, _NO_DELAY):
        found.append(f"takes {late:g} s to its first token, more than twice {first:g} s")
    return [
        f"{instance} {what}, which is usual with this plan. playbooks/doctor.yml looks for what slows a node down."
        for what in found
    ]


def words(record: Mapping[str, Any], label: str) -> str:
    """Return a plan's last figures for people, with the usual ones if there are several; "" without any."""
    known = usual(record, label)
    if known is None:
        return ""
    last = record["plans"][label]["last"]
    more = "" if last["tokens_per_second"] >= known.tokens_per_second else f" of {known.tokens_per_second:g}"
    return f"{last['tokens_per_second']:g}{more} tokens/s, first after {last['first_token_seconds']:g} s"
