"""What every role and playbook promises: documented defaults are the real ones, nothing is skipped or swallowed."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
ROLES = sorted(path.parent.parent for path in ROOT.glob("roles/*/tasks/main.yml"))
TASK_FILES = sorted([*ROOT.glob("roles/*/tasks/**/*.yml"), *ROOT.glob("roles/*/handlers/*.yml")])
PLAYBOOKS = sorted([ROOT / "site.yml", *ROOT.glob("playbooks/*.yml"), *ROOT.glob("molecule/**/*.yml")])
BLOCKS = ("block", "rescue", "always", "tasks", "pre_tasks", "post_tasks", "handlers")


class AnsibleLoader(yaml.CSafeLoader):
    """YAML as Ansible writes it: its own tags are read as their plain values."""


AnsibleLoader.add_multi_constructor("!", lambda loader, _, node: getattr(node, "value", None))


@functools.cache
def load(path: Path) -> Any:
    """The content of a file of the project, read once; nobody changes it."""
    return yaml.load(path.read_text(encoding="utf-8"), Loader=AnsibleLoader)  # noqa: S506 (a safe loader)


def tasks(node: Any) -> Iterator[dict[str, Any]]:
    """Every task below a list of tasks or plays, however deep."""
    for item in node if isinstance(node, list) else []:
        if isinstance(item, dict):
            if not any(key in item for key in BLOCKS):
                yield item
            for key in BLOCKS:
                yield from tasks(item.get(key))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def specified(role: Path) -> dict[str, dict[str, Any]]:
    """Options of all entry points; the same option means the same everywhere."""
    entry_points = load(role / "meta/argument_specs.yml")["argument_specs"].values()
    return {name: option for entry in entry_points for name, option in entry.get("options", {}).items()}


def defaults_of(role: Path) -> dict[str, Any]:
    return load(role / "defaults/main.yml") or {}


# Modules that install packages, with the key of their names.
INSTALLERS = {f"ansible.builtin.{name}": "name" for name in ("apt", "dnf", "dnf5", "package", "yum")}
PACKAGE_MANAGERS = ("apt-get", "apt", "dnf", "yum")


def conditions(task: dict[str, Any]) -> set[str]:
    when = task.get("when", [])
    return {" ".join(str(one).split()) for one in (when if isinstance(when, list) else [when])}


def unrecorded(file: Path) -> list[str]:
    """Tasks of a file that install packages which no task before them has recorded under the same conditions."""
    recorded: list[tuple[Any, set[str]]] = []
    found = []
    for task in tasks(load(file)):
        if "brought_packages" in task and task["brought_packages"].get("state", "noted") == "noted":
            recorded.append((task["brought_packages"]["packages"], conditions(task)))
        for module, key in INSTALLERS.items():
            arguments = task.get(module)
            if arguments is None or arguments.get("state", "present") == "absent":
                continue
            if not any(arguments[key] == names and when <= conditions(task) for names, when in recorded):
                found.append(f"{name_of(file)}: {task['name']}")
        words = str((task.get("ansible.builtin.command") or {}).get("argv", ""))
        if re.search(rf"\b(?:{'|'.join(PACKAGE_MANAGERS)})\b", words) and "install" in words:
            found.append(f"{name_of(file)}: {task['name']}")
    return found


def test_every_task_that_installs_packages_has_recorded_them() -> None:
    """Removal takes away what is recorded, so that nothing else may be installed."""
    assert [
        each for file in [*TASK_FILES, *PLAYBOOKS] if "molecule" not in file.parts for each in unrecorded(file)
    ] == []


def test_there_are_roles() -> None:
    assert {"preflight", "container_runtime", "serving_image"} <= {role.name for role in ROLES}


def test_every_role_has_its_papers() -> None:
    papers = ("README.md", "meta/main.yml", "meta/argument_specs.yml", "defaults/main.yml", "tasks/main.yml")
    missing = [name_of(role / paper) for role in ROLES for paper in papers if not (role / paper).is_file()]
    assert not missing
    renamed = {role.name: load(role / "meta/main.yml")["galaxy_info"]["role_name"] for role in ROLES}
    assert {folder: name for folder, name in renamed.items() if folder != name} == {}


def test_documented_defaults_are_the_real_ones() -> None:
    differing = []
    for role in ROLES:
        real = defaults_of(role)
        documented = {name: option["default"] for name, option in specified(role).items() if "default" in option}
        differing += [
            f"{name}: documented {documented.get(name, 'nowhere')!r}, real {real.get(name, 'nowhere')!r}"
            for name in sorted(documented.keys() | real.keys())
            if name not in documented or name not in real or documented[name] != real[name]
        ]
    assert not differing


def test_required_inputs_have_no_default() -> None:
    assert not [
        name
        for role in ROLES
        for name, option in specified(role).items()
        if option.get("required") and ("default" in option or name in defaults_of(role))
    ]


def test_every_option_says_what_it_is() -> None:
    assert not [
        name
        for role in ROLES
        for name, option in specified(role).items()
        if not option.get("type") or not str(option.get("description", "")).strip()
    ]


def test_an_option_carries_the_name_of_its_role_or_of_the_project() -> None:
    """Of defaults and constants ansible-lint says so (var-naming)."""
    strange = [
        f"{role.name}: {name}"
        for role in ROLES
        for name in specified(role)
        if not name.startswith((f"{role.name}_", "gaudi_"))
    ]
    private = [f"{role.name}: {name}" for role in ROLES for name in defaults_of(role) if name.startswith("_")]
    assert not strange + private


def test_a_role_reads_as_a_table_of_contents() -> None:
    """At most 25 lines, every part with the role's tag."""
    offenders = []
    for role in ROLES:
        contents = role / "tasks/main.yml"
        lines = contents.read_text(encoding="utf-8").count("\n")
        offenders += [f"{name_of(contents)} has {lines} lines"] if lines > 25 else []
        offenders += [
            f"{name_of(contents)}: {task['name']} has no tag {role.name}"
            for task in load(contents)
            if role.name not in task.get("tags", [])
        ]
    assert not offenders


def test_the_example_shows_every_variable_a_site_may_set() -> None:
    """What site.yml hands from one role to the next is no variable of a site."""
    handed_on = {"serving_image_references", "vllm_service_plan", "vllm_service_weights_coming", "weights_supply_bring"}
    handed_on |= {"weights_supply_wanted"}
    handed_on |= {
        "preflight_container_runtime",
        "preflight_fabric",
        "preflight_host_tuning",
        "serving_image_plans",
        "serving_image_release",
    }
    handed_on |= {"vllm_service_given_up_by", "vllm_service_coming_driver"}
    handed_on |= {"summary_topology", "summary_answers", "summary_instances", "summary_pins", "summary_reboot"}
    handed_on |= {"summary_let_through", "vllm_service_let_through", "vllm_service_allow_mismatch"}
    handed_on |= {"host_tuning_allow_mismatch", "host_tuning_release"}
    handed_on |= {
        "summary_fabric",
        "fabric_check_image",
        "fabric_check_demo",
        "fabric_check_proxies",
        "fabric_check_plans",
    }
    handed_on |= {"container_runtime_builds", "container_runtime_habana_follows"}
    handed_on |= {"preflight_driver", "preflight_driver_repository", "preflight_habana_repository"}
    handed_on |= {"preflight_rhel_repository", "preflight_weights_sources"}
    handed_on |= {"preflight_engine_proxies", "gaudi_driver_drain"}
    # The wish of one run of playbooks/uninstall.yml.
    handed_on |= {"container_runtime_remove_images"}
    # What is fetched into which folder is the catalogue's; where from, and how, is the site's.
    handed_on |= {f"model_weights_{name}" for name in ("directory", "repository", "repositories", "revision", "root")}
    handed_on |= {f"model_weights_{name}" for name in ("include", "exclude", "extra_room", "measured_cards", "recheck")}
    roles = ["preflight", "host_tuning", "container_runtime", "serving_image", "weights_supply", "model_weights"]
    roles += ["fabric_check", "vllm_service", "summary", "gaudi_driver"]
    entry_points = [load(ROOT / "roles" / name / "meta/argument_specs.yml")["argument_specs"]["main"] for name in roles]
    options = {name for entry in entry_points for name in entry.get("options", {})} - handed_on
    example = (ROOT / "inventories/example/group_vars/gaudi_nodes/main.yml").read_text(encoding="utf-8")
    assert set(re.findall(r"^(?:# )?([a-z]+_[a-z_]+):", example, re.MULTILINE)) == options


def every_task() -> Iterator[tuple[str, dict[str, Any]]]:
    """(file and task, task) of all roles, playbooks and scenarios."""
    for path in (*TASK_FILES, *PLAYBOOKS):
        for task in tasks(load(path)):
            yield f"{name_of(path)}: {task.get('name')}", task


def swallowing(task: dict[str, Any], following: dict[str, Any]) -> bool:
    """Whether a run goes on as if nothing were wrong where this task fails.

    Another node that cannot be reached would count for the node that asks it, past every rescue: such a task leaves it
    to the next one, which fails for that.
    """
    asserts = following.get("ansible.builtin.assert", {}).get("that") == f"{task.get('register')} is reachable"
    unreachable = task.get("ignore_unreachable") and not ("delegate_to" in task and asserts)
    return bool(task.get("ignore_errors") or unreachable or task.get("failed_when") is False)


def test_nothing_is_swallowed() -> None:
    """Stricter than ansible-lint, which allows it where the result is registered."""
    listed = list(every_task())
    pairs = pairwise([*listed, ("", {})])
    assert not [place for (place, task), (_, following) in pairs if swallowing(task, following)]


def test_another_node_that_is_not_reached_ends_no_node_that_asks_it() -> None:
    others = [(place, task) for place, task in every_task() if task.get("delegate_to", "localhost") != "localhost"]
    asking = [(place, task) for place, task in others if "roles/" in place and "ansible.builtin.set_fact" not in task]
    assert asking
    assert not [place for place, task in asking if not task.get("ignore_unreachable")]


CHANGED = re.compile(r"\bis (?:not )?changed\b|\.(?:library_)?changed\b|'(?:library_)?changed'|\.written\b")
# Each task that reads what this run has changed, with the reason why a run that was cut off loses nothing.
DECIDED = {
    # Asked in check mode, a job says whether there is work, whoever left it.
    "install | Say what is to be measured here, and whether it is": "state against state",
    # In check mode nothing was written that could be asked.
    "convert | Ask whether it is done": "check mode",
    "habana | Ensure the runtime's package is installed": "check mode",
    "settle | Ensure our unit runs now and at boot": "check mode",
    # An address that is wrong is said early; whoever needs a package has the index read.
    "vendor_source | Read the package index again": "read again where a package is needed and not there",
    "habana | Ensure apt has read it where a package of it is needed (Debian, Ubuntu)": "spares a second reading",
    # The page is made again where it is missing, and who is held back is said by every run.
    "End the role where there is nothing to write or to say": "beside what is held back, warnings and the page",
}
# What a role's variable has to read as well, where it reads what this run has changed: only check mode needs it, or it
# is one of several reasons to check again, and the others are what engine, kernel, systemd and container report.
ALONE = r"^{{ ansible_check_mode\s+and\b"
BESIDE: Mapping[str, Sequence[tuple[str, ...]]] = {
    "container_runtime": [("unit_settled", "proved", "answers", "apply")],
    "host_tuning": [(ALONE,), ("reload_needed", "unit_settled", "document_kept")],
    "vllm_service": [(ALONE,), (r"\.settled", r"\.current", r"\.outdated")],
}


def expressions(node: Any, whose: str = "") -> Iterator[tuple[str, str]]:
    """(task or variable, text) of all that may decide something: conditions, variables, facts, loops, arguments.

    What a task is called, and what it reports as changed, decides nothing.
    """
    if isinstance(node, list):
        for item in node:
            yield from expressions(item, item.get("name", whose) if isinstance(item, dict) else whose)
    elif isinstance(node, dict):
        for key, value in node.items():
            if key not in ("name", "changed_when"):
                yield from expressions(value, whose or key)
    elif isinstance(node, str):
        yield whose, node


def deciding(path: Path) -> dict[str, str]:
    """Who reads what this run has changed, with the text that does."""
    return {whose: text for whose, text in expressions(load(path)) if CHANGED.search(text)}


def test_what_a_run_has_changed_decides_nothing() -> None:
    """What a run that was cut off has changed, the next one does not change."""
    files = [*TASK_FILES, ROOT / "site.yml", *ROOT.glob("playbooks/**/*.yml")]
    handlers = [name_of(path) for path in files if path.parent.name == "handlers"]
    notifying = [
        f"{name_of(path)}: {task.get('name')} notifies"
        for path in files
        for task in tasks(load(path))
        if "notify" in task
    ]
    found = {f"{name_of(path)}: {whose}": whose for path in files for whose in deciding(path)}
    unknown = [f"{place} reads what the run changed" for place, whose in found.items() if whose not in DECIDED]
    assert not handlers + notifying + unknown
    # Who is allowed to read it does.
    assert {*found.values()} == DECIDED.keys()


def test_what_a_run_has_changed_is_never_all_that_a_variable_reads() -> None:
    read: dict[str, list[str]] = {}
    for role in ROLES:
        for path in (role / "vars/main.yml", role / "defaults/main.yml"):
            for text in deciding(path).values() if path.exists() else ():
                read.setdefault(role.name, []).append(text)
    found = {
        role: sorted(
            beside for beside in BESIDE.get(role, ()) for text in texts if all(re.search(word, text) for word in beside)
        )
        for role, texts in read.items()
    }
    assert found == {role: sorted(beside) for role, beside in BESIDE.items()}
    assert {role: len(texts) for role, texts in read.items()} == {role: len(each) for role, each in BESIDE.items()}


@pytest.mark.parametrize(
    ("task", "decides"),
    [
        ("when: written is changed", True),
        ("when: [a, not written.changed]", True),
        ("vars: {late: '{{ written.written | length > 0 }}'}", True),
        ("ansible.builtin.set_fact: {late: \"{{ written['changed'] }}\"}", True),
        ("until: written.library_changed", True),
        ("loop: '{{ written.written }}'", True),
        ("block: [{name: other, when: written is not changed}]", True),
        ("changed_when: written.changed", False),
        ("when: written.unchanged", False),
    ],
)
def test_whoever_decides_by_it_would_be_found(tmp_path: Path, task: str, decides: bool) -> None:
    play = tmp_path / "play.yml"
    play.write_text(f"- hosts: all\n  tasks:\n    - name: this\n      {task}\n")
    assert bool(deciding(play)) is decides


IMPORT, INCLUDE = "ansible.builtin.import_tasks", "ansible.builtin.include_tasks"


def entered(task: Mapping[str, Any]) -> str | None:
    """The file of tasks that a task imports or includes."""
    given = task.get(IMPORT, task.get(INCLUDE))
    name: str | None = given["file"] if isinstance(given, dict) else given
    return name


def test_no_skipped_import_overwrites_a_published_result() -> None:
    """All tasks of an import with a condition are skipped, and a skipped task registers that it was skipped."""
    wrong = []
    for role in ROLES:
        every = [(file, task) for file in sorted(role.glob("tasks/*.yml")) for task in tasks(load(file))]
        # Where each result is registered, if it is not the role's own.
        where = [(one["register"], file.name) for file, one in every if not one.get("register", "__").startswith("__")]
        for file, task in every:
            if IMPORT not in task or "when" not in task:
                continue
            name = entered(task)
            inside = {result for result, other in where if other == name}
            outside = {result for result, other in where if other != name}
            again = any(entered(one) == name for _, one in every if one is not task)
            if inside & outside or (inside and again):
                wrong.append(f"{name_of(file)}: {task['name']}")
    assert not wrong


def test_every_argument_of_a_program_is_text() -> None:
    """YAML reads a word that ends with a colon as a mapping; the program gets that as its text."""
    assert not [
        f"{place}: {argument}"
        for place, task in every_task()
        for module in task.values()
        if isinstance(module, dict) and isinstance(module.get("argv"), list)
        for argument in module["argv"]
        if not isinstance(argument, str | int)
    ]


def test_nobody_sleeps() -> None:
    files = {name_of(path) for path in TASK_FILES}
    assert not [
        place
        for place, task in every_task()
        if place.partition(":")[0] in files and any(key.endswith((".pause", ".wait_for_connection")) for key in task)
    ]


def test_tasks_in_blocks_are_read_too() -> None:
    found = list(tasks([{"block": [{"name": "a", "ignore_errors": True}], "rescue": [{"name": "b"}]}]))
    assert [(task["name"], swallowing(task, {})) for task in found] == [("a", True), ("b", False)]


def test_only_builtin_modules_and_our_own_are_used() -> None:
    """A module of a collection needs that collection in requirements.yml, with its version."""
    assert not [
        f"{place} uses {key}"
        for place, task in every_task()
        for key in task
        if key.count(".") > 1 and not key.startswith("ansible.builtin.")
    ]


# What may carry a secret: passwords and tokens themselves, and addresses of services, which may hold an account.
SECRETIVE = re.compile(r"prox(y|ies)\b|index\b|endpoint|repositor|token|password|api_keys?\b|\bkey\b", re.IGNORECASE)
NO_SECRETS = {
    "benchmark_input_tokens": "a number",
    "benchmark_output_tokens": "a number",
    "container_runtime_no_proxy": "hosts",
    "container_runtime_habana_suite": "a word of the distribution",
    "container_runtime_habana_key_checksum": "a checksum",
    "container_runtime_habana_key_fingerprint": "a fingerprint",
    "container_runtime_rhel_key_fingerprint": "a fingerprint",
    "gaudi_driver_suite": "a word of the distribution",
    "gaudi_no_proxy": "hosts",
    "fabric_check_demo": "an address without an account; one that has any is refused",
    "gaudi_driver_key_fingerprint": "a fingerprint",
    "model_weights_commits": "commits",
    "model_weights_repository": "owner and name on a hub",
    "model_weights_repositories": "owner and name on a hub",
    "model_weights_revision": "a commit",
    "model_weights_sources[].user": "a name",
    "model_weights_sources[].token_over_http": "true or false",
    "model_weights_sources[].xet": "true or false",
    "gaudi_require_pins": "true or false",
    "preflight_habana_path": "a path",
    "serving_image_apt_key": "a public key",
    "serving_image_no_proxy": "hosts",
    "serving_image_pins": "commits; accounts are an option of their own",
    "site_access_no_proxy": "hosts",
    "site_access_repository": "an address without its account",
    "vllm_service_answer_tokens": "a number",
}


def secretive(options: dict[str, Any], above: str = "") -> dict[str, dict[str, Any]]:
    """Options whose name or description speaks of something that may be a secret, those of list entries too."""
    found: dict[str, dict[str, Any]] = {}
    for name, option in options.items():
        if "options" in option:
            found |= secretive(option["options"], f"{above}{name}[].")
        elif SECRETIVE.search(f"{name.replace('_', ' ')} {name} {option['description']}"):
            found[f"{above}{name}"] = option
    return found


def test_what_may_carry_a_secret_is_marked() -> None:
    """The preflight showed the address of a package index with its password."""
    found = {name: option for role in ROLES for name, option in secretive(specified(role)).items()}
    assert sorted(name for name in found if not found[name].get("no_log")) == sorted(NO_SECRETS)


def test_weights_are_brought_as_the_option_says_and_as_no_other_role_found() -> None:
    """weights_supply_bring was documented, and fetches read the result of the role preflight all the same."""
    files = [*(ROOT / "roles/weights_supply/tasks").glob("*.yml"), ROOT / "roles/weights_supply/vars/main.yml"]
    assert [path.name for path in files if "preflight_node" in path.read_text(encoding="utf-8")] == []


def test_the_engines_repository_on_rhel_is_judged_where_the_engine_comes_from() -> None:
    default = load(ROOT / "roles" / "container_runtime/defaults/main.yml")["container_runtime_rhel_repository"]
    assert load(ROOT / "roles" / "preflight/defaults/main.yml")["preflight_rhel_repository"] == default
    for name in ("site.yml", "playbooks/serve.yml"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert f"container_runtime_rhel_repository | default('{default}')" in text
