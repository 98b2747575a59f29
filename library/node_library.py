#!/usr/bin/python
"""Install the library that the programs of a node share, as long as one of them needs it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_library
short_description: The library that the programs of a node share
description:
  - Installs module_utils/gaudi of the checkout as C(/usr/local/lib/gaudi-serving/gaudi). The files lie in a directory
    that is named after their content; one rename makes it current, so that no program ever sees half of it.
  - It goes with the last role whose programs are on the node; what lies there is read, and nothing is remembered.
  - What is on the node is read and compared, not remembered, so that a file changed by hand is put right.
  - The module node_files holds it in the same task as the programs, with its option C(library_for).
  - The action of the same name adds O(digest) and, where the node lacks it, O(files).
author: gaudi-serving
options:
  user:
    description: The role that needs the library.
    type: str
    required: true
  state:
    description: Whether the role needs it from now on.
    type: str
    choices: [present, absent]
    default: present
  digest:
    description: Names the files of the checkout. The action sets it.
    type: str
  files:
    description: Texts by relative name. The action sets them where they have to be installed.
    type: dict
extends_documentation_fragment: attributes.node
attributes:
  check_mode:
    description: Says what would change and changes nothing.
    support: full
  diff_mode:
    description: Shows the digest of the library and who needs it, before and after.
    support: full
"""

EXAMPLES = r"""
- name: Ensure the programs find the library
  node_library:
    user: node_job

- name: Say that a role needs it no more; with the last of them it goes
  node_library:
    user: node_job
    state: absent
"""

RETURN = r"""
installed:
  description: Whether files of the library were, or would be, changed.
  type: bool
  returned: always
  sample: false
needed:
  description: Whether the files have to be sent, because the node does not have them.
  type: bool
  returned: always
  sample: false
users:
  description: The roles that need the library.
  type: list
  elements: str
  returned: always
  sample: [host_tuning, node_job]
"""

import shutil
import tempfile
from pathlib import Path
from typing import Any

from ansible.module_utils.gaudi.base import library, paths
from ansible.module_utils.gaudi.node.module import NodeModule
from ansible.module_utils.gaudi.node.programs import library_digest

ARGUMENT_SPEC: dict[str, Any] = {
    "user": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "digest": {"type": "str"},
    "files": {"type": "dict"},
}

FOLDER = Path("/usr/local/lib/gaudi-serving")
# Whoever runs a program may read the folder.
MODE = 0o755
PACKAGE = "gaudi"


def current_digest(folder: Path) -> str | None:
    """Return the digest of the files that programs import now; None without any."""
    package = folder / PACKAGE
    return library_digest(package) if package.is_dir() else None


def install(folder: Path, digest: str, files: dict[str, str]) -> None:
    """Write the files beside the current ones, then activate them in one rename."""
    target = folder / f"{library.PREFIX}{digest}"
    with tempfile.TemporaryDirectory(dir=folder, prefix="incomplete-") as scratch:
        whole = Path(scratch, "library")
        for name, text in files.items():
            path = whole / PACKAGE / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            path.chmod(0o644)
        for path in (whole, *(path for path in whole.rglob("*") if path.is_dir())):
            path.chmod(0o755)
        if target.exists():
            # It has the right name but is not the current one: somebody changed it.
            target.rename(Path(scratch, "changed"))
        whole.rename(target)
        link = Path(scratch, "link")
        link.symlink_to(f"{target.name}/{PACKAGE}")
        link.replace(folder / PACKAGE)


def main() -> None:
    """Compare what is there with what it has to be, then change it unless in check mode."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    wanted, before = module.params["digest"], current_digest(FOLDER)
    users = paths.owners_of_programs(path.name for path in FOLDER.iterdir()) if FOLDER.is_dir() else set()
    there = [path.name for path in FOLDER.glob(f"{library.PREFIX}*")]
    change = library.decide(module.params["user"], module.params["state"] == "present", users, wanted, before, there)
    after = None if change.gone else wanted if change.install else before
    mode = FOLDER.stat().st_mode & 0o7777 if FOLDER.is_dir() else MODE
    changed = (before, mode) != (after, MODE) or bool(change.remove)
    needed = change.install and not module.params["files"]
    if changed and not module.check_mode and not needed:
        apply(change, wanted, module.params["files"])
    module.exit_json(
        changed=changed,
        needed=needed,
        installed=change.install,
        users=sorted(change.users),
        diff={
            "before": _shown(before, users, mode),
            "after": _shown(after, change.users, MODE),
            "before_header": str(FOLDER),
        },
    )


def apply(change: library.Change, digest: str, files: dict[str, str] | None) -> None:
    """Make the change: write the new files first, then remove those that no program reads any more."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    FOLDER.chmod(MODE)
    if change.install and files:
        install(FOLDER, digest, files)
    if change.gone:
        (FOLDER / PACKAGE).unlink(missing_ok=True)
    for name in change.remove:
        shutil.rmtree(FOLDER / name)
    if change.gone and not any(FOLDER.iterdir()):
        FOLDER.rmdir()


def _shown(digest: str | None, users: Any, mode: int) -> str:
    lines = [f"library {digest}", f"mode {mode:04o}", *(f"needed by {user}" for user in sorted(users))]
    return "" if digest is None else "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
