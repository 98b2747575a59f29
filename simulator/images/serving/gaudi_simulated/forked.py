"""The real vLLM for CPUs with forked processes: ``python3 -m gaudi_simulated.forked ARGS``.

vLLM for CPUs spawns its engine and its workers, and each imports torch, transformers and vLLM again: 12 s of a
processor for each, of 40 s for a start. It does so to give each worker OpenMP threads of its own, which the stand-in
does without (VLLM_CPU_OMP_THREADS_BIND=nobind). The processes are the same ones, with the same names.
"""

from __future__ import annotations

import multiprocessing
import runpy
from multiprocessing.context import BaseContext
from unittest import mock

context = multiprocessing.get_context


def forked(method: str | None = None) -> BaseContext:
    """Give the context of a way to start processes, and that of fork for spawn."""
    return context("fork" if method == "spawn" else method)


if __name__ == "__main__":
    with mock.patch("multiprocessing.get_context", forked):
        runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__", alter_sys=True)
