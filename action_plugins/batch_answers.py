"""Bring the answers of a batch to the controller in parts: ansible.builtin.fetch, as root, has all of it in memory."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible.utils.hashing import secure_hash

PART = 8 << 20
"""Bytes that are read at once; in base64, and as JSON, both sides have them a few times."""


def digest_of(path: Path) -> str:
    """SHA-256 of a file; empty where there is none. Raises AnsibleError where it cannot be read."""
    return secure_hash(str(path), hashlib.sha256) or ""


def unpacked(content: str, limit: int) -> bytes:
    """Return a part of at most ``limit`` bytes. Raises ValueError for a larger one, before it is in memory."""
    decoder = zlib.decompressobj()
    try:
        part = decoder.decompress(base64.b64decode(content), limit)
    except zlib.error as error:
        raise ValueError("the node sent a part that is not compressed data") from error
    if decoder.unconsumed_tail:
        raise ValueError("the node sent more than it was asked for")
    return part


def bring(ask: Callable[[int], Mapping[str, Any]], size: int, digest: str, target: Path) -> None:
    """Write a file part by part, for its owner alone; it gets its name once it is whole.

    Raises ValueError for a wrong checksum or part, and for more than half of the free disk space; OSError.
    """
    found, offset = hashlib.sha256(), 0
    target.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(target.parent).free
    if size > free // 2:
        raise ValueError(
            f"the node reports {size} bytes of answers, more than half of the {free} bytes that are free in "
            f"{target.parent}. Free disk space, or choose another path for the answers"
        )
    # A new file with a random name: in a folder that others write to, a known name could be a link of theirs.
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    writing = Path(name)
    try:
        with os.fdopen(handle, "wb") as out:
            while offset < size:
                part = unpacked(ask(offset)["content"], PART)
                # In shorter ones a node could have the controller ask for each byte.
                if len(part) != min(PART, size - offset):
                    break
                out.write(part)
                found.update(part)
                offset += len(part)
        if found.hexdigest() != digest:
            raise ValueError("it changed while it was read")
        writing.replace(target)
    finally:
        writing.unlink(missing_ok=True)


class ActionModule(ActionBase):  # type: ignore[misc]  # ansible-core carries no types
    """Runs on the controller, and asks the node for part after part."""

    _supports_check_mode = True

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        """Look, or compare, then bring."""
        result = super().run(tmp, task_vars)
        del tmp
        if boolean(self._task.args.get("look", False)):
            return {**result, **self._execute_module(module_name="batch_answers", task_vars=task_vars)}
        source, target = self._task.args["src"], Path(self._task.args["dest"]).absolute()

        def ask(**part: int) -> dict[str, Any]:
            said: dict[str, Any] = self._execute_module(
                module_name="batch_answers", module_args={"src": source, **part}, task_vars=task_vars
            )
            if said.get("failed"):
                raise AnsibleActionFail(said.get("msg", "the node does not say why"), result=said)
            return said

        there = ask()
        known = {"size": there["size"], "digest": there["digest"]}
        changed = digest_of(target) != there["digest"]
        if changed and not self._task.check_mode:
            try:
                bring(lambda at: ask(offset=at, length=PART), there["size"], there["digest"], target)
            except ValueError as error:
                raise AnsibleActionFail(f"{source} is not brought: {error}. Run this again.") from error
            except OSError as error:
                raise AnsibleActionFail(f"{error.filename or target} cannot be written: {error.strerror}.") from error
        return {**result, **known, "changed": changed}
