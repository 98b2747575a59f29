"""Run a module's main() in this process, with scripted commands."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.testing import patch_module_args

Answer = Callable[[list[str]], tuple[int, str, str]]


def run_main(name: str, arguments: Mapping[str, Any], *, check: bool = False) -> dict[str, Any]:
    """Return what a module answers, whether it ends well or not."""
    output = io.StringIO()
    given = {**arguments, "_ansible_check_mode": check}
    with patch_module_args(given), contextlib.redirect_stdout(output), pytest.raises(SystemExit):
        importlib.import_module(name).main()
    answer: dict[str, Any] = json.loads(output.getvalue())
    return answer


def script(
    patch: pytest.MonkeyPatch, programs: Mapping[str, Answer], languages: list[str | None] | None = None
) -> list[list[str]]:
    """Have exactly these programs installed, and answer as scripted; returns the commands that were run.

    ``languages`` collects the LANG that each command was given.
    """
    run: list[list[str]] = []

    def get_bin_path(_self: object, program: str, **_options: object) -> str | None:
        return f"/usr/sbin/{program}" if program in programs else None

    def run_command(
        self: AnsibleModule, command: list[str], environ_update: Mapping[str, str] | None = None
    ) -> tuple[int, str, str]:
        given = {**self.run_command_environ_update, **(environ_update or {})}
        assert given["LC_ALL"] == "C"
        if languages is not None:
            languages.append(given.get("LANG"))
        run.append(command)
        return programs[command[0].rpartition("/")[2]](command)

    patch.setattr(AnsibleModule, "get_bin_path", get_bin_path)
    patch.setattr(AnsibleModule, "run_command", run_command)
    return run
