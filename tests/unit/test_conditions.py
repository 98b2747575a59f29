"""Conditions of playbooks, roles and scenarios are text: one with a colon and a space in it is a mapping to YAML."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.unit.preflight.test_contracts import ROOT, load, name_of

KEYS = {"that", "when", "changed_when", "failed_when", "until"}


def conditions(node: Any) -> Iterator[Any]:
    """Every condition below a task, a block or a play."""
    if isinstance(node, list):
        for item in node:
            yield from conditions(item)
    elif isinstance(node, dict):
        for key, value in node.items():
            if key in KEYS:
                yield from value if isinstance(value, list) else [value]
            else:
                yield from conditions(value)


def wrong(content: Any) -> list[Any]:
    """The conditions in a file that Ansible does not take."""
    return [found for found in conditions(content) if not isinstance(found, str | bool)]


@pytest.mark.report("N06")
def test_a_condition_that_yaml_takes_for_a_mapping_is_found() -> None:
    task = "- assert:\n    that:\n      - lines == ['x86_64: installed']\n      - lines\n  when: true\n"
    assert wrong(yaml.safe_load(task)) == [{"lines == ['x86_64": "installed']"}]


def test_every_condition_is_text() -> None:
    files = [path for place in ("molecule", "playbooks", "roles") for path in (ROOT / place).rglob("*.yml")]
    assert not [f"{name_of(path)}: {found}" for path in (*files, ROOT / "site.yml") for found in wrong(load(path))]
