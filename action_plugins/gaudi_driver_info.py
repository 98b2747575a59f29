"""Give the module gaudi_driver_info the data of the controller: the release's driver version, and a driver's parts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

sys.path.append(str(Path(__file__).resolve().parent.parent))
from plugin_utils import brain, releases

FACTS = brain.ROOT / "catalog" / "driver.yml"
ARGUMENT_SPEC: dict[str, Any] = {
    "release": {"type": "str", "required": True},
    "replace": {"type": "bool", "default": False},
    "take_over": {"type": "bool", "default": False},
    "drain": {"type": "bool", "default": False},
    "no_way_back": {"type": "bool", "default": False},
    "hold_kernel": {"type": "bool", "default": False},
    "offered": {"type": "bool", "default": False},
    "repository": {"type": "str", "default": "", "no_log": True},
    "suite": {"type": "str", "default": ""},
    "kernel": {"type": "str"},
    "external_ports": {"type": "bool", "default": False},
    "reboots": {"type": "bool", "default": False},
    "refuse": {
        "type": "str",
        "choices": ["never", "before", "after", "removal", "kernel", "booted"],
        "default": "never",
    },
}


class ActionModule(ActionBase):  # type: ignore[misc]  # ansible-core carries no types
    """Reads on the controller, asks the node once."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Read the release and the facts, and call the module."""
        super().run(tmp, task_vars)
        _, arguments = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        name = releases.named(str(arguments.pop("release")))
        if name not in releases.names():
            raise AnsibleActionFail(
                f"The catalogue has no release {name!r}. Set gaudi_release to one of {', '.join(releases.names())}."
            )
        given = {
            "software": releases.read(name).get("software", {}),
            "facts": yaml.safe_load(FACTS.read_text(encoding="utf-8")),
        }
        found: dict[str, Any] = self._execute_module(
            module_name="gaudi_driver_info", module_args={**arguments, **given}, task_vars=task_vars
        )
        return found
