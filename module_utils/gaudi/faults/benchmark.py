"""Known faults of a benchmark's client. A part of the list in known.py."""

from __future__ import annotations

from .entry import INSTANCES, KnownFault

# A word of its command: elsewhere these lines mean something else.
_CLIENT = "bench_client"

FAULTS = (
    KnownFault(
        "benchmark-imports",
        INSTANCES,
        "",
        "The image lacks what the benchmark's client imports.",
        "Build it with the part benchmark (serving_image_parts).",
        "Python",
        asked=_CLIENT,
        signs=r"ModuleNotFoundError|No module named",
        example="ModuleNotFoundError: No module named 'datasets'",
    ),
    KnownFault(
        "benchmark-client",
        INSTANCES,
        "",
        "The image has no checkout with the benchmark's client.",
        "Take an image that serving_image_build makes, or one of the vendor's for serving.",
        "Python",
        asked=_CLIENT,
        signs=r"can't open file|FileNotFoundError.*benchmark_serving",
        example="python3: can't open file '/opt/vllm/benchmarks/benchmark_serving.py': [Errno 2] No such file",
    ),
    KnownFault(
        "benchmark-no-answer",
        INSTANCES,
        "",
        "The instance ended meanwhile, or does not answer.",
        "playbooks/status.yml says why.",
        "aiohttp",
        asked=_CLIENT,
        retry=True,
        signs=r"Connect call failed|Connection refused|Cannot connect to host",
        example="aiohttp.client_exceptions.ClientConnectorError: Cannot connect to host 127.0.0.1:8000",
    ),
)
