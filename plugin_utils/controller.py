"""What the controller needs. On another one, loading a plugin of this project ends the run with one sentence.

The callback is loaded before the first task, whichever stdout callback is chosen; where a configuration leaves its
folder out (ansible-runner), the first action of ours ends the run. So this imports nothing that an old version lacks.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec

from ansible import constants
from ansible.release import __version__ as ansible_version

# What is pinned (pyproject.toml), since nothing else is tried.
ANSIBLE = "2.19"
PYTHON = (3, 11)
PACKAGES = ("jsonschema",)
# In an answer, statistics of the whole run, which only the action set_stats makes: on the controller.
STATISTICS = "ansible_stats"


def unsupported(ansible: str, python: Sequence[int], missing: Sequence[str]) -> str | None:
    """Return why a controller is not supported, or None. ``missing``: names of packages."""
    least = ".".join(str(part) for part in PYTHON)
    wrong = [
        *([f"ansible-core {ansible}, but {ANSIBLE} is needed"] if ansible.split(".")[:2] != ANSIBLE.split(".") else []),
        *([f"Python {'.'.join(map(str, python))}, but {least} or newer is needed"] if tuple(python) < PYTHON else []),
        *(f"no package {name}, which is needed" for name in missing),
    ]
    if not wrong:
        return None
    return (
        f"This controller has {'; '.join(wrong)} ({sys.executable}): make venv in the checkout installs what is "
        "needed, then run .venv/bin/ansible-playbook."
    )


def check() -> None:
    """End the program where the controller is not supported; plugin loaders pass over every exception but this one."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    sentence = unsupported(ansible_version, sys.version_info[:2], missing)
    if sentence:
        raise SystemExit(f"ERROR: {sentence}")


def refuse_facts_as_variables() -> None:
    """End the program where a node's answer could set variables of the inventory, such as a path on the controller."""
    if constants.INJECT_FACTS_AS_VARS:
        used = constants.CONFIG_FILE or "no configuration file"
        raise SystemExit(
            f"ERROR: Ansible takes what nodes report as variables (inject_facts_as_vars; {used}), so that a node could "
            "set those of the inventory. Run in the checkout, whose ansible.cfg has inject_facts_as_vars = false, "
            "or set ANSIBLE_INJECT_FACT_VARS=false."
        )


def take_no_statistics_of_nodes() -> None:
    """Have Ansible remove statistics from what modules return, as it removes hosts and groups that they would add.

    Ansible reads them without a check of their form: any other form would end the run for all nodes.
    """
    if STATISTICS not in constants.INTERNAL_RESULT_KEYS:
        constants.INTERNAL_RESULT_KEYS = (*constants.INTERNAL_RESULT_KEYS, STATISTICS)
