"""Output that is parsed comes from programs that print untranslated messages."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.gaudi.node.module import NodeModule
from ansible.module_utils.testing import patch_module_args

from tests.unit.preflight.test_contracts import load
from tests.unit.sources import nodes, tree

ROOT = Path(__file__).resolve().parents[3]
# Their messages are translated, or contain the C library's. In these two roles each command is one of them.
TRANSLATED = {"apt-get", "apt-cache", "apt-config", "dpkg", "dkms", "modprobe", "rpm", "dnf", "ip", "update-initramfs"}
PACKAGES = ("gaudi_driver", "container_runtime")
# Docker prints no translations; of these two only the paths are read, or nothing.
OWN_CLIENT = ("docker", "find", "rmdir")


def test_run_command_on_a_german_node_prints_english(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANG", "de_DE.UTF-8")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    with patch_module_args({}):
        module = NodeModule(argument_spec={})
    assert "LC_ALL=C\n" in module.run_command(["env"])[1]


def test_a_path_without_sbin_and_a_narrow_umask_change_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "/usr/local/bin:/usr/bin:/bin")
    before = os.umask(0o077)
    try:
        with patch_module_args({}):
            module = NodeModule(argument_spec={})
        assert module.connection_path == "/usr/local/bin:/usr/bin:/bin"
        path = module.run_command(["sh", "-c", "echo $PATH"])[1].strip()
        assert path == "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
        (tmp_path / "etc").mkdir(mode=0o755)
        (tmp_path / "etc/source").write_text("x")
        module.atomic_move(str(tmp_path / "etc/source"), str(tmp_path / "etc/new"))
    finally:
        os.umask(before)
    assert (tmp_path / "etc").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "etc/new").stat().st_mode & 0o777 == 0o644


def test_every_module_uses_it() -> None:
    """Names of types may be Ansible's; only a call makes a module."""
    calling = {
        path.name for path in (ROOT / "library").glob("*.py") for name, _ in named(path) if name == "AnsibleModule"
    }
    assert not calling


def test_programs_that_modules_start_themselves_get_the_environment() -> None:
    files = [*(ROOT / "library").glob("*.py"), *(ROOT / "module_utils/gaudi/node").glob("*.py")]
    assert [
        path.name for path in files for name, call in named(path) if is_subprocess(name) and not has_env(call)
    ] == []


def test_only_one_place_sets_the_locale_of_commands() -> None:
    files = [*(ROOT / "library").glob("*.py"), *(ROOT / "module_utils").rglob("*.py")]
    own = [path.name for path in files if '"LC_ALL"' in path.read_text(encoding="utf-8")]
    assert own == ["printable.py"]


@pytest.mark.parametrize("path", ["node_job/files/gaudi_job.py", "vllm_service/files/gaudi_supervisor/engine.py"])
def test_what_starts_programs_on_nodes_sets_the_locale(path: str) -> None:
    text = (ROOT / "roles" / path).read_text(encoding="utf-8")
    assert '"LC_ALL": "C"' in text


def test_commands_of_roles_whose_messages_are_translated_set_the_locale() -> None:
    files = sorted((ROOT / "roles").glob("*/tasks/*.yml"))
    commands = [(path, task) for path in files for task in tasks(load(path))]
    assert [
        f"{path.relative_to(ROOT)}: {task['name']}"
        for path, task in commands
        if may_be_translated(path, task) and task.get("environment", {}).get("LC_ALL") != "C"
    ] == []


def may_be_translated(path: Path, task: dict[str, Any]) -> bool:
    argv = task["ansible.builtin.command"].get("argv", [])
    if path.relative_to(ROOT).parts[1] in PACKAGES:
        first = argv if isinstance(argv, str) else str(argv[0])
        return not first.removeprefix("{{ ['").startswith(OWN_CLIENT)
    return isinstance(argv, list) and argv[0] in TRANSLATED


def tasks(found: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for task in found or []:
        if "ansible.builtin.command" in task:
            yield task
        for part in ("block", "rescue", "always"):
            yield from tasks(task.get(part, []))


def named(path: Path) -> Iterator[tuple[str, ast.Call]]:
    for node in nodes(tree(path)):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def is_subprocess(name: str) -> bool:
    return name in {f"subprocess.{how}" for how in ("run", "Popen", "call", "check_call", "check_output")}


def has_env(call: ast.Call) -> bool:
    return any(keyword.arg == "env" for keyword in call.keywords)
