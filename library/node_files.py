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
      - The role whose programs are among the files. The library that they import is held for it, before the files.
      - The action of the same name does that; see the module node_library.
    type: str
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
      empty_up_to:
        description: >-
          With V(absent), a directory above the path. It is removed as well if it is empty then, and so is each
          directory between the two.
        type: path
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
"""

RETURN = r"""
library_changed:
  description: Whether files of the library that the programs import were, or would be, changed.
  type: bool
  returned: always
  sample: false
written:
  description: Paths that were, or would be, made, written or removed, or whose rights were changed.
  type: list
  elements: str
  returned: always
  sample: ["/etc/systemd/system/example.service"]
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
from ansible.module_utils.gaudi.node.module import NodeModule

ARGUMENT_SPEC: dict[str, Any] = {
    "library_for": {"type": "str"},
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
        own(Path(temporary), mode)
        module.atomic_move(temporary, str(path))
    own(path, mode)


def desired_states(files: list[dict[str, Any]], here: dict[str, PathState]) -> dict[str, PathState]:
    """Return the wanted state of each path; a file that follows another one changes only if that one does."""
    wanted = {file["path"]: desired_state(file) for file in files}
    for file in files:
        before, other = here[file["path"]], file["follows"]
        if other and before.state == "file" and here[other].content == wanted[other].content:
            wanted[file["path"]] = PathState("file", wanted[file["path"]].rights, before.content)
    return wanted


def main() -> None:
    """Compare, then make what differs unless in check mode."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    if module.params["library_for"]:
        module.fail_json(
            msg="library_for is for the action of the same name, which has not run. Call it from a playbook that has "
            "action_plugins of the checkout in its path."
        )
    files = module.params["files"]
    here = {file["path"]: look(Path(file["path"])) for file in files}
    wanted = desired_states(files, here)
    refusals = [said for file in files if (said := obstacle(file["path"], file, here[file["path"]], here))]
    if refusals:
        module.fail_json(msg=" ".join(refusals), refused_id="file_in_the_way")
    written: list[str] = []
    diff: list[dict[str, str]] = []
    for file in files:
        path, before, after = file["path"], here[file["path"]], wanted[file["path"]]
        if before == after:
            continue
        written.append(path)
        diff += difference(file, before, after)
        if not module.check_mode:
            hold(module, file, before, after)
    module.exit_json(changed=bool(written), written=written, diff=diff)


if __name__ == "__main__":
    main()
