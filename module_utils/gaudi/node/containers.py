"""What runs on a node, as systemd and the container engine say it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..base.printable import printable
from ..serving.plan import LABEL_PLAN, own_directories

PROC = Path("/proc")


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


def image_id(module: AnsibleModule, reference: str) -> str | None:
    """What the engine has under the name of an image; None where it has nothing."""
    code, out, _ = module.run_command(
        [module.get_bin_path("docker"), "image", "inspect", "--format", "{{.Id}}", reference]
    )
    return (out.strip() or None) if code == 0 else None


def outlived(module: AnsibleModule, container: Container, plan: Mapping[str, Any]) -> list[str]:
    """What a running container still has as it was when it started, though the node has another: a phrase each.

    Its label tells nothing of that. A directory that is mounted stays the one it was, whatever takes its place on the
    node; an image stays the one it was, whatever its name leads to. One that is gone is no other.
    """
    found = [f"it still has the former {source}, which was replaced" for source in replaced(container, own_directories(plan))]
    if image_id(module, plan["image"]) not in (None, container.inspected["Image"]):
        found.append(f"{plan['image']} is another image by now, which its next start would take")
    return found


def replaced(container: Container, directories: Mapping[str, str]) -> list[str]:
    """Directories in whose place the processes of a running container see another one than the node has, or none.

    directories: those of the node, by where the container sees them.
    """
    root = PROC / str(container.inspected["State"]["Pid"]) / "root"
    seen = {source: _identity(root / target.lstrip("/")) for target, source in directories.items()}
    return [source for source, found in seen.items() if found is None or found != _identity(Path(source))]


def _identity(path: Path) -> tuple[int, int] | None:
    """File system and number of what lies at a path; None where nothing does."""
    try:
        seen = path.stat()
    except OSError:
        return None
    return seen.st_dev, seen.st_ino
