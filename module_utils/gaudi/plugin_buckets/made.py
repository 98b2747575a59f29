"""Buckets as a version of the plugin makes them, for one server and its variables."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ..base.refusal import Refusal
from .from_file import Shape, shapes
from .server import ServerSettings
from .shapes import (
    decode_shapes,
    kept_decodes,
    kept_prompts,
    prompt_shapes,
    with_speculation,
    without_part_slices,
)
from .strategies import decode_lists, prompt_lists
from .unified import UnifiedShape, unified_shapes
from .variables import bucket_settings
from .versions import FILE, OFF, UNIFIED, version_of


@dataclass(frozen=True)
class WarmupBuckets:
    """The shapes that a server warms up, each list sorted.

    prompt: (sequences, tokens, blocks in the KV cache already). decode: (sequences, 1, blocks of the whole batch).
    unified: (tokens, shared blocks, unique blocks, causal), in place of both. left_out: shapes of a bucket file that
    the server cannot meet and drops. without_effect: variables that change nothing, each with the reason.
    """

    strategy: str
    contiguous_pa: bool
    prompt: list[Shape] = field(default_factory=list)
    decode: list[Shape] = field(default_factory=list)
    unified: list[UnifiedShape] = field(default_factory=list)
    left_out: list[Shape] = field(default_factory=list)
    without_effect: Mapping[str, str] = field(default_factory=dict)

    @property
    def graphs(self) -> int:
        """Shapes of both phases; a warm-up compiles one graph for each."""
        return len(self.prompt) + len(self.decode) + len(self.unified)


def buckets(plugin: str, server: ServerSettings, environment: Mapping[str, str], file: str = "") -> WarmupBuckets:
    """The buckets of vllm-gaudi ``plugin``; ``file`` is the text that VLLM_BUCKETING_FROM_FILE stands for.

    Raises Refusal where the plugin stops or dies.
    """
    return _made(plugin, server, tuple(sorted(environment.items())), file)


# A plan compares strategies and takes one of them, and has each list made up to three times otherwise. Nobody changes
# a list of WarmupBuckets.
@functools.lru_cache(maxsize=16)
def _made(plugin: str, server: ServerSettings, variables: tuple[tuple[str, str], ...], file: str) -> WarmupBuckets:
    version, environment = version_of(plugin), dict(variables)
    asked = bucket_settings(version, environment, long=server.is_long)
    found = WarmupBuckets(asked.strategy, asked.contiguous_pa, without_effect=asked.without_effect)
    if asked.strategy == OFF:
        return found
    server.check()
    if asked.strategy == UNIFIED:
        return replace(found, unified=unified_shapes(server))
    if asked.strategy == FILE:
        prompts, decodes = shapes(file)
        prompt = kept_prompts(version, server, asked, prompts)
        decode = kept_decodes(version, server, asked, decodes)
        dropped = {shape for shape in prompts if shape not in set(prompt)}
        dropped |= {shape for shape in decodes if not (asked.contiguous_pa or shape[0] <= shape[2])}
        found = replace(found, left_out=sorted(dropped))
    else:
        prompt = prompt_shapes(version, server, asked, prompt_lists(server, asked))
        decode = decode_shapes(version, server, asked, decode_lists(version, server, asked))
    prompt = _not_empty("prompt", without_part_slices(prompt, asked.slices) if asked.slices else prompt)
    decode = _not_empty("decode", decode)
    if server.num_speculative_tokens:
        decode = with_speculation(server, asked, decode)
    return replace(found, prompt=prompt, decode=decode)


def _not_empty(phase: str, found: list[Shape]) -> list[Shape]:
    if not found:
        raise Refusal(
            "no_buckets",
            f"No {phase} bucket is left: every shape is beyond max_model_len, max_num_batched_tokens or the KV blocks, "
            "and the server would stop. Raise what is below block_size, the shortest of all buckets; or lower "
            f"VLLM_{phase.upper()}_*_BUCKET_MIN, or leave the variables out.",
        )
    return found


def depends_on_kv_blocks(plugin: str, server: ServerSettings, environment: Mapping[str, str], file: str = "") -> bool:
    """Whether a tenth more or fewer KV blocks give other buckets.

    A tenth is what a planned number may be off; a server prints the right one when it starts.
    """
    tenth = max(1, server.kv_blocks // 10)
    numbers = (server.kv_blocks + tenth, max(1, server.kv_blocks - tenth))
    found = buckets(plugin, server, environment, file)
    try:
        others = [buckets(plugin, replace(server, kv_blocks=number), environment, file) for number in numbers]
    except Refusal:
        return True
    return any(other != found for other in others)
