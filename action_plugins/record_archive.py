"""Write the records of all nodes of a run as one archive on the controller, without what names a site."""

from __future__ import annotations

import gzip
import io
import os
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

sys.path.append(str(Path(__file__).resolve().parent.parent))
from plugin_utils import brain

brain.on_path()

from ansible.module_utils.gaudi.doctor import archive

ARGUMENT_SPEC: dict[str, Any] = {
    "folder": {"type": "str", "required": True},
    "records": {"type": "dict", "required": True},
    "run": {"type": "str", "default": ""},
}
# Bytes of what a run printed: the end of it.
MOST_OF_RUN = 2 << 20


def packed(files: Mapping[str, str]) -> bytes:
    """Return a tar.gz of the files: the same files give the same bytes."""
    packing = io.BytesIO()
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=packing, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, text in sorted(files.items()):
            content = text.encode()
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o600
            tar.addfile(entry, io.BytesIO(content))
    return packing.getvalue()


def write(folder: Path, stem: str, content: bytes) -> Path:
    """Write a new archive for its owner alone, and return its path; one that is there is kept."""
    if not folder.is_dir():
        folder.mkdir(mode=0o700, parents=True)
    handle, writing = tempfile.mkstemp(dir=folder, prefix=".record.")
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(content)
        number = 1
        while True:
            path = folder / f"{stem}{f'_{number}' if number > 1 else ''}.tar.gz"
            try:
                # Unlike a rename, it fails where a file has the name.
                os.link(writing, path)
            except FileExistsError:
                number += 1
            else:
                return path
    finally:
        Path(writing).unlink()


def printed(path: str) -> str:
    """Return what a run printed, from a file of the controller; its end, where it is long. Raises OSError."""
    if not path:
        return ""
    with Path(path).open("rb") as there:
        size = there.seek(0, os.SEEK_END)
        there.seek(max(0, size - MOST_OF_RUN))
        if size > MOST_OF_RUN:
            # Of a line that is cut the beginning may be missing that says what is a secret.
            there.readline()
        return there.read().decode("utf-8", "replace")


class ActionModule(ActionBase):  # type: ignore[misc]  # ansible-core carries no types
    """Runs on the controller only."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Remove, pack, write."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, arguments = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        try:
            text = printed(arguments["run"])
            made = archive.make(arguments["records"], text, datetime.now(UTC).strftime("%Y-%m-%d"))
            path = write(Path(arguments["folder"]), made.name, packed(made.files))
        except OSError as error:
            raise AnsibleActionFail(f"The record cannot be written: {error.filename}: {error.strerror}.") from error
        return {**result, "changed": True, "path": str(path), "removed": made.report, "files": len(made.files)}
