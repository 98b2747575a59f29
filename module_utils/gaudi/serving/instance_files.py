"""The files of an instance on its node: what stands in each of them, and which there are.

Plan, environment and guard determine the container, and their digest is its label (made_of.py): other bytes restart the
instance. The unit, the explanation and all other files change without that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..base import paths
from .plan import environment_text

# Words, and what is looked at once the server answers. They lie beside the plan.
_NOT_OF_THE_CONTAINER = frozenset({"ask", "explain", "paths", "warnings"})
# An earlier supervisor imports them, so they are removed once the new one is there.
_FORMER_PROGRAMS = (f"{paths.PROGRAMS}/vllm_plan.py", f"{paths.PROGRAMS}/vllm_signs.py")


@dataclass(frozen=True)
class UnitOptions:
    """What the unit tells the supervisor; the options of the role without vllm_service_. Times are in seconds."""

    python: str
    attempts: int
    attempts_of_change: int
    first_pause: int
    stall: int
    longest_start: int
    stop_grace: int
    engine_wait: int
    unhealthy: int
    recipes_gib: int
    drop_caches: bool

    @property
    def arguments(self) -> str:
        """The arguments of the supervisor, in the lines of a unit."""
        return (
            f"--attempts {self.attempts} --attempts-of-change {self.attempts_of_change} \\\n"
            f"  --first-pause {self.first_pause} \\\n"
            f"  --stall {self.stall} --longest-start {self.longest_start} \\\n"
            f"  --stop-grace {self.stop_grace} \\\n"
            f"  --engine-wait {self.engine_wait} --unhealthy {self.unhealthy} \\\n"
            f"  --recipes-gib {self.recipes_gib}{' --drop-caches' if self.drop_caches else ''}"
        )


def document(plan: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a plan that determines the container.

    Buckets that follow from what the last start logged are no part of it: the server makes its own.
    """
    left_out = _NOT_OF_THE_CONTAINER | ({"buckets"} if _buckets_were_logged(plan) else set())
    return {name: value for name, value in plan.items() if name not in left_out}


def plan_text(plan: Mapping[str, Any]) -> str:
    """plan.json."""
    return _json(document(plan))


def drop_in_text(plan: Mapping[str, Any]) -> str:
    """The drop-in with what the plan needs of the node; it is restored with the plan."""
    # systemd reads % as a specifier, and \ and " as its own.
    path = str(plan["requires"]["weights_path"]).replace("%", "%%").replace("\\", "\\\\").replace('"', '\\"')
    return f"""\
# Managed by Ansible (role vllm_service). What the plan needs: it goes back with the plan.
[Unit]
# The file system the weights are on, not the empty directory below it.
RequiresMountsFor="{path}"
"""


def unit_text(instance: str, options: UnitOptions) -> str:
    """The unit of an instance."""
    return f"""\
# Managed by Ansible (role vllm_service).
[Unit]
Description=vLLM instance {instance}
# Wants, not Requires: an engine that restarts with live-restore must not take the instance down with it.
Wants=docker.service network-online.target
After=docker.service network-online.target
PartOf=gaudi-serving.target
# A supervisor that cannot even begin is not tried for ever; everything else it paces and gives up by itself.
StartLimitIntervalSec=600
StartLimitBurst=10

[Service]
Type=notify
NotifyAccess=main
ExecStart={options.python} -s -E -B {paths.PROGRAMS}/vllm_supervisor.py run {instance} \\
  {options.arguments}
# The supervisor becomes the program on disk; the container does not notice.
ExecReload=/bin/kill -HUP $MAINPID
# Only the supervisor is told to stop; it drains the container, which is not in this unit's cgroup.
KillMode=mixed
TimeoutStartSec={options.stall + 300}
TimeoutStopSec={options.stop_grace + 60}
WatchdogSec=120
# The socket that keeps others from the port of the server's other address family, while no supervisor runs.
FileDescriptorStoreMax=1
Restart=on-failure
RestartSec=5
# 69 tried often enough, 78 wrong configuration: starting again cannot help.
RestartPreventExitStatus=69 78
UMask=0077
NoNewPrivileges=true
ProtectSystem=full
# Where the plan lies: the supervisor takes one back that does not come to serve.
ReadWritePaths=-{_folder(instance)} -{_drop_ins(instance)}
PrivateTmp=true
SyslogIdentifier=vllm-{instance}

[Install]
WantedBy=gaudi-serving.target
"""


def program_files(programs: Mapping[str, str]) -> list[dict[str, Any]]:
    """The supervisor's programs, which all instances share. ``programs``: text by name below the role's files."""
    folder = {"path": f"{paths.PROGRAMS}/gaudi_supervisor", "state": "directory", "mode": "0755"}
    return [folder, *(_file(f"{paths.PROGRAMS}/{name}", programs[name], "0644") for name in sorted(programs))]


@dataclass(frozen=True)
class SharedFiles:
    """What all instances of a node share: the programs by name below the role's files, and the target's text."""

    programs: Mapping[str, str]
    target: str


@dataclass(frozen=True)
class Circumstances:
    """What is written beside a plan: mismatches let through, what the site allows, who writes, and when (UTC)."""

    let_through: list[str]
    allowed: list[str]
    by: str
    at: str
    # Whether the instance was rolled back from a plan that this run replaces or retries.
    rollback_superseded: bool


def files(
    plan: Mapping[str, Any], options: UnitOptions, shared: SharedFiles, circumstances: Circumstances
) -> list[dict[str, Any]]:
    """Everything that is written for an instance, in this order, as the module node_files takes it."""
    instance = str(plan["instance"])
    folder, unit = _folder(instance), f"vllm-{instance}.service"
    return [
        *_directories(plan),
        *program_files(shared.programs),
        *(_absent(path) for path in (*_FORMER_PROGRAMS, *_left_by_earlier_runs(instance, circumstances))),
        _explanation(plan, circumstances),
        _let_through(folder, circumstances),
        _needrestart(instance),
        _file(f"{folder}/plan.json", plan_text(plan), "0600"),
        _file(f"{folder}/environment", environment_text(plan["environment"], plan["container"]["environment"]), "0600"),
        _file(f"{_drop_ins(instance)}/50-plan.conf", drop_in_text(plan)),
        _file(f"{paths.UNITS}/{unit}", unit_text(instance, options)),
        _file(f"{paths.UNITS}/gaudi-serving.target", shared.target),
    ]


def _directories(plan: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What only root may read lies in closed directories.

    Those that the server writes to, such as the recipe cache, are root's: root in the container has lost the right to
    pass over owners.
    """
    instance = str(plan["instance"])
    modes = {
        paths.GUARD: "0755",
        paths.CONFIGURATION: "0755",
        paths.INSTANCES: "0700",
        _folder(instance): "0700",
        _drop_ins(instance): "0755",
        paths.STATE: "0755",
        paths.INSTANCE_STATES: "0700",
        paths.RECIPES: "0750",
    }
    modes.update({mount["source"]: "0750" for mount in plan["container"]["mounts"] if not mount["read_only"]})
    return [{"path": path, "state": "directory", "mode": mode} for path, mode in modes.items()]


def _left_by_earlier_runs(instance: str, circumstances: Circumstances) -> list[str]:
    """A half-written state of a supervisor that was killed, and the record of a rollback that counts no longer.

    That record goes before the plan is written.
    """
    states = f"{paths.INSTANCE_STATES}/{instance}"
    rollback = [f"{states}/{paths.BACK}"] if circumstances.rollback_superseded else []
    return [f"{states}/.state.json.new", *rollback]


def _explanation(plan: Mapping[str, Any], circumstances: Circumstances) -> dict[str, Any]:
    """Why the plan is what it is, in the words of the run that made it, and who wrote it.

    Later runs only find the cards to be the instance's own. Of two runs that overwrite each other, the one that lost
    names the other.
    """
    folder = _folder(str(plan["instance"]))
    said = {
        "explain": plan["explain"],
        "warnings": plan["warnings"],
        "written": {"by": circumstances.by, "at": circumstances.at},
        **({"buckets": plan["buckets"]} if _buckets_were_logged(plan) else {}),
    }
    return {**_file(f"{folder}/explanation.json", _json(said), "0600"), "follows": f"{folder}/plan.json"}


def _let_through(folder: str, circumstances: Circumstances) -> dict[str, Any]:
    """What is known to differ on this node, whether or not the plan does."""
    path = f"{folder}/{paths.LET_THROUGH}"
    if not circumstances.let_through and not circumstances.allowed:
        return _absent(path)
    said = {
        "let_through": circumstances.let_through,
        **({"allowed": circumstances.allowed} if circumstances.allowed else {}),
    }
    return _file(path, _json(said), "0600")


def _needrestart(instance: str) -> dict[str, Any]:
    """Also where needrestart is not installed: it reads the file whenever it comes.

    Its own list keeps Docker from being restarted after an update of a library, not what runs with Docker.
    """
    return _file(
        f"/etc/needrestart/conf.d/gaudi-serving-vllm-{instance}.conf",
        "# Written by gaudi-serving (role vllm_service): needrestart does not restart this instance by itself.\n"
        f"$nrconf{{override_rc}}{{qr(^vllm-{instance}\\.service$)}} = 0;\n",
    )


def _buckets_were_logged(plan: Mapping[str, Any]) -> bool:
    return "kv_blocks_from" in (plan.get("buckets") or {})


def _folder(instance: str) -> str:
    return f"{paths.INSTANCES}/{instance}"


def _drop_ins(instance: str) -> str:
    return f"{paths.UNITS}/vllm-{instance}.service.d"


def _file(path: str, content: str, mode: str = "") -> dict[str, Any]:
    return {"path": path, "content": content, **({"mode": mode} if mode else {})}


def _absent(path: str) -> dict[str, Any]:
    return {"path": path, "state": "absent"}


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=4, sort_keys=True) + "\n"
