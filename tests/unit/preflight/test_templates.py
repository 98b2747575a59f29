"""The files the roles write, rendered as Ansible renders them."""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from tests.unit.preflight.test_contracts import load, tasks

ROLES = Path(__file__).resolve().parents[3] / "roles"


def trusted(value: Any) -> Any:
    """Values as they come from a role's own files, which Ansible trusts as templates."""
    if isinstance(value, dict):
        return {key: trusted(each) for key, each in value.items()}
    if isinstance(value, list):
        return [trusted(each) for each in value]
    return trust_as_template(value) if isinstance(value, str) else value


@functools.cache
def own(role: str) -> Mapping[str, Any]:
    """The role's own defaults and constants, read once."""
    files = [path for part in ("defaults", "vars") if (path := ROLES / role / part / "main.yml").exists()]
    return {name: value for file in files for name, value in trusted(load(file) or {}).items()}


def evaluate(role: str, source: Any, **given: Any) -> Any:
    """Evaluate an expression, or a structure of them, with the role's own defaults and constants beneath the given."""
    own_path = str(ROLES / role)
    variables = {"ansible_managed": "Ansible managed", "ansible_search_path": [own_path], "role_path": own_path}
    templar = Templar(loader=DataLoader(), variables={**variables, **own(role), **given})
    return templar.template(trusted(source))


def render(role: str, template: str, **given: Any) -> str:
    """Render a template of the role."""
    return str(evaluate(role, (ROLES / role / "templates" / template).read_text(encoding="utf-8"), **given))


@functools.cache
def files_of(role: str) -> Mapping[str, list[dict[str, Any]]]:
    """The tasks of each file of a role, those in blocks among them."""
    return {path.stem: list(tasks(load(path))) for path in sorted((ROLES / role / "tasks").glob("*.yml"))}


def task_of(role: str, file: str, words: str) -> dict[str, Any]:
    """The one task of a role's file that uses a module, or whose name has these words."""
    keys = (words, f"ansible.builtin.{words}")
    found = [task for task in files_of(role)[file] if any(key in task for key in keys) or words in task.get("name", "")]
    assert len(found) == 1, f"{len(found)} tasks of {role}/tasks/{file}.yml are called or use {words!r}"
    return found[0]


def elsewhere(role: str, path: str, other: Path) -> dict[str, Any]:
    """The role's own defaults and constants, with another folder in the place of one of its folders on a node."""
    return {name: str(other) if value == path else value for name, value in own(role).items()}


def fact_of(role: str, file: str, words: str) -> str:
    """The name under which a task keeps the one thing that later tasks know by it."""
    (name,) = task_of(role, file, words)["ansible.builtin.set_fact"]
    return str(name)


def runs(role: str, task: Mapping[str, Any], **given: Any) -> bool:
    """Whether the conditions of a task hold."""
    conditions = task.get("when", True)
    every = conditions if isinstance(conditions, list) else [conditions]
    return all(within(role, task, f"{{{{ {condition} }}}}", **given) for condition in every)


def within(role: str, task: Mapping[str, Any], source: str, **given: Any) -> Any:
    """Evaluate an expression as the task would, with its own variables."""
    return evaluate(role, source, **trusted(task.get("vars", {})), **given)


def results(role: str, **answers: Any) -> dict[str, Any]:
    """What modules have answered, by the names under which the role's tasks register it."""
    registering = [task for each in files_of(role).values() for task in each if "register" in task]
    names = {module: (module, f"ansible.builtin.{module}") for module in answers}
    return {
        task["register"]: answer
        for module, answer in answers.items()
        for task in registering
        if any(name in task for name in names[module])
    }


def test_the_engines_proxies_are_in_a_file_that_only_root_reads() -> None:
    """Any user of the node can read what stands in Environment= of a unit."""
    given = {"container_runtime_https_proxy": "http://user:p%40ss@proxy.example:3128"}
    text = render("container_runtime", "proxy.conf.j2", **given)
    assert "p%40ss" not in text
    assert text.splitlines()[2:] == [
        "[Service]",
        "EnvironmentFile=/etc/systemd/system/docker.service.d/gaudi-serving-proxy.env",
    ]
    # The engine asks itself, and servers of the node, without the proxy.
    known = results("container_runtime", container_runtime_info={"origin": {}})
    variables = render("container_runtime", "proxy.env.j2", **known, **given)
    (line,) = (line for line in variables.splitlines() if line.startswith("NO_PROXY="))
    assert {"localhost", "127.0.0.1"} <= set(line.partition("=")[2].strip('"').split(","))


@pytest.mark.parametrize(("suite", "written"), [("", "jammy"), ("noble", "noble")])
def test_the_vendors_index_is_of_the_systems_suite_unless_told(suite: str, written: str) -> None:
    text = render(
        "container_runtime",
        "habana.sources.j2",
        ansible_facts={"os_family": "Debian", "distribution_release": "jammy"},
        container_runtime_habana_repository="https://vault.habana.ai/artifactory/debian",
        container_runtime_habana_suite=suite,
    )
    assert text.splitlines()[1:] == [
        "Types: deb",
        "URIs: https://vault.habana.ai/artifactory/debian",
        f"Suites: {written}",
        "Components: main",
        "Architectures: amd64",
        "Signed-By: /usr/share/keyrings/habana-artifactory.asc",
    ]


def test_credentials_are_for_the_registry_of_the_image() -> None:
    account = {"serving_image_username": "puller", "serving_image_password": 'a:"b"{{ 1 }}'}
    written = json.loads(
        render(
            "serving_image",
            "config.json.j2",
            gaudi_image_registry="registry.example:5000",
            **account,
        )
    )
    (registry, entry), *others = written["auths"].items()
    assert (registry, others) == ("registry.example:5000", [])
    assert base64.b64decode(entry["auth"]).decode() == 'puller:a:"b"{{ 1 }}'


def test_the_preflight_hands_the_catalogue_to_its_module() -> None:
    """As its task reads it, with whether the role host_tuning follows."""
    given = task_of("preflight", "read", "gaudi_preflight")["gaudi_preflight"]

    def value(option: str, **known: Any) -> Any:
        options = {"preflight_host_tuning": False, "preflight_allow_mismatch": [], **known}
        return evaluate("preflight", given[option], **results("preflight", role_options={"options": options}))

    assert [check["name"] for check in value("levels")["checks"]][:3] == ["system", "kernel", "kernel-untested"]
    assert [rule["id"] for rule in value("kernel_rules")] == ["cpu", "iommu", "iommu"]
    assert (value("tunes"), value("tunes", preflight_host_tuning=True)) == (False, True)
    assert value("allow_mismatch", preflight_allow_mismatch=["driver"]) == ["driver"]


REFUSED_PLAN = {"instance": "chat", "refused": "chat needs 8 cards.", "refused_id": "not_enough_cards"}


@pytest.mark.parametrize(
    ("role", "file", "module", "key", "given"),
    [
        ("vllm_service", "preflight", "assert", "fail_msg", {"vllm_service_plan": REFUSED_PLAN}),
        ("weights_supply", "again", "assert", "fail_msg", {"preflight_serving": {"plans": [REFUSED_PLAN, {}]}}),
        ("serving_image", "publish", "debug", "msg", {"serving_image_refused": {"chat": REFUSED_PLAN}}),
    ],
)
def test_the_sentence_of_a_refused_plan_ends_with_its_id(
    role: str, file: str, module: str, key: str, given: dict[str, Any]
) -> None:
    message = task_of(role, file, module)[f"ansible.builtin.{module}"][key]
    assert evaluate(role, message, **given).strip().endswith("chat needs 8 cards. [not_enough_cards]")
