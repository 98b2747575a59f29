"""A controller that is not supported: one sentence before the first task, whatever it lacks."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from plugin_utils import controller

ROOT = Path(__file__).resolve().parents[2]

# ansible-playbook as an older ansible-core has it: another version, and without a method that came
# with 2.19.
OLDER = """
import sys, ansible.release, ansible.plugins.callback
from ansible.cli.playbook import main
ansible.release.__version__ = "2.18.9"
del ansible.plugins.callback.CallbackBase._handle_warnings_and_exception
main(["ansible-playbook", "-i", "localhost,", *sys.argv[1:]])
"""


@pytest.mark.report("N05")
@pytest.mark.parametrize(
    ("ansible", "python", "missing", "named"),
    [
        ("2.18.9", (3, 12), [], ["ansible-core 2.18.9", "2.19 is needed"]),
        ("2.9.6", (3, 8), [], ["ansible-core 2.9.6", "Python 3.8", "3.11 or newer"]),
        ("2.20.0b1", (3, 12), [], ["ansible-core 2.20.0b1"]),
        ("2.190.1", (3, 12), [], ["ansible-core 2.190.1"]),
        ("2.19.14", (3, 11), ["jsonschema"], ["no package jsonschema"]),
    ],
)
def test_an_unsupported_controller_is_one_sentence(
    ansible: str, python: tuple[int, int], missing: list[str], named: list[str]
) -> None:
    sentence = controller.unsupported(ansible, python, missing)
    assert sentence is not None
    assert "\n" not in sentence
    for part in [*named, "make venv"]:
        assert part in sentence


@pytest.mark.parametrize("version", ["2.19.0", "2.19.14"])
def test_a_supported_controller(version: str) -> None:
    assert controller.unsupported(version, (3, 11), []) is None
    assert controller.unsupported(version, (3, 14), []) is None


def test_supported_is_what_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == ">=" + ".".join(str(part) for part in controller.PYTHON)
    assert any(pin.startswith(f"ansible-core=={controller.ANSIBLE}.") for pin in project["dependencies"])


@pytest.mark.report("N05")
@pytest.mark.parametrize("callback", ["phases", "default"])
def test_an_older_ansible_ends_before_the_first_task(callback: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", OLDER, str(ROOT / "playbooks/plan.yml"), "-e", "topology_file=x"],
        capture_output=True,
        text=True,
        check=False,
        env={"LC_ALL": "C.UTF-8", "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_STDOUT_CALLBACK": callback},
    )
    assert ran.returncode == 1
    assert ran.stdout == ""
    (line,) = (line for line in ran.stderr.splitlines() if not line.startswith("[WARNING]"))
    assert "ansible-core 2.18.9, but 2.19 is needed" in line
