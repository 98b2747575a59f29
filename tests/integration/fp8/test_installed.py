"""What the role installs: every file, once, and nothing else is needed."""

from __future__ import annotations

import ast
import graphlib
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.fp8 import checkpoints
from tests.integration.fp8_dynamic import test_fp8_dynamic as bfloat16
from tests.unit.preflight.test_templates import evaluate, own, task_of

ROLES = Path(__file__).parents[3] / "roles"
FILES = ROLES / "fp8_weights" / "files"
PROGRAMS = "/usr/local/lib/gaudi-serving"


def written() -> list[dict[str, Any]]:
    """What the role has the module write."""
    return list(evaluate("fp8_weights", task_of("fp8_weights", "install", "node_files")["node_files"]["files"]))


def tasks(path: Path) -> Iterator[dict[str, Any]]:
    """Tasks of a file, those in blocks included."""
    waiting = list(yaml.safe_load(path.read_text()) or [])
    for task in waiting:
        yield task
        waiting += [inner for part in ("block", "rescue", "always") for inner in task.get(part, [])]


def installing() -> Iterator[str]:
    """Files of tasks, in all roles, that write the converters to a node, by their names or by the role's variables."""
    names = {"fp8_convert", "fp8_dynamic", "gaudi_fp8"}
    for _ in own("fp8_weights"):
        names |= {name for name, value in own("fp8_weights").items() if any(each in str(value) for each in names)}
    for path in sorted(ROLES.glob("*/tasks/*.yml")):
        for task in tasks(path):
            for module in ("ansible.builtin.copy", "ansible.builtin.template", "node_files"):
                text = f"{task.get(module, '')} {task.get('loop')}"
                if module in task and any(name in text for name in names) and "absent" not in text:
                    yield str(path.relative_to(ROLES))


def test_one_task_installs_them_with_one_mode() -> None:
    assert list(installing()) == ["fp8_weights/tasks/install.yml"]
    assert {file["mode"] for file in written() if "content" in file} == {"0644"}


def test_every_file_is_installed_after_its_folder() -> None:
    there = {f"{PROGRAMS}/{path.relative_to(FILES)}": path.read_text() for path in FILES.rglob("*.py")}
    assert {file["path"]: file["content"] for file in written() if "content" in file} == there
    paths = [file["path"] for file in written()]
    folders = [file["path"] for file in written() if file.get("state") == "directory"]
    assert {str(Path(path).parent) for path in there} == {PROGRAMS, *folders}
    assert all(paths.index(str(Path(path).parent)) < paths.index(path) for path in there if path.count("/") > 5)


def imported(path: Path) -> Iterator[Path]:
    """Modules of the package that a module of it imports; every import is relative and at the top of the module."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").startswith("gaudi_fp8")):
            assert node.level, f"{path}: import of {node.module} is not relative"
            assert node in tree.body, f"{path}: import of {node.module} is not at the top"
            for name in [node.module] if node.module else [alias.name for alias in node.names]:
                yield path.parents[node.level - 1] / f"{name.replace('.', '/')}.py"


def test_imports_are_relative_and_without_cycles() -> None:
    modules = {path: set(imported(path)) for path in (FILES / "gaudi_fp8").rglob("*.py")}
    assert sum(map(len, modules.values())) > 50
    list(graphlib.TopologicalSorter(modules).static_order())
    folders = Counter(path.parent for path in modules)
    assert max(folders.values()) <= 16


def test_what_both_programs_share_imports_nothing_of_one_of_them() -> None:
    for path in (FILES / "gaudi_fp8").glob("*.py"):
        assert {module.parent for module in imported(path)} <= {FILES / "gaudi_fp8"}, path


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder that holds what the role installs, the library with it, and nothing else."""
    folder = tmp_path / "gaudi-serving"
    for file in written():
        if "content" in file:
            target = folder / Path(file["path"]).relative_to(PROGRAMS)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(file["content"])
    shutil.copytree(ROLES.parent / "module_utils" / "gaudi", folder / "gaudi")
    return folder


@pytest.mark.parametrize("tool", ["fp8_block", "fp8_dynamic"])
def test_the_programs_run_with_what_is_installed(tmp_path: Path, installed: Path, tool: str) -> None:
    write = checkpoints.write if tool == "fp8_block" else bfloat16.write
    source, target = write(tmp_path / "in"), tmp_path / "out"
    named = task_of("fp8_weights", "reread", "node_job")["node_job"]["command"]
    given = {"fp8_weights_tool": tool, "fp8_weights_source": "in", "fp8_weights_target": "out"}
    program = installed / Path(evaluate("fp8_weights", named, **given)[1]).name
    # Without an environment and without packages (-S): neither can bring a module that the list lacks.
    command = [sys.executable, "-S", "-B", str(program), str(source), str(target), "--jobs", "2", "--verify"]
    environment = {"PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "tensors compared" in done.stdout
    assert {path.name for path in target.glob("*.safetensors")} == {path.name for path in source.glob("*.safetensors")}
