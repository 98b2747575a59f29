"""What stands in the files of an instance, as the role vllm_service writes them."""

from __future__ import annotations

import datetime
import functools
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible.module_utils.parsing.convert_bool import boolean

sys.path.append(str(Path(__file__).resolve().parent.parent))
from plugin_utils import brain

brain.on_path()

from ansible.module_utils.gaudi.base import values
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.serving import instance_files as made
from ansible.module_utils.gaudi.serving.plan import environment_text

from plugin_utils.role_options import plain


@functools.cache
def _shared(role_path: str) -> made.SharedFiles:
    """The programs of the role and the target of all instances."""
    files = Path(role_path) / "files"
    programs = [path for folder in (".", "gaudi_supervisor", "guard") for path in (files / folder).glob("*.py")]
    texts = {str(path.relative_to(files)): path.read_text(encoding="utf-8") for path in programs}
    return made.SharedFiles(texts, (files / "gaudi-serving.target").read_text(encoding="utf-8"))


def _unit_options(given: Mapping[str, Any]) -> made.UnitOptions:
    """The options of the unit, of the types that it needs."""
    numbers = {name: int(value) for name, value in given.items() if name not in ("python", "drop_caches")}
    try:
        python = values.KINDS["program"](str(given["python"]), "vllm_service_python")
    except Refusal as refusal:
        raise AnsibleFilterError(refusal.message_with_id) from None
    return made.UnitOptions(python=python, drop_caches=boolean(given["drop_caches"]), **numbers)


def instance_plan(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a plan that determines the container."""
    return made.document(plain(plan))


def instance_plan_text(plan: Mapping[str, Any]) -> str:
    """Return the text of plan.json."""
    return made.plan_text(plain(plan))


def instance_environment(plan: Mapping[str, Any]) -> str:
    """Return the text of the environment file."""
    plan = plain(plan)
    text: str = environment_text(plan["environment"], plan["container"]["environment"])
    return text


def instance_unit(plan: Mapping[str, Any], unit_options: Mapping[str, Any]) -> str:
    """Return the text of the unit."""
    return made.unit_text(str(plan["instance"]), _unit_options(unit_options))


def instance_files(
    plan: Mapping[str, Any], role_path: str, unit_options: Mapping[str, Any], circumstances: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return all files of an instance, as the module node_files takes them."""
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    beside = made.Circumstances(**plain(circumstances), at=now)
    return made.files(plain(plan), _unit_options(unit_options), _shared(str(role_path)), beside)


def supervisor_files(role_path: str) -> list[dict[str, Any]]:
    """Return the supervisor's programs, as the module node_files takes them."""
    return made.program_files(_shared(str(role_path)).programs)


class FilterModule:
    """What Ansible finds here."""

    def filters(self) -> dict[str, Callable[..., object]]:
        """Return the filters by name."""
        return {
            "instance_environment": instance_environment,
            "instance_files": instance_files,
            "instance_plan": instance_plan,
            "instance_plan_text": instance_plan_text,
            "instance_unit": instance_unit,
            "supervisor_files": supervisor_files,
        }
