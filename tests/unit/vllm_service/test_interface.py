"""Documented, declared and real are the same; states and tables read well."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.gaudi.node import instances
from ansible.module_utils.gaudi.serving.state import WAITS_FOR_CARDS, WAITS_FOR_LOCK, WAITS_LONG_FOR_LOCK
from gaudi_supervisor.settings import Settings

from action_plugins import vllm_service_info as following
from filter_plugins import vllm_service_table
from library import vllm_service_changes, vllm_service_info
from tests.unit.host.modules import run_main
from tests.unit.vllm_service.test_rendered import PLAN, file_text

ROOT = Path(__file__).resolve().parents[3]
ROLE = ROOT / "roles/vllm_service"

SERVING = {
    "phase": "serving",
    "status": "serving tiny on http://127.0.0.1:30001",
    "since": "2026-01-31T08:00:00Z",
    "endpoint": "http://127.0.0.1:30001",
    "cards": [{"module_id": 0}, {"module_id": 1}],
    "warm_up": {"prompt": [3, 3], "decode": [2, 2]},
    "warm_up_seconds": 49.0,
}


def found(**changes: Any) -> dict[str, Any]:
    """One instance as vllm_service_info gives it."""
    base = {
        "instance": "tiny",
        "load": "loaded",
        "active": "active",
        "sub": "running",
        "job": False,
        "result": "success",
        "enabled": True,
        "restarts": 0,
    }
    base |= {"state": SERVING, "damaged": "", "current": True, "unwritten": "", "said": "", "let_through": []}
    base |= {"drop_ins": [], "pace": ""}
    return {**base, **changes}


def test_defaults_are_the_documented_ones() -> None:
    options: dict[str, Any] = {}
    for entry in yaml.safe_load((ROLE / "meta/argument_specs.yml").read_text())["argument_specs"].values():
        options.update(entry["options"])
    documented = {name: spec["default"] for name, spec in options.items() if "default" in spec}
    assert yaml.safe_load((ROLE / "defaults/main.yml").read_text()) == documented
    assert [name for name, spec in options.items() if "default" not in spec] == ["vllm_service_plan"]
    assert all(name.startswith("vllm_service_") for name in options)


def test_a_node_with_instances_without_end_does_not_fill_the_table() -> None:
    lines = vllm_service_table.vllm_service_table({"evil": [found()] * 20_000, "good": [found(instance="chat")]})
    assert len(lines) == 1 + 1024 + 1
    assert "chat" in lines[-1]


def test_the_roles_patience_is_the_supervisors() -> None:
    settings = Settings()
    defaults = yaml.safe_load((ROLE / "defaults/main.yml").read_text())
    for name in (
        *("attempts", "first_pause", "stall", "longest_start", "stop_grace", "engine_wait", "unhealthy"),
        "recipes_gib",
        "drop_caches",
    ):
        assert defaults[f"vllm_service_{name}"] == getattr(settings, name)


def assert_documented(documented: dict[str, Any], specification: dict[str, Any]) -> None:
    assert set(documented) == set(specification)
    for name, spec in specification.items():
        assert {key: documented[name].get(key) for key in spec if key != "options"} == {
            key: value for key, value in spec.items() if key != "options"
        }
        assert_documented(documented[name].get("suboptions", {}), spec.get("options", {}))


@pytest.mark.parametrize(
    ("documentation", "specification"),
    [
        (vllm_service_changes, vllm_service_changes.ARGUMENT_SPEC),
        (vllm_service_info, vllm_service_info.ARGUMENT_SPEC),
    ],
    ids=["vllm_service_changes", "vllm_service_info"],
)
def test_documented_is_taken(documentation: Any, specification: dict[str, Any]) -> None:
    assert_documented(yaml.safe_load(documentation.DOCUMENTATION)["options"], specification)
    assert yaml.safe_load(documentation.EXAMPLES)
    assert yaml.safe_load(documentation.RETURN)


def test_what_follows_an_instance_has_the_options_of_its_page() -> None:
    page = {name: vllm_service_info.ARGUMENT_SPEC[name] for name in following.FOLLOWING}
    assert {**page, "instances": {**page["instances"], "required": True}} == following.FOLLOWING


def test_a_module_without_its_action_does_not_pass_for_one_that_has_followed() -> None:
    answer = run_main("library.vllm_service_info", {"instances": ["tiny"], "follow": True})
    assert answer["failed"]
    assert "follow is for the action of the same name" in answer["msg"]


def test_units_are_described() -> None:
    properties = instances.parse_properties(
        "LoadState=loaded\nActiveState=activating\nSubState=start\nJob=4711\nResult=success\nUnitFileState=enabled\nNRestarts=3\n"
    )
    described = {**instances.describe("tiny", properties, {"phase": "loading"}), "said": ""}
    assert described == found(active="activating", sub="start", job=True, restarts=3, state={"phase": "loading"})
    assert instances.describe("tiny", {}, {})["job"] is False
    assert instances.digest([described]) != instances.digest([found()])


def test_a_follower_is_woken_by_another_phase_and_not_by_figures() -> None:
    def stands(phase: str, **state: object) -> str:
        return instances.digest([found(state={"phase": phase, **state})])

    assert stands("warming-up", warm_up={"prompt": [1, 9]}) == stands("warming-up", warm_up={"prompt": [2, 9]})
    assert stands("warming-up") != stands("serving")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"job": True}, False),
        ({"active": "activating"}, False),
        ({"active": "deactivating"}, False),
        ({"active": "failed"}, True),
        ({"active": "inactive"}, True),
        ({"state": {"phase": "warming-up"}, "said": "warm-up: prompt 1/3"}, False),
        ({"state": {"phase": "warming-up"}, "said": "serving tiny on http://127.0.0.1:30001"}, True),
        ({"state": {"phase": "not-answering"}, "said": "not answering (no answer: timed out)"}, False),
        # It may be days until somebody has repaired the card; the engine is waited for some minutes.
        ({"active": "activating", "job": True, "said": f"{WAITS_FOR_CARDS}: The card is not there."}, True),
        ({"active": "activating", "job": True, "said": "the container engine does not answer yet"}, False),
        # A backup program has a lock for some seconds; whoever has it for longer may keep it for ever.
        ({"active": "activating", "job": True, "said": f"{WAITS_FOR_LOCK}: Another supervisor runs."}, False),
        ({"active": "activating", "job": True, "said": f"{WAITS_LONG_FOR_LOCK}: Another supervisor runs."}, True),
        # The state before a start says nothing of it.
        ({"active": "activating", "state": {"phase": "waiting", "status": f"{WAITS_FOR_CARDS}: x."}}, False),
    ],
)
def test_what_counts_as_settled(changes: dict[str, Any], expected: bool) -> None:
    assert following.settled(found(**changes)) is expected


@pytest.mark.parametrize(
    ("active", "phase", "says"),
    [
        ("failed", "stopped", "Another supervisor runs it."),
        ("failed", "failed", "Card busy."),
        ("active", "x", "Card busy."),
    ],
)
def test_the_table_says_what_a_supervisor_that_could_not_begin_told_systemd(active: str, phase: str, says: str) -> None:
    said = found(active=active, state={"phase": phase, "status": "Card busy."}, said="Another supervisor runs it.")
    assert vllm_service_table.row("n1", said)[-1] == says


def test_progress_is_a_line() -> None:
    assert following.line("n1", found()) == "[n1: tiny] serving tiny on http://127.0.0.1:30001"
    again = following.line("n1", found(active="activating", sub="auto-restart", state={"status": "Card busy."}))
    assert again == "[n1: tiny] a try failed, systemd starts it again: Card busy."
    assert following.line("n1", found(state={})) == "[n1: tiny] waiting for systemd to start it"


def test_a_failure_is_the_supervisors_sentence() -> None:
    state = {"phase": "failed", "status": "Out of memory. Lower max_num_seqs."}
    said = following.failure("n1", found(active="failed", state=state))
    assert said.startswith(
        "tiny does not serve on n1: Out of memory. Lower max_num_seqs. More: journalctl -u vllm-tiny"
    )
    # What the last supervisor wrote is no reason for a unit that failed without one.
    said = following.failure("n1", found(active="failed", result="exit-code"))
    assert "vllm-tiny.service ended (exit-code) before its supervisor could say why" in said


def test_a_failure_that_could_not_be_written_down_is_what_systemd_was_told() -> None:
    lock = "/var/lib/gaudi-serving/instances/tiny: Read-only file system, so nobody can tell whether this runs twice"
    said = following.failure("n1", found(active="failed", result="exit-code", said=lock))
    assert f"before its supervisor could say why. It said last: {lock}. More:" in said
    old = {"phase": "failed", "status": "An old failure."}
    assert "n1: Out of memory. More:" in following.failure(
        "n1", found(active="failed", state=old, said="Out of memory.")
    )
    again = following.line("n1", found(active="activating", sub="auto-restart", said="Out of memory."))
    assert again == "[n1: tiny] a try failed, systemd starts it again: Out of memory."


RETRY = {"kind": "cards-not-offered", "message": "No driver.", "retry": True}


@pytest.mark.parametrize(
    ("changes", "limit"),
    [
        ({"result": "start-limit-hit"}, True),
        # systemd keeps how the last start ended, and says why it makes no other one in the journal alone.
        ({"result": "exit-code", "restarts": 9}, True),
        ({"result": "exit-code", "restarts": 1}, False),
        (
            {"state": {"phase": "failed", "status": "No driver.", "reason": RETRY, "gave_up": False}, "restarts": 9},
            True,
        ),
        (
            {"state": {"phase": "failed", "status": "No driver.", "reason": RETRY, "gave_up": True}, "restarts": 9},
            False,
        ),
        # However often it was started in its life.
        ({"state": {"phase": "failed", "status": "x", "reason": {**RETRY, "retry": False}}, "restarts": 99}, False),
        ({"active": "inactive", "restarts": 99}, False),
    ],
)
def test_a_start_limit_is_named_where_it_is_why_nothing_is_tried_any_more(changes: dict[str, Any], limit: bool) -> None:
    said = following.failure("n1", found(**{"active": "failed", **changes}))
    what = " It was started 10 times within 600 seconds, so systemd starts it no more (its start limit)."
    assert (f"{what} Once that is repaired, playbooks/start.yml starts it again." in said) is limit


def test_the_start_limit_is_a_sentence_of_its_own() -> None:
    """A supervisor's status need not end with a full stop."""
    state = {"phase": "stopped", "status": "stopped as asked"}
    said = following.failure("n1", found(active="failed", result="start-limit-hit", state=state))
    assert said.startswith("tiny does not serve on n1: stopped as asked. It was started 10 times ")


def test_the_start_limit_is_that_of_the_unit() -> None:
    unit = file_text("unit", PLAN)
    assert f"StartLimitIntervalSec={following.LIMIT_SECONDS}\n" in unit
    assert f"StartLimitBurst={following.LIMIT_STARTS}\n" in unit


def test_a_status_without_a_full_stop_gets_one() -> None:
    stopped = found(active="inactive", state={"phase": "stopped", "status": "stopped as asked"})
    assert following.failure("n1", stopped) == (
        "tiny does not serve on n1: stopped as asked. More: journalctl -u vllm-tiny.service"
    )


def test_a_run_ends_where_an_instance_waits_for_a_card() -> None:
    said = f"{WAITS_FOR_CARDS}: The card of module 0 is not there."
    assert following.failure("n1", found(active="activating", said=said)) == (
        f"tiny does not serve on n1: {said} It starts by itself once it has them. More: journalctl -u vllm-tiny.service"
    )


def test_a_run_ends_where_somebody_keeps_the_lock() -> None:
    said = f"{WAITS_LONG_FOR_LOCK}: Another supervisor runs tiny already, or x is locked by process 7 (flock)"
    waits = found(active="activating", state={"phase": "stopped", "status": "stopped as asked"}, said=said)
    assert following.failure("n1", waits) == (
        f"tiny does not serve on n1: {said}. It starts by itself once that is free. "
        "More: journalctl -u vllm-tiny.service"
    )
    assert following.line("n1", waits) == f"[n1: tiny] {said}"
    assert vllm_service_table.row("n1", waits)[-1] == said


def test_what_systemd_was_told_last_is_asked_of_units_that_are_not_active(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instances, "systemctl", lambda *_: "StatusText=Out of memory.\n")
    module: Any = None
    assert instances.said_last(module, found(active="failed")) == "Out of memory."
    assert instances.said_last(module, found()) == ""


def test_the_table() -> None:
    warming = {**SERVING, "phase": "warming-up", "warm_up_seconds": None, "status": "warm-up: prompt 3/3, decode 0/2"}
    warming["warm_up"] = {"prompt": [3, 3], "decode": [0, 2]}
    nodes = {
        "n1": [found(), found(instance="big", active="activating", state=warming)],
        "n2": [found(instance="new", active="inactive", state={})],
    }
    nodes["n1"][0]["pace"] = "38.5 tokens/s, first after 0.21 s"
    nodes["n1"][0]["state"] = {
        **nodes["n1"][0]["state"],
        "load": {"running": 2, "waiting": 0, "cache": 0.12, "tokens_per_second": 38.5},
    }
    assert vllm_service_table.vllm_service_table(nodes) == [
        "NODE  INSTANCE  STATE       MODULES  ENDPOINT                SINCE (UTC)          WARM-UP"
        "  WHEN ASKED                         NOW                                              SAYS",
        "n1    tiny      serving     0,1      http://127.0.0.1:30001  2026-01-31 08:00:00  49 s"
        "     38.5 tokens/s, first after 0.21 s  2 running, 0 waiting, 38.5 tokens/s, cache 12 %  "
        "serving tiny on http://127.0.0.1:30001",
        "n1    big       warming-up  0,1      http://127.0.0.1:30001  2026-01-31 08:00:00  3/5"
        "      -                                  -                                                "
        "warm-up: prompt 3/3, decode 0/2",
        "n2    new       inactive    -        -                       -                    -"
        "        -                                  -                                                never started",
    ]
    assert vllm_service_table.vllm_service_table({"n1": []}) == ["no instances on n1"]


def test_the_table_names_the_last_failure_of_what_serves_again_by_its_id() -> None:
    last = {"kind": "card-busy", "message": "A card is held.", "retry": True, "time": "2026-01-31T07:00:00Z"}
    said = vllm_service_table.row("n1", found(state={**SERVING, "last_reason": last}))[-1]
    assert said == f"{SERVING['status']} (last failure 2026-01-31T07:00:00Z: [card-busy])"


def nested() -> list[Any]:
    """Lists in one another, deeper than Python writes them out."""
    value: list[Any] = []
    for _ in range(5000):
        value = [value]
    return value


@pytest.mark.parametrize(
    "hostile",
    [
        [{"x": 1}],
        [None],
        None,
        {"instance": "x"},
        [found(state=[])],
        [found(state={**SERVING, "cards": 7})],
        [found(state={**SERVING, "warm_up_seconds": 10**400})],
        [found(state={**SERVING, "load": [1]})],
        [found(instance=nested())],
    ],
    ids=range(9),
)
def test_a_report_of_another_form_ends_no_table_of_other_nodes(hostile: Any) -> None:
    _, *lines = vllm_service_table.vllm_service_table({"evil": hostile, "good": [found()]})
    assert [line.split()[0] for line in lines] == ["evil", "good"]
    assert lines[0].endswith("reports nothing that can be read")
    assert "serving tiny on" in lines[1]


def test_a_table_of_instances_has_an_end() -> None:
    many = [found(instance="x" * 10**6)] * 2000
    assert sum(map(len, vllm_service_table.vllm_service_table({"evil": many}))) < 10**7


def test_the_table_shows_how_long_the_warm_up_took_the_time_before() -> None:
    start = {"plan": "now", "graphs": 5, "warm_up_seconds": 49.0, "seconds": 60.0, "at": "2026-01-31T08:00:00Z"}
    before = {**start, "warm_up_seconds": 190.0}
    state = {**SERVING, "plan": "now", "starts": [start, {**start, "plan": "other"}, before]}
    assert vllm_service_table.warm_up(state) == "49 s (before: 190 s)"
    assert vllm_service_table.warm_up({**state, "starts": [start]}) == "49 s"


def test_the_table_shows_the_warm_up_with_and_without_recipes() -> None:
    start = {"plan": "now", "graphs": 5, "warm_up_seconds": 49.0, "seconds": 60.0, "at": "2026-01-31T08:00:00Z"}
    filled, empty = {**start, "filled": True}, {**start, "warm_up_seconds": 190.0, "filled": False}
    found = {"folder": "/f", "files": 7, "bytes": 3 << 29, "given_by": ""}
    state = {**SERVING, "plan": "now", "recipes": found}
    shown = vllm_service_table.warm_up
    assert shown({**state, "starts": [filled, filled, empty]}) == "49 s (7 files of recipes, 1.5 GiB; without: 190 s)"
    assert shown({**state, "starts": [filled]}) == "49 s (7 files of recipes, 1.5 GiB)"
    first = {**state, "recipes": {**found, "files": 0, "bytes": 0}, "starts": [{**empty, "plan": "now"}]}
    assert shown(first) == "49 s (no recipes)"
