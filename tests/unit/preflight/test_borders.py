"""What roles know of each other: options that somebody hands them, and results under names that a role publishes.

A default or variable that reads another role's breaks when that role is renamed, left out, or run later; nobody who
reads either role sees why.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.preflight.test_contracts import PLAYBOOKS, ROLES, ROOT, load, name_of, specified, tasks
from tests.unit.preflight.test_templates import evaluate

NAMES = sorted((role.name for role in ROLES), key=len, reverse=True)
# A variable, by its name, as text, or as another node's; not a key of what the action role_options returned.
ROLE_OF = re.compile(rf"((?<![\w/.-])|(?<=\]\.))_*({'|'.join(NAMES)})_\w+")
EXPRESSION = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
# Values that are expressions without braces.
BARE = {"when", "that", "until", "changed_when", "failed_when"}
INCLUDES = ("ansible.builtin.include_role", "ansible.builtin.import_role")
# Where another role's files are read as text.
FOREIGN_FILE = re.compile(rf"/\.\./({'|'.join(NAMES)})/(defaults|vars|meta|tasks|templates)\b")


def expressions(node: Any, bare: bool = False) -> Iterator[str]:
    """Every expression in what a YAML file holds."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from expressions(value, key in BARE)
    elif isinstance(node, list):
        for item in node:
            yield from expressions(item, bare)
    elif isinstance(node, str):
        yield from [node] if bare else EXPRESSION.findall(node)


def foreign(text: str, own: str) -> set[str]:
    """Names in an expression that begin as those of another role do; a filter carries the name of its subject."""
    found = set()
    for match in ROLE_OF.finditer(text):
        if match[2] != own and not re.search(r"\|\s*$", text[: match.start()]):
            found.add(match[0])
    return found


def published(role: str) -> set[str]:
    """Names under which a role leaves what others may read."""
    file = ROOT / "roles" / role / "meta/results.yml"
    return set(load(file)) if file.exists() else set()


def written(role: Path) -> set[str]:
    """Every name that the role's tasks register or set."""
    found = set()
    for path in (role / "tasks").glob("*.yml"):
        for task in every_task(load(path)):
            found |= {task["register"]} if "register" in task else set()
            found |= set(task.get("ansible.builtin.set_fact", {}))
    return found


def every_task(node: Any) -> Iterator[dict[str, Any]]:
    """Tasks and blocks alike."""
    for item in node:
        yield item
        for key in ("block", "rescue", "always"):
            yield from every_task(item.get(key, []))


def included(role: Path) -> set[str]:
    """Roles that a role includes itself."""
    found = set()
    for path in (role / "tasks").glob("*.yml"):
        for task in tasks(load(path)):
            found |= {task[key]["name"] for key in INCLUDES if key in task}
    return found


def faults_of_variables(role: Path) -> list[str]:
    """What defaults, variables and templates read of another role."""
    found = []
    for path in [role / "defaults/main.yml", role / "vars/main.yml", *(role / "templates").glob("*")]:
        if not path.exists():
            continue
        text = path.read_text(encoding="utf-8")
        said = EXPRESSION.findall(text) if path.suffix == ".j2" else expressions(load(path))
        found += [f"{name_of(path)} reads {name}" for part in said for name in foreign(part, role.name)]
        found += [f"{name_of(path)} reads the files of {match[1]}" for match in FOREIGN_FILE.finditer(text)]
    return found


def faults_of_tasks(role: Path) -> list[str]:
    """What tasks read of another role, but for what a role publishes that they include themselves."""
    allowed = {name for other in included(role) for name in published(other)}
    return [
        f"{name_of(path)} reads {name}"
        for path in [*(role / "tasks").glob("*.yml"), *(role / "handlers").glob("*.yml")]
        for part in expressions(load(path))
        for name in foreign(part, role.name) - allowed
    ]


def test_no_variable_reads_another_role() -> None:
    """A playbook passes it as an option; of options of others the action role_options knows."""
    assert not [fault for role in ROLES for fault in faults_of_variables(role)]


def test_tasks_read_what_a_role_publishes_that_they_include() -> None:
    assert not [fault for role in ROLES for fault in faults_of_tasks(role)]


def test_what_is_not_private_is_published_and_in_the_readme() -> None:
    offenders = []
    for role in ROLES:
        names = {name for name in written(role) if not name.startswith("_")}
        text = (role / "README.md").read_text(encoding="utf-8")
        offenders += [f"{role.name}: {name} is not published" for name in names - published(role.name)]
        offenders += [f"{role.name}: {name} is in no task" for name in published(role.name) - names]
        offenders += [f"{role.name}: {name} is not in the README" for name in names if f"`{name}`" not in text]
    assert not offenders


def test_every_option_is_read_in_its_role() -> None:
    places = ("tasks/*.yml", "handlers/*.yml", "templates/*", "defaults/*.yml", "vars/*.yml")
    offenders = []
    for role in ROLES:
        read = {word for place in places for path in role.glob(place) for word in words_of(path)}
        offenders += [f"{role.name}: {name}" for name in specified(role) if name not in read]
    assert not offenders


def words_of(path: Path) -> Iterator[str]:
    said = EXPRESSION.findall(path.read_text(encoding="utf-8")) if path.suffix != ".yml" else expressions(load(path))
    for part in said:
        yield from re.findall(r"\w+", part)


OURS = [path for path in PLAYBOOKS if "molecule" not in path.parts]


def test_playbooks_read_nothing_that_is_private() -> None:
    known = known_to_playbooks()
    assert not [
        f"{name_of(path)} reads {match[0]}"
        for path in OURS
        for part in expressions(load(path))
        for match in ROLE_OF.finditer(part)
        if match[0].startswith("_") or match[0] not in known
    ]


def known_to_playbooks() -> set[str]:
    """Options, results, and what filters are called."""
    found = {path.stem for path in (ROOT / "filter_plugins").glob("*.py")}
    for role in ROLES:
        found |= published(role.name) | set(specified(role))
    return found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("{{ preflight_serving.plans }}", {"preflight_serving"}),
        ("{{ hostvars[x].__host_tuning_found }}", {"__host_tuning_found"}),
        ("{{ ansible_play_hosts | map('extract', hostvars, 'host_tuning_found') }}", {"host_tuning_found"}),
        ("{{ summary_reboot }}", set()),
        ("{{ __summary_options.options.preflight_image_gib }}", set()),
        ("{{ x | vllm_service_table }}", set()),
        ("{{ my_preflight_node }}", set()),
    ],
)
def test_what_is_another_roles_would_be_found(text: str, found: set[str]) -> None:
    assert {name for part in expressions(text) for name in foreign(part, "summary")} == found
    assert {name for part in expressions({"when": text.strip("{} ")}) for name in foreign(part, "summary")} == found


def test_playbooks_leave_no_results_under_the_names_of_roles() -> None:
    """calibrate.yml left its plans as preflight_serving, where a default of another role found them."""
    assert not [
        f"{name_of(path)} registers {task['register']}"
        for path in OURS
        for task in tasks(load(path))
        if ROLE_OF.match(task.get("register", ""))
    ]


@pytest.mark.parametrize("variable", ["weights_supply", "fp8_calibration"])
@pytest.mark.parametrize(
    ("given", "shared"),
    [
        ({}, None),
        ({"gaudi_weights_shared": None}, None),
        ({"gaudi_weights_shared": True}, True),
        # As -e gaudi_weights_shared=false gives it.
        ({"gaudi_weights_shared": "false"}, False),
        ({"gaudi_weights_shared": "yes"}, True),
    ],
)
def test_shared_weights_are_what_the_site_says(variable: str, given: dict[str, Any], shared: bool | None) -> None:
    look = {f"__{variable}_look": {"storage": {"fstype": "ext4", "source": "/dev/sda1"}}}
    assert evaluate(variable, f"{{{{ __{variable}_root.shared }}}}", **look, **given) is shared


@pytest.mark.parametrize("timeout", [7200, "7200"])
def test_the_patience_with_a_pull_may_come_from_the_command_line(timeout: object) -> None:
    (pull, *_) = load(ROOT / "roles/serving_image/tasks/pull.yml")
    assert evaluate("serving_image", pull["async"], serving_image_pull_timeout=timeout) == 7500


@pytest.mark.parametrize(("given", "asked"), [(False, True), (True, False), ("false", True), ("true", False)])
def test_an_absent_instance_may_be_allowed_from_the_command_line(given: object, asked: bool) -> None:
    (refusal,) = [task for task in load(ROOT / "roles/vllm_service/tasks/select.yml") if task.get("run_once")]
    assert evaluate("vllm_service", f"{{{{ {refusal['when']} }}}}", vllm_service_may_be_absent=given) is asked


@pytest.mark.parametrize("file", ["outside", "recheck"])
def test_weights_are_fetched_to_where_they_are_looked_for(file: str) -> None:
    found = list(tasks(load(ROOT / f"roles/weights_supply/tasks/{file}.yml")))
    (given,) = [task["vars"] for task in found if task.get(INCLUDES[0], {}).get("name") == "model_weights"]
    assert given["model_weights_root"] == "{{ weights_supply_root }}"
