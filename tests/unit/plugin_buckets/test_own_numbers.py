"""VLLM_*_BUCKET_* variables against the second statement of what they do: any dimension, any of its numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.plugin_buckets.made import buckets
from ansible.module_utils.gaudi.plugin_buckets.server import ServerSettings
from hypothesis import event, given
from hypothesis import strategies as st

from . import restated

BLOCK = 128
SERVERS = st.builds(
    ServerSettings,
    max_num_seqs=st.integers(1, 40),
    max_model_len=st.one_of(st.integers(129, 9000), st.sampled_from([8191, 8192, 8193])),
    max_num_batched_tokens=st.integers(1, 3000),
    block_size=st.just(BLOCK),
    kv_blocks=st.one_of(st.integers(1, 600), st.sampled_from([1, 2, 127, 128, 129])),
)
NAMES = ("PROMPT_QUERY", "PROMPT_SEQ", "PROMPT_CTX", "DECODE_BS", "DECODE_BLOCK")
OF_PARAMETER = {
    "MIN": st.sampled_from([0, 1, 2, 16, 100, 128, 200, 512]),
    "STEP": st.sampled_from([1, 2, 7, 32, 128, 300]),
    "MAX": st.sampled_from([0, 1, 8, 33, 128, 512, 700, 2048]),
}
NUMBER = st.tuples(st.sampled_from(NAMES), st.sampled_from(list(OF_PARAMETER))).flatmap(
    lambda key: st.tuples(st.just("_BUCKET_".join(key)), OF_PARAMETER[key[1]])
)
# A few: of many, most contradict each other.
NUMBERS = st.lists(NUMBER, min_size=1, max_size=4).map(dict)
MADE_BY = st.sampled_from([("0.17.1", False), ("0.21.0", False), ("0.26.0", False), ("0.21.0", True), ("0.26.0", True)])


class BackwardsRange(Exception):
    """A range whose minimum is above its maximum."""


@dataclass(frozen=True)
class ServerWishes:
    """One server's wishes, and how its version reads them."""

    server: ServerSettings
    numbers: Mapping[str, int]
    padded: bool
    old: bool
    contiguous: bool

    def number(self, name: str, end: str, otherwise: int) -> int:
        names = (name, "PROMPT_SEQ") if name == "PROMPT_QUERY" else (name,)
        return next((self.numbers[key] for n in names if (key := f"{n}_BUCKET_{end}") in self.numbers), otherwise)

    def ends(self, name: str, minimum: int, step: int, maximum: int) -> tuple[int, int, int]:
        own = {"MIN": minimum, "STEP": step, "MAX": maximum}
        found = [self.number(name, end, otherwise) for end, otherwise in own.items()]
        return found[0], found[1], found[2]

    def values(self, ends: tuple[int, int, int], most_padding: int) -> list[int]:
        if ends[0] > ends[2]:
            raise BackwardsRange
        return restated.padding_aware(*ends, most_padding, 25) if self.padded else restated.linear(*ends)

    def decode_blocks(self) -> list[int]:
        pool, longest = self.server.kv_blocks, self.server.max_model_len * self.server.max_num_seqs
        reach = max(up(longest, BLOCK) if self.padded else longest // BLOCK, BLOCK)
        reach = pool if self.contiguous else reach
        minimum, step, maximum = self.ends("DECODE_BLOCK", BLOCK if self.padded else 1, BLOCK, reach)
        beyond = maximum > pool
        if beyond and (self.contiguous or self.old):
            maximum = pool
        # A first value beyond the pool comes down; 0.17.1 looks only where the last one was beyond it too.
        above = pool if self.padded else (pool if beyond else minimum) if self.old else maximum
        if minimum > above:
            minimum = max(1, above - step)
        values = self.values((minimum, step, maximum), up(reach, 4))
        return values + [pool] * (self.contiguous and bool(values) and values[-1] < pool)


def up(value: int, by: int) -> int:
    return -(-value // by)


def wanted(asked: ServerWishes) -> tuple[list[list[int]], list[list[int]]]:
    """The shapes of both phases; BackwardsRange where a range is."""
    server = asked.server
    tokens, length, seqs = server.max_num_batched_tokens, server.max_model_len, server.max_num_seqs
    limits = restated.ShapeLimits(seqs, length, tokens, BLOCK)
    query = asked.ends("PROMPT_QUERY", BLOCK, BLOCK, tokens)
    left = length - query[0]
    context = asked.ends("PROMPT_CTX", 0, 2 if asked.padded else 1, up(left, BLOCK) if asked.padded else left // BLOCK)
    queries = asked.values(query, up(tokens, 4))
    contexts = asked.values(context, up(tokens, BLOCK))
    batches = asked.values(asked.ends("DECODE_BS", 1, 2 if asked.padded else 32, seqs), up(seqs, 4))
    pools = asked.decode_blocks()
    most = asked.numbers.get("PROMPT_CTX_BUCKET_MAX")
    prompts = restated.prompts(asked.old, limits, [1], queries, contexts, most)
    return prompts, restated.decodes(limits, batches, pools, contiguous=asked.contiguous)


@given(MADE_BY, SERVERS, st.booleans(), NUMBERS)
def test_numbers_of_a_dimension(
    made_by: tuple[str, bool], server: ServerSettings, contiguous: bool, own: dict[str, int]
) -> None:
    plugin, padded = made_by
    strategy = {"VLLM_BUCKETING_STRATEGY": "pad"} if padded else {"VLLM_EXPONENTIAL_BUCKETING": "false"}
    environment = {**strategy, **{f"VLLM_{name}": str(number) for name, number in own.items()}}
    if contiguous:
        environment["VLLM_CONTIGUOUS_PA"] = "true"
    try:
        prompts, decodes = wanted(ServerWishes(server, own, padded, plugin == "0.17.1", contiguous))
    except BackwardsRange:
        ends = "range_backwards"
    else:
        ends = "" if prompts and decodes else "no_buckets"
    event(ends or "made")
    try:
        found = buckets(plugin, server, environment)
    except Refusal as refused:
        # How many shapes are planned at most is a limit of ours; test_variables.py has it.
        if refused.id != "too_many_graphs":
            assert refused.id == ends or (refused.id, ends) == ("range_backwards", "no_buckets")
        return
    assert not ends
    assert [list(shape) for shape in found.prompt] == prompts
    assert [list(shape) for shape in found.decode] == decodes
