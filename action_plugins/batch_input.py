"""Read a batch on the controller, and what is answered of it already."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

sys.path.append(str(Path(__file__).resolve().parent.parent))
from plugin_utils import brain

brain.on_path()

from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.batch import lines
from ansible.module_utils.gaudi.node.long_work import lines_of

ARGUMENT_SPEC: dict[str, Any] = {
    "input": {"type": "path", "required": True},
    "output": {"type": "path", "default": ""},
}


def check(given: Path, output: Path) -> None:
    """Raises Refusal if one of the two is not a file, or if the answers would overwrite the requests."""
    for path, needed in ((given, True), (output, False)):
        if (needed or path.exists()) and not path.is_file():
            raise Refusal("batch_no_file", f"{path} is no file." if path.exists() else f"{path} is not there.")
    if output.exists() and output.samefile(given):
        raise Refusal("batch_same_file", f"{given} has the requests; the answers need another file (-e output=FILE).")


def read(given: Path) -> tuple[lines.Input, str]:
    """What a file asks, and its SHA-256."""
    digest, asked = hashlib.sha256(), lines.Input()
    with given.open("rb") as there:
        for number, line in enumerate(there, 1):
            digest.update(line)
            if line.strip():
                asked.add(number, line.decode("utf-8"))
    return asked, digest.hexdigest()


def count_kept(asked: lines.Input, output: Path) -> int:
    """How many of its requests an output answers, none where there is no output."""
    if not output.exists():
        return 0
    # An earlier run has it from a node, which may have sent a line without end.
    with output.open("rb") as there:
        return lines.kept(asked, lines_of(there, lines.LONGEST_LINE))


class ActionModule(ActionBase):  # type: ignore[misc]  # ansible-core carries no types
    """Runs on the controller only, where both files are."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Read, judge, report."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, arguments = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        given = Path(arguments["input"]).absolute()
        output = Path(arguments["output"] or given.with_suffix(".output.jsonl")).absolute()
        try:
            check(given, output)
            asked, digest = read(given)
            model = asked.check(str(given))
            kept = count_kept(asked, output)
        except UnicodeDecodeError as error:
            raise AnsibleActionFail(f"{given} is no text in UTF-8 ({error.reason}, byte {error.start}).") from error
        except OSError as error:
            raise AnsibleActionFail(f"{error.filename} cannot be read: {error.strerror}.") from error
        except Refusal as refusal:
            return {**result, "failed": True, "msg": str(refusal), "refused_id": refusal.id}
        return {
            **result,
            "changed": False,
            "input": str(given),
            "output": str(output),
            "digest": digest,
            "requests": asked.requests,
            "model": model,
            "urls": sorted(asked.urls),
            "kept": kept,
            "whole": kept == len(asked.ids),
        }
