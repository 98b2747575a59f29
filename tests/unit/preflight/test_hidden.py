"""A task that has a token or the digests of keys in its hands shows neither its arguments nor its result."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.preflight.test_contracts import ROOT, TASK_FILES, load, name_of, tasks

FILES = sorted([*TASK_FILES, ROOT / "site.yml", *ROOT.glob("playbooks/**/*.yml")])
# Tokens are attributes in an expression, of a source in the inventory or of an answer: x.token, not 'giver.token'.
EXPRESSION = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
TOKEN = re.compile(r"[\w\])]\.token\b")
# The module that returns a token, and the one that takes digests of keys.
GIVING, KEYS = "weights_giving", "instance_keys"
# What decides or describes, and is in no result.
CONTROL = {"name", "when", "loop", "loop_control", "register", "until", "vars", "tags"}


def holds_a_secret(task: dict[str, Any]) -> bool:
    """Whether a task's arguments or result contain a token, or digests of keys."""
    if GIVING in task and task[GIVING].get("state") != "absent":
        return True
    if "inventory" in task.get(KEYS, {}) or ".digest" in str(task.get(KEYS)):
        return True
    arguments = str([value for key, value in task.items() if key not in CONTROL])
    return any(TOKEN.search(QUOTED.sub("", found)) for found in EXPRESSION.findall(arguments))


def hidden(path: Path) -> list[str]:
    """The tasks of a file that hold a secret."""
    return [task["name"] for task in tasks(load(path)) if holds_a_secret(task)]


def test_a_task_that_holds_a_secret_shows_nothing() -> None:
    assert not [
        f"{name_of(path)}: {task['name']}"
        for path in FILES
        for task in tasks(load(path))
        if holds_a_secret(task) and task.get("no_log") is not True
    ]


def facts_with_environment(content: Any) -> list[str]:
    """The plays and tasks of a file that gather all facts, or the smallest set: both have the environment of root."""
    plays = [play for play in content or [] if "hosts" in play and play.get("gather_facts", True)]
    asked = [(play["name"], play.get("gather_subset", [])) for play in plays]
    asked += [
        (task["name"], task["ansible.builtin.setup"].get("gather_subset", []))
        for task in tasks(content)
        if "ansible.builtin.setup" in task
    ]
    return [name for name, subset in asked if not {"!all", "!min"} <= set(subset) or "env" in subset]


def test_no_facts_have_the_environment_of_root() -> None:
    """The address of a proxy in it may have an account, and all facts are in the events of a run."""
    assert not [f"{name_of(path)}: {name}" for path in FILES for name in facts_with_environment(load(path))]
    assert facts_with_environment([{"hosts": "all", "name": "x"}]) == ["x"]
    assert facts_with_environment([{"name": "y", "ansible.builtin.setup": {"gather_subset": ["min"]}}]) == ["y"]


def test_tasks_that_hold_a_secret_are_found() -> None:
    found = {name_of(path) for path in FILES if hidden(path)}
    assert {
        "playbooks/keys.yml",
        "roles/fp8_calibration/tasks/take.yml",
        "roles/model_weights/tasks/request.yml",
        "roles/vllm_service/tasks/install.yml",
        "roles/weights_supply/tasks/serve.yml",
        "roles/weights_supply/tasks/take.yml",
    } <= found


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ('copy: {content: "{{ given.token }}"}', True),
        ('set_fact: {kept: "{{ hostvars.a.given.token }}"}', True),
        ("weights_giving: {folder: /x}", True),
        ("weights_giving: {state: absent}", False),
        ("instance_keys: {instance: a, inventory: []}", True),
        ('instance_keys: {instance: a, add: {name: x, digest: "{{ drawn.digest }}"}}', True),
        ("instance_keys: {instance: a, revoke: x}", False),
        ('assert: {that: ["given.token is defined"]}', False),
        ('copy: {content: x}\nwhen: "given.token is defined"', False),
        ('file: {path: "/etc/giver.token"}', False),
        ("""file: {path: "{{ folder ~ '/giver.token' }}"}""", False),
        ("template: {vars: {a: '{{ b.token }}'}}", True),
    ],
)
def test_what_holds_a_secret_is_told_from_what_does_not(text: str, holds: bool) -> None:
    assert holds_a_secret(yaml.safe_load(text)) is holds
