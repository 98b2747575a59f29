"""Whether a container is confined as its plan says, from what the engine tells of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def differences(inspected: Mapping[str, Any], plan: Mapping[str, Any]) -> list[str]:
    """Name what a container has otherwise than its plan; nothing where it is confined as planned.

    `inspected` is one entry of what `docker container inspect` prints.
    """
    box, planned = inspected["HostConfig"], plan["container"]
    added = sorted(name.removeprefix("CAP_") for name in box.get("CapAdd") or [])
    limits = {limit["Name"]: limit["Hard"] for limit in box.get("Ulimits") or []}
    # Of the node. A volume that the image itself declares is the engine's, and goes with the container.
    writable = {mount["Source"] for mount in inspected["Mounts"] if mount["Type"] == "bind" and mount["RW"]}
    own = {mount["source"] for mount in planned["mounts"] if not mount["read_only"]}
    image = inspected["Config"]["Image"]
    same = {
        f"dropped capabilities {box['CapDrop']}": box["CapDrop"] == ["ALL"],
        f"added capabilities {added}": added == sorted(planned["capabilities"]),
        "it is privileged": not box["Privileged"],
        f"read-only root {box['ReadonlyRootfs']}": box["ReadonlyRootfs"] == planned["read_only"],
        f"security options {box['SecurityOpt']}": "no-new-privileges" in (box["SecurityOpt"] or []),
        f"runtime {box['Runtime']}": box["Runtime"] == planned["runtime"],
        f"devices {box.get('Devices')}": not box.get("Devices"),
        f"limits {limits}": limits == planned["ulimits"],
        f"writable directories {sorted(writable - own)}": writable <= own,
        f"image {image}": plan["image"] in image,
    }
    return [name for name, as_planned in same.items() if not as_planned]
