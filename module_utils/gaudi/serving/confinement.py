"""Check that a container is confined as its plan says, from the engine's data and the kernel's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .plan import NO_CORE_DUMPS

# Security options that disable a mechanism of the engine: seccomp=unconfined, apparmor=unconfined, label=disable.
LOOSE = re.compile(r"unconfined|disable")
# SECCOMP_MODE_FILTER of the kernel, as /proc/PID/status has it.
SECCOMP_FILTER = "2"
# Settings that ``docker update`` can change in a running container and that no plan sets; by default each is unset.
UNSET = (
    *("BlkioWeight", "CpuPeriod", "CpuQuota", "CpuRealtimePeriod", "CpuRealtimeRuntime", "CpuShares", "CpusetCpus"),
    *("CpusetMems", "Memory", "MemoryReservation", "MemorySwap", "NanoCpus"),
)


def differences(inspected: Mapping[str, Any], plan: Mapping[str, Any], process: str) -> list[str]:
    """Return how a container's confinement differs from its plan; [] if it does not.

    ``inspected``: one entry of ``docker container inspect``. ``process``: /proc/PID/status of its first process, as the
    kernel's state may differ from the engine's settings.
    """
    box, planned = inspected["HostConfig"], plan["container"]
    added = sorted(name.removeprefix("CAP_") for name in box.get("CapAdd") or [])
    limits = {limit["Name"]: limit["Hard"] for limit in box.get("Ulimits") or []}
    # What every container gets beside its plan; one that was started before that is as planned too.
    limits_of_plan = {name: value for name, value in limits.items() if NO_CORE_DUMPS.get(name) != value}
    # Mounts of the node only: a volume that the image declares belongs to the engine, and is removed with the
    # container.
    writable = {mount["Source"] for mount in inspected["Mounts"] if mount["Type"] == "bind" and mount["RW"]}
    own = {mount["source"] for mount in planned["mounts"] if not mount["read_only"]}
    image = inspected["Config"]["Image"]
    loosened = [option for option in box["SecurityOpt"] or [] if LOOSE.search(option)]
    kernel = dict(line.split(":\t", 1) for line in process.split("\n") if ":\t" in line)
    seccomp, shm = kernel.get("Seccomp"), box.get("ShmSize", 0) >> 20
    # If the engine restarts a container by itself, neither the plan nor the cards' current device numbers are checked.
    restarts = (box.get("RestartPolicy") or {}).get("Name") or "no"
    limited = [f"{name} {box[name]}" for name in UNSET if box.get(name)]
    same = {
        f"dropped capabilities {box['CapDrop']}": box["CapDrop"] == ["ALL"],
        f"added capabilities {added}": added == sorted(planned["capabilities"]),
        "it is privileged": not box["Privileged"],
        f"read-only root {box['ReadonlyRootfs']}": box["ReadonlyRootfs"] == planned["read_only"],
        f"security options {box['SecurityOpt']}": "no-new-privileges" in (box["SecurityOpt"] or []),
        f"security options {loosened}": not loosened,
        f"seccomp mode {seccomp} of its process": seccomp == SECCOMP_FILTER,
        "its process may gain privileges": kernel.get("NoNewPrivs") == "1",
        f"network {box['NetworkMode']}": box["NetworkMode"] == planned["network"],
        f"ipc {box['IpcMode']}": box["IpcMode"] == planned["ipc"],
        f"pid namespace {box['PidMode']}": box["PidMode"] == "",
        f"shared memory {shm} MiB": planned["shm_mib"] in (None, shm),
        f"at most {box['PidsLimit']} processes": box["PidsLimit"] == planned["pids"],
        f"runtime {box['Runtime']}": box["Runtime"] == planned["runtime"],
        f"devices {box.get('Devices')}": not box.get("Devices"),
        f"limits {limits}": planned["ulimits"] in (limits, limits_of_plan),
        f"writable directories {sorted(writable - own)}": writable <= own,
        f"image {image}": plan["image"] in image,
        f"restart policy {restarts}": restarts == "no",
        f"limits of the engine {', '.join(limited)}": not limited,
    }
    return [name for name, as_planned in same.items() if not as_planned]
