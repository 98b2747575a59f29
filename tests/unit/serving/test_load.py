"""What a server's own metrics say, whatever its release calls them, and whatever else it says."""

from __future__ import annotations

import pytest
from ansible.module_utils.gaudi.serving.load import Load, document, read, words

from tests.golden.serving_cases import vendor
from tests.unit.planning.test_releases import RELEASES

# As vLLM 0.26.0 writes them, with two engines.
METRICS = """# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="tiny"} 2.0
vllm:num_requests_running{engine="1",model_name="tiny"} 1.0
vllm:num_requests_waiting{engine="0",model_name="tiny"} 4.0
vllm:kv_cache_usage_perc{engine="0",model_name="tiny"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="tiny"} 0.125
vllm:generation_tokens_total{engine="0",model_name="tiny"} 100.0
vllm:generation_tokens_total{engine="1",model_name="tiny"} 50.0
vllm:generation_tokens_created{engine="0",model_name="tiny"} 1.7e+09
"""


def test_all_engines_count() -> None:
    assert read(METRICS) == Load(3, 4, 0.25, 150.0)


def test_ends_of_requests_and_preemptions_count_as_well() -> None:
    """V0 has one engine and no label for it; a reason comes up with its first request."""
    more = """vllm:num_preemptions_total{engine="0",model_name="tiny"} 3.0
vllm:num_preemptions_total{engine="1",model_name="tiny"} 1.0
vllm:request_success_total{engine="0",finished_reason="stop",model_name="tiny"} 7.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="tiny"} 2.0
vllm:request_success_total{finished_reason="length",model_name="tiny"} 1.0
vllm:request_success_created{engine="0",finished_reason="length",model_name="tiny"} 1.7e+09
"""
    found = read(METRICS + more)
    assert found is not None
    assert (found.preemptions, found.finished, found.cut) == (4, 10, 3)
    odd = read(METRICS + more.replace(" 2.0", " nan").replace(" 3.0", " many"))
    assert odd is not None
    assert (odd.preemptions, odd.finished, odd.cut) == (0, 0, 0)


def test_a_figure_that_no_server_reaches_is_none() -> None:
    """The controller refuses the whole report of a node in which it is."""
    assert read(METRICS.replace(" 4.0", " 1e300")) is None
    found = read(METRICS.replace(" 100.0", " 1e300"))
    assert found is not None
    assert (found.running, found.generated) == (3, None)


@pytest.mark.parametrize("labels", ['\nfinished_reason="length"', f'finished_reason="length",x="{"x" * 4096}"'])
def test_labels_over_lines_and_endless_ones_are_none(labels: str) -> None:
    """A container writes them; to look for their end in each following line takes time with the square of the text."""
    found = read(f"{METRICS}vllm:request_success_total{{{labels}}} 2.0\n")
    assert found is not None
    assert (found.finished, found.cut) == (0, 0)


def test_every_release_names_what_is_read(subtests: pytest.Subtests) -> None:
    for release in RELEASES:
        with subtests.test(release=release):
            names = vendor.catalogue(release).release.metrics
            if not names:
                # Of 1.16 and 1.18 nobody wrote down what they export.
                assert release in ("1.16", "1.18")
                continue
            found = read("".join(f'{name}{{model_name="x"}} 0.5\n' for name in names))
            assert found is not None
            assert (found.cache, found.generated) == (0.5, 0.5)
            assert {"vllm:num_preemptions_total", "vllm:request_success_total"} <= set(names)


def test_a_request_that_lost_its_slot_waits() -> None:
    assert read("vllm:num_requests_running 1.0\nvllm:num_requests_swapped 2.0\n") == Load(1, 2, None, None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "vllm:num_requests_running many\n",
        "vllm:num_requests_running nan\n",
        "vllm:num_requests_running +Inf\n",
        "vllm:num_requests_running -1\n",
        "vllm:generation_tokens_total 5\n",
    ],
)
def test_what_says_nothing_of_requests_is_nothing(text: str) -> None:
    assert read(text) is None


def test_figures_beside_them_may_be_none() -> None:
    text = "vllm:num_requests_running 1\nvllm:kv_cache_usage_perc nan\nvllm:generation_tokens_total x\n"
    assert read(text) == Load(1, 0, None, None)


def test_tokens_a_second_are_those_since_the_last_look() -> None:
    now = Load(1, 0, 0.1234, 150.0)
    assert document(now, Load(1, 0, 0.1, 100.0), 10.0)["tokens_per_second"] == 5.0
    assert document(now, Load(1, 0, 0.1, 200.0), 10.0)["tokens_per_second"] is None, "it was started again"
    assert document(now, None, 0.0) == {"running": 1, "waiting": 0, "cache": 0.123, "tokens_per_second": None}


@pytest.mark.parametrize(
    ("load", "said"),
    [
        (Load(2, 1, 0.12, 100.0), "2 running, 1 waiting, 10 tokens/s, cache 12 %"),
        (Load(0, 0, 0.0, 0.0), "idle, cache 0 %"),
        (Load(0, 3, None, None), "0 running, 3 waiting"),
    ],
)
def test_it_is_said_in_words(load: Load, said: str) -> None:
    assert words(document(load, Load(0, 0, 0.0, 0.0), 10.0)) == said
