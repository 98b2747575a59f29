#!/usr/bin/python
"""Manage several of our files and directories in one call."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_files
short_description: Manage several of our files and directories in one call
description:
  - Writes the files that differ, makes the directories that are missing, and removes what is to be absent. One round
    trip for all of them, so that a run that changes nothing is a short one.
  - Everything belongs to root. A file appears under its name as a whole, in one rename.
author: gaudi-serving
options:
  library_for:
    description:
      - The role whose programs are among the files. They import module_utils/gaudi of the checkout, which is installed
        before them as C(/usr/local/lib/gaudi-serving/gaudi). Its files lie in a directory that is named after their
        content; one rename makes it current, so that no program ever sees half of it.
      - What is on the node is read and compared, not remembered, so that a file changed by hand is put right.
    type: str
  library_state:
    description:
      - Whether the role needs the library from now on. With V(absent) the library goes with the last role whose
        programs are on the node, after the files.
    type: str
    choices: [present, absent]
    default: present
  library_digest:
    description: Digest of the library's files in the checkout. The action of the same name sets it.
    type: str
  library_files:
    description: Texts by relative name. The action sets them where they have to be installed.
    type: dict
  files:
    description: Files and directories, in the order they are made.
    type: list
    elements: dict
    required: true
    suboptions:
      path:
        description: Path. A link is followed; a circular one, or one to a device, is replaced.
        type: path
        required: true
      state:
        description: What must exist there. For V(absent), a directory is removed with its content.
        type: str
        choices: [file, directory, absent]
        default: file
      content:
        description: What is in a file.
        type: str
      secret:
        description: Content of a file that must not appear in a log. It is not in the diff either.
        type: str
      mode:
        description: Permissions, in octal. A directory that has to be made on the way to this one gets them as well.
        type: str
        default: "0644"
      follows:
        description: >-
          Another path of this list. Where this file is there, its content is left as it is for as long as that of the
          other one is as it is to be.
        type: path
      mark:
        description: >-
          What a file of this project begins with there. One at this path that does not is somebody else's: the module
          fails, with everything as it was.
        type: str
        default: ""
      empty_up_to:
        description: >-
          With V(absent), a directory above the path. It is removed as well if it is empty then, and so is each
          directory between the two.
        type: path
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
  held:
    description: The text of further files that belong to the O(desired), by path; empty for one that is to be absent.
    type: dict
    default: {}
  kernel:
    description: Values that belong to the O(desired) and that the kernel runs with, by name.
    type: dict
    default: {}
extends_documentation_fragment: attributes.node
attributes:
  check_mode:
    description: Says what would change and changes nothing.
    support: full
  diff_mode:
    description: >-
      Shows each file that differs; only the path of a secret, of what is removed, and of what follows another file.
    support: full
"""

EXAMPLES = r"""
- name: Write a unit and take a directory away
  node_files:
    files:
      - path: /etc/systemd/system/example.service
        content: "{{ lookup('ansible.builtin.template', 'example.service.j2') }}"
      - {path: /etc/example, state: absent}

- name: Write a key
  node_files:
    files:
      - {path: /etc/example, state: directory, mode: "0700"}
      - {path: /etc/example/key, secret: "{{ example_key }}", mode: "0600"}

- name: Install a program and the library that it imports
  node_files:
    library_for: host_tuning
    files:
      - path: /usr/local/lib/gaudi-serving/host_tuning.py
        content: "{{ lookup('ansible.builtin.file', 'host_tuning.py', rstrip=false) }}"

- name: Remove the program, and the library if no other role needs it
  node_files:
    library_for: host_tuning
    library_state: absent
    files:
      - {path: /usr/local/lib/gaudi-serving/host_tuning.py, state: absent}
"""

RETURN = r"""
needed:
  description: Whether nothing was written, because the node lacks the library. The action then sends it.
  type: bool
  returned: where O(library_files) is needed
  sample: true
library_changed:
  description: Whether files of the library that the programs import were, or would be, changed.
  type: bool
  returned: always
  sample: false
written:
  description: >-
    Paths that were, or would be, made, written or removed, or whose rights were changed; not the record of the desired
    state.
  type: list
  elements: str
  returned: always
  sample: ["/etc/systemd/system/example.service"]
desired:
  description: >-
    Data that M(desired_state_check) compares with the node at the end of the run. It contains digests, no text.
  returned: with O(desired)
  type: dict
  sample:
    {"of": "The settings of the host", "record": "/var/lib/gaudi-serving/host_tuning_wish.json", "digest": "5b3a",
     "files": {}, "kernel": {"vm.nr_hugepages": "15000"}, "boot": "1c"}
"""

import errno
import os
import shlex
import shutil
import stat
import tempfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gaudi.host.files import foreign
from ansible.module_utils.gaudi.node.files import sync_folder, unwritable
from ansible.module_utils.gaudi.node.host import desired_record
from ansible.module_utils.gaudi.node.module import NodeModule
from ansible.module_utils.gaudi.node.programs import hold_library

ARGUMENT_SPEC: dict[str, Any] = {
    "library_for": {"type": "str"},
    "library_state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "library_digest": {"type": "str"},
    "library_files": {"type": "dict"},
    "desired": desired_record.OPTION,
    "held": {"type": "dict", "default": {}},
    "kernel": {"type": "dict", "default": {}},
    "files": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": {
            "path": {"type": "path", "required": True},
            "state": {"type": "str", "choices": ["file", "directory", "absent"], "default": "file"},
            "content": {"type": "str", "no_log": False},
            "secret": {"type": "str", "no_log": True},
            "mode": {"type": "str", "default": "0644"},
            "follows": {"type": "path"},
            "mark": {"type": "str", "default": ""},
            "empty_up_to": {"type": "path"},
        },
        "mutually_exclusive": [("content", "secret")],
    },
}
# User and group that everything belongs to.
OWNER = (0, 0)


@dataclass(frozen=True)
class PathState:
    """What exists at a path: file, directory or absent; readable permissions; a file's content."""

    state: str
    rights: str
    content: bytes


def is_useless(path: Path) -> bool:
    """Whether a link cannot be used: it is circular, or leads to a device, a pipe or a socket."""
    if not path.is_symlink():
        return False
    try:
        seen = path.stat()
    except OSError as error:
        return error.errno == errno.ELOOP
    return not (stat.S_ISREG(seen.st_mode) or stat.S_ISDIR(seen.st_mode))


def look(path: Path) -> PathState:
    """Examine a path; links are followed, and a dangling or unusable link counts as absent."""
    try:
        seen = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return PathState("absent", "", b"")
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return PathState("absent", "", b"")
    if is_useless(path):
        return PathState("absent", "", b"")
    kind = "directory" if stat.S_ISDIR(seen.st_mode) else "file"
    content = path.read_bytes() if stat.S_ISREG(seen.st_mode) else b""
    return PathState(kind, f"{seen.st_uid}:{seen.st_gid} {stat.S_IMODE(seen.st_mode):04o}", content)


def desired_state(file: dict[str, Any]) -> PathState:
    """What is to lie at a path."""
    if file["state"] == "absent":
        return PathState("absent", "", b"")
    text = file["content"] if file["secret"] is None else file["secret"]
    rights = f"{OWNER[0]}:{OWNER[1]} {int(file['mode'], 8):04o}"
    return PathState(file["state"], rights, (text or "").encode() if file["state"] == "file" else b"")


def obstacle(path: str, file: dict[str, Any], found: PathState, ours: Collection[str]) -> str | None:
    """Return why this path cannot be changed as wanted, or None. Only an unusable link at our path is replaced."""
    wrong = next((str(each) for each in Path(path).parents if str(each) not in ours and is_useless(each)), None)
    if wrong:
        return f"{wrong} is a link that leads to no directory. Remove it ({shlex.join(['rm', wrong])}), then run again."
    if file["state"] == "file" and file["content"] is None and file["secret"] is None:
        return f"{path} is to be a file, but has neither content nor secret."
    if file["mark"] and found.state != "absent":
        theirs = foreign({path: found.content.decode(errors="replace")}, file["mark"])
        if theirs:
            return theirs[0]
    if file["state"] in ("absent", found.state) or found.state == "absent":
        return None
    aside = shlex.join(["mv", path, f"{path}.moved-away"])
    return f"{path} is a {found.state}, where a {file['state']} is to be. Move it away ({aside}), then run again."


def difference(file: dict[str, Any], before: PathState, after: PathState) -> list[dict[str, str]]:
    """What --diff shows of one path."""
    path, unsaid = file["path"], _unsaid(file)
    if before.state != after.state or before.rights != after.rights:
        lines = [f"{found.state} {found.rights}".strip() + "\n" for found in (before, after)]
        shown = [_shown(f"{path} (kind and rights)", *lines)]
    else:
        shown = []
    # A file to be removed may have contained a secret.
    if before.content != after.content and after.state != "absent":
        texts = [found.content.decode(errors="replace") for found in (before, after)]
        shown.append(_shown(path, *(("", f"({unsaid})\n") if unsaid else texts)))
    return shown


def _unsaid(file: dict[str, Any]) -> str:
    """Why the content of a file is not shown in the diff; empty if it is shown."""
    if file["secret"] is not None:
        return "the content differs, and is secret"
    return f"the content changes with {file['follows']}" if file["follows"] else ""


def _shown(header: str, before: str, after: str) -> dict[str, str]:
    return {"before_header": header, "after_header": header, "before": before, "after": after}


def place(module: AnsibleModule, temporary: str, path: Path, mode: int) -> None:
    """Rename a finished file. Ansible gives a new one the rights of the umask, and others would read it until own()."""
    before = os.umask(0o777 & ~mode)
    try:
        module.atomic_move(temporary, str(path))
    finally:
        os.umask(before)


def own(path: Path, mode: int) -> None:
    """Set owner and permissions of a file or directory."""
    os.chown(path, *OWNER)
    path.chmod(mode)


def make_directory(path: Path, mode: int) -> None:
    """Make a directory and those above it that are missing."""
    for folder in [*reversed(path.parents), path]:
        if not folder.exists():
            folder.mkdir()
            own(folder, mode)


def remove_empty(path: Path, last: Path) -> None:
    """Remove the directories above a path that are empty, up to and including the last one."""
    for folder in path.parents:
        if last not in (folder, *folder.parents) or any(folder.iterdir()):
            return
        folder.rmdir()


def hold(module: AnsibleModule, file: dict[str, Any], before: PathState, after: PathState) -> None:
    """Bring one path into its wanted state."""
    path = Path(file["path"])
    if after.state == "absent":
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            # Its program may have renamed it since.
            path.unlink(missing_ok=True)
        if file["empty_up_to"]:
            remove_empty(path, Path(file["empty_up_to"]))
        return
    mode = int(after.rights.rpartition(" ")[2], 8)
    if is_useless(path):
        path.unlink()
    path = path.resolve()
    if after.state == "directory":
        make_directory(path, mode)
    elif before.state == "absent" or before.content != after.content:
        make_directory(path.parent, 0o755)
        # In the target's directory, so that one rename puts it in place; until then only its owner may read it.
        handle, temporary = tempfile.mkstemp(dir=path.parent)
        module.add_cleanup_file(temporary)
        with os.fdopen(handle, "wb") as out:
            out.write(after.content)
            out.flush()
            # A record of ours has to be whole after a power cut.
            os.fsync(out.fileno())
        own(Path(temporary), mode)
        if before.state == "file":
            # Ansible gives the new file the old one's rights first: never wider ones than both.
            path.chmod(path.stat().st_mode & mode)
        place(module, temporary, path, mode)
        sync_folder(path.parent)
    own(path, mode)


def desired_states(files: list[dict[str, Any]], here: dict[str, PathState]) -> dict[str, PathState]:
    """Return the wanted state of each path; a file that follows another one changes only if that one does."""
    wanted = {file["path"]: desired_state(file) for file in files}
    for file in files:
        before, other = here[file["path"]], file["follows"]
        if other and before.state == "file" and here[other].content == wanted[other].content:
            wanted[file["path"]] = PathState("file", wanted[file["path"]].rights, before.content)
    return wanted


def blocked(wanted: dict[str, PathState], here: dict[str, PathState]) -> list[str]:
    """Return a sentence for each path that differs and cannot be made or removed for what there is above it."""
    touched = [Path(path) for path in wanted if wanted[path] != here[path]]
    # An unusable link above is a path of ours, and replaced before.
    return [said for path in touched if not any(map(is_useless, path.parents)) and (said := unwritable(path))]


def record(module: AnsibleModule, *, changed: bool) -> dict[str, Any]:
    """Keep the record of the desired state, if there is one: these files, and those that the role held before."""
    params = module.params
    if not params["desired"]:
        return {"changed": changed}
    texts = {file["path"]: desired_state(file).content.decode() for file in params["files"]}
    held = {**params["held"], **texts}
    noted, desired = desired_record.note(params["desired"], held, held, params["kernel"], module.check_mode)
    return {"changed": changed or noted, "desired": desired}


def apply(
    module: AnsibleModule, here: dict[str, PathState], wanted: dict[str, PathState]
) -> tuple[list[str], list[dict[str, str]]]:
    """Make what differs unless in check mode; return the paths, and what --diff shows of them."""
    written: list[str] = []
    diff: list[dict[str, str]] = []
    for file in module.params["files"]:
        path, before, after = file["path"], here[file["path"]], wanted[file["path"]]
        if before == after:
            continue
        written.append(path)
        diff += difference(file, before, after)
        if not module.check_mode:
            hold(module, file, before, after)
    return written, diff


def library(module: AnsibleModule, state: str) -> dict[str, Any]:
    """Hold the library for the role of the option, if this state of it is asked for."""
    params = module.params
    if not params["library_for"] or params["library_state"] != state:
        return {}
    held: dict[str, Any] = hold_library(
        params["library_for"],
        params["library_digest"],
        params["library_files"],
        present=state == "present",
        check=module.check_mode,
    )
    return held


def main() -> None:
    """Compare, then make what differs unless in check mode."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    if module.params["library_for"] and not module.params["library_digest"]:
        module.leave_to_action("library_for")
    files = module.params["files"]
    here = {file["path"]: look(Path(file["path"])) for file in files}
    wanted = desired_states(files, here)
    refusals = [said for file in files if (said := obstacle(file["path"], file, here[file["path"]], here))]
    refusals = refusals or blocked(wanted, here)
    if refusals:
        module.fail_json(msg=" ".join(refusals), refused_id="file_in_the_way")
    held = library(module, "present")
    if held.get("needed") and not module.check_mode:
        module.exit_json(changed=True, needed=True)
    written, diff = apply(module, here, wanted)
    held = held or library(module, "absent") or {"changed": False, "installed": False}
    shown = [held["diff"], *diff] if held["changed"] else diff
    result = record(module, changed=bool(written) or held["changed"])
    module.exit_json(written=written, library_changed=held["installed"], diff=shown, **result)


if __name__ == "__main__":
    main()
