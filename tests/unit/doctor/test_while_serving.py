"""What the doctor and the status say of a supervisor's counts: which option has a shape warmed up, and its graphs."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.module_utils.gaudi.doctor.covering import cover_of, covering
from ansible.module_utils.gaudi.doctor.while_serving import of_counts
from ansible.module_utils.gaudi.planning.many import plan_all
from ansible.module_utils.gaudi.serving.counts import ComputedShape, Counts

from tests.golden.full_plans import plans
from tests.golden.serving_cases import vendor
from tests.unit.planning.test_buckets import CONFIG

CASES = plans.requests()
NUMBERS = {"max_model_len": 4352, "max_num_seqs": 8, "max_num_batched_tokens": 4096, "num_gpu_blocks_override": 2000}


def plugin_plan(file: str | None = None, /, **more: Any) -> dict[str, Any]:
    """A plan for a server of the plugin; ``file``: the text of its bucket file."""
    request = {"weights": "/models/Qwen3-8B", "model_config": CONFIG, "instance": "chat", **NUMBERS, **more}
    catalogue, node = vendor.catalogue("1.24.1"), vendor.topology("oam8")
    (made,) = plan_all([request], catalogue, node, weights_root="/data/models", read_file=lambda _path: file)
    return dict(made)


def state(**counted: Any) -> dict[str, Any]:
    return {"phase": "serving", "ready": "2026-01-31T08:00:00Z", "counts": Counts(**counted).document()}


@pytest.mark.parametrize(
    ("case", "shape", "variable"),
    [
        ("fork-1.22-two-cards", ComputedShape("prompt", 1, 6144, 0), "VLLM_PROMPT_SEQ_BUCKET_MAX=6144"),
        ("fork-1.22-two-cards", ComputedShape("decode", 32, 1, 2048), "VLLM_DECODE_BLOCK_BUCKET_MAX=2048"),
        ("fork-1.21-two-cards", ComputedShape("prompt", 1, 6144, 0), "VLLM_PROMPT_SEQ_BUCKET_MAX=6144"),
    ],
)
def test_variable_that_is_named_has_the_shape_warmed_up_and_costs_what_is_said(
    case: str, shape: ComputedShape, variable: str
) -> None:
    """The planner plans with the option: it has the shape, and as many graphs."""
    request = CASES[case]
    plan = plans.plan(request)
    cover = covering(plan, shape)
    assert (cover.case, cover.option, cover.at_least) == ("variable", variable, False)
    name, _, value = variable.partition("=")
    raised = plans.plan({**request, "request": {**request["request"], "extra_environment": {name: value}}})
    assert cover.more > 0
    assert raised["buckets"]["graphs"] == cover.total == plan["buckets"]["graphs"] + cover.more
    size = shape.query if shape.phase == "prompt" else shape.blocks
    assert size in raised["buckets"][name[len("VLLM_") :].partition("_BUCKET")[0].lower()]


def test_plan_without_variables_costs_at_least_one_graph_for_each_batch() -> None:
    """The defaults of 1.18 are not in its plans."""
    plan = plans.plan(CASES["vllm-1.18-no-script"])
    cover = covering(plan, ComputedShape("decode", 256, 1, 8320))
    assert (cover.case, cover.option, cover.at_least) == ("variable", "VLLM_DECODE_BLOCK_BUCKET_MAX=8320", True)
    assert cover.more == len(plan["buckets"]["decode_bs"])


def test_prompt_batch_above_the_budget_needs_a_larger_budget() -> None:
    request = CASES["fork-1.21-two-cards"]
    plan = plans.plan(request)
    cover = covering(plan, ComputedShape("prompt", 10, 4224, 0))
    assert (cover.case, cover.option) == ("option", "max_num_batched_tokens: 42240")
    raised = plans.plan({**request, "request": {**request["request"], "max_num_batched_tokens": 42240}})
    assert cover.at_least
    assert raised["buckets"]["graphs"] >= cover.total > plan["buckets"]["graphs"]


def test_exponential_strategy_of_the_fork_follows_the_lengths() -> None:
    request = CASES["fork-1.22-two-cards"]
    plan = plans.plan({**request, "request": {**request["request"], "exponential_bucketing": True}})
    assert plan["buckets"]["strategy"] == "exponential"
    cover = covering(plan, ComputedShape("prompt", 1, 8192, 0))
    assert (cover.case, cover.option, cover.at_least) == ("option", "max_model_len: 8192", True)
    assert cover.more == len(plan["buckets"]["prompt_bs"])
    assert covering(plan, ComputedShape("decode", 1, 1, 10**6)).case == "unknown"


def test_bucket_file_that_is_named_has_the_shapes_warmed_up_and_costs_what_is_said() -> None:
    plan = plugin_plan()
    seen = ["prompt 1 3200 0", "decode 3 1 333"]
    cover = covering(plan, ComputedShape("prompt", 1, 3200, 0), seen)
    assert (cover.case, cover.more, cover.total) == ("file", 2, plan["buckets"]["graphs"] + 2)
    shapes = [*plan["buckets"]["prompt"], *plan["buckets"]["decode"], [1, 3200, 0], [3, 1, 333]]
    text = "".join(f"{tuple(shape)}\n" for shape in shapes)
    file = plugin_plan(text, bucketing_strategy="file", bucketing_file="/data/buckets.txt")
    assert file["buckets"]["graphs"] == cover.total
    assert [1, 3200, 0] in file["buckets"]["prompt"]


@pytest.mark.parametrize(
    ("shape", "why"),
    [
        # A row for each guessed token: 8 sequences with 4 guesses compute 40.
        (ComputedShape("decode", 40, 1, 128), "above max_num_seqs 8"),
        (ComputedShape("prompt", 2, 4096, 0), "above max_num_batched_tokens 4096"),
        (ComputedShape("prompt", 1, 128, 0), "it is among the plan's shapes"),
        (ComputedShape("unified", 64, 8, 3), "unified attention"),
    ],
)
def test_shape_that_no_option_covers_is_said_so(shape: ComputedShape, why: str) -> None:
    cover = covering(plugin_plan(), shape)
    assert (cover.case, cover.option) == ("unknown", "")
    assert why in cover.why


@pytest.mark.parametrize("option", ["skip_warmup", "enforce_eager"])
@pytest.mark.parametrize("made", [plugin_plan, None])
def test_skipped_warm_up_is_the_option(option: str, made: Any) -> None:
    request = CASES["fork-1.22-two-cards"]
    asked = {**request, "request": {**request["request"], option: True}}
    plan, full = (made(**{option: True}), made()) if made else (plans.plan(asked), plans.plan(request))
    cover = covering(plan, ComputedShape("prompt", 1, 128, 0))
    assert (cover.case, cover.option) == ("skipped", option)
    assert cover.total == full["buckets"]["graphs"]


@pytest.mark.parametrize("plan", [{}, {"buckets": None}, {"buckets": {"warmup": "all graphs"}}])
def test_plan_without_shapes_says_that_it_has_none(plan: dict[str, Any]) -> None:
    assert covering(plan, ComputedShape("prompt", 1, 128, 0)).case == "unknown"


def test_counts_are_notes_with_what_to_do() -> None:
    plan = plugin_plan()
    counted = state(
        shapes={"prompt 1 3200 0": 8, "decode 3 1 333": 1},
        checks=40,
        waited=12,
        most_waiting=5,
        preemptions=7,
        finished=100,
        cut=25,
    )
    found = of_counts("chat", counted, cover_of(counted, plan))
    assert [note.id for note in found] == ["not-warmed-up", "preempted", "requests-wait", "answers-cut"]
    assert not any(note.fault for note in found)
    shapes, preempted, waited, cut = (note.sentence for note in found)
    assert "chat: since 2026-01-31T08:00:00Z" in shapes
    assert ": 2; most often prompt: batch 1, 3200 tokens. bucketing_strategy: file" in shapes
    assert f"2 graphs more, {plan['buckets']['graphs'] + 2} in all" in shapes
    assert "computed them again: 7. " in preempted
    assert "at 12 of 40 checks with requests, at most 5 at once" in waited
    assert "25 of 100 answers" in cut


def test_more_shapes_than_are_kept_are_said_to_be_more() -> None:
    counted = state(shapes={"prompt 1 3200 0": 1}, others=3)
    (note,) = of_counts("chat", counted, cover_of(counted, None))
    assert ": 1 or more; most often" in note.sentence
    assert "No option is known to cover it" in note.sentence


@pytest.mark.parametrize(
    "written", [{}, state(), state(finished=100, cut=24), state(finished=19, cut=19), state(checks=9)]
)
def test_what_goes_well_is_no_note(written: dict[str, Any]) -> None:
    assert of_counts("chat", written, cover_of(written, plugin_plan())) == []
