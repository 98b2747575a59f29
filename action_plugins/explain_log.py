"""Explain a log that is on the controller; no node is asked."""

from __future__ import annotations

import json
import os
import stat
import sys
import tempfile
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Any

from ansible.context import CLIARGS
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.action import ActionBase
from ansible.utils.vars import load_extra_vars

sys.path.append(str(Path(__file__).resolve().parent.parent))
from plugin_utils import brain, releases

brain.on_path(nodes=False)

from ansible.module_utils.gaudi.base.checks import meant
from ansible.module_utils.gaudi.base.printable import printable
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.doctor import log_file

from plugin_utils import role_options

ARGUMENT_SPEC: dict[str, Any] = {
    "log": {"type": "raw", "required": True},
    "release": {"type": "raw", "default": ""},
    "status": {"type": "raw", "default": ""},
    "output": {"type": "raw", "default": ""},
    "variables": {"type": "list", "elements": "str", "default": []},
}
HIGHEST_STATUS = 255


def check_variables(given: Iterable[str], known: Iterable[str], in_files: Container[str] = ()) -> None:
    """Refuse variables of the command line that nothing reads: what they were to say would be left out.

    known: the names that are read; of none nothing is refused. Options of the roles are for other playbooks. in_files:
    names from files (-e @FILE), which may be a site's own; of these only misspelled ones are refused.
    """
    names = sorted(known)
    for name in given if names else ():
        if name in names or name.startswith("ansible_"):
            continue
        asked = meant(name.lower(), names, "")
        if (asked or name not in in_files) and name not in role_options.declared().options:
            raise Refusal(
                "unknown_extra_variable",
                f"There is no variable {name}.{' ' if asked else ''}{asked}",
                f"The playbook reads {', '.join(names)}: correct the name, or leave it out.",
            )


def names_in_files(loader: DataLoader) -> set[str]:
    """Return the names of the variables that come from files of the command line."""
    files = [option[1:] for option in CLIARGS.get("extra_vars", ()) if option.startswith("@")]
    return {str(name) for file in files for name in loader.load_from_file(file) or ()}


def path_of(value: object, option: str) -> Path:
    """Return the path that an option names, relative to where the command was typed."""
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise Refusal(
            "no_file_named", f"{option} has to be the path of a file, and is {value!r}. Give -e {option}=FILE."
        )
    return Path.cwd() / Path(value).expanduser()


def content(path: Path) -> bytes:
    """Return what is in a log, one byte more than the most that is read. Raises Refusal."""
    try:
        # Opening a pipe would wait for its writer.
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise Refusal("log_unreadable", f"{error.strerror}. Give -e log=FILE.") from error
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise Refusal("log_is_no_file", "It is a directory, a pipe or a device. Give -e log=FILE with a text file.")
    with os.fdopen(file, "rb") as stream:
        return stream.read(log_file.LARGEST + 1)


def release_of(value: object) -> str:
    """Return the release, or "" where none is given. Raises Refusal for one that the catalogue does not have."""
    known = releases.names()
    if isinstance(value, str):
        value = releases.named(value)
    if value not in ("", None) and value not in known:
        names = ", ".join(known)
        raise Refusal(
            "unknown_release",
            f"release has to be the name of a release as a text, and is {value!r}. Known are {names}. Leave it out "
            "if it is another one.",
        )
    return str(value or "")


def software_of(version: str) -> dict[str, Any]:
    """Return what the catalogue has of the software of a release or version; {} of an unknown one."""
    name = releases.named(version)
    return dict(releases.read(name)["software"]) if name in releases.names() else {}


def status_of(value: object) -> int | None:
    """Return the exit status, or None where none is given. Raises Refusal for anything but 0 to 255."""
    if value in ("", None):
        return None
    number = int(value) if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 5 else value
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= HIGHEST_STATUS:
        raise Refusal(
            "status_out_of_range",
            f"status has to be the exit status of the program, 0 to {HIGHEST_STATUS}, and is {value!r}. Correct it, or "
            "leave it out.",
        )
    return number


def check_output(path: Path, log: Path) -> None:
    """Refuse a place where the result cannot be written, or would take that of something else."""
    if path.exists() and (path.samefile(log) or not path.is_file()):
        raise Refusal("output_is_taken", f"output: {path} is the log itself, or no file. Give -e output=FILE.")
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise Refusal(
            "output_folder", f"output: {path.parent} is no directory that you may write to. Give another one."
        )


def write(path: Path, text: str, *, really: bool) -> bool:
    """Write a file whole, unless it is so already; return whether it was not."""
    if path.exists() and path.read_bytes() == text.encode():
        return False
    if really:
        file, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(file, "w", encoding="utf-8") as stream:
            stream.write(text)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    return True


class ActionModule(ActionBase):  # type: ignore[misc]  # ansible-core carries no types
    """Runs on the controller only."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Read the log, explain it, and write the result where it is asked for."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, given = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        about = ""
        try:
            check_variables(load_extra_vars(self._loader), given["variables"], names_in_files(self._loader))
            log = path_of(given["log"], "log")
            release, status = release_of(given["release"]), status_of(given["status"])
            about = f"log: {log}"
            lines = log_file.read(content(log))
            about = ""
            output = path_of(given["output"], "output") if given["output"] not in ("", None) else None
            if output is not None:
                check_output(output, log)
        except Refusal as refusal:
            said = refusal.about(about) if about.startswith("log: ") else refusal
            return {**result, "failed": True, "msg": printable(str(said)), "refused_id": refusal.id}
        cause = log_file.explain_file(lines, release, status, software_of)
        document = log_file.document(cause)
        changed = False
        if output is not None:
            try:
                text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
                changed = write(output, text, really=not self._task.check_mode)
            except OSError as error:
                refused = Refusal("output_not_written", f"output: {output}: {error.strerror}. Give another file.")
                return {**result, "failed": True, "msg": printable(str(refused)), "refused_id": refused.id}
        return {**result, "changed": changed, "page": log_file.page(cause), **document}
