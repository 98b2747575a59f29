"""What runs on a node, as systemd and the container engine say it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..base.printable import printable
from ..serving.plan import LABEL_PLAN


def systemctl(module: AnsibleModule, *arguments: str) -> str:
    """Run systemctl and return what it printed; fails the module with its words."""
    status, output, errors = module.run_command([module.get_bin_path("systemctl", required=True), *arguments])
    if status != 0:
        module.fail_json(msg=f"systemctl {' '.join(arguments)} failed with status {status}: {errors.strip()}")
    return str(output)


@dataclass(frozen=True)
class Container:
    """One container: whether it runs, what it was made of by its label, and all that the engine tells."""

    running: bool
    plan: str | None
    inspected: dict[str, Any]


def look(module: AnsibleModule, name: str) -> Container | None:
    """Look a container up; None where it is not there, or no engine is installed.

    Ends the module where an engine does not answer: nobody could tell what runs.
    """
    docker = module.get_bin_path("docker")
    if docker is None:
        return None
    code, out, err = module.run_command([docker, "container", "inspect", name])
    if code != 0:
        if "no such container" in err.lower():
            return None
        if module.check_mode:
            module.warn(
                f"The container {name} cannot be looked at, so whether it would restart is not known: "
                f"{printable(err.strip())}"
            )
            return None
        module.fail_json(msg=f"The container {name} cannot be looked at: {printable(err.strip())}")
    inspected = json.loads(out)[0]
    labels = inspected["Config"].get("Labels") or {}
    return Container(bool(inspected["State"]["Running"]), labels.get(LABEL_PLAN), inspected)
