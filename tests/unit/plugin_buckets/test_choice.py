"""The estimate of padding, and the strategy that is taken when nobody chose."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible.module_utils.gaudi.plugin_buckets.choice import choose, variables_for
from ansible.module_utils.gaudi.plugin_buckets.made import WarmupBuckets, buckets
from ansible.module_utils.gaudi.plugin_buckets.padding import Padding, PhaseShapes, padding_of
from ansible.module_utils.gaudi.plugin_buckets.server import ServerSettings
from hypothesis import given
from hypothesis import strategies as st

SERVER = ServerSettings(128, 4352, 2048, 128, 3000)
SHAPES = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(0, 9)), min_size=1, max_size=30)


@given(SHAPES, st.tuples(st.integers(1, 10), st.integers(1, 10), st.integers(0, 10)))
def test_a_shape_is_looked_up_as_the_plugin_does(
    shapes: list[tuple[int, int, int]], wanted: tuple[int, int, int]
) -> None:
    fitting = [
        shape for shape in sorted(shapes) if all(side >= least for side, least in zip(shape, wanted, strict=True))
    ]
    assert PhaseShapes(shapes).shape_for(*wanted) == (fitting[0] if fitting else None)


def test_a_shape_for_every_batch_pads_nothing() -> None:
    server = ServerSettings(3, 40, 20, 16, 9)
    every = WarmupBuckets(
        "file",
        False,
        [(1, query, blocks) for query in range(1, 21) for blocks in range(4)],
        [(batch, 1, blocks) for batch in range(1, 4) for blocks in range(1, 10)],
    )
    assert padding_of(server, every) == Padding(0.0, 0.0, 0.0)
    one = replace(every, prompt=[(1, 20, 3)], decode=[(3, 1, 9)])
    assert padding_of(server, one).prompt > 0.2
    assert padding_of(server, one).decode > 0.2
    none = replace(every, decode=[(1, 1, 1)])
    assert padding_of(server, none).unprepared > 0


@pytest.mark.parametrize("plugin", ["0.17.1", "0.21.0", "0.26.0"])
def test_exponential_is_preferred_where_others_warm_far_more(plugin: str) -> None:
    found = choose(plugin, SERVER, {})
    assert found.strategy == "exponential"
    by_name = {candidate.strategy: candidate for candidate in found.candidates}
    assert by_name["linear"].graphs > 4 * by_name["exponential"].graphs
    for candidate in found.candidates:
        made = buckets(plugin, SERVER, variables_for(plugin, candidate.strategy))
        assert made.strategy == candidate.strategy
        assert (candidate.prompt_graphs, candidate.decode_graphs) == (len(made.prompt), len(made.decode))
        assert f"{candidate.strategy}: {candidate.graphs} graphs" in found.reason


def test_another_is_taken_where_it_is_better() -> None:
    """A step of a quarter of everything leaves the linear strategy the fewest graphs."""
    rough = {
        "VLLM_PROMPT_QUERY_BUCKET_MIN": "128",
        "VLLM_PROMPT_QUERY_BUCKET_STEP": "512",
        "VLLM_PROMPT_CTX_BUCKET_STEP": "3",
    }
    server = ServerSettings(1, 2048, 2048, 128, 64)
    found = choose("0.26.0", server, {**rough, "VLLM_BUCKETING_STRATEGY": "exp"})
    assert found.strategy != "exponential"
    assert found.reason.startswith(f"{found.strategy}: ")


def test_a_strategy_that_would_be_refused_is_not_taken() -> None:
    found = choose("0.26.0", SERVER, {"VLLM_DECODE_BS_BUCKET_MIN": "500"})
    assert found.strategy == "exponential"
    assert [candidate.refused is None for candidate in found.candidates] == [True, False, False]
    assert "linear: would be refused" in found.reason
