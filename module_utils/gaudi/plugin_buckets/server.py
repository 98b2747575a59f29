"""The numbers of a server that its buckets follow from."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ..base.refusal import Refusal

# From here a prompt is long for the plugin: its largest context then depends on the query (LONG_CTX_THRESHOLD).
LONG_MODEL_LEN = 8192

# More shapes than anybody warms up: at a second each, as on Gaudi 2 with 7B models, more than two days.
MOST_GRAPHS = 200_000


@dataclass(frozen=True)
class ServerSettings:
    """What vLLM was told or worked out.

    Lengths and max_num_batched_tokens are in tokens, block_size in tokens per KV cache block. kv_blocks: KV cache
    blocks of the device, which follow from free memory unless num_gpu_blocks_override sets them. mamba_chunk_size: 0
    for models without Mamba layers; mamba_chunk_named says that the model's configuration has the number.
    """

    max_num_seqs: int
    max_model_len: int
    max_num_batched_tokens: int
    block_size: int
    kv_blocks: int
    num_speculative_tokens: int = 0
    mamba_chunk_size: int = 0
    mamba_chunk_named: bool = False

    def check(self) -> None:
        """Refuse numbers that bucketing stops at."""
        for field in fields(self)[:5]:
            value = getattr(self, field.name)
            if value < 1:
                raise Refusal("out_of_range", f"{field.name} is {value}; buckets need at least 1. Raise it.")
        if self.mamba_chunk_size and self.max_num_batched_tokens % self.mamba_chunk_size:
            above = -(-self.max_num_batched_tokens // self.mamba_chunk_size) * self.mamba_chunk_size
            raise Refusal(
                "tokens_not_in_chunks",
                f"max_num_batched_tokens is {self.max_num_batched_tokens}, no multiple of this model's Mamba chunks of "
                f"{self.mamba_chunk_size} tokens: the server would stop. Set it to {above}.",
            )

    @property
    def blocks_per_sequence(self) -> int:
        """KV blocks of a sequence of max_model_len tokens."""
        return -(-self.max_model_len // self.block_size)

    @property
    def is_long(self) -> bool:
        """Whether the largest context of a prompt bucket depends on its query."""
        return self.max_model_len >= LONG_MODEL_LEN


def check_count(graphs: int, what: str) -> None:
    """Refuse more shapes than a warm-up could take."""
    if graphs > MOST_GRAPHS:
        raise Refusal(
            "too_many_graphs",
            f"{what} would be {graphs} shapes, and a warm-up compiles a graph for each; {MOST_GRAPHS} are the most "
            f"that are planned here. Use the exponential strategy, larger steps, or fewer lines.",
        )
