"""Each class has a name of its own, which says what it is without its file."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
# Ansible looks for these names in each plugin.
DEMANDED = ("ActionModule", "CallbackModule", "FilterModule")
# Stand-ins have the names of the vendor's and vLLM's classes, some of them in several versions.
STAND_INS = ("simulator/images/", "simulator/repositories/")


def test_no_two_classes_have_the_same_name() -> None:
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, check=True, capture_output=True, text=True)
    places: dict[str, list[str]] = {}
    for file in listed.stdout.splitlines():
        if file.startswith(STAND_INS) or not (ROOT / file).exists():
            continue
        for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and node.name not in DEMANDED:
                places.setdefault(node.name, []).append(f"{file}:{node.lineno}")

    assert {name: where for name, where in places.items() if len(where) > 1} == {}
