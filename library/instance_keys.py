#!/usr/bin/python
"""List the API keys of an instance, and change them; they count from the next request on."""

from __future__ import annotations

DOCUMENTATION = r"""
module: instance_keys
short_description: List the API keys of an instance, and change them
version_added: "0.1.0"
author: The gaudi-serving authors
description:
  - The node has SHA-256 digests of keys, never a key. A change counts from the next request on, without a restart.
  - Keys have an origin. Those of the inventory are as O(inventory) says; those that O(add) brought are touched by
    O(add), O(revoke) and O(ending) only.
  - The file and its directory belong to root alone. With O(inventory) they are made so again where somebody else may
    read or write them.
  - Without any of these options it lists the keys.
options:
  instance:
    description: Name of the instance.
    type: str
    required: true
  inventory:
    description: The keys that the inventory has for the instance, as the filter C(api_keys) returns them. The others of
      the inventory are taken away.
    type: list
    elements: dict
    suboptions: &key
      name:
        description: What the key is called.
        type: str
        required: true
      digest:
        description: SHA-256 of the key, 64 hexadecimal digits.
        type: str
        required: true
      ends:
        description: The last second in which the key is valid, in UTC, such as V(2027-01-31T23:59:59Z).
        type: str
  add:
    description: A further key.
    type: dict
    suboptions: *key
  revoke:
    description: Name of the key to revoke, of whatever origin.
    type: str
  by:
    description: The controller that changes the keys; it is recorded beside them. Empty records none.
    type: str
    default: ""
  running:
    description: Whether the container that runs is asked, too, whether its guard reads what is written here.
    type: bool
    default: false
  export:
    description: Whether the keys are returned with their digests. A short key could be guessed from its digest, so use
      C(no_log).
    type: bool
    default: false
  ending:
    description: A key that gets an end, or loses it.
    type: dict
    suboptions:
      name:
        description: What the key is called.
        type: str
        required: true
      ends:
        description: A date, or a moment in UTC. Empty takes the end away.
        type: str
        default: ""
  desired:
    description:
      - Digests of the keys that the inventory has now, for O(revoke) and O(ending). The node may not have its entries
        yet.
    type: list
    elements: str
    default: []
requirements:
  - root (C(become))
extends_documentation_fragment: attributes.node
attributes:
  check_mode:
    description: Says what would change and changes nothing.
    support: full
  diff_mode:
    description: Shows names, origins and ends, no digests.
    support: full
"""

EXAMPLES = r"""
- name: Have the inventory's keys open the instance
  instance_keys:
    instance: chat
    inventory: "{{ vllm_service_api_keys | api_keys('chat') }}"
  no_log: true
  become: true

- name: Revoke a key
  instance_keys:
    instance: chat
    revoke: alice
  become: true
"""

RETURN = r"""
keys:
  description: The keys there are now, without their digests.
  returned: always
  type: list
  elements: dict
  sample: [{"name": "alice", "origin": "playbook", "ends": null}]
lines:
  description: The same for people.
  returned: always
  type: list
  elements: str
  sample: ["alice (playbook) until 2027-01-31T23:59:59Z"]
exported:
  description: >-
    With O(export), the same as entries of C(vllm_service_api_keys) for another node, or for one that is installed
    again. They have digests.
  returned: always
  type: list
  elements: str
  sample: ["sha256:0d599f0ec05c3bda8c3b8a68c32a1b47e1b2f9b6a0b0cc0b4b1f6f6f6b8a2e11 alice"]
guarded:
  description: >-
    Whether the plan on the node has the instance ask for keys. Without a readable plan, V(true) where there are keys,
    and V(null) where there are none.
  returned: always
  type: bool
  sample: true
unread:
  description: >-
    With O(running), why the guard that runs does not read these keys, in a sentence with what to do; empty where it
    does, where none runs, and where the plan on the node asks for no keys.
  returned: always
  type: str
  sample: ""
of_inventory:
  description: Whether a revoked key is also in the inventory, whose next run adds it again.
  returned: always
  type: bool
  sample: false
"""

import contextlib
import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gaudi.base import paths
from ansible.module_utils.gaudi.base.documents import Damaged
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.node import containers
from ansible.module_utils.gaudi.node.documents import read, read_json
from ansible.module_utils.gaudi.node.files import take_turn, write_json
from ansible.module_utils.gaudi.node.module import NodeModule
from ansible.module_utils.gaudi.serving import keys
from ansible.module_utils.gaudi.serving.keys import ApiKey
from ansible.module_utils.gaudi.serving.plan import KEYS_DIRECTORY

_KEY = {
    "name": {"type": "str", "required": True},
    "digest": {"type": "str", "required": True},
    "ends": {"type": "str"},
}
ARGUMENT_SPEC: dict[str, Any] = {
    "instance": {"type": "str", "required": True},
    # A digest is not a key, but a short key could be guessed from it.
    "inventory": {"type": "list", "elements": "dict", "options": _KEY, "no_log": False},
    "add": {"type": "dict", "options": _KEY},
    "revoke": {"type": "str"},
    "desired": {"type": "list", "elements": "str", "default": [], "no_log": True},
    "by": {"type": "str", "default": ""},
    "running": {"type": "bool", "default": False},
    "export": {"type": "bool", "default": False},
    "ending": {
        "type": "dict",
        "options": {"name": {"type": "str", "required": True}, "ends": {"type": "str", "default": ""}},
    },
}
WAYS = ("inventory", "add", "revoke", "ending")

INSTANCES = Path(paths.INSTANCES)
# Modes of the four directories above the file, outermost first; a new node has none of them.
MODES = (0o755, 0o700, 0o700, 0o700)
# Owner and group of the file and its directory, and the file's mode.
OWNER = (0, 0)
MODE = 0o600
# Seconds to wait for another change.
PATIENCE = 30.0


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Lock the file against other writers: a revoked key must not return with a change that another run makes.

    The lock is on the directory of all instances: a container can lock that of its keys, which it reads, and a
    supervisor holds the lock of its instance's. Raises Refusal if another process holds the lock for too long.
    """
    for place, mode in zip((*reversed(folder.parents[:3]), folder), MODES):
        with contextlib.suppress(FileExistsError):
            place.mkdir(mode)
            place.chmod(mode)
    handle = os.open(folder.parents[1], os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        take_turn(handle, folder.parents[1], PATIENCE)
        yield
    finally:
        os.close(handle)


def now() -> str:
    """Return the current second in the form of keys' ends."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def wanted(held: Sequence[ApiKey], asked: Mapping[str, Any]) -> list[ApiKey]:
    """Return the keys after the requested change. Raises Refusal."""
    if asked["inventory"] is not None:
        return keys.with_inventory(held, [ApiKey(origin=keys.INVENTORY, **key) for key in asked["inventory"]])
    if asked["add"] is not None:
        return keys.with_created(held, keys.created(**asked["add"]), now())
    if asked["revoke"] is not None:
        return keys.without(held, asked["revoke"])
    if asked["ending"] is not None:
        ends = asked["ending"]["ends"]
        return keys.ending(held, asked["ending"]["name"], keys.moment(ends) if ends else None, asked["desired"])
    return list(held)


def rights(path: Path) -> str:
    """Return owner, group and mode of a path in readable form; "" if it does not exist."""
    try:
        seen = path.lstat()
    except FileNotFoundError:
        return ""
    kind = "a link, " if stat.S_ISLNK(seen.st_mode) else ""
    return f"{kind}{seen.st_uid}:{seen.st_gid} {stat.S_IMODE(seen.st_mode):04o}"


def foreign(file: Path) -> dict[Path, tuple[str, str]]:
    """The present and the wanted rights of the file and its directory, for each that exists with other rights."""
    held = {file.parent: MODES[-1], file: MODE}
    both = {path: (rights(path), f"{OWNER[0]}:{OWNER[1]} {mode:04o}") for path, mode in held.items()}
    return {path: (has, wanted) for path, (has, wanted) in both.items() if has not in ("", wanted)}


def close(folder: Path) -> None:
    """Restrict the permissions of the file's directory."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        os.fchown(handle, *OWNER)
        os.fchmod(handle, MODES[-1])
    finally:
        os.close(handle)


def change(module: AnsibleModule, file: Path, open_to_others: bool) -> tuple[list[ApiKey], list[ApiKey]]:
    """Return the keys before and after; write them unless in check mode. Raises Refusal, and Damaged.

    open_to_others: whether the file is to be written in any case, as one that belongs to root alone. A damaged file
    lets no client in. The inventory's keys are written again; the keys of the playbook are lost with it.
    """
    try:
        held = read(file, keys.read)
    except Damaged as damage:
        if module.params["inventory"] is None:
            raise
        module.warn(f"{damage}. It is written again with the inventory's keys; make those of playbooks/keys.yml again.")
        held = None
    before = held or []
    after = wanted(before, module.params)
    # A guarded instance has a file even without keys; its server does not start otherwise.
    new = held is None and module.params["inventory"] is not None
    if not module.check_mode and (before != after or new or open_to_others):
        if open_to_others:
            close(file.parent)
        # The file is replaced, not rewritten: a process that has the old one open cannot change the new one.
        write_json(file, keys.document(after, module.params["by"], now()), mode=MODE)
    return before, after


def shown(found: Sequence[ApiKey]) -> list[dict[str, Any]]:
    """Keys without their digests."""
    return [{name: value for name, value in asdict(key).items() if name != "digest"} for key in found]


def lines(found: Sequence[ApiKey]) -> str:
    """Return keys as lines; two keys with one name look alike here."""
    return "".join(f"{key.name} ({key.origin}){f' until {key.ends}' if key.ends else ''}\n" for key in found)


def difference(header: str, before: str, after: str) -> dict[str, str]:
    """What --diff shows of one path."""
    return {"before_header": header, "after_header": header, "before": before, "after": after}


def guarded(instance: str) -> bool | None:
    """Whether the plan on the node needs keys, or there are keys and no readable plan; None without either."""
    with contextlib.suppress(Damaged):
        plan = read_json(INSTANCES / instance / "plan.json")
        if plan is not None:
            return plan.get("guarded") is True
    # Its server may run, and reads these.
    return True if (INSTANCES / instance / paths.KEYS_FILE).exists() else None


def unread(module: AnsibleModule, folder: Path) -> str:
    """Why the running guard reads other keys than those in the folder; empty if it reads these, or if none runs."""
    name = f"vllm-{module.params['instance']}"
    container = containers.look(module, name)
    if container is None or not container.running or not containers.replaced(container, {KEYS_DIRECTORY: str(folder)}):
        return ""
    return (
        f"The server of {module.params['instance']} does not read {folder / 'keys.json'}: it was started without a "
        "guard, or with a directory that was replaced since. What opens it is not what is written here. Run site.yml "
        "--tags vllm_service, which restarts it."
    )


def gone(before: Sequence[ApiKey], after: Sequence[ApiKey]) -> list[ApiKey]:
    """Return keys that no longer open the instance."""
    left = {key.digest for key in after}
    return [key for key in before if key.digest not in left]


def returns(revoked: Sequence[ApiKey], desired: Sequence[str]) -> bool:
    """Whether the next run of site.yml brings one of these keys back."""
    return any(key.origin == keys.INVENTORY or key.digest in desired for key in revoked)


def differing(others: Mapping[Path, tuple[str, str]]) -> list[dict[str, str]]:
    """Return differences of permissions; ``others``: current and wanted ones by path."""
    return [difference(f"{path} (rights)", f"{has}\n", f"{wanted}\n") for path, (has, wanted) in others.items()]


def main() -> None:
    """Read, change what is asked for, say what there is."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True, mutually_exclusive=[WAYS])
    instance = module.params["instance"]
    file = INSTANCES / instance / paths.KEYS_FILE
    writes = not module.check_mode and any(module.params[way] is not None for way in WAYS)
    try:
        with alone(file.parent) if writes else contextlib.nullcontext():
            existed = file.exists()
            others = foreign(file) if module.params["inventory"] is not None else {}
            before, after = change(module, file, bool(others))
    except Refusal as refusal:
        module.fail_json(msg=f"{instance}: {refusal}", refused_id=refusal.id)
    except Damaged as damage:
        module.fail_json(msg=f"{damage}. Run site.yml --tags vllm_service, which writes it again.")
    module.exit_json(
        changed=before != after or bool(others) or (module.params["inventory"] is not None and not existed),
        keys=shown(after),
        lines=lines(after).splitlines(),
        exported=[keys.written(key) for key in after] if module.params["export"] else [],
        guarded=guarded(instance),
        unread=unread(module, file.parent) if module.params["running"] and guarded(instance) else "",
        of_inventory=returns(gone(before, after), module.params["desired"]),
        diff=[*differing(others), difference(str(file), lines(before), lines(after))],
    )


if __name__ == "__main__":
    main()
