"""Runs and plans for the tests of benchmarks."""

from __future__ import annotations

from typing import Any

from plugin_utils import releases
from tests.unit.planning.test_many import plans

DIGEST = "3f2a91c07d1e" + 52 * "0"


def plan(release: str = "1.22", **changes: Any) -> dict[str, Any]:
    """What lies on a node for an instance of a small model."""
    (made,) = plans([{"instance": "chat", "weights": "/models/x", "max_model_len": 4096}], release)
    assert "refused" not in made, made
    return {**made, **changes}


def release(name: str = "1.22") -> dict[str, Any]:
    """What the file of a release says."""
    return dict(releases.read(name))


def step(concurrency: int, tokens: float = 100.0, **changes: Any) -> dict[str, Any]:
    """The figures of one concurrency."""
    return {
        "concurrency": concurrency,
        "requests": 4 * concurrency,
        "failed": 0,
        "seconds": 2.0,
        "input_tokens": 4096,
        "output_tokens": 512,
        "requests_per_second": 2.0,
        "tokens_per_second": tokens,
        "ttft_p50_ms": 40.0,
        "ttft_p99_ms": 60.0,
        "tpot_p50_ms": 10.0,
        "tpot_p99_ms": 14.5,
        **changes,
    }


def run(name: str = "3f2a91c07d1e-20260131T080000Z", steps: Any = None, **changes: Any) -> dict[str, Any]:
    """A run as bench.py keeps it."""
    return {
        "schema": 1,
        "run": name,
        "instance": "chat",
        "plan": DIGEST,
        "release": "1.22",
        "model": "qwen3-8b",
        "image": "vault/image:1",
        "program": "vllm",
        "started": "2026-01-31T08:00:00Z",
        "ended": "2026-01-31T08:01:00Z",
        "input_tokens": 1024,
        "output_tokens": 128,
        "steps": steps if steps is not None else [step(1), step(4, 320.0)],
        **changes,
    }


def written(requests: int = 4, **changes: Any) -> dict[str, Any]:
    """What a client writes of one concurrency, cut to its numbers."""
    return {
        "duration": 2.0,
        "completed": requests,
        "total_input_tokens": 4096,
        "total_output_tokens": 512,
        "request_throughput": 2.0,
        "output_throughput": 256.0,
        "median_ttft_ms": 40.0,
        "p99_ttft_ms": 60.0,
        "median_tpot_ms": 10.0,
        "p99_tpot_ms": 14.5,
        **changes,
    }
