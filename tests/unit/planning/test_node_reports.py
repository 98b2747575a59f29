"""Plans with what a node reports: as with what was read, asked again for what is open, and no harm from a lie."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.cards.document import build_topology, new_topology
from ansible.module_utils.gaudi.cards.given import reported_topology
from ansible.module_utils.gaudi.model.facts import block_of
from ansible.module_utils.gaudi.model.headers import Weights, weights_from
from ansible.module_utils.gaudi.model.weights_document import document_of, weights_in
from ansible.module_utils.gaudi.planning.many import Catalogue, plan_all
from ansible.module_utils.gaudi.planning.reported import (
    MOST_CALLS,
    PARTS,
    Plans,
    Questions,
    ReportedNode,
    first_questions,
    plan_reported,
    with_others,
)
from ansible.module_utils.gaudi.serving.last_start import LastStart

from tests.golden.serving_cases import vendor
from tests.unit.cards.nodes import holder, sources
from tests.unit.planning.test_buckets import CONFIG
from tests.unit.refused import refused

QWEN: dict[str, Any] = {"instance": "a", "model": "qwen3-8b"}
FOLDER = "/data/models/Qwen3-8B"
WEIGHTS = Weights(bytes=16 << 30, parameters={"BF16": 8 << 30})
HELD = {"other": {"cards": [{"module_id": 0, "serial": None}], "since": "2026-01-05T10:00:00Z"}}
STARTS = {"a": {"sized_by": "6f1e", "kv_blocks": 4096}}


def report(**changes: Any) -> dict[str, Any]:
    """What a node reports that has the weights of one model."""
    return {
        "cards": vendor.topology("oam8"),
        "reservations": {"reservations": HELD, "damage": ""},
        "last_starts": STARTS,
        "weights": {FOLDER: document_of(WEIGHTS)},
        "files": {},
        **changes,
    }


def planned(answer: object, request: Mapping[str, Any] = QWEN) -> tuple[Plans, list[Questions]]:
    """The plans of a request, and what the node was asked, whose answer is always the same."""
    calls: list[Questions] = []

    def ask(questions: Questions) -> object:
        calls.append(questions)
        return answer

    catalogue = vendor.catalogue("1.24.1", request.get("model"))
    root = "/data/models"

    def plan(node: ReportedNode) -> Plans:
        plans: Plans = plan_all(
            [request],
            catalogue,
            node.topology,
            weights_root=root,
            reservations=node.reservations,
            last_starts=node.last_starts,
            read_weights=node.read_weights,
            read_file=node.read_file,
        )
        return plans

    plans, _ = plan_reported(plan, ask, first_questions([request], catalogue.models, root))
    return plans, calls


def test_a_report_gives_the_plan_of_what_was_read() -> None:
    (plan,), calls = planned(json.loads(json.dumps(report())))
    read = plan_all(
        [QWEN],
        vendor.catalogue("1.24.1", "qwen3-8b"),
        vendor.topology("oam8"),
        weights_root="/data/models",
        reservations=HELD,
        last_starts={"a": LastStart("6f1e", 4096)},
        read_weights={FOLDER: WEIGHTS}.get,
        read_file=lambda _path: None,
    )
    assert [plan] == read
    assert [module["module_id"] for module in plan["modules"]] == [4, 5]
    assert calls == [Questions(PARTS, (FOLDER,))]


def test_every_recorded_node_reports_a_topology_that_is_taken_as_it_is() -> None:
    lost = sources(accel=())
    for found in (sources(), lost, sources(uid=1000), sources(seen=None), sources(holders=(holder(0, 99, "a b"),))):
        topology = build_topology(found)
        assert reported_topology(json.loads(json.dumps(topology))) == topology
    cards = build_topology(sources())["cards"]
    twice = {**new_topology([{**cards[0], "index": 0}, {**cards[0], "index": 1}]), "foreseen": True}
    assert reported_topology(twice) == twice


def test_what_only_shows_while_planning_is_asked_for_once_more() -> None:
    """The model that guesses for another one, named among the server's arguments."""
    draft = {"method": "draft_model", "model": "/data/own/Draft", "num_speculative_tokens": 3}
    said = ["--speculative-config", json.dumps(draft)]
    request = {"weights": FOLDER, "trust_remote_code": True, "extra_args": said}
    cut_short = {"error": "m.safetensors was cut short.", "refused_id": "not_safetensors"}
    weights = {FOLDER: document_of(WEIGHTS), draft["model"]: cut_short}
    (plan,), calls = planned(report(weights=weights), request)
    assert [call.weights for call in calls] == [(FOLDER,), (draft["model"],)]
    assert calls[1].as_options() == {"parts": ["weights"], "weights": [draft["model"]]}
    assert plan["refused_id"] == "not_safetensors"


def test_a_node_is_asked_three_times_at_most() -> None:
    calls: list[Questions] = []

    def ask(questions: Questions) -> object:
        calls.append(questions)
        return report(weights={path: {"there": False} for path in questions.weights})

    def plan(node: ReportedNode) -> Plans:
        try:
            for number in range(10):
                node.read_weights(f"/w/{number}")
        except Refusal as refusal:
            return [refusal.as_keys()]
        return []

    plans, _ = plan_reported(plan, ask, Questions(PARTS))
    assert [len(call.weights) for call in calls] == [0, 1, 1]
    assert len(calls) == MOST_CALLS
    assert plans[0]["refused_id"] == "node_not_asked"


def test_weights_and_files_of_other_paths_are_never_looked_up() -> None:
    node = ReportedNode()
    node.add(report(weights={"/etc": document_of(WEIGHTS), FOLDER: {"there": False}}), Questions(PARTS, (FOLDER,)))
    assert node.read_weights(FOLDER) is None
    with refused("node_not_asked", "/etc"):
        node.read_weights("/etc")


@pytest.fixture(autouse=True)
def in_time() -> Iterator[None]:
    """No report keeps the controller busy."""
    signal.alarm(60)
    yield
    signal.alarm(0)


def deep(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = {"a": [value]}
    return value


@pytest.mark.parametrize("key", ["refused", "warnings"])
@pytest.mark.parametrize("advice", ["Serve other weights, or use another release.", "Serve other weights."])
def test_other_releases_are_read_only_where_a_plan_advises_another_one(key: str, advice: str) -> None:
    others = vendor.catalogue("1.24.1").release
    known: list[int] = []

    def plan(catalogue: Catalogue) -> Plans:
        known.append(len(catalogue.others))
        return [{key: [advice] if key == "warnings" else advice}]

    with_others(plan, vendor.catalogue("1.22"), lambda: [others])
    assert known == ([0, 1] if "another" in advice else [0])


# What stands in the place of any value of a report.
LIES: dict[str, Any] = {
    "nothing": None,
    "list": [],
    "mapping": {},
    "number": 7,
    "below zero": -1,
    "huge": 10**4000,
    "float": 1e308,
    "no number": float("nan"),
    "true": True,
    "control characters": "\x1b[2J\r\n\x00{{ 1 }}",
    "surrogate": "\ud800",
    "long": "x" * (2 << 20),
    "many": ["x"] * 20_000,
    "keys": {str(number): number for number in range(20_000)},
    "deep": deep(400),
    "error": {"error": "\x1b[31m" + "y" * 100_000, "refused_id": "../../etc"},
    "error of errors": {"error": {"error": "x"}},
}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a report; of a list only its first element."""
    yield path
    items: Any = (
        value.items() if isinstance(value, dict) else [*enumerate(value)][:1] if isinstance(value, list) else ()
    )
    for key, inner in items:
        yield from places(inner, (*path, key))


def changed(value: Any, path: tuple[Any, ...], lie: Any) -> Any:
    """A copy of a report with a lie in one place."""
    if not path:
        return lie
    copied = value.copy()
    copied[path[0]] = changed(value[path[0]], path[1:], lie)
    return copied


BLOCKS = {"quant_method": "fp8", "weight_block_size": [128, 128]}
FP8 = {**CONFIG, "quantization_config": BLOCKS}
HONEST = report(
    cards={**vendor.topology("oam8"), "foreseen": True, "findings": [{"id": "a", "severity": "info", "message": "m"}]},
    weights={FOLDER: document_of(replace(WEIGHTS, config=FP8, missing=("m.safetensors",)))},
)


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_anywhere_is_a_refusal_or_a_plan_that_can_be_written(lie: str) -> None:
    for path in places(HONEST):
        try:
            (plan,), _ = planned(changed(HONEST, path, LIES[lie]))
        except Refusal as refusal:
            told = str(refusal)
            assert refusal.id.replace("-", "_").isidentifier()
        else:
            told = plan.get("refused", "")
            assert json.dumps(plan, allow_nan=False)
            # Where weights are and what is started is the inventory's and the catalogue's.
            assert "refused" in plan or plan["requires"]["weights_path"] == FOLDER
        assert told.isprintable(), path
        assert len(told) < 5000, path


def test_a_config_json_of_a_node_is_text_that_is_read_like_a_file() -> None:
    document = document_of(replace(WEIGHTS, config=FP8))
    read = weights_in(document)
    assert read is not None
    assert read.config == FP8
    for text in (
        "[" * 100_000,
        "[]",
        "{",
        '{"a": ' + "9" * 5000 + "}",
        json.dumps("x" * (4 << 20)).join(['{"a":', "}"]),
    ):
        with refused("config_unreadable"):
            weights_in({**document, "config": text})


def test_blocks_have_two_sides_of_a_length_that_files_have() -> None:
    """A least common multiple is made of them: of fifty thousand long numbers it would have no end."""
    config = {**FP8, "quantization_config": {**BLOCKS, "weight_block_size": [128, 64, 3, 5, 7]}}
    assert block_of(config, "fp8") == 128
    assert block_of({"quantization_config": {**BLOCKS, "weight_block_size": [1 << 60, 3 << 60]}}, "fp8") is None


def test_more_missing_files_than_any_model_has_are_no_list() -> None:
    index = json.dumps({"weight_map": {str(number): f"{number}.safetensors" for number in range(5000)}})
    with refused("too_many_files", "5000"):
        document_of(weights_from({}, index))
