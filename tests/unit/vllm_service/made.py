"""Plans as the planner makes them, of the parts that are read on the node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.module_utils.gaudi.serving.plan import (
    AT_START,
    DOOR_DIRECTORY,
    GUARD_DIRECTORY,
    KEYS_DIRECTORY,
    MIDDLEWARE,
    PYTHON_PATH,
)


def make_plan(port: int, weights: Path) -> dict[str, Any]:
    """A plan as the planner makes it, of the parts that are read on the node."""
    return {
        "schema": 1,
        "instance": "tiny",
        "model": "simulated-tiny",
        "served_model_name": "tiny",
        "task": "generate",
        "release": "1.22",
        "image": "registry/image:1",
        "container": {
            "name": "vllm-tiny",
            "runtime": "habana",
            "capabilities": ["SYS_NICE"],
            "ulimits": {"nofile": 1048576},
            "ipc": "private",
            "shm_mib": 2048,
            "pids": 512,
            "network": "host",
            "read_only": True,
            "tmpfs": [{"path": "/scratch", "size_mib": 64, "mode": "1777"}],
            "mounts": [{"source": str(weights), "target": str(weights), "read_only": True}],
            "environment": {"OMPI_MCA_btl_vader_single_copy_mechanism": "none"},
            "at_start": list(AT_START),
        },
        "modules": [{"module_id": 0, "serial": "AN0"}, {"module_id": 1, "serial": "AN1"}],
        "environment": {"PT_HPU_LAZY_MODE": "1"},
        "cpu_binding": ["numactl", "-C", "0-7", "-p", "0"],
        "arguments": ["python3", "-m", "vllm.entrypoints.openai.api_server", "--port", str(port)],
        "guarded": False,
        "listen": {"host": "127.0.0.1", "port": port},
        "requires": {"weights_path": str(weights), "weights_bytes": 4, "disk_bytes": 0, "cards": 2},
    }


def guarded(plan: dict[str, Any], root: Path) -> dict[str, Any]:
    """The plan with its guard, as the planner makes it, for a node that is a directory."""
    sources = {
        GUARD_DIRECTORY: root / "programs/guard",
        KEYS_DIRECTORY: root / "etc/instances/tiny/guard",
        DOOR_DIRECTORY: root / "state/instances/tiny/door",
    }
    mounts = [{"source": str(source), "target": target, "read_only": True} for target, source in sources.items()]
    box = plan["container"]
    box = {**box, "mounts": [*box["mounts"], *mounts], "at_start": [*AT_START, PYTHON_PATH]}
    return {**plan, "guarded": True, "container": box, "arguments": [*plan["arguments"], *MIDDLEWARE]}
