"""What the role's own expressions make of what Ansible gives it."""

from __future__ import annotations

from tests.unit.preflight.test_templates import evaluate

RUNNING = "{{ __fabric_check_running }}"


def test_the_units_that_are_stopped_are_those_that_may_use_cards() -> None:
    states = {"a": "active", "b": "inactive", "c": "activating", "d": "failed"}
    instances = [{"instance": name, "active": state} for name, state in states.items()]
    stopped = evaluate("fabric_check", RUNNING, __fabric_check_services={"instances": instances})
    assert stopped == ["vllm-a.service", "vllm-c.service"]


def test_nothing_is_stopped_where_nothing_is_measured() -> None:
    """What the look at the instances leaves where it was left out."""
    assert evaluate("fabric_check", RUNNING, __fabric_check_services={"changed": False, "skipped": True}) == []
