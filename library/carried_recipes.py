#!/usr/bin/python
"""Offer compiled recipes to other nodes in a folder like weights, or turn such a received folder into an instance's."""

from __future__ import annotations

DOCUMENTATION = r"""
module: carried_recipes
short_description: Carry the compiled recipes of one key from node to node
version_added: "0.3.0"
author: The gaudi-serving authors
description:
  - On a node that has them, copies the recipes of an instance into a folder with a record, as weights have one. The
    role P(gaudi_serving.weights_supply#role) carries such a folder to other nodes and checks every file by its SHA-256.
  - On a node that took the folder, makes it the instance's own, in one rename.
  - A server may be writing to the recipes that are copied. A file that changed meanwhile is left out, and with it the
    other one of its recipe.
options:
  state:
    description:
      - V(given) has the folder there, V(taken) makes it the folder of O(instance), V(absent) removes it and what is
        left of it.
    type: str
    choices: [given, taken, absent]
    default: given
  key:
    description: The name of the key's folder in C(/var/lib/gaudi-serving/recipes).
    type: str
    required: true
  instance:
    description: The instance that has the recipes, or is to have them.
    type: str
requirements:
  - root (C(become))
extends_documentation_fragment: attributes.node
attributes:
  check_mode:
    description: Says what would be done with the folder that is there, and does nothing.
    support: full
  diff_mode:
    description: Recipes are no text, so none is shown.
    support: none
seealso:
  - module: weights_giving
"""

EXAMPLES = r"""
- name: Give what chat has compiled
  carried_recipes:
    key: qwen3-8b-bfloat16-hl225-tp1-0123456789ab
    instance: chat
  become: true
"""

RETURN = r"""
files:
  description: How many files are given, or were taken; two are a recipe.
  returned: with state given or taken
  type: int
  sample: 412
bytes:
  description: Their bytes.
  returned: with state given or taken
  type: int
  sample: 5368709120
refused_id:
  description: Id of the refusal, which stays the same between releases; C(msg) has the sentence.
  returned: when recipes cannot be given or taken
  type: str
  sample: no_room_for_recipes
"""

import contextlib
import fcntl
import hashlib
import os
import time
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gaudi.base import paths
from ansible.module_utils.gaudi.base.documents import Damaged
from ansible.module_utils.gaudi.base.recipes import CARRIED, COPYING, whole
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.base.values import INSTANCE
from ansible.module_utils.gaudi.node import beneath, documents, folders, instances, states
from ansible.module_utils.gaudi.node.files import sync_folder, write_text
from ansible.module_utils.gaudi.node.module import NodeModule
from ansible.module_utils.gaudi.serving.state import FORM
from ansible.module_utils.gaudi.weights import record
from ansible.module_utils.gaudi.weights.record import Manifest, RecordedFile

ARGUMENT_SPEC: dict[str, Any] = {
    "state": {"type": "str", "choices": ["given", "taken", "absent"], "default": "given"},
    "key": {"type": "str", "required": True},
    "instance": {"type": "str"},
}
RECIPES = Path(paths.RECIPES)
# Of the folder of an instance, as the role vllm_service makes it.
MODE = 0o750
_BLOCK = 1 << 20


def whole_recipes(source: Path) -> dict[str, os.stat_result]:
    """Return an instance's complete recipes by name. Raises Refusal without any."""
    seen = {str(path.relative_to(source)): stat for path, stat in folders.filled_files(source)}
    wanted = whole(name for name in seen if not record.unsafe(name))
    if not wanted:
        raise _none_left(source)
    return {name: seen[name] for name in wanted}


def copied(source: Path, staging: Path, name: str, seen: os.stat_result) -> RecordedFile | None:
    """Copy one file; None if a server changed or removed it meanwhile."""
    path, target = source / name, staging / name
    checksum, size = hashlib.sha256(), 0
    try:
        read = beneath.open_file(path, source)
    except FileNotFoundError:
        return None
    beneath.make_folders(target.parent, staging)
    with read, beneath.open_file(target, staging, "xb") as written:
        while block := read.read(_BLOCK):
            checksum.update(block)
            size += len(block)
            written.write(block)
    after = beneath.look(path, source)
    as_before = after is not None and (after.st_size, after.st_mtime_ns) == (seen.st_size, seen.st_mtime_ns)
    return RecordedFile(name, size, checksum.hexdigest()) if as_before else None


def give(source: Path, folder: Path) -> tuple[int, int]:
    """Copy an instance's recipes into a folder with a record, in one rename. Raises Refusal.

    Returns the number of files, and their bytes.
    """
    beneath.refuse_writers(folder.parent)
    clear(folder)
    wanted = whole_recipes(source)
    if full := folders.no_room(folder, sum(seen.st_size for seen in wanted.values())):
        raise Refusal(
            "no_room_for_recipes", f"The recipes of {source.name} are not given. {full}. Make room in {folder.parent}"
        )
    staging = staging_of(folder)
    beneath.make_folders(staging / record.FOLDER, staging)
    entries = {name: entry for name, seen in wanted.items() if (entry := copied(source, staging, name, seen))}
    files = tuple(entries[name] for name in whole(entries))
    for name in set(wanted) - {file.name for file in files}:
        beneath.remove(staging / name, staging)
    if not files:
        raise _none_left(source)
    of_all = hashlib.sha256(repr(files).encode()).hexdigest()
    made = Manifest("compiled", folder.name, of_all, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), files)
    write_text(staging / record.MANIFEST, made.render(), mode=0o644, place=staging)
    beneath.rename(staging, staging, folder, folder)
    sync_folder(folder.parent)
    return len(files), made.size


def take(folder: Path, own: Path) -> tuple[int, int]:
    """Make a received folder an instance's own, after checking every file against its record. Raises Refusal.

    Returns the number of files, and their bytes.
    """
    made = read_record(folder)
    passing = own.with_name(COPYING + own.name)
    if not beneath.is_folder(own.parent, own.parent):
        beneath.make_folders(own.parent, own.parent)
        own.parent.chmod(MODE)
    beneath.remove_tree(passing, passing)
    # A start at this moment removes folders with this name.
    beneath.rename(folder, folder, passing, passing)
    beneath.remove_tree(passing / record.FOLDER, passing)
    passing.chmod(MODE)
    beneath.remove_tree(own, own)
    beneath.rename(passing, passing, own, own)
    sync_folder(own.parent)
    return len(made.files), made.size


def _none_left(source: Path) -> Refusal:
    return Refusal("no_recipes_to_give", f"{source} has no whole recipe any more, so there is nothing to give")


def read_record(folder: Path) -> Manifest:
    """Return a received folder's record, after checking that it holds recipes of its key. Raises Refusal."""
    try:
        made = documents.read(folder / record.MANIFEST, record.parse, place=folder)
    except Damaged as damage:
        raise Refusal("recipes_without_record", f"{damage}. None is used of what came") from damage
    if made is None:
        raise Refusal("recipes_without_record", f"{folder} has no record, so nothing of it is used")
    wrong = record.wrong_sizes(made.sizes, folders.sizes_in(folder, made.names))
    if wrong or made.repository != folder.name or whole(made.names) != sorted(made.names):
        raise Refusal(
            "no_recipes_of_the_key",
            f"{folder} does not hold whole recipes of its key, and nothing else, so none of it is used",
        )
    return made


def staging_of(folder: Path) -> Path:
    """Return the path of the folder while it is prepared."""
    return folder.with_name(folder.name + record.STAGING_SUFFIX)


def clear(folder: Path) -> bool:
    """Remove the folder and its remains, unless another run is using it now; return whether there was anything."""
    staging = staging_of(folder)
    left = [path for path in (folder, staging) if beneath.look(path, path) is not None]
    with contextlib.ExitStack() as held:
        # A run that wants to use it meanwhile waits for the lock until everything is removed.
        if staging in left:
            lock = staging / record.LOCK
            beneath.make_folders(lock.parent, staging)
            try:
                fcntl.flock(held.enter_context(beneath.open_lock(lock, staging)), fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as taken:
                raise Refusal("recipes_being_taken", f"{folder} is being taken by another run") from taken
        for path in left:
            beneath.remove_tree(path, path)
    return bool(left)


def would_give(source: Path) -> tuple[int, int]:
    """Return how many files an instance can give, and their bytes. Raises Refusal."""
    wanted = whole_recipes(source)
    return len(wanted), sum(seen.st_size for seen in wanted.values())


def would_take(folder: Path) -> tuple[int, int]:
    """Return how many files were received, and their bytes. Raises Refusal."""
    made = read_record(folder)
    return len(made.files), made.size


def compiles(module: AnsibleModule, own: Path) -> bool:
    """Whether an instance runs with its recipes in this folder. An instance whose plan changes has them in another one.

    The plan on the node may already be the next one, so this reads what the supervisor recorded at the start.
    """
    try:
        state = documents.read_json(states.STATES / own.name / "state.json", FORM, place=states.STATES) or {}
    except Damaged:
        state = {}
    found = state.get("recipes") or {}
    return found.get("folder", str(own)) == str(own) and bool(instances.is_up(module, own.name))


def act(module: AnsibleModule, folder: Path, instance: Path) -> dict[str, Any]:
    """Carry out the requested action; return the result."""
    if module.params["state"] == "absent":
        if module.check_mode:
            return {"changed": any(beneath.look(path, path) for path in (folder, staging_of(folder)))}
        try:
            return {"changed": clear(folder)}
        except (OSError, Refusal) as left:
            module.warn(f"{folder} stays where it is: {left}. It goes with the next start that makes room.")
            return {"changed": False}
    if module.params["state"] == "taken" and (folders.measured(instance)[0] or compiles(module, instance)):
        # It has compiled its own recipes meanwhile, or will.
        return {"changed": False, "files": 0, "bytes": 0}
    if module.params["state"] == "given":
        done = would_give(instance) if module.check_mode else give(instance, folder)
    else:
        done = would_take(folder) if module.check_mode else take(folder, instance)
    return {"changed": True, **dict(zip(("files", "bytes"), done))}


def main() -> None:
    """Look, act."""
    module = NodeModule(
        argument_spec=ARGUMENT_SPEC,
        required_if=[("state", "given", ["instance"]), ("state", "taken", ["instance"])],
        supports_check_mode=True,
    )
    key, instance = module.params["key"], module.params["instance"] or ""
    if record.unsafe(key) or "/" in key or (instance and not INSTANCE.fullmatch(instance)):
        module.fail_json(msg=f"{key!r} and {instance!r} are no key and instance.", refused_id="no_key_of_recipes")
    # The service that gives the folder runs as nobody, which must be able to read it.
    os.umask(0o022)
    try:
        answer = act(module, RECIPES / f"{key}{CARRIED}", RECIPES / key / instance)
    except Refusal as refused:
        module.fail_json(msg=f"{refused}.", refused_id=refused.id)
    except OSError as failed:
        module.fail_json(msg=f"{failed.filename} cannot be written or read: {failed.strerror}.")
    module.exit_json(**answer)


if __name__ == "__main__":
    main()
