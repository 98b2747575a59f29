"""Every rule against its second statement, for numbers that no case has."""

from __future__ import annotations

import math

import pytest
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.plugin_buckets.made import WarmupBuckets, buckets, depends_on_kv_blocks
from ansible.module_utils.gaudi.plugin_buckets.ranges import Spread, Walk
from ansible.module_utils.gaudi.plugin_buckets.server import ServerSettings
from hypothesis import assume, given
from hypothesis import strategies as st

from . import restated

VERSIONS = st.sampled_from(["0.17.1", "0.21.0", "0.26.0"])
LATER = st.sampled_from(["0.21.0", "0.26.0"])
SERVERS = st.builds(
    ServerSettings,
    max_num_seqs=st.integers(1, 70),
    max_model_len=st.one_of(st.integers(1, 9000), st.integers(8190, 8195), st.integers(8192, 20_000)),
    max_num_batched_tokens=st.integers(2, 5000),
    block_size=st.sampled_from([128, 256]),
    kv_blocks=st.integers(1, 3000),
)
SWITCH = st.sampled_from([{}, {"VLLM_CONTIGUOUS_PA": "true"}])


def made_or_none(plugin: str, server: ServerSettings, environment: dict[str, str]) -> WarmupBuckets | None:
    try:
        return buckets(plugin, server, environment)
    except Refusal as refused:
        # Short lengths leave nothing of one phase, as they do in the plugin.
        assert refused.id in ("no_buckets", "range_backwards", "too_many_graphs")
        return None


def up(value: int, by: int) -> int:
    return (value + by - 1) // by


def limits_of(server: ServerSettings) -> restated.ShapeLimits:
    return restated.ShapeLimits(
        server.max_num_seqs, server.max_model_len, server.max_num_batched_tokens, server.block_size
    )


@given(st.integers(0, 40), st.integers(1, 40), st.integers(0, 400))
def test_linear(minimum: int, step: int, maximum: int) -> None:
    assume(minimum <= maximum)
    assert Walk("DECODE_BS", minimum, step, maximum).linear() == restated.linear(minimum, step, maximum)


@given(st.integers(0, 40), st.integers(1, 40), st.integers(0, 400), st.integers(0, 100), st.integers(0, 50))
def test_padding_aware(minimum: int, step: int, maximum: int, pad_max: int, percent: int) -> None:
    assume(minimum <= maximum)
    walk = Walk("DECODE_BS", minimum, step, maximum, pad_max, percent)
    assert walk.padding_aware() == restated.padding_aware(minimum, step, maximum, pad_max, percent)


@given(st.sampled_from([0, 1, None]), st.integers(1, 300), st.integers(1, 40_000), st.integers(1, 24))
def test_exponential(minimum: int | None, step: int, maximum: int, count: int) -> None:
    lowest = step if minimum is None else minimum
    found = Spread(lowest, step, maximum, count).values()
    wanted = restated.spread(lowest, step, maximum, count)
    # Each wanted value is there, and nothing else is.
    assert all(set(found) & values for values in wanted)
    assert set(found) <= set().union(*wanted)
    assert found == sorted(set(found))


@given(VERSIONS, SERVERS, SWITCH, st.sampled_from([None, 1, 8, 60]))
def test_linear_lists(plugin: str, server: ServerSettings, switch: dict[str, str], ctx_max: int | None) -> None:
    environment = {**switch, "VLLM_EXPONENTIAL_BUCKETING": "false"}
    if ctx_max is not None:
        environment["VLLM_PROMPT_CTX_BUCKET_MAX"] = str(ctx_max)
    found = made_or_none(plugin, server, environment)
    assume(found is not None)
    assert found is not None
    block, seqs, pool = server.block_size, server.max_num_seqs, server.kv_blocks
    queries = restated.linear(block, block, server.max_num_batched_tokens)
    contexts = restated.linear(0, 1, (server.max_model_len - block) // block if ctx_max is None else ctx_max)
    old, contiguous = plugin == "0.17.1", bool(switch)
    limits = limits_of(server)
    assert [list(shape) for shape in found.prompt] == restated.prompts(old, limits, [1], queries, contexts, ctx_max)
    reach = pool if contiguous else max(server.max_model_len * seqs // block, block)
    pools = restated.linear(1, block, min(reach, pool) if old else reach) + [pool] * contiguous
    batches = restated.linear(1, 32, seqs)
    assert [list(shape) for shape in found.decode] == restated.decodes(limits, batches, pools, contiguous=contiguous)


@given(LATER, SERVERS, SWITCH)
def test_padding_aware_lists(plugin: str, server: ServerSettings, switch: dict[str, str]) -> None:
    found = made_or_none(plugin, server, {**switch, "VLLM_BUCKETING_STRATEGY": "pad"})
    assume(found is not None)
    assert found is not None
    block, seqs, pool, tokens = (
        server.block_size,
        server.max_num_seqs,
        server.kv_blocks,
        server.max_num_batched_tokens,
    )
    queries = restated.padding_aware(block, block, tokens, up(tokens, 4), 25)
    contexts = restated.padding_aware(0, 2, up(server.max_model_len - block, block), up(tokens, block), 25)
    limits, contiguous = limits_of(server), bool(switch)
    assert [list(shape) for shape in found.prompt] == restated.prompts(False, limits, [1], queries, contexts, None)
    reach = pool if contiguous else max(up(server.max_model_len * seqs, block), block)
    lowest = block if block <= pool else max(1, pool - block)
    pools = restated.padding_aware(lowest, block, reach, up(reach, 4), 25)
    batches = restated.padding_aware(1, 2, seqs, up(seqs, 4), 25)
    assert [list(shape) for shape in found.decode] == restated.decodes(limits, batches, pools, contiguous=contiguous)


@given(VERSIONS, SERVERS, SWITCH)
def test_exponential_lists(plugin: str, server: ServerSettings, switch: dict[str, str]) -> None:
    """Which ranges the versions walk through; their values are restated above."""
    found = made_or_none(plugin, server, switch)
    assume(found is not None)
    assert found is not None
    block, seqs, pool, tokens = (
        server.block_size,
        server.max_num_seqs,
        server.kv_blocks,
        server.max_num_batched_tokens,
    )
    limits, contiguous, old = limits_of(server), bool(switch), plugin == "0.17.1"

    def values(minimum: int, step: int, maximum: int, count: int) -> list[int]:
        return Spread(minimum, step, maximum, count).values()

    queries = values(block, block, tokens, math.ceil(math.log2(tokens)))
    shortest = tokens if server.max_model_len >= 8192 else block
    context = max(1, (server.max_model_len - shortest) // block)
    contexts = values(0, 1, context, max(2, math.ceil(math.log2(context)) + 1))
    assert [list(shape) for shape in found.prompt] == restated.prompts(old, limits, [1], queries, contexts, None)
    whole = up(server.max_model_len, block) * seqs
    reach = {(True, True): pool, (True, False): 3 * pool, (False, True): min(pool, whole), (False, False): whole}
    most = reach[old, contiguous]
    count = math.ceil(math.log2(most)) + 1
    if plugin == "0.26.0" and not contiguous and whole > 3 * pool:
        count += math.ceil(math.log2(whole / (3 * pool))) + 1
    pools = values(1, seqs, most, count) + [pool] * contiguous
    batches = values(1, 2, seqs, math.ceil(math.log2(seqs)) + 1)
    assert [list(shape) for shape in found.decode] == restated.decodes(limits, batches, pools, contiguous=contiguous)


@given(VERSIONS, SERVERS, SWITCH, st.integers(1, 4))
def test_speculation_only_adds(plugin: str, server: ServerSettings, switch: dict[str, str], guessed: int) -> None:
    seeds = made_or_none(plugin, server, switch)
    assume(seeds is not None)
    assert seeds is not None
    guessing = ServerSettings(**{**vars(server), "num_speculative_tokens": guessed})
    found = buckets(plugin, guessing, switch)
    most = up(server.max_model_len, server.block_size)
    rows = 1 + guessed
    wanted = set(seeds.decode)
    for batch, _, blocks in seeds.decode:
        for times in (1, rows):
            if times == rows or batch * rows <= blocks:
                reach = blocks * times
                wanted.add((batch * rows, 1, reach if switch else min(reach, batch * rows * most)))
    assert found.decode == sorted(wanted)
    assert found.prompt == seeds.prompt


@given(SERVERS.filter(lambda server: server.max_num_seqs > 1))
def test_unified_shapes(server: ServerSettings) -> None:
    found = buckets("0.17.1", server, {"VLLM_UNIFIED_ATTN": "1"})
    assert not (found.prompt or found.decode)
    seqs, block, length = server.max_num_seqs, server.block_size, server.max_model_len
    for query, shared, unique, causal in found.unified:
        assert 0 < query <= max(server.max_num_batched_tokens, -(-server.max_num_batched_tokens // seqs) * seqs)
        assert unique % seqs == 0 or unique == server.kv_blocks
        users = min(seqs, query) if causal else query // 2
        assert shared * block // users <= length
        assert causal or (query <= seqs and shared + unique > 0 and (shared or query <= unique))
    # Nothing that may occur is missing: the sides of the list, combined.
    queries, shareds, uniques = ({shape[side] for shape in found.unified} for side in range(3))
    together = {(query, shared, unique) for query, shared, unique, causal in found.unified if causal}
    fitting = {(q, s, u) for q in queries for s in shareds for u in uniques if s * block // min(seqs, q) <= length}
    assert together == fitting


@pytest.mark.parametrize("plugin", ["0.17.1", "0.21.0", "0.26.0"])
def test_the_kv_blocks_matter_where_they_are_read(plugin: str) -> None:
    server = ServerSettings(128, 4352, 2048, 128, 3000)
    assert depends_on_kv_blocks(plugin, server, {"VLLM_CONTIGUOUS_PA": "true"})
    # The reach of the exponential strategy is three times the blocks in 0.17.1, the sequences' length after it.
    assert depends_on_kv_blocks(plugin, server, {}) is (plugin == "0.17.1")
    few = ServerSettings(128, 32_768, 2048, 128, 700)
    assert depends_on_kv_blocks(plugin, few, {}) is (plugin != "0.21.0")
