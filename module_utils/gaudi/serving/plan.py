"""What a supervisor needs from a plan: the container to run."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import StringIO
from typing import Any

from ..base.command_line import hub_ids, trusts_code
from .closed_ports import ClosedPorts
from .last_start import sized_by

LABEL_INSTANCE = "gaudi-serving.instance"
LABEL_PLAN = "gaudi-serving.plan"
SCHEMA = 1

# Paths of the guard and the keys inside the container, and the argument that makes the server use the guard.
GUARD_DIRECTORY = "/run/gaudi-serving/guard"
KEYS_DIRECTORY = "/run/gaudi-serving/keys"
DOOR_DIRECTORY = "/run/gaudi-serving/door"
OWN_DIRECTORIES = (GUARD_DIRECTORY, KEYS_DIRECTORY, DOOR_DIRECTORY)
GUARD_CLASS = "gaudi_guard.ApiKeyGuard"
MIDDLEWARE = ("--middleware", GUARD_CLASS)

# Settings that are only known at the start, by their names in a plan (container.at_start).
LABELS = "labels"
LOG_OPTIONS = "log_options"
DEVICES = "HABANA_VISIBLE_DEVICES"
PYTHON_PATH = "PYTHONPATH"
AT_START = (LABELS, LOG_OPTIONS, DEVICES)

OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
"""Variables with which a server's libraries fetch nothing from a hub (huggingface_hub/constants.py, transformers)."""

NO_CODE = {"HF_MODULES_CACHE": "/dev/null/trust_remote_code_is_off"}
"""With it transformers cannot run Python files of weights, and the path in its error says why.

It copies such a file there before it runs it (create_dynamic_module of transformers/dynamic_module_utils.py), and a
device has no directories. Some classes of vLLM ask for such code whatever --trust-remote-code says (models/kimi_k25.py
of 0.17.1, models/llava_onevision2.py of 0.26.0). Without that option nothing else is written there.
"""

RECIPES = "PT_HPU_RECIPE_CACHE_CONFIG"
"""Its first field is the directory of compiled recipes, which an option of a request stands for."""

NO_ENTRY_POINT = ("--entrypoint", "")
"""A plan's command is whole: an entry point of the image, which ready-made ones have, would take it as arguments."""


def environment_text(variables: Mapping[str, object], own: Mapping[str, object]) -> str:
    """What docker reads as a container's environment: NAME=value by lines, verbatim, sorted by name.

    variables: those of the server. own: those that only the container needs, which win. Nothing secret belongs here.
    """
    return "".join(f"{name}={value}\n" for name, value in sorted({**variables, **own}.items()))


@dataclass(frozen=True)
class PlanCard:
    """A card of a plan: its module id, and the serial that it must have."""

    module_id: int
    serial: str | None


@dataclass(frozen=True)
class Plan:
    """The parts of plan.json that the supervisor needs."""

    instance: str
    served_model_name: str
    image: str
    container: dict[str, Any]
    cards: tuple[PlanCard, ...]
    command: tuple[str, ...]
    host: str
    port: int
    weight_folders: tuple[str, ...]
    environment: dict[str, str]
    # Whether every request needs an API key; None in a plan of 0.1, which does not have the field.
    guarded: bool | None = None
    # The reason why clients outside the node need no key, if there is one.
    open_because: str | None = None
    # Ports of its own processes, closed to other machines; None in plans without them.
    closed_ports: ClosedPorts | None = None
    # The release that it was made for; "" if the plan does not say.
    release: str = ""
    # Graphs of the warm-up; 0 if the plan does not say.
    graphs: int = 0
    # A digest of what the number of KV blocks follows from (last_start.py).
    sized_by: str = ""
    # Whether the server is started with the variables of OFFLINE.
    offline: bool = False
    # What keeps the server from code that comes with its weights; empty where it may run it.
    no_code: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Plan:
        """Read a plan document. Raises ValueError with what is missing or wrong."""
        if document.get("schema") != SCHEMA:
            raise ValueError(f"schema is {document.get('schema')!r}, this supervisor reads schema {SCHEMA}")
        try:
            plan = cls(
                instance=str(document["instance"]),
                served_model_name=str(document["served_model_name"]),
                image=str(document["image"]),
                container=dict(document["container"]),
                cards=tuple(PlanCard(int(m["module_id"]), m.get("serial")) for m in document["modules"]),
                command=(*map(str, document["cpu_binding"]), *map(str, document["arguments"])),
                host=str(document["listen"]["host"]),
                port=int(document["listen"]["port"]),
                weight_folders=(
                    str(document["requires"]["weights_path"]),
                    *map(str, document["requires"].get("weights_beside", [])),
                ),
                environment={str(k): str(v) for k, v in document["environment"].items()},
                guarded=document.get("guarded"),
                open_because=document["listen"].get("open_without_keys"),
                closed_ports=ClosedPorts(*map(int, closed))
                if (closed := document["listen"].get("closed_ports"))
                else None,
                release=str(document.get("release") or ""),
                graphs=int((document.get("buckets") or {}).get("graphs") or 0),
                sized_by=sized_by(document),
                offline=kept_offline(document),
                no_code=kept_from_code(document),
            )
            plan.check_guard()
            return plan
        except KeyError as missing:
            raise ValueError(f"the key {missing} is missing") from missing
        except (TypeError, AttributeError) as wrong:
            raise ValueError(f"a value has the wrong type: {wrong}") from wrong

    def check_guard(self) -> None:
        """Refuse a guarded plan without its guard, and a plan with unknown settings at start. Raises ValueError."""
        if self.guarded not in (True, False, None):
            raise ValueError("guarded is neither true nor false")
        unknown = sorted(set(self.at_start) - {*AT_START, PYTHON_PATH})
        if unknown:
            raise ValueError(f"at_start names {', '.join(unknown)[:60]}, which this supervisor does not know")
        if not self.guarded:
            return
        targets = {str(item["target"]) for item in self.container.get("mounts", []) if item.get("read_only")}
        whole = (
            {GUARD_DIRECTORY, KEYS_DIRECTORY, DOOR_DIRECTORY} <= targets
            and self.command[-len(MIDDLEWARE) :] == MIDDLEWARE
            and PYTHON_PATH in self.at_start
        )
        if not whole:
            raise ValueError("it is guarded, but its guard, or a mount of it, is missing")

    @property
    def at_start(self) -> tuple[str, ...]:
        """Settings that are added at the start. Plans of 0.1 do not list them, and have no guard."""
        return tuple(map(str, self.container.get("at_start", AT_START)))

    @property
    def environment_file(self) -> str:
        """The text of the container's environment file."""
        return environment_text(self.environment, self.container.get("environment", {}))

    @property
    def shutdown_timeout(self) -> float:
        """Seconds in which the server finishes running requests after it is told to stop; 0 if it aborts them."""
        after = dict(zip(self.command, self.command[1:])).get("--shutdown-timeout", "")
        return float(after) if after.isdecimal() else 0.0

    @property
    def name(self) -> str:
        """The container's name."""
        return str(self.container["name"])

    @property
    def endpoint(self) -> str:
        """The address for display and for queries; a wildcard address also listens on loopback."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104 - compared, not bound
        return f"http://{'[' + host + ']' if ':' in host else host}:{self.port}"

    @property
    def serving(self) -> str:
        """What is served, and where, for people."""
        openly = f", open to others without keys: {self.open_because}" if self.open_because else ""
        return f"serving {self.served_model_name} on {self.endpoint}{openly}"


def kept_offline(plan: Mapping[str, Any]) -> bool:
    """Return whether the server of a plan is kept from fetching anything from a hub.

    It is where the plan names nothing that the server has to fetch. Otherwise keys of its config.json that no list has
    could name a model of another repository. Variables of the plan itself count more.
    """
    own = {**plan["environment"], **plan["container"].get("environment", {})}
    return not hub_ids(plan) and not own.keys() & set(OFFLINE)


def kept_from_code(plan: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the variables that keep a plan's server from code of its weights; {} where it may run that code."""
    return {} if trusts_code(plan) else NO_CODE


def recipe_directory(plan: Mapping[str, Any]) -> str:
    """Return the node's directory for an instance's compiled recipes; "" if they are lost with the container."""
    inside = str(plan.get("environment", {}).get(RECIPES, "")).partition(",")[0]
    mounts = plan.get("container", {}).get("mounts", []) if inside else ()
    return next((str(mount["source"]) for mount in mounts if str(mount["target"]) == inside), inside)


def start_directory(container: Mapping[str, Any]) -> str:
    """Return the node's directory in which a server starts, and may write; "" if it is the container's own."""
    mounts = [each for each in container.get("mounts", []) if not each.get("read_only")]
    writable = {str(each["target"]): str(each["source"]) for each in mounts}
    return writable.get(str(container.get("working_directory")), "")


def own_directories(plan: Mapping[str, Any]) -> dict[str, str]:
    """Return directories of ours that may be replaced while a container runs: node path by path in the container."""
    mounts = {str(item["target"]): str(item["source"]) for item in plan["container"]["mounts"]}
    return {target: source for target, source in mounts.items() if target in OWN_DIRECTORIES}


def mount(source: str, target: str, read_only: bool) -> str:
    """Return a --mount value. docker parses it as CSV, so it is quoted for commas and quotes in a path."""
    line = StringIO()
    fields = ["type=bind", f"source={source}", f"target={target}"] + (["readonly"] if read_only else [])
    csv.writer(line, lineterminator="").writerow(fields)
    return line.getvalue()


def tmpfs(entry: str | dict[str, Any]) -> str:
    """Return a --tmpfs value. docker's default is noexec, with which the compilers' cached libraries do not load.

    Plans written before sizes existed have a path instead of a mapping.
    """
    if isinstance(entry, str):
        return entry if ":" in entry else f"{entry}:rw,exec,nosuid,nodev"
    return f"{entry['path']}:rw,exec,nosuid,nodev,size={entry['size_mib']}m,mode={entry['mode']}"


def resource_limits(box: Mapping[str, Any]) -> list[str]:
    """Return arguments for shared memory and the number of processes; plans of 0.1 have neither."""
    words = ["--shm-size", f"{box['shm_mib']}m"] if box.get("shm_mib") else []
    return [*words, "--pids-limit", str(box["pids"])] if box.get("pids") else words


NO_CORE_DUMPS = {"core": 0}
"""A limit of every container: a core dump of a server has gigabytes (9.6 were seen), and holds what it was asked.

It is added at the start. A plan from before it would differ from a new one, and its instance restart at an upgrade.
"""


def ulimits(box: Mapping[str, Any]) -> list[str]:
    """Return arguments for a container's limits, of its plan and of every container."""
    limits = {**NO_CORE_DUMPS, **box.get("ulimits", {})}
    return [word for name, value in sorted(limits.items()) for word in ("--ulimit", f"{name}={value}:{value}")]


def container_command(
    plan: Plan,
    digest: str,
    indexes: list[int],
    env_file: str,
    image_python_path: str | None,
) -> list[str]:
    """Return the argument vector of docker run; no shell interprets it.

    Everything in it is from the plan, or named by the plan's ``at_start``, but for the variables of OFFLINE and
    NO_CODE, and NO_CORE_DUMPS: a plan from before them would differ from a new one, and its instance restart at an
    upgrade.
    """
    box = plan.container
    added = {
        LABELS: ["--label", f"{LABEL_INSTANCE}={plan.instance}", "--label", f"{LABEL_PLAN}={digest}"],
        # The journal keeps the output; the engine keeps only a little of it, for docker logs.
        LOG_OPTIONS: ["--log-driver", "local", "--log-opt", "max-size=20m", "--log-opt", "max-file=2"],
        DEVICES: ["--env", f"{DEVICES}=" + ",".join(str(index) for index in sorted(indexes))],
        # Adds the guard to the image's own search path, which Habana's images need.
        PYTHON_PATH: ["--env", f"{PYTHON_PATH}=" + ":".join(filter(None, [GUARD_DIRECTORY, image_python_path]))],
    }
    # No --rm: engines before 25 kill such a container when they restart, even with live-restore (moby issue 46308), and
    # an ended container still has its exit status. The supervisor removes it.
    command = ["docker", "run", "--sig-proxy=false", "--pull", "never", "--name", plan.name]
    command += ["--runtime", str(box["runtime"]), "--network", str(box["network"]), "--ipc", str(box["ipc"])]
    command += resource_limits(box)
    command += ["--cap-drop", "ALL"]
    for capability in box.get("capabilities", []):
        command += ["--cap-add", str(capability)]
    command += ["--security-opt", "no-new-privileges"]
    if box.get("read_only", True):
        command += ["--read-only"]
    for entry in box.get("tmpfs", []):
        command += ["--tmpfs", tmpfs(entry)]
    if box.get("working_directory"):
        # Relative names (a profiler's trace, a default calibration) are below this directory.
        command += ["--workdir", str(box["working_directory"])]
    command += ulimits(box)
    for item in box.get("mounts", []):
        command += ["--mount", mount(str(item["source"]), str(item["target"]), bool(item.get("read_only")))]
    command += ["--env-file", env_file]
    for name in OFFLINE if plan.offline else ():
        command += ["--env", f"{name}=1"]
    for name, value in plan.no_code.items():
        command += ["--env", f"{name}={value}"]
    for name in plan.at_start:
        command += added[name]
    return [*command, *NO_ENTRY_POINT, plan.image, *plan.command]
