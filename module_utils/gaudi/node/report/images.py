"""The part ``images`` of a node's report: serving images on record, what is in them, and what the engine has."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ...base import paths
from ...base.documents import Damaged
from ...base.printable import printable
from ...base.refusal import Refusal
from .. import states
from ..documents import read_json
from .errors import text

RECORD = Path(paths.IMAGE_RECORD)
BILLS = Path(paths.SBOMS)


def read(module: AnsibleModule) -> dict[str, Any]:
    """Return the texts, which engine.reported_images parses, and ids; without an engine there is none to ask.

    ids: of each image on record, "" where the engine has none of that name. runs_in: of each instance's container.
    """
    docker = module.get_bin_path("docker")
    names = _on_record() if docker else ()
    command = [docker, "image", "inspect", "--format", "{{.Id}}"]
    return {
        "record": text(RECORD),
        "bills": {file.name: text(file) for file in BILLS.glob("*.cdx.json")},
        "engine": docker is not None,
        "ids": {name: module.run_command([*command, name])[1].strip() for name in names},
        "runs_in": {name: _runs_in(module, docker, f"vllm-{name}") for name in states.installed()} if docker else {},
    }


def _on_record() -> list[str]:
    with suppress(Damaged):
        return list((read_json(RECORD, {"images": dict}) or {"images": {}})["images"])
    return []


def _runs_in(module: AnsibleModule, docker: str, name: str) -> str:
    """Return the id of the image that a container was made of, "" without one. Raises Refusal where nobody can tell."""
    code, out, err = module.run_command([docker, "container", "inspect", "--format", "{{.Image}}", name])
    if code and "no such container" not in err.lower():
        raise Refusal("container_not_seen", f"The container {name} cannot be looked at: {printable(err.strip())}")
    return "" if code else out.strip()
