"""Running containers and units of a node, from the container engine and systemd."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..base import paths
from ..base.documents import Damaged
from ..base.printable import printable
from ..base.refusal import Refusal
from ..engine import proof
from ..serving import confinement
from ..serving.kept import StartsFrom
from ..serving.made_of import MadeOf
from ..serving.plan import LABEL_PLAN, own_directories
from . import kept
from .documents import read_json, read_text
from .inspection import KILL_AFTER, PRINTED, OutputLimitExceeded, run_limited

PROC = Path("/proc")
DEVICES = Path(proof.FOLDER)
# The guard's program, in its directory.
GUARD = "gaudi_guard.py"
# Statuses of coreutils' timeout after it stopped a command, or had to kill it.
TIMED_OUT = (124, 137, -9)


@dataclass(frozen=True)
class InstanceContainer:
    """One container: whether it runs, the digest on its label, and the engine's full description."""

    running: bool
    plan: str | None
    inspected: dict[str, Any]


def look(module: AnsibleModule, name: str) -> InstanceContainer | None:
    """Inspect a container; None if it does not exist, or no engine is installed.

    Ends the module if the engine does not answer, since it is then unknown what runs.
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
    return InstanceContainer(bool(inspected["State"]["Running"]), labels.get(LABEL_PLAN), inspected)


def check_container(module: AnsibleModule, plan: Mapping[str, Any], label: str) -> InstanceContainer:
    """Return the container of an instance.

    Raises Refusal unless the container and the files on the node are those of this run. label: the label of a container
    of this run.
    """
    name, instance = plan["container"]["name"], plan["instance"]
    said = Path(paths.INSTANCES) / instance / "explanation.json"
    if not lies_there(plan, label):
        raise overwritten(f"{instance} is not on the node as this run has written it", "plan", said)
    container = look(module, name)
    if container is None or not container.running:
        raise Refusal("container_not_running", f"The container {name} does not run. Look at journalctl -u {name}.")
    if container.plan != label:
        raise overwritten(f"{instance} does not run with what this run has written", "plan", said)
    try:
        process = (PROC / str(container.inspected["State"]["Pid"]) / "status").read_text(
            encoding="utf-8", errors="replace"
        )
    except OSError:
        raise Refusal(
            "container_not_running", f"The container {name} has just ended. Look at journalctl -u {name}."
        ) from None
    wrong = confinement.differences(container.inspected, plan, process)
    if wrong:
        raise Refusal(
            "not_confined",
            f"The container {name} is not confined as planned: {'; '.join(wrong)}. Have it made again: "
            f"systemctl restart {name}",
        )
    former = outlived(module, container, plan)
    if former:
        raise Refusal(
            "outlived",
            f"{instance} does not run with what is on the node: {'; '.join(former)}. Run the playbook again, which "
            "restarts it.",
        )
    return container


def overwritten(what: str, content: str, file: Path | None) -> Refusal:
    """Why a file that this run wrote has changed: another run wrote it, and is named if the file names it.

    content: what the file contains.
    """
    try:
        said = None if file is None else read_json(file, {"written": {"by": str, "at": str}})
    except Damaged:
        said = None
    by = (
        f" The {content} on the node was written by {said['written']['by']} at {said['written']['at']}." if said else ""
    )
    return Refusal(
        "overwritten",
        f"{what}: another run, or somebody on the node, changed it meanwhile.{printable(by)} Run the playbook again "
        "when nobody else does.",
    )


def lies_there(plan: Mapping[str, Any], label: str) -> bool:
    """Whether the next container would get this label."""
    folder = Path(paths.INSTANCES) / plan["instance"]
    files = [folder / "plan.json", folder / "environment", *([Path(paths.GUARD) / GUARD] if plan["guarded"] else [])]
    try:
        texts = [read_text(file) for file in files]
    except Damaged:
        return False
    if None in texts:
        return False
    document, environment, *guard = [str(text).encode() for text in texts]
    return MadeOf(document, environment, guard[0] if guard else None).is_on(label)


def image_id(module: AnsibleModule, reference: str) -> str | None:
    """Return the id of an image on the node; None if it is missing."""
    code, out, _ = module.run_command(
        [module.get_bin_path("docker"), "image", "inspect", "--format", "{{.Id}}", reference]
    )
    return (out.strip() or None) if code == 0 else None


def starts_from(
    module: AnsibleModule, plan: Mapping[str, Any], guard: bytes | None, weights: Sequence[Path]
) -> StartsFrom:
    """Return what a plan would start from now. guard: its text if keys are needed; weights: the folders it reads."""
    image = image_id(module, str(plan["image"])) if module.get_bin_path("docker") else None
    driver = ""
    if module.get_bin_path(kept.ASK_DRIVER[0]):
        code, out, _ = module.run_command(list(kept.ASK_DRIVER))
        driver = kept.driver_version(out) if code == 0 else ""
    return StartsFrom(image or "", kept.guard_digest(guard), kept.weights_digest(weights), driver)


def outlived(module: AnsibleModule, container: InstanceContainer, plan: Mapping[str, Any]) -> list[str]:
    """Return differences between a running container and the node that arose after its start, a phrase each.

    Its label does not show them. A mounted directory stays the old one when another takes its path, and an image stays
    the old one when its name moves. A directory or image that is only gone does not count.
    """
    found = [
        f"it still has the former {source}, which was replaced" for source in replaced(container, own_directories(plan))
    ]
    if image_id(module, plan["image"]) not in (None, container.inspected["Image"]):
        found.append(f"{plan['image']} is another image by now, which its next start would take")
    return found


def replaced(container: InstanceContainer, directories: Mapping[str, str]) -> list[str]:
    """Directories that were replaced on the node while a container runs: its processes still see the old ones, or none.

    directories: container paths by node path.
    """
    root = PROC / str(container.inspected["State"]["Pid"]) / "root"
    seen = {source: _identity(root / target.lstrip("/")) for target, source in directories.items()}
    return [source for source, found in seen.items() if found is None or found != _identity(Path(source))]


def _identity(path: Path) -> tuple[int, int] | None:
    """Return device and inode of a path; None if it does not exist."""
    try:
        seen = path.stat()
    except OSError:
        return None
    return seen.st_dev, seen.st_ino


def proof_facts(module: AnsibleModule, docker: str, habana_path: str) -> dict[str, Any]:
    """Return what a runtime proof is valid for, as engine.proof.facts returns it; {} on a node without cards."""
    cards = proof.devices(path.name for path in DEVICES.iterdir()) if DEVICES.is_dir() else []
    if not cards:
        return {}
    _, version, _ = module.run_command([docker, "version", "--format", "{{.Server.Version}}"])
    runtime = Path(habana_path)
    seen = runtime.stat() if runtime.exists() else None
    file = {} if seen is None else {"bytes": seen.st_size, "changed": seen.st_mtime_ns}
    facts: dict[str, Any] = proof.facts(version, file, cards)
    return facts


@dataclass(frozen=True)
class ContainerExit:
    """How a container ended.

    status: None if it was stopped at its time limit. how: the same in words. no_memory: the kernel killed it for lack
    of memory.
    """

    status: int | None
    out: str
    err: str
    how: str
    no_memory: bool = False

    @property
    def text(self) -> str:
        """The container's output; with stderr if it failed."""
        return self.out + (self.err if self.status != 0 else "")


def run_once(
    module: AnsibleModule,
    name: str,
    arguments: Sequence[str],
    seconds: int,
    data: str = "",
    began: Callable[[], None] | None = None,
) -> ContainerExit:
    """Run a container for at most so many seconds, remove it, and return how it ended.

    An image that was never inspected may hang, or print without end. arguments: those of docker run after the
    container's name. data: its standard input. began: called once its program prints, while it runs.

    Status 137 means that it was killed: at the limit by us, otherwise by
    the kernel or by somebody; elapsed time tells the first, the engine the second.
    """
    docker = module.get_bin_path("docker", required=True)
    limit = [module.get_bin_path("timeout", required=True), f"--kill-after={KILL_AFTER}", str(seconds)]
    # A hanging container outlives its client and keeps its cards; so does one that an interrupted run has left.
    end = [docker, "rm", "--force", "--volumes", name]
    module.run_command(end)
    begun = time.monotonic()
    try:
        # Otherwise the engine would store the output on disk.
        status, out, err = run_limited(
            [*limit, docker, "run", "--name", name, "--log-driver", "none", "--pull", "never", *arguments], data, began
        )
        if status in TIMED_OUT and time.monotonic() - begun >= seconds:
            return ContainerExit(None, out, err, f"did not end within {seconds} seconds")
        asked = [docker, "inspect", "--format", "{{.State.OOMKilled}}", name]
        no_memory = status == 137 and module.run_command(asked)[1].strip() == "true"
        how = (
            "needed more memory than it may have, or than the node has" if no_memory else f"ended with status {status}"
        )
        return ContainerExit(status, out, err, how, no_memory)
    except OutputLimitExceeded as printed:
        return ContainerExit(1, printed.out, printed.err, f"printed more than {PRINTED >> 20} MiB")
    finally:
        module.run_command(end)
