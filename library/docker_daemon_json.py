#!/usr/bin/python
"""Ansible module: merge settings into the Docker engine's configuration file and keep everything else in it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: docker_daemon_json
short_description: Merge settings into the Docker engine's daemon.json
description:
  - Merges settings into /etc/docker/daemon.json. Keys of other people stay as they are; a file that is not valid JSON
    is refused with its line, never overwritten.
  - Asks a running engine what it has taken up, so that a run that was interrupted between writing and reloading
    is mended by the next. What the engine does not tell is read from its process (variables of its unit, such as
    proxies), or remembered until the engine starts again.
  - Has systemd read the engine's unit again where its file or a drop-in changed.
  - Does not reload or restart anything; C(apply) says what it takes.
author: gaudi-serving
attributes:
  check_mode: {support: full, description: It decides before it writes; check mode ends after deciding.}
  diff_mode: {support: full, description: The whole file before and after.}
options:
  path:
    description: The configuration file.
    type: path
    default: /etc/docker/daemon.json
  settings:
    description: Keys that must hold as given.
    type: dict
    default: {}
  defaults:
    description: Keys that are set together, and only if none of them is set yet.
    type: dict
    default: {}
  runtimes:
    description: Runtimes by name, each with C(path) and C(runtimeArgs), set beside those that are there.
    type: dict
    default: {}
  additions:
    description: Lists to append to, by key, such as C(registry-mirrors). Nothing is removed from them.
    type: dict
    default: {}
  wish:
    description: Data for the record of the wish, by which a run detects at its end that another run has written since.
    type: dict
    suboptions:
      record:
        description: Path of the record. It is rewritten if it belongs to another wish, or is damaged.
        type: path
        required: true
      of:
        description: Name of the wished settings, as the beginning of a sentence.
        type: str
        required: true
      by:
        description: The name of the controller.
        type: str
        required: true
      asked:
        description: Further wishes that are not in files.
        type: dict
        default: {}
  beside:
    description:
      - The text of other files that belong to the O(wish), by path; empty for one that is to be absent. It is in no
        log.
    type: dict
    default: {}
  backup:
    description: Keep a backup of the earlier file beside it.
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: Register the runtime
  docker_daemon_json:
    settings: {live-restore: true}
    defaults: {log-driver: json-file, log-opts: {max-size: 50m, max-file: "3"}}
    runtimes: {habana: {path: /usr/bin/habana-container-runtime, runtimeArgs: []}}
"""

RETURN = r"""
apply:
  description: How the running engine applies the file. C(nothing) if it already has, or if no engine runs.
  returned: always
  type: str
  sample: reload
answers:
  description: Whether a running engine was asked, and answered.
  returned: always
  type: bool
  sample: true
keys:
  description: >-
    Keys that were changed in the file, or that the running engine has not taken up; and variables of its unit that its
    process has otherwise.
  returned: always
  type: list
  elements: str
  sample: [live-restore, runtimes]
backup_file:
  description: Path of the backup of the earlier file.
  returned: when a file was replaced
  type: str
  sample: /etc/docker/daemon.json.4242.2026-11-21@03:30:00~
validated:
  description: Whether the installed engine itself checked the new file (dockerd --validate, since 23.0).
  returned: when the file changed
  type: bool
  sample: true
wish:
  description: Data that M(node_wished) compares with the node at the end of the run. It contains digests, no text.
  returned: with O(wish)
  type: dict
  sample:
    {"of": "The settings of the container engine", "record": "/var/lib/gaudi-serving/container_runtime_wish.json",
     "digest": "5b3a", "files": {"/etc/docker/daemon.json": "77aa"}, "kernel": {}, "boot": "1c"}
refused_id:
  description: Id of the refusal, which stays the same between releases; C(msg) has the sentence.
  returned: when the task fails for a refusal
  type: str
  sample: not_json
"""

import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gaudi.base.documents import Damaged
from ansible.module_utils.gaudi.base.printable import printable
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.engine import daemon as docker_daemon
from ansible.module_utils.gaudi.node import tuning
from ansible.module_utils.gaudi.node.documents import make_room, read_json
from ansible.module_utils.gaudi.node.files import write_json
from ansible.module_utils.gaudi.node.module import NodeModule

ARGUMENT_SPEC: dict[str, Any] = {
    "path": {"type": "path", "default": "/etc/docker/daemon.json"},
    "settings": {"type": "dict", "default": {}},
    "defaults": {"type": "dict", "default": {}},
    "runtimes": {"type": "dict", "default": {}},
    "additions": {"type": "dict", "default": {}},
    "wish": tuning.WISH,
    # The addresses of proxies may hold a password.
    "beside": {"type": "dict", "default": {}, "no_log": True},
    "backup": {"type": "bool", "default": True},
}


PROC = Path("/proc")
DROP_INS = [
    Path(root, "docker.service.d") for root in ("/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system")
]
# What systemd is asked of the engine's unit.
ENGINE = ("NeedDaemonReload", "DropInPaths", "MainPID", "Environment", "EnvironmentFiles")
# Changes that need a restart and that the engine cannot be queried for. The file ends with the next boot, which also
# starts the engine.
WAITING = Path("/run/gaudi-serving/docker-restart.json")


def engine_info(module: AnsibleModule) -> dict[str, Any]:
    """Return the running engine's docker info; {} if no engine is installed or running."""
    docker = module.get_bin_path("docker")
    if docker is None:
        return {}
    code, out, _err = module.run_command([docker, "info", "--format", "{{json .}}"])
    if code != 0:
        return {}
    info: dict[str, Any] = json.loads(out)
    # If the engine does not answer, the client still exits with status 0.
    return {} if info.get("ServerErrors") else info


def unit_properties(module: AnsibleModule, *names: str) -> dict[str, str]:
    """Return properties of the engine's unit as systemd has it."""
    _code, out, _err = module.run_command(["systemctl", "show", "docker.service", f"--property={','.join(names)}"])
    found: dict[str, str] = {}
    for line in out.splitlines():
        name, _, value = line.partition("=")
        # EnvironmentFiles has a line for each.
        found[name] = f"{found[name]} {value}" if name in found else value
    return found


def systemd_is_late(said: dict[str, str]) -> bool:
    """Whether systemd has not read the current files of the engine's unit.

    NeedDaemonReload misses a unit's first drop-in, because systemd does not notice a directory created since its
    reload.
    """
    read = said.get("DropInPaths", "").split()
    there = {file.name for folder in DROP_INS for file in folder.glob("*.conf")}
    unread = there - {Path(file).name for file in read}
    return said.get("NeedDaemonReload") == "yes" or bool(unread) or not all(Path(file).exists() for file in read)


def stale_environment(module: AnsibleModule) -> list[str]:
    """Return variables of the engine's process that differ from its unit's current ones."""
    unit = unit_properties(module, *ENGINE)
    if systemd_is_late(unit) and not module.check_mode:
        module.run_command(["systemctl", "daemon-reload"], check_rc=True)
        unit = unit_properties(module, *ENGINE)
    if unit.get("MainPID", "0") == "0":
        return []
    process = (PROC / unit["MainPID"] / "environ").read_bytes().decode(errors="replace")
    files = [Path(word) for word in unit.get("EnvironmentFiles", "").split() if word.startswith("/")]
    texts = {str(file): file.read_text(errors="replace") for file in files if file.is_file()}
    own = texts.pop(docker_daemon.OWN_VARIABLES, "")
    return docker_daemon.stale_environment(unit.get("Environment", ""), process, "".join(texts.values()), own)


def waiting(module: AnsibleModule) -> list[str]:
    """Return keys that were changed since the engine started and that need a restart."""
    try:
        noted = read_json(WAITING, {"keys": [str], "since": (int, float)})
    except Damaged as damage:
        module.warn(f"{damage}. Whether the engine waits for a restart is not known, so none is made.")
        return []
    if noted is None:
        return []
    started = unit_properties(module, "ExecMainStartTimestampMonotonic").get("ExecMainStartTimestampMonotonic", "0")
    # Both are seconds since boot; systemd's value is in microseconds.
    return [] if int(started) / 1e6 > noted["since"] else list(noted["keys"])


def note_waiting(keys: list[str]) -> None:
    """Record keys that wait for the engine's next start."""
    WAITING.parent.mkdir(mode=0o755, exist_ok=True)
    make_room(WAITING)
    # A boot resolves it, so the file need not survive one.
    write_json(WAITING, {"keys": keys, "since": time.clock_gettime(time.CLOCK_MONOTONIC)}, durable=False)


def validate(module: AnsibleModule, file: str, target: str) -> bool:
    """Let the installed engine check a file, if it can; fail the module with its message if it refuses."""
    dockerd = module.get_bin_path("dockerd", opt_dirs=["/usr/sbin", "/usr/bin"])
    if dockerd is None:
        return False
    _code, usage, _err = module.run_command([dockerd, "--help"])
    if "--validate" not in usage:
        return False
    code, out, err = module.run_command([dockerd, "--validate", "--config-file", file])
    if code != 0:
        module.fail_json(
            msg=f"The installed engine refuses {target} with our settings in it, so it was left as it was: "
            f"{printable((err or out).strip())}",
            stdout=out,
            stderr=err,
        )
    return True


def write(module: AnsibleModule, path: str, text: str, restart: list[str]) -> dict[str, Any]:
    """Replace the file in one rename after the engine has checked it; return data for the result.

    restart: keys that now wait for a restart.
    """
    Path(path).parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    # Beside its target, so that it can be put in place by a rename.
    handle, name = tempfile.mkstemp(dir=str(Path(path).parent))
    module.add_cleanup_file(name)
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        stream.write(text)
    report: dict[str, Any] = {"validated": validate(module, name, path)}
    exists = Path(path).exists()
    if exists and module.params["backup"]:
        report["backup_file"] = module.backup_local(path)
    if restart:
        note_waiting(restart)
    # atomic_move keeps owner and mode of an existing file.
    module.atomic_move(name, path)
    if not exists:
        module.set_mode_if_different(path, "0644", False)
    return report


def note(module: AnsibleModule, after: str, *, changed: bool) -> dict[str, Any]:
    """Keep the record of the wish; return data for the result. after: the text of the file.

    Written last, so that settings which the engine refuses do not replace the record of another run.
    """
    params, files = module.params, module.params["beside"]
    content = {
        "files": files,
        "daemon": {part: params[part] for part in ("settings", "defaults", "runtimes", "additions")},
    }
    noted, wish = tuning.note(params["wish"], content, {**files, params["path"]: after}, {}, module.check_mode)
    return {"changed": changed or noted, "wish": wish}


def main() -> None:
    """Merge, compare with the file and the running engine, write what differs."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    path, params = module.params["path"], module.params
    before = Path(path).read_text(encoding="utf-8") if Path(path).exists() else ""
    try:
        existing = docker_daemon.parse(before, path)
        merged = docker_daemon.merge(existing, params, path)
    except Refusal as refusal:
        module.fail_json(msg=str(refusal), refused_id=refusal.id)
    keys = docker_daemon.changed_keys(existing, merged)
    info = engine_info(module)
    late = waiting(module) if info else []
    stale = sorted({*keys, *late, *docker_daemon.drift(info, merged), *stale_environment(module)}) if info else []
    apply = docker_daemon.apply_with(stale)
    result: dict[str, Any] = {"changed": bool(keys), "answers": bool(info), "keys": stale or keys, "apply": apply}
    after = docker_daemon.render(merged) if keys else before
    if keys:
        result["diff"] = {"before": before, "after": after, "before_header": path, "after_header": path}
        if not module.check_mode:
            restart = docker_daemon.needs_restart([*keys, *late])
            result.update(write(module, path, after, restart))
    if params["wish"]:
        result.update(note(module, after, changed=bool(keys)))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
