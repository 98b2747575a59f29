#!/usr/bin/python
"""Say why a running instance restarts: what it was made of, compared with what it is to be made of."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vllm_service_changes
short_description: Say why a running instance restarts
version_added: "0.1.0"
author: The gaudi-serving authors
description:
  - Compares the plan, the environment and the unit that are on the node with those that are to be written, and says in
    words what differs. Run it before they are written.
  - The value of a variable or an option whose name looks like a secret's is never returned.
options:
  instance:
    description: Name of the instance.
    type: str
    required: true
  plan:
    description: The plan that is to be written.
    type: dict
    required: true
  unit:
    description: The text of the unit that is to be written.
    type: str
    required: true
  guarded:
    description: Whether the instance is to have API keys.
    type: bool
    required: true
requirements:
  - root (C(become))
attributes:
  check_mode:
    description: Reads only, so does the same.
    support: full
  diff_mode:
    description: Changes nothing.
    support: none
  platform:
    description: Linux with systemd.
    support: full
    platforms: posix
seealso:
  - module: vllm_service_info
"""

EXAMPLES = r"""
- name: Ask what differs
  vllm_service_changes:
    instance: qwq-32b
    plan: "{{ plan }}"
    unit: "{{ lookup('ansible.builtin.template', 'vllm.service.j2') }}"
    guarded: false
  register: changes
  become: true
"""

RETURN = r"""
running:
  description: Whether the unit runs or is on its way there, so that what differs restarts it.
  returned: always
  type: bool
  sample: true
reasons:
  description: What differs, is missing or is damaged, a phrase each; empty for an instance that does not run.
  returned: always
  type: list
  elements: str
  sample: ["--max-num-seqs 32 -> 64", "VLLM_GRAPH_RESERVED_MEM 0.1 added"]
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gaudi.node.state import systemctl
from ansible.module_utils.gaudi.planning import difference as plan_diff
from ansible.module_utils.gaudi.planning import written

ARGUMENT_SPEC: dict[str, Any] = {
    "instance": {"type": "str", "required": True},
    "plan": {"type": "dict", "required": True},
    "unit": {"type": "str", "required": True},
    "guarded": {"type": "bool", "required": True},
}

PLANS = Path("/etc/gaudi-serving/instances")
UNITS = Path("/etc/systemd/system")
STOPPED = ("inactive", "failed", "unknown")


def reasons(folder: Path, unit: Path, wanted: dict[str, Any]) -> list[str]:
    """What differs between the files of an instance and what they are to be; or which are missing, or damaged."""
    files = (folder / "plan.json", folder / "environment", unit)
    missing = [f"{file} is missing" for file in files if not file.exists()]
    if missing:
        return missing
    read: list[Any] = []
    damaged = []
    parsers: tuple[Callable[[bytes], Any], ...] = (written.parse, bytes.decode, bytes.decode)
    for file, parse in zip(files, parsers):
        try:
            read.append(parse(file.read_bytes()))
        except (OSError, ValueError):
            damaged.append(f"{file} is damaged")
    if damaged:
        return damaged
    plan, environment, text = read
    found: list[str] = plan_diff.differences(plan, wanted["plan"], plan_diff.environment_of(environment))
    found += plan_diff.unit_differences(text, wanted["unit"])
    if (folder / "keys").exists() != wanted["guarded"]:
        found.append(f"API keys {'added' if wanted['guarded'] else 'removed'}")
    return found


def main() -> None:
    """Read, compare, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    name = f"vllm-{module.params['instance']}.service"
    shown = systemctl(module, "show", name, "--property=ActiveState", "--value")
    running = shown.strip() not in STOPPED
    found = reasons(PLANS / module.params["instance"], UNITS / name, module.params) if running else []
    module.exit_json(changed=False, running=running, reasons=found)


if __name__ == "__main__":
    main()
