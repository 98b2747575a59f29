"""The module object of this project: it does not depend on the locale, PATH and umask of the connection."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..base.printable import UNTRANSLATED, printable

# Where programs of the system administrator are; sudo without secure_path and su keep a PATH without them.
SYSTEM = ("/usr/local/sbin", "/usr/sbin", "/sbin")
# Files and directories without a mode of their own are for everybody to read: programs that do not run as root, as
# apt's _apt, read them. Secrets have modes of their own.
UMASK = 0o022


class NodeModule(AnsibleModule):  # type: ignore[misc]
    """AnsibleModule that finds programs of SYSTEM, and has UMASK; run_command() sets the locale C, as output is parsed.

    ``connection_path`` is the PATH that the connection has.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.run_command_environ_update = dict(UNTRANSLATED)
        self.connection_path = os.environ.get("PATH", "")
        os.environ["PATH"] = with_system(self.connection_path)
        os.umask(UMASK)

    def leave_to_action(self, option: str) -> None:
        """Fail, because an option is one of the module's action, which has not run."""
        self.fail_json(
            msg=f"{option} is for the action of the same name, which has not run. Call it from a playbook that has "
            "action_plugins of the checkout in its path."
        )


def with_system(path: str) -> str:
    """Return a PATH with the directories of SYSTEM behind the others."""
    there = [folder for folder in path.split(os.pathsep) if folder]
    return os.pathsep.join([*there, *(folder for folder in SYSTEM if folder not in there)])


def systemctl(module: AnsibleModule, *arguments: str) -> str:
    """Run systemctl and return its output; fail the module with its message on an error."""
    status, output, errors = module.run_command([module.get_bin_path("systemctl", required=True), *arguments])
    if status != 0:
        module.fail_json(
            msg=f"systemctl {' '.join(arguments)} failed with status {status}: {printable(errors.strip())}"
        )
    return str(output)


def output(module: AnsibleModule, command: Sequence[str], environment: Mapping[str, str] | None = None) -> str | None:
    """Return what a program prints, whatever its status; None if the system does not have it."""
    program = module.get_bin_path(command[0])
    if program is None:
        return None
    _, printed, _ = module.run_command([program, *command[1:]], environ_update=dict(environment or {}))
    return str(printed)
