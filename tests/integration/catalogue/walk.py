"""Follow a document to the letter: its commands, in a copy of the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.unit.catalogue.documentation import ROOT


def copy_of_checkout(folder: Path, without: Iterable[str]) -> Path:
    """What a person who follows a document has before its first line; somebody may have added its example."""
    copy = folder / "checkout"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".git", ".venv", ".cache", "build", "__pycache__"))
    for name in without:
        (copy / name).unlink(missing_ok=True)
    (copy / ".venv").symlink_to(sys.prefix)
    return copy


def run(checkout: Path, first: str, command: str, narrowed: str) -> subprocess.CompletedProcess[str]:
    """A command of a document after its first one, in a shell of its own; ``narrowed`` are more options of pytest."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        "ANSIBLE_CONFIG": str(checkout / "ansible.cfg"),
        "PYTEST_ADDOPTS": narrowed,
    }
    return subprocess.run(
        ["bash", "-euc", f"{first}\n{command}"],
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
