"""What the README's demo leaves behind is found; what other demos and scenarios have up is not taken for it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from simulator.settings import IMAGES, LABEL
from tests import readme

# Says that it runs, then waits until it may end.
WAITS = "print('runs', flush=True); input()"


@pytest.mark.parametrize(
    ("what", "scope", "ours"),
    [
        ("containers", readme.SCOPE, True),
        ("volumes", "", True),
        ("volumes", IMAGES, True),
        ("containers", IMAGES, False),
        ("networks", "demo", False),
        ("volumes", "molecule-weights", False),
    ],
)
def test_another_scope_is_no_trace(what: str, scope: str, *, ours: bool) -> None:
    assert readme.could_be_ours(what, scope) is ours


def test_the_labels_are_the_simulators() -> None:
    assert (readme.LABEL, readme.SHARED) == (LABEL, IMAGES)


@pytest.mark.parametrize(("scope", "ours"), [(readme.SCOPE, True), ("molecule-weights", False)])
def test_a_process_is_known_by_its_scope(scope: str, *, ours: bool) -> None:
    """Another scenario's processes name files of this checkout, too."""
    command = [sys.executable, "-c", WAITS, f"{readme.ROOT}/site.yml", scope if ours else "another"]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "GAUDI_SIMULATOR_SCOPE": scope},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "runs\n"
        assert (" ".join(command) in readme.processes()) is ours
        process.communicate("\n")


def test_a_process_is_known_by_its_environment() -> None:
    command = [sys.executable, "-c", WAITS, "no scope"]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "GAUDI_SIMULATOR_SCOPE": readme.SCOPE},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "runs\n"
        assert " ".join(command) in readme.processes()
        process.communicate("\n")
