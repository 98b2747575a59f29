#!/usr/bin/python
"""Ansible module: merge settings into the Docker engine's configuration file and keep everything else in it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: docker_daemon_json
short_description: Merge settings into the Docker engine's daemon.json
description:
  - Merges settings into the engine's configuration file, /etc/docker/daemon.json or the one that the engine is started
    with. Keys of other people stay as they are; a file that is not valid JSON is refused with its line, never
    overwritten. A link to a file in a folder of root's is followed.
  - Reads the arguments of the engine's unit and process. A key that is set by a flag is not merged, since the
    engine does not start with both; a flag that contradicts a setting is refused with the name of the unit's file.
  - An engine that this project did not install gets the runtimes, and settings of the site. One that this project
    installed, or is about to install, also gets live-restore and log rotation where the site sets none.
  - Asks a running engine what it has taken up, so that a run that was interrupted between writing and reloading
    is repaired by the next. What the engine does not tell is read from its process (variables of its unit, such as
    proxies), or remembered until the engine starts again.
  - Has systemd read the engine's unit again where its file or a drop-in changed.
  - Does not reload or restart anything; C(apply) says what it takes. A restart that running containers of others would
    not survive is refused. So is a reload by which the engine would forget a runtime that a container needs - one of
    its flags, or one that engines before 23 have of their own.
  - With V(restored), restores the earlier file after the engine did not return with the new one, starts the engine, and
    fails with the engine's last messages.
  - With V(removed), takes the runtimes out again that were merged into the oldest backup, unless they were changed
    since or are the engine's default; and the keys that O(settings_record) has, unless they were changed since. The
    owner's later changes and all other keys stay. If what remains is what the oldest backup has, the file gets its
    bytes. A file that this module created is removed if nothing is left in it.
author: gaudi-serving
extends_documentation_fragment: attributes.node
attributes:
  check_mode: {support: full, description: It decides before it writes; check mode ends after deciding.}
  diff_mode: {support: full, description: The whole file before and after. Secrets are masked.}
options:
  state:
    description: Whether to merge settings, to restore the file that O(restore) names, or to remove what was merged.
    type: str
    choices: [merged, restored, removed]
    default: merged
  path:
    description: The configuration file of an engine that is started without C(--config-file).
    type: path
    default: /etc/docker/daemon.json
  live_restore:
    description: Whether containers keep running while the engine restarts.
    type: bool
  log_options:
    description: Options of the log driver json-file. Not used if the engine's file or its flags configure logs.
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
  desired:
    description: >-
      Data for the record of the desired state, by which a run detects at its end that another run has written since.
    type: dict
    suboptions:
      record:
        description: Path of the record. It is rewritten if it belongs to another desired state, or is damaged.
        type: path
        required: true
      of:
        description: Name of the settings, as the beginning of a sentence.
        type: str
        required: true
      by:
        description: The name of the controller.
        type: str
        required: true
      asked:
        description: Further settings that are not in files.
        type: dict
        default: {}
  settings_record:
    description:
      - Path of the record of keys that were set in the file, and of whether the file was created. It is written before
        the file. Without it, V(removed) takes out runtimes only.
    type: path
  beside:
    description:
      - The text of other files that belong to the O(desired), by path; empty for one that is to be absent. It is in no
        log.
    type: dict
    default: {}
  restore:
    description: RV(restore) of the run before, for V(restored).
    type: dict
    default: {}
  cause:
    description: Message of the task that failed, for V(restored).
    type: str
    default: ""
  by_others:
    description:
      - Whether the engine was installed by others, as RV(container_runtime_info#module:origin) reports it. Without it,
        the record of M(brought_packages) counts.
    type: bool
  backup:
    description: Keep a backup of the earlier file beside it.
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: Register the runtime
  docker_daemon_json:
    live_restore: true
    log_options: {max-size: 50m, max-file: "3"}
    runtimes: {habana: {path: /usr/bin/habana-container-runtime, runtimeArgs: []}}
"""

RETURN = r"""
apply:
  description: How the running engine applies the file. C(nothing) if it already has, or if no engine runs.
  returned: always
  type: str
  sample: reload
survives:
  description: Whether running containers survive a restart of the engine.
  returned: for V(merged)
  type: bool
  sample: true
path:
  description: The engine's configuration file.
  returned: always
  type: str
  sample: /etc/docker/daemon.json
live_restore:
  description: Value of live-restore that the engine must report; null if none is required.
  returned: always
  type: bool
  sample: true
notes:
  description: Settings that are not used, and why.
  returned: always
  type: list
  elements: str
  sample: ["live-restore is not set: the engine is in swarm mode. Its restart ends all containers."]
restore:
  description: Data for V(restored) - the changed file, and its backup; without an earlier file, the record instead.
  returned: always
  type: dict
  sample: {"target": "/etc/docker/daemon.json", "backup": "/etc/docker/daemon.json.4242.2026-11-21@03:30:00~"}
copies:
  description: Paths of the backups beside the file, the oldest one first.
  returned: for V(removed)
  type: list
  elements: str
  sample: ["/etc/docker/daemon.json.4242.2026-11-21@03:30:00~"]
answers:
  description: Whether a running engine was asked, and answered.
  returned: always
  type: bool
  sample: true
environment:
  description: >-
    Variables that the running engine keeps until its next start, because its unit has them otherwise without the files
    of O(beside).
  returned: for V(removed)
  type: list
  elements: str
  sample: [HTTPS_PROXY]
stays:
  description: What stays of the configuration file and in the running engine, and why.
  returned: for V(removed)
  type: list
  elements: str
  sample: ["/etc/docker/daemon.json, without our settings"]
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
desired:
  description: >-
    Data that M(desired_state_check) compares with the node at the end of the run. It contains digests, no text.
  returned: with O(desired)
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

import os
import tempfile
import time
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gaudi.base.documents import Damaged
from ansible.module_utils.gaudi.base.printable import printable
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.doctor.bundle import masked_text
from ansible.module_utils.gaudi.engine import configuration
from ansible.module_utils.gaudi.engine import daemon as docker_daemon
from ansible.module_utils.gaudi.engine import flags as arguments
from ansible.module_utils.gaudi.node import engine_config
from ansible.module_utils.gaudi.node.documents import make_room, read_json
from ansible.module_utils.gaudi.node.engine_look import last_messages, unit_properties
from ansible.module_utils.gaudi.node.files import text_of, write_json
from ansible.module_utils.gaudi.node.host import desired_record
from ansible.module_utils.gaudi.node.module import NodeModule

ARGUMENT_SPEC: dict[str, Any] = {
    "state": {"type": "str", "choices": ["merged", "restored", "removed"], "default": "merged"},
    "path": {"type": "path", "default": "/etc/docker/daemon.json"},
    "live_restore": {"type": "bool"},
    "log_options": {"type": "dict", "default": {}},
    "runtimes": {"type": "dict", "default": {}},
    "additions": {"type": "dict", "default": {}},
    "desired": desired_record.OPTION,
    "settings_record": {"type": "path"},
    # The addresses of proxies may hold a password.
    "beside": {"type": "dict", "default": {}, "no_log": True},
    "restore": {"type": "dict", "default": {}},
    "cause": {"type": "str", "default": ""},
    "by_others": {"type": "bool"},
    "backup": {"type": "bool", "default": True},
}


# Changes that need a restart and that the engine cannot be queried for. The file ends with the next boot, which also
# starts the engine.
WAITING = Path("/run/gaudi-serving/docker-restart.json")
SETTINGS = {"path": str, "created": bool, "set": dict}


def read_engine(module: AnsibleModule) -> configuration.EngineFacts:
    """Read the engine, after systemd has read its unit again if one of the unit's files changed."""
    others = module.params["by_others"]
    engine: configuration.EngineFacts = engine_config.read_engine(module, by_others=others)
    if not engine.installed or module.check_mode:
        return engine
    if not engine_config.systemd_is_late(unit_properties(module, *engine_config.PROPERTIES)):
        return engine
    module.run_command(["systemctl", "daemon-reload"], check_rc=True)
    again: configuration.EngineFacts = engine_config.read_engine(module, by_others=others)
    return again


def stale_environment(module: AnsibleModule) -> list[str]:
    """Return variables of the engine's process that differ from its unit's current ones."""
    unit = engine_config.unit_of(module)
    if unit.get("MainPID", "0") == "0":
        return []
    process = text_of(engine_config.PROC / unit["MainPID"] / "environ")
    texts = engine_config.environment_files(unit)
    own = texts.pop(docker_daemon.OWN_VARIABLES, "")
    # Before the file is written in check mode, or removed from the unit.
    own = module.params["beside"].get(docker_daemon.OWN_VARIABLES, own)
    # Drop-ins of ours that earlier releases wrote hold the variables themselves, and are replaced after this.
    replaced = "".join(text_of(Path(path)) for path in module.params["beside"])
    wanted = unit.get("Environment", "")
    return docker_daemon.stale_environment(wanted, process, "".join(texts.values()), own, replaced)


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


def settings_record(module: AnsibleModule, path: str) -> dict[str, Any]:
    """Return the record of what was set in a configuration file; empty if there is none of this file."""
    empty = {"path": path, "created": False, "set": {}}
    if not module.params["settings_record"]:
        return empty
    try:
        found = read_json(Path(module.params["settings_record"]), SETTINGS)
    except Damaged as damage:
        module.warn(f"{damage}. It is not known which keys of {path} this project set, so they count as the owner's.")
        return empty
    return found if found and found["path"] == path else empty


def note_settings(module: AnsibleModule, path: str, changed: dict[str, Any], *, created: bool) -> None:
    """Record keys that are set in the configuration file, with their values, and whether it is created."""
    if not module.params["settings_record"]:
        return
    record, known = Path(module.params["settings_record"]), settings_record(module, path)
    make_room(record)
    content = {"path": path, "created": created or known["created"], "set": {**known["set"], **changed}}
    # Values may be addresses with an account.
    write_json(record, content, mode=0o600)


def validate(module: AnsibleModule, engine: configuration.EngineFacts, file: str, target: str) -> bool:
    """Let the installed engine check a file with its unit's flags, if it can; fail the module if it refuses."""
    dockerd = module.get_bin_path("dockerd", opt_dirs=["/usr/sbin", "/usr/bin"])
    if dockerd is None:
        return False
    _code, usage, _err = module.run_command([dockerd, "--help"])
    if "--validate" not in usage:
        return False
    words = arguments.without_config_file(engine.command)
    code, out, err = module.run_command([dockerd, "--validate", "--config-file", file, *words])
    if code != 0:
        module.fail_json(
            msg=f"The installed engine refuses {target} with our settings in it, so it was not changed. "
            f"Correct the file, or the option that is named: {printable((err or out).strip())}",
            refused_id="engine_refuses_file",
            stdout=out,
            stderr=err,
        )
    return True


def write(
    module: AnsibleModule,
    engine: configuration.EngineFacts,
    file: engine_config.ConfigFile,
    content: bytes,
    restart: list[str],
    changed: dict[str, Any],
) -> dict[str, Any]:
    """Replace the file in one rename after the engine has checked it; return data for the result.

    restart: keys that now wait for a restart. changed: the keys that are set, with their values.
    """
    target = file.target
    target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    # Beside its target, so that it can be put in place by a rename.
    handle, name = tempfile.mkstemp(dir=str(target.parent))
    module.add_cleanup_file(name)
    with os.fdopen(handle, "wb") as stream:
        stream.write(content)
    report: dict[str, Any] = {"validated": validate(module, engine, name, file.path)}
    exists = target.exists()
    if exists and module.params["backup"]:
        # Beside the path that the engine is given, also where that is a link.
        report["backup_file"] = module.backup_local(file.path)
    if restart and engine.installed:
        note_waiting(restart)
    if changed:
        note_settings(module, file.path, changed, created=not exists)
    # atomic_move keeps owner and mode of an existing file.
    module.atomic_move(name, str(target))
    if not exists:
        module.set_mode_if_different(str(target), "0644", False)
    if not exists or module.params["backup"]:
        report["restore"] = {"target": str(target), "backup": report.get("backup_file", "")}
        if not exists and module.params["settings_record"]:
            report["restore"]["settings_record"] = module.params["settings_record"]
    return report


def note(module: AnsibleModule, daemon: dict[str, Any], path: str, after: str, *, changed: bool) -> dict[str, Any]:
    """Keep the record of the desired state; return data for the result.

    daemon: the settings that the file has to have. after: the text of the file.

    Written last, so that settings which the engine refuses do not replace the record of another run.
    """
    files = module.params["beside"]
    content = {"files": files, "daemon": daemon}
    noted, desired = desired_record.note(
        module.params["desired"], content, {**files, path: after}, {}, module.check_mode
    )
    return {"changed": changed or noted, "desired": desired}


def put(module: AnsibleModule, target: str, text: str) -> None:
    """Replace a file's text; owner and mode stay."""
    handle, name = tempfile.mkstemp(dir=str(Path(target).parent))
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        stream.write(text)
    module.atomic_move(name, target)


def start(module: AnsibleModule, verb: str) -> None:
    """Start or reload the engine's unit; whether the engine answers is asked afterwards."""
    module.run_command(["systemctl", verb, "docker.service"])


def restore(module: AnsibleModule) -> None:
    """Restore the earlier file, start the engine with it, and fail with the engine's last messages."""
    target, backup = module.params["restore"].get("target"), module.params["restore"].get("backup")
    messages = last_messages(module)
    # A unit that failed too often in a short time is not started otherwise.
    module.run_command(["systemctl", "reset-failed", "docker.service", "docker.socket"])
    done = "its configuration file was not changed by this run"
    if target:
        earlier = Path(backup).read_bytes().decode() if backup else ""
        between = docker_daemon.between(Path(target).read_bytes().decode(), earlier)
        if between:
            put(module, target, between)
            start(module, "start")
        if backup:
            put(module, target, earlier)
            done = f"{target} was restored from {backup}"
        else:
            # An engine does not start without a file that its flag names; it ran, as the file was lost after its start.
            named = arguments.CONFIG_FILE in read_engine(module).flags
            if named:
                put(module, target, "{}\n")
            else:
                Path(target).unlink()
            if module.params["restore"].get("settings_record"):
                Path(module.params["restore"]["settings_record"]).unlink(missing_ok=True)
            done = f"{target}, which this run had created, was {'emptied' if named else 'removed'}"
    for verb in ("start", "reload"):
        start(module, verb)
    returned = "answers again" if engine_config.engine_info(module) else "still does not answer"
    said = printable(" ".join(messages))
    module.fail_json(
        msg=f"The engine did not take up its configuration: {printable(module.params['cause']).strip()} "
        f"Now {done}, and the engine {returned}. Correct what its last messages name, then run again: {said or 'none'}",
        refused_id="engine_did_not_return",
        log=messages,
    )


def requested(params: dict[str, Any]) -> configuration.RequestedConfiguration:
    """Return the settings of the site."""
    return configuration.RequestedConfiguration(
        live_restore=params["live_restore"],
        log_options=params["log_options"],
        runtimes=params["runtimes"],
        additions=params["additions"],
        proxies=arguments.environment_file(params["beside"].get(docker_daemon.OWN_VARIABLES, "")),
    )


def difference(path: str, before: str, after: str) -> dict[str, str]:
    """Return a difference of the file, with the secrets masked that its owner may have in it."""
    texts = {"before": before, "after": after}
    shown = {name: masked_text(text) for name, text in texts.items()}
    return {**shown, "before_header": path, "after_header": path}


def merge(module: AnsibleModule) -> dict[str, Any]:
    """Merge, compare with the file and the running engine, write what differs; return the result. Raises Refusal."""
    engine = read_engine(module)
    path = configuration.config_file(engine, module.params["path"])
    file = engine_config.read_config(path)
    before = docker_daemon.decode(file.raw, path, engine.version)
    existing = docker_daemon.parse(before, path)
    decision = configuration.decide(engine, existing, requested(module.params), path)
    keys = docker_daemon.changed_keys(existing, decision.merged)
    file.check_writable(keys)
    late = waiting(module) if engine.info else []
    environment = stale_environment(module) if engine.info else []
    environment = configuration.own_variables(engine, environment, module.params["beside"])
    stale = sorted({*keys, *late, *docker_daemon.drift(engine.info, decision.compared), *environment})
    apply = docker_daemon.apply_with(stale) if engine.info else "nothing"
    if engine.info:
        engine_config.check_apply(module, engine, existing, decision, stale, path)
    result: dict[str, Any] = {
        "changed": bool(keys),
        "answers": bool(engine.info),
        "keys": stale if engine.info else keys,
        "apply": apply,
        "survives": not decision.ending,
        "path": path,
        "live_restore": decision.compared.get("live-restore"),
        "notes": list(decision.notes),
        "restore": {},
    }
    after = docker_daemon.render(decision.merged) if keys else before
    if keys:
        result["diff"] = difference(path, before, after)
        if not module.check_mode:
            changed = {key: decision.merged[key] for key in keys}
            waits = docker_daemon.needs_restart([*keys, *late])
            result.update(write(module, engine, file, after.encode(), waits, changed))
    if module.params["desired"]:
        text = after if keys else file.raw.decode("utf-8")
        result.update(note(module, decision.desired, str(file.target), text, changed=bool(keys)))
    return result


def parse_copy(copy: Path) -> dict[str, Any]:
    """Return the content of a backup. Raises Refusal for one that cannot be read."""
    parsed: dict[str, Any] = docker_daemon.parse(docker_daemon.decode(copy.read_bytes(), str(copy)), str(copy))
    return parsed


def plan_removal(
    module: AnsibleModule, engine: configuration.EngineFacts, desired: dict[str, Any], keys: list[str]
) -> tuple[str, list[str]]:
    """Return how a removal is applied to a running engine, and what stays in it until its next start. Raises Refusal.

    desired: the new content of the file. keys: what changes in it. A reload applies a changed value of a key, but not
    the removal of a key (daemon/reload.go in moby; seen with 20.10.24).
    """
    if not keys or not engine.info:
        return "nothing", []
    dropped = configuration.dropped_runtimes(engine, desired).keys() - module.params["runtimes"].keys()
    needing = engine_config.containers_of(module, dropped)
    held = keys if needing else [key for key in keys if key not in desired or docker_daemon.needs_restart([key])]
    why = f", as a reload would keep {', '.join(sorted(needing))} from starting again" if needing else ""
    stays = (
        f"this site's values of {', '.join(held)} in the running engine, until it is restarted{why} "
        f"({configuration.at_restart(engine.version)})"
    )
    return "nothing" if needing else "reload", [stays] if held else []


def unrecorded(path: str, existing: dict[str, Any], runtimes: dict[str, Any]) -> str:
    """Return the line on a file that no backup and no record is left of. existing: its content."""
    there = existing.get("runtimes")
    if isinstance(there, dict) and not there.keys().isdisjoint(runtimes):
        unknown = "neither a backup nor a record tells what was in it before, or whether an earlier release created it"
        return f"{path}, as {unknown}"
    # So it is after a removal that was cut off later.
    return f"{path}, unchanged: it has no runtime of this site, and no record of this site's other settings is left"


def remove(module: AnsibleModule) -> dict[str, Any]:
    """Take our settings out of the file; return the result. A file that cannot be changed stays, with a note."""
    engine, path = read_engine(module), module.params["path"]
    result: dict[str, Any] = {"changed": False, "apply": "nothing", "path": path, "copies": [], "keys": [], "notes": []}
    environment = stale_environment(module) if engine.info else []
    environment = configuration.own_variables(engine, environment, module.params["beside"])
    result.update(live_restore=None, answers=bool(engine.info), restore={}, stays=[], environment=environment)
    try:
        path = configuration.config_file(engine, path)
    except Refusal as refusal:
        return {**result, "notes": [f"The engine's configuration file was not changed. {refusal}"]}
    copies = engine_config.copies_of(path)
    result.update(path=path, copies=list(map(str, copies)))
    if not Path(path).exists():
        return result
    record = settings_record(module, path)
    try:
        file = engine_config.read_config(path)
        before = docker_daemon.decode(file.raw, path, engine.version)
        existing = docker_daemon.parse(before, path)
        if not copies and not record["created"]:
            return {**result, "stays": [unrecorded(path, existing, module.params["runtimes"])]}
        earlier = {} if record["created"] else parse_copy(copies[0])
        runtimes = module.params["runtimes"]
        desired = docker_daemon.without_ours(existing, earlier, runtimes, record["set"], engine.flags)
        keys = docker_daemon.changed_keys(existing, desired)
        file.check_writable(keys)
        apply, held = plan_removal(module, engine, desired, keys)
    except Refusal as refusal:
        return {**result, "notes": [f"{path} was not changed. {refusal}"]}
    # An engine does not start without a file that its flag names.
    gone = record["created"] and not desired and arguments.CONFIG_FILE not in engine.flags
    # With all that the owner had in it, and nothing else: as the owner wrote it.
    same = not record["created"] and desired == earlier
    after = b"" if gone else copies[0].read_bytes() if same else docker_daemon.render(desired).encode()
    if not gone:
        changed = "as it was before us" if same else "without our settings"
        result["stays"] = [f"{path}, {changed if keys else 'unchanged'}"]
    result["stays"] += held
    if keys:
        result.update(changed=True, keys=keys, apply=apply)
        result["diff"] = difference(path, before, docker_daemon.decode(after, path))
    if module.check_mode:
        return result
    if gone:
        file.target.unlink()
    elif keys:
        result.update(write(module, engine, file, after, [], {}))
    return result


def main() -> None:
    """Merge settings, restore the earlier file, or remove runtimes."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    if module.params["state"] == "restored":
        restore(module)
    try:
        result = remove(module) if module.params["state"] == "removed" else merge(module)
    except Refusal as refusal:
        module.fail_json(msg=str(refusal), refused_id=refusal.id)
    for sentence in result["notes"]:
        module.warn(sentence)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
