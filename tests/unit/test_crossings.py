"""Every value that leaves the node that reports it is in the table of tests/crossings.py, typed and bounded."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.gaudi.base import reported

from tests.crossings import CONNECTS, CROSSINGS, DELEGATED, FILES, INVENTORY, ONCE, WHOLE
from tests.unit.preflight.test_contracts import ROOT, load

# Another node's variables, as a role reads them: one variable, all for a filter, or in a way that nobody can follow.
READS = (
    re.compile(r"map\( ?'extract', hostvars, \[? ?'(\w+)'"),
    re.compile(r"map\( ?'extract', hostvars\) \| map\( ?attribute='(\w+)'"),
    re.compile(r"hostvars\[[^][]+(?:\[\w+\])*\]\.(\w+)"),
    re.compile(r"hostvars(?: \| default\(\{\}\))?( \| (?!default)\w+)"),
)
# Actions that run on the controller, and decide from variables. Not set_fact: where it runs once, what the variables of
# one node hold becomes a fact of all.
ON_CONTROLLER = {
    *("assert", "debug", "fail", "include_tasks", "meta", "pause"),
    *("batch_input", "new_api_key", "record_archive"),
}
KEYWORDS = {
    *("name", "register", "when", "vars", "loop", "loop_control", "tags", "become", "run_once", "delegate_to", "diff"),
    *("connection", "changed_when", "failed_when", "check_mode", "no_log", "environment", "notify", "until", "retries"),
    *("delay", "async", "poll", "delegate_facts", "args", "block", "rescue", "always"),
}
# What tasks have of their block, unless they say otherwise (Ansible's playbook/delegatable.py, base.py).
INHERITED = ("run_once", "delegate_to", "delegate_facts", "connection")
WRITES = re.compile(r"\.write_(?:text|bytes)\(|open\([^)\n]*[\"'][wax]|mkstemp|TemporaryFile|\.mkdir\(|makedirs")
SOCKETS = re.compile(r"HTTPS?Connection|\bsocket\b|create_connection|urlopen|urllib\.request")


@functools.cache
def files() -> tuple[Path, ...]:
    """Everything that Ansible reads on the controller as tasks, variables or templates."""
    paths = [path for folder in ("playbooks", "roles") for path in sorted((ROOT / folder).rglob("*"))]
    others = {"molecule", "files"}
    return (
        ROOT / "site.yml",
        *(path for path in paths if path.suffix in (".yml", ".j2") and not others & {*path.parts}),
    )


def read_in(text: str) -> set[str]:
    """Names through which a file reads variables of other nodes; WHOLE where no pattern says which variable."""
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    # A host reads its own variables.
    flat = re.sub(r"\s+", " ", " ".join(lines)).replace("hostvars[inventory_hostname]", "")
    found = set()
    for pattern in READS:
        found |= {name.replace(" ", "") for name in pattern.findall(flat)}
        flat = pattern.sub("", flat)
    return found | ({WHOLE} if re.search(r"\bhostvars\b", flat) else set())


def tasks_in(path: Path) -> Iterator[dict[str, Any]]:
    """Every task of a file, with what it has of its blocks and play; a play's tasks are below its keys."""
    content = load(path) if path.suffix == ".yml" else None
    for item in content if isinstance(content, list) else ():
        if "hosts" in item:
            # A play for the controller alone moves nothing.
            around = {} if item["hosts"] == "localhost" else item
            for key in ("pre_tasks", "tasks", "post_tasks", "handlers"):
                yield from within(item.get(key, []), around)
        else:
            yield from within([item], {})


def within(listed: Any, outer: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The tasks of a list and of the blocks in it, with what they have of what is around them."""
    around = {key: outer[key] for key in INHERITED if key in outer}
    for item in listed:
        parts = [item[key] for key in ("block", "rescue", "always") if key in item]
        if not parts:
            yield {**around, **item}
        for part in parts:
            yield from within(part, {**around, **item})


def moved_by(task: dict[str, Any]) -> set[str]:
    """How a task moves what a node returns: to the controller, from another node, or from one node to all."""
    where = task.get("delegate_to")
    if where == "localhost" or task.get("connection") == "local":
        return {FILES}
    if where is not None:
        return {DELEGATED}
    actions = {key.rpartition(".")[2] for key in task} - KEYWORDS
    return {ONCE} if task.get("run_once") and not actions <= ON_CONTROLLER else set()


MODULE = {"ansible.builtin.stat": {"path": "/x"}, "register": "found"}


@pytest.mark.parametrize(
    ("task", "moved"),
    [
        (MODULE, set()),
        ({**MODULE, "run_once": True}, {ONCE}),
        ({"run_once": True, "ansible.builtin.set_fact": {"x": "{{ found }}"}}, {ONCE}),
        ({"run_once": True, "block": [{"ansible.builtin.set_fact": {"x": "{{ found }}"}}]}, {ONCE}),
        ({"run_once": True, "block": [{"block": [{"name": "deep", **MODULE}]}]}, {ONCE}),
        ({"run_once": True, "block": [{**MODULE, "run_once": False}]}, set()),
        ({"run_once": True, "block": [{"ansible.builtin.debug": {"msg": "x"}}], "rescue": [MODULE]}, {ONCE}),
        ({"delegate_to": "{{ other }}", "block": [], "always": [MODULE]}, {DELEGATED}),
        ({"delegate_to": "localhost", "block": [MODULE]}, {FILES}),
        ({"connection": "local", "block": [MODULE]}, {FILES}),
    ],
)
def test_a_task_in_a_block_moves_what_its_block_moves(task: dict[str, Any], moved: set[str]) -> None:
    assert {each for inner in within([task], {}) for each in moved_by(inner)} == moved


def test_facts_of_a_task_in_a_delegated_block_are_looked_at() -> None:
    block = {"delegate_to": "{{ other }}", "block": [MODULE]}
    assert [task.get("delegate_facts") for task in within([block], {})] == [None]
    assert [task.get("delegate_facts") for task in within([{**block, "delegate_facts": True}], {})] == [True]


@functools.cache
def crossing() -> set[tuple[str, str]]:
    """Every place, as file and name, where a value leaves the node that reports it."""
    found = set()
    for path in files():
        name = path.relative_to(ROOT).as_posix()
        found |= {(name, each) for each in read_in(path.read_text(encoding="utf-8"))}
        found |= {(name, each) for task in tasks_in(path) for each in moved_by(task)}
    for folder in ("action_plugins", "callback_plugins", "filter_plugins", "plugin_utils"):
        for path in sorted((ROOT / folder).glob("*.py")):
            text = path.read_text(encoding="utf-8")
            does = {FILES: WRITES.search(text), CONNECTS: SOCKETS.search(text)}
            found |= {(path.relative_to(ROOT).as_posix(), what) for what, match in does.items() if match}
    return found


def test_the_table_has_every_crossing_and_no_other() -> None:
    tables = [row.reads for row in CROSSINGS] + [INVENTORY]
    listed = {(file, name) for table in tables for file, names in table.items() for name in names}
    new = sorted(crossing() - listed)
    assert not new, f"check these where they enter, and add them to tests/crossings.py: {new}"
    gone = sorted(listed - crossing())
    assert not gone, f"take these out of tests/crossings.py: {gone}"


def test_a_crossing_is_checked_where_the_table_says() -> None:
    checked = {row.value: row.checked for row in CROSSINGS if row.checked}
    assert len(checked) > 15
    assert not [
        f"{value}: {file} has no {text}"
        for value, (file, text) in checked.items()
        if text not in (ROOT / file).read_text(encoding="utf-8")
    ]


def test_what_one_task_reads_of_all_nodes_is_checked() -> None:
    """An error in such a task is one for all nodes: a value that nobody checked gives each of them a veto."""
    unchecked = {name for row in CROSSINGS if row.checked is None for names in row.reads.values() for name in names}
    assert unchecked <= {FILES}


def test_a_json_file_about_all_nodes_has_only_what_can_be_written() -> None:
    written = {
        f"{path.relative_to(ROOT)}: {task.get('name')}": str(task.get("ansible.builtin.copy", {}).get("content", ""))
        for path in [*(ROOT / "playbooks").glob("*.yml"), *ROOT.glob("roles/*/tasks/*.yml")]
        for task in tasks_in(path)
        if task.get("run_once")
    }
    found = {place: content for place, content in written.items() if "to_nice_json" in content}
    assert found
    assert [place for place, content in found.items() if "| readable_nodes | to_nice_json" not in content] == []


def test_every_check_of_reports_is_used_and_in_the_table() -> None:
    used = {
        name for path in files() for name in re.findall(r"reported(?:\('|', ')(\w+)'", path.read_text(encoding="utf-8"))
    }
    assert used == set(reported.CHECKS)


def test_facts_of_another_node_stay_its_own() -> None:
    """Without delegate_facts the facts in the answer of that node become those of the node that the task is for."""
    found = [
        f"{path.relative_to(ROOT)}: {task.get('name')}"
        for path in files()
        for task in tasks_in(path)
        if moved_by(task) == {DELEGATED} and task.get("delegate_facts") is not True
    ]
    assert found == []


# What the operator or the inventory names, and names of a benchmark's run, which are checked.
PLACES = {
    *("folder", "doctor_output", "image_output", "plan_output", "status_output", "host_tuning_output"),
    *("fabric_check_page", "fabric_check_pairs_results", "inventory_hostname", "benchmark_folder", "item", "lookup"),
}


def names_in(text: str) -> set[str]:
    """The variables of an expression."""
    bare = re.sub(r"'[^']*'", "", " ".join(re.findall(r"\{\{(.*?)\}\}", text, re.DOTALL)))
    return set(re.findall(r"(?<![.\w])[a-z_]\w*", bare)) - {"if", "else", "is", "abs", "path_join"}


def test_a_file_on_the_controller_is_where_the_operator_says() -> None:
    for path in files():
        constants = path.parents[1] / "vars/main.yml"
        own = load(constants) if constants.exists() else {}
        for task in [task for task in tasks_in(path) if moved_by(task) == {FILES}]:
            for arguments in [value for key, value in task.items() if key.startswith("ansible.builtin.")]:
                place = str(arguments.get("dest", arguments.get("path", "")))
                # A role's constant is as good as what it is made of.
                names = {each for name in names_in(place) for each in (names_in(own[name]) if name in own else {name})}
                assert names <= PLACES, f"{path.relative_to(ROOT)}: {task.get('name')}"


@pytest.mark.parametrize(
    "text",
    [
        "x: \"{{ hostvars['m'].said }}\"",
        "x: \"{{ ansible_play_hosts | map('extract', hostvars, ['said', 'what']) }}\"",
        "x: >-\n  {{ ansible_play_hosts\n     | map('extract', hostvars, 'said') }}",
        "x: \"{{ play | map('extract', hostvars) | map(attribute='said') }}\"",
        'x: "{{ hostvars | default({}) | said }}"',
    ],
)
def test_a_variable_of_another_node_is_found_however_it_is_read(text: str) -> None:
    assert {name.lstrip("|") for name in read_in(text)} == {"said"}
    assert read_in("x: \"{{ lookup('vars', hostvars) }}\"") == {WHOLE}
