"""``vllm bench serve``: the real client of vLLM for CPUs, which asks a server and needs no card.

It takes more options than the release's own; those that differ between releases are refused here, as the release would.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NoReturn

from . import front

# What came after the forks (vllm/benchmarks/serve.py of aice/v1.22.0).
LATER = ("--backend", "--input-len", "--output-len", "--num-warmups")


def main(arguments: Sequence[str]) -> NoReturn:
    """Check, show, and become the real client."""
    names = front.known()
    unknown = [word for word in arguments if word.partition("=")[0] in LATER and not names.has_plugin]
    if unknown:
        front.fail(f"usage: vllm bench serve [options]\nvllm: error: unrecognized arguments: {' '.join(unknown)}", 2)
    print(f"SIMULATED Gaudi release {names.release}: the client of the real vLLM for CPUs asks.", flush=True)
    client = [front.PYTHON, "-m", "vllm.entrypoints.cli.main", "bench", "serve", *arguments]
    os.execve(front.PYTHON, client, front.real_environment(os.environ))
