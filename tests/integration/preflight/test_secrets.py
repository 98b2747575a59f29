"""No task of a role or playbook shows what an option with ``no_log`` holds: not in an environment, a difference, its
arguments, or a message.

Where a value goes is read from the expressions themselves, so that a new task is judged without being listed here.
"""

from __future__ import annotations

import functools
import importlib
import json
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import jinja2
import pytest
from jinja2 import nodes

from simulator.playbook import run
from tests.unit.preflight.test_contracts import BLOCKS, ROLES, ROOT, TASK_FILES, load, specified
from tests.unit.preflight.test_templates import elsewhere

# What of a value is secret: nothing, all of it, or of a mapping (or a list of them) what lies under some keys.
Part = frozenset[str | int]
NOTHING: Part = frozenset()
ALL: Part = frozenset({"*"})

# Filters whose result holds no account, and tests for a value that do not return it.
CLEAN = {
    *("length", "bool", "int", "ca_bundle", "without_login", "driver_trouble", "pip_trouble"),
    *("api_keys_digests", "plan_refused"),
}
# Filters whose result is secret in part.
PARTLY: Mapping[str, Part] = {
    "dnf_access": frozenset({"password", "proxy_password"}),
    "hub_routes": frozenset({"proxy"}),
    "login": frozenset({1}),
    "image_addresses": frozenset({"secret"}),
}
# Filters that pass their input on; their arguments only choose.
CHOOSING = {"selectattr", "rejectattr", "select", "reject", "list", "first", "last", "sort", "unique", "checked"}
# Filters that put the values of a mapping under other keys.
REARRANGING = {"dict2items", "items2dict"}
# Of modules of Ansible, the arguments that only a difference shows.
HIDDEN = {"ansible.builtin.copy": {"content"}, "ansible.builtin.yum_repository": {"password", "proxy_password"}}
# Keywords of a task whose value is judged, never printed.
UNSEEN = {"when", "changed_when", "failed_when", "until", "that", "tags", "register", "notify"}
INCLUDES = {f"ansible.builtin.{verb}_{what}" for verb in ("include", "import") for what in ("tasks", "role")}
KEYWORDS = UNSEEN | {
    *("name", "vars", "environment", "loop", "loop_control", "no_log", "diff", "check_mode", "become", "become_user"),
    *("delegate_to", "run_once", "async", "poll", "retries", "delay", "any_errors_fatal", "ignore_errors", "args"),
    *("ignore_unreachable", "throttle", "become_flags", "delegate_facts", "timeout", "connection", "hosts", "roles"),
    *(
        "gather_facts",
        "serial",
        "strategy",
        "max_fail_percentage",
        "order",
        "vars_files",
        "module_defaults",
        "become_method",
    ),
    *("gather_subset", "import_playbook", "port", "remote_user", *BLOCKS),
}
ENVIRONMENT = jinja2.Environment(autoescape=True)
PLAYBOOKS = sorted([ROOT / "site.yml", *ROOT.glob("playbooks/**/*.yml")])


def below(part: Part, key: str | int | None) -> Part:
    """Return what is secret of an element; None for one whose key is not known."""
    if part == ALL or not part:
        return part
    if key is None or (isinstance(key, int) and not any(isinstance(each, int) for each in part)):
        return part
    return ALL if key in part else NOTHING


def joined(parts: Iterator[Part]) -> Part:
    found: Part = frozenset().union(*parts)
    return ALL if "*" in found else found


@dataclass
class Secrets:
    """Which variables of the project hold a secret, followed from the options through all roles and playbooks."""

    names: dict[str, Part] = field(default_factory=dict)

    def of(self, value: Any, role: Path | None = None, bound: Mapping[str, Part] | None = None) -> Part:
        """Return what is secret of a value as YAML has it."""
        if isinstance(value, Mapping):
            return frozenset(str(key) for key, each in value.items() if self.of(each, role, bound))
        if isinstance(value, list):
            return joined(self.of(each, role, bound) for each in value)
        if not isinstance(value, str) or ("{{" not in value and "{%" not in value):
            return NOTHING
        outputs = list(self._outputs(ENVIRONMENT.parse(value.strip()).body, role, dict(bound or {})))
        # Text around an expression makes one text of it.
        text = len(outputs) != 1
        return joined(ALL if part and text else part for part in outputs)

    def _outputs(self, body: list[nodes.Node], role: Path | None, bound: dict[str, Part]) -> Iterator[Part]:
        for node in body:
            if isinstance(node, nodes.Output):
                for each in node.nodes:
                    if not isinstance(each, nodes.TemplateData) or each.data.strip():
                        yield self._part(each, role, bound)
            elif isinstance(node, nodes.For):
                loop = below(self._part(node.iter, role, bound), None)
                names = {each.name: loop for each in node.target.find_all(nodes.Name)}
                names |= {node.target.name: loop} if isinstance(node.target, nodes.Name) else {}
                yield from self._outputs([*node.body, *node.else_], role, {**bound, **names})
            elif isinstance(node, nodes.If):
                yield from self._outputs([*node.body, *node.elif_, *node.else_], role, bound)
            elif isinstance(node, nodes.Assign) and isinstance(node.target, nodes.Name):
                bound[node.target.name] = self._part(node.node, role, bound)

    def _part(self, node: nodes.Node | None, role: Path | None, bound: Mapping[str, Part]) -> Part:
        part = functools.partial(self._part, role=role, bound=bound)
        if isinstance(node, nodes.Name):
            return bound.get(node.name, self.names.get(node.name, NOTHING))
        if isinstance(node, (nodes.Compare, nodes.Test, nodes.Not)) or node is None:
            return NOTHING
        if isinstance(node, nodes.CondExpr):
            return joined(part(each) for each in (node.expr1, node.expr2))
        if isinstance(node, nodes.Getattr):
            return below(part(node.node), node.attr)
        if isinstance(node, nodes.Getitem):
            return below(part(node.node), node.arg.value if isinstance(node.arg, nodes.Const) else None)
        if isinstance(node, nodes.Dict):
            held = [(pair.key, part(pair.value)) for pair in node.items]
            if all(isinstance(key, nodes.Const) for key, _ in held):
                return frozenset(cast(nodes.Const, key).value for key, each in held if each)
        if isinstance(node, nodes.Filter):
            return self._filtered(node, part)
        if isinstance(node, nodes.Call) and isinstance(node.node, nodes.Getattr) and part(node.node.node):
            return ALL
        if isinstance(node, nodes.Call) and isinstance(node.node, nodes.Name) and node.node.name in ("lookup", "query"):
            said = [each.value for each in node.args if isinstance(each, nodes.Const)]
            if len(said) > 1 and said[0] == "ansible.builtin.template" and role is not None:
                return ALL if self.template(role, said[1]) else NOTHING
        return joined(part(each) for each in node.iter_child_nodes())

    def _filtered(self, node: nodes.Filter, part: Any) -> Part:
        name, arguments = node.name, [each.value for each in node.args if isinstance(each, nodes.Const)]
        given: Part = part(node.node)
        if name == "map":
            attribute = next((each.value for each in node.kwargs if each.key == "attribute"), None)
            if isinstance(attribute, nodes.Const):
                return below(given, str(attribute.value).partition(".")[0])
            name = arguments[0] if arguments else name
        if name in CLEAN:
            return NOTHING
        whole = joined(part(each) for each in (node.node, *node.args, *(each.value for each in node.kwargs)))
        if name in PARTLY:
            return PARTLY[name] if whole else NOTHING
        if name == "urlsplit" and arguments == ["hostname"]:
            return NOTHING
        if name in REARRANGING:
            return ALL if whole else NOTHING
        return given if name in CHOOSING else whole

    def template(self, role: Path, name: str) -> bool:
        """Return whether a template of a role writes a secret."""
        path = role / "templates" / name
        return path.is_file() and bool(self.of(path.read_text(encoding="utf-8"), role))

    def learn(self, name: str, value: Any, role: Path | None) -> bool:
        """Note what is secret of a variable; returns whether that is new."""
        part = joined(iter((self.names.get(name, NOTHING), self.of(value, role))))
        new = part != self.names.get(name, NOTHING)
        self.names[name] = part
        return new


def secret_of(option: Mapping[str, Any]) -> Part:
    """Return what is secret of an option, as its role specifies it."""
    if option.get("no_log"):
        return ALL
    return frozenset(name for name, each in option.get("options", {}).items() if secret_of(each))


def files() -> Iterator[tuple[Path, Path | None]]:
    """Every file of tasks, with the role that it is of."""
    for path in TASK_FILES:
        yield path, ROOT / Path(*path.relative_to(ROOT).parts[:2])
    for path in PLAYBOOKS:
        yield path, None


def walk(node: Any, above: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every task, block and play of a list, with the keywords that it has from its block."""
    for item in node if isinstance(node, list) else []:
        if isinstance(item, dict):
            inherited = {key: item.get(key, above.get(key)) for key in ("no_log", "diff")}
            yield {**item, **inherited}
            for key in BLOCKS:
                yield from walk(item.get(key), inherited)


def known() -> Secrets:
    """Follow the options with ``no_log`` until no further variable holds one."""
    found = Secrets()
    for role in ROLES:
        for name, option in specified(role).items():
            if part := secret_of(option):
                found.names[name] = part
    variables: list[tuple[str, Any, Path | None]] = []
    for role in ROLES:
        for file in ("defaults/main.yml", "vars/main.yml"):
            if (role / file).exists():
                variables += [(name, value, role) for name, value in (load(role / file) or {}).items()]
    for path, whose in files():
        for task in walk(load(path), {}):
            facts = {
                key: value for key, value in task.get("ansible.builtin.set_fact", {}).items() if key != "cacheable"
            }
            given = {**(task.get("vars") or {}), **facts}
            given |= {
                name: value
                for each in task.get("roles") or []
                if isinstance(each, dict)
                for name, value in {**each, **each.get("vars", {})}.items()
            }
            variables += [(name, value, whose) for name, value in given.items()]
    while sum(found.learn(*variable) for variable in variables):
        pass
    return found


def hidden(part: Part, options: Mapping[str, Any]) -> bool:
    """Return whether a module hides all that is secret of its arguments, by its ARGUMENT_SPEC."""
    return all(key in options and bool(options[str(key)].get("no_log")) for key in part)


def shown(secrets: Secrets, task: Mapping[str, Any], role: Path | None) -> Iterator[str]:
    """Say where a task shows a secret."""
    applied = [each.get("apply", {}) for key, each in task.items() if key in INCLUDES and isinstance(each, dict)]
    for environment in [task.get("environment"), *(each.get("environment") for each in applied)]:
        if secrets.of(environment, role):
            yield "environment"
    if secrets.of(task.get("name"), role):
        yield "name"
    if task.get("no_log") is True:
        return
    if secrets.of(task.get("loop"), role):
        yield "loop"
    bound = {"item": below(secrets.of(task.get("loop"), role), None)}
    for module, given in task.items():
        if module in KEYWORDS or module in INCLUDES:
            continue
        arguments = (
            {key: each for key, each in given.items() if key not in UNSEEN} if isinstance(given, dict) else given
        )
        if module == "ansible.builtin.template":
            if role and secrets.template(role, str(given["src"])) and task.get("diff") is not False:
                yield "difference"
        elif (ROOT / "library" / f"{module}.py").is_file() and isinstance(arguments, dict):
            yield from shown_by_ours(secrets, module, arguments, role, bound)
        else:
            part = secrets.of(arguments, role, bound)
            if part & HIDDEN.get(module, set()) and task.get("diff") is not False:
                yield "difference"
            part -= HIDDEN.get(module, set())
            yield from (f"{module}: {key}" for key in sorted(map(str, part)))


def shown_by_ours(
    secrets: Secrets, module: str, arguments: Mapping[str, Any], role: Path | None, bound: Mapping[str, Part]
) -> Iterator[str]:
    options: Mapping[str, Any] = getattr(importlib.import_module(f"library.{module}"), "ARGUMENT_SPEC", {})
    for key, value in arguments.items():
        part = secrets.of(value, role, bound)
        option = options.get(key, {})
        if part and not option.get("no_log") and not (part != ALL and hidden(part, option.get("options", {}))):
            yield f"{module}: {key}"


def offenders(secrets: Secrets) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}: {task.get('name', '(play)')}: {where}"
        for path, role in files()
        for task in walk(load(path), {})
        for where in shown(secrets, task, role)
    ]


@pytest.fixture(scope="module")
def secrets() -> Secrets:
    return known()


def test_no_task_shows_a_secret(secrets: Secrets) -> None:
    found = offenders(secrets)
    assert not found, "These tasks show a secret:\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("task", "found"),
    [
        ("ansible.builtin.command: {argv: [pip]}\n  environment: {PIP_INDEX_URL: '{{ given }}'}", ["environment"]),
        ("ansible.builtin.command: {argv: [curl, '-x{{ given }}']}", ["ansible.builtin.command: argv"]),
        ("ansible.builtin.debug: {msg: '{{ derived }}'}", ["ansible.builtin.debug: msg"]),
        ("ansible.builtin.debug: {msg: '{{ kept }}'}", ["ansible.builtin.debug: msg"]),
        ("ansible.builtin.debug: {msg: '{{ sources[0].token }}'}", ["ansible.builtin.debug: msg"]),
        ("ansible.builtin.debug: {msg: \"{{ sources | map(attribute='name') }}\"}", []),
        ("ansible.builtin.debug: {msg: '{{ given | without_login }}'}", []),
        ("ansible.builtin.debug: {msg: \"{{ 'set' if given else 'none' }}\"}", []),
        ("ansible.builtin.debug: {msg: '{{ given }}'}\n  no_log: true", []),
        ("ansible.builtin.get_url: {url: '{{ given }}', dest: /x}", ["ansible.builtin.get_url: url"]),
        ("ansible.builtin.copy: {content: '{{ given }}', dest: /x}", ["difference"]),
        ("ansible.builtin.copy: {content: '{{ given }}', dest: /x}\n  diff: false", []),
        ("ansible.builtin.file: {path: '/x/{{ item.name }}'}\n  loop: '{{ sources }}'", ["loop"]),
        (
            "ansible.builtin.yum_repository: {name: x, baseurl: '{{ given }}'}",
            ["ansible.builtin.yum_repository: baseurl"],
        ),
        ("ansible.builtin.yum_repository: {name: x, password: '{{ given }}'}", ["difference"]),
        ("ansible.builtin.yum_repository: {name: x, password: '{{ given }}'}\n  diff: false", []),
        ("node_files: {files: [{path: /x, content: '{{ given }}'}]}", ["node_files: files"]),
        ("node_files: {files: [{path: /x, secret: '{{ given }}'}]}", []),
        ("node_job: {key: x, environment: {https_proxy: '{{ given }}'}}", ["node_job: environment"]),
        (
            "ansible.builtin.include_tasks: {file: x.yml, apply: {environment: {https_proxy: '{{ given }}'}}}",
            ["environment"],
        ),
        ("block: [{name: inner, ansible.builtin.debug: {msg: '{{ given }}'}}]\n  no_log: true", []),
        (
            "block: [{name: inner, ansible.builtin.debug: {msg: '{{ given }}'}}]\n  environment: {x: '{{ given }}'}",
            ["environment", "ansible.builtin.debug: msg"],
        ),
    ],
)
def test_a_task_that_shows_one_would_be_found(tmp_path: Path, task: str, found: list[str]) -> None:
    (tmp_path / "tasks.yml").write_text(f"- name: this\n  {task}\n")
    some = Secrets({"given": ALL, "sources": frozenset({"token"})})
    some.learn("derived", "{{ given | default('') }}x", None)
    some.learn("kept", "{{ {'a': given} | dict2items }}", None)
    assert [where for each in walk(load(tmp_path / "tasks.yml"), {}) for where in shown(some, each, None)] == found


# What a run leaves behind at its highest verbosity, with differences: its output, and the events that AWX keeps.
# Each secret is another one: Ansible takes one that it knows out of everything.
HIDDEN_WORD = "S3cret"
MIRROR, PROXY = f"https://bob:{HIDDEN_WORD}Index@mirror.example/x", f"http://bob:{HIDDEN_WORD}Proxy@proxy.example:3128"
GIVEN: Mapping[str, Any] = {
    "ansible_facts": {"os_family": "RedHat"},
    "gaudi_weights_root": "/data/models",
    "gaudi_http_proxy": PROXY,
    "gaudi_https_proxy": PROXY,
    "container_runtime_rhel_repository": MIRROR,
    "container_runtime_habana_repository": MIRROR,
    "container_runtime_https_proxy": PROXY,
    "model_weights_python_index": MIRROR,
    "model_weights_directory": "Tiny",
    "model_weights_repository": "acme/Tiny",
    "model_weights_sources": [{"name": "hub", "endpoint": "https://hub.example", "token": f"{HIDDEN_WORD}Token"}],
    "site_access_written": {"environment": {}},
    "serving_image_git_accounts": [
        {"address": "https://git.example", "username": "bob", "password": f"{HIDDEN_WORD}Git"},
    ],
    "serving_image_python_indexes": [MIRROR],
}
# Tasks that need nothing but options and write to the node only what check mode does not.
SHOWN = {
    "container_runtime": [
        "configure | Ensure the engine uses the proxies",
        "engine | Ensure Docker's package index is known (RHEL)",
        "vendor_source | Write the package index (RHEL)",
    ],
    "model_weights": [
        "install | Ensure the hub's library is there in its pinned version",
        "install | Write which index pip asks",
        "request | Write the sources' tokens",
        "request | Write what is wanted",
    ],
    "serving_image": ["build | Write where a build gets things from"],
    "site_access": ["Write how programs reach what is outside the site"],
}


def play_of(role: str, folder: Path) -> Path:
    """Write a playbook with these tasks of a role, each on its own, in check mode."""
    own = elsewhere(role, "/etc/gaudi-serving/weights", folder)
    variables: dict[str, Any] = {"ansible_managed": "Ansible managed", **own, **GIVEN}
    every = [task for path in TASK_FILES if path.parts[-3] == role for task in walk(load(path), {})]
    blocks = []
    for name in SHOWN[role]:
        (task,) = [{k: v for k, v in each.items() if k != "when"} for each in every if each.get("name") == name]
        after = [{"ansible.builtin.debug": {"msg": "It failed."}}]
        blocks.append({"block": [{key: value for key, value in task.items() if value is not None}], "rescue": after})
    folder.mkdir()
    (folder / "templates").symlink_to(ROOT / "roles" / role / "templates")
    play = {"hosts": "localhost", "gather_facts": False, "check_mode": True, "vars": variables, "tasks": blocks}
    (folder / "play.yml").write_text(json.dumps([play]))
    return folder / "play.yml"


def test_neither_output_nor_events_have_a_secret(tmp_path: Path) -> None:
    """A password of an index was in the arguments of a shell, in a difference and in events of AWX."""
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"hosts": {"localhost": here}}}))
    plays = [{"import_playbook": str(play_of(role, tmp_path / role))} for role in SHOWN]
    (tmp_path / "site.yml").write_text(json.dumps(plays))
    events: list[Mapping[str, Any]] = []
    outcome = run(
        str(tmp_path / "site.yml"),
        tmp_path / "runner",
        lambda _, event: events.append(event),
        time.monotonic,
        inventory=tmp_path / "hosts.json",
        ANSIBLE_VERBOSITY="3",
        ANSIBLE_DIFF_ALWAYS="true",
    )
    output = outcome.output.read_text(encoding="utf-8")
    # Each began, and a module ran for it: a variable that is missing would prove nothing.
    ended = [
        event["event_data"]
        for event in events
        if event["event"] in ("runner_on_ok", "runner_on_failed", "runner_on_skipped")
    ]
    asked = {str(each["task"]): json.dumps(each.get("res")) for each in ended}
    assert set(asked) >= {name for names in SHOWN.values() for name in names}
    assert [result for result in asked.values() if "undefined" in result.lower()] == []
    shown_in = [name for name, result in asked.items() if HIDDEN_WORD in result]
    lines = [line for line in output.splitlines() if HIDDEN_WORD in line]
    assert (shown_in, lines) == ([], [])
    assert HIDDEN_WORD not in json.dumps(events)
