#!/usr/bin/python
"""Hold kernel settings in a drop-in of our own and in the running kernel."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_tuning_sysctl
short_description: Kernel settings that hold now and after a reboot
description:
  - Writes one sysctl drop-in, sets the running kernel, and checks what the kernel really granted.
  - Refuses, before anything is changed, hugepages above a share of the memory. When the kernel grants
    fewer pages than asked for, the previous number and the previous file are put back.
  - A setting this kernel does not have, or does not let us change, is a finding and not a failure.
author: gaudi-serving
options:
  path:
    description: The drop-in. It must be ours, or not be there.
    type: path
    required: true
  settings:
    description: Name and value of each kernel setting. With O(state=absent), the values to put back.
    type: dict
    required: true
  max_memory_share:
    description: Largest part of the memory that hugepages may take, in percent.
    type: int
    default: 50
  hugepage_size:
    description:
      - Size of the hugepages that V(vm.nr_hugepages) counts in O(settings). If the kernel's default size is another,
        none are set, and more than none are refused.
    type: str
    choices: [2MiB, 1GiB]
    default: 2MiB
  state:
    description: Whether the drop-in holds the settings, or is taken away.
    type: str
    choices: [present, absent]
    default: present
extends_documentation_fragment: attributes.node
attributes:
  check_mode:
    description: Says what would change and changes nothing.
    support: full
  diff_mode:
    description: Shows the drop-in and the running values.
    support: full
"""

EXAMPLES = r"""
- name: Hold the kernel settings
  host_tuning_sysctl:
    path: /etc/sysctl.d/zz-gaudi-serving.conf
    settings:
      kernel.numa_balancing: "0"
      vm.nr_hugepages: "15000"
"""

RETURN = r"""
before:
  description: The running values found, for the settings this kernel has.
  type: dict
  returned: always
  sample: {"kernel.numa_balancing": "1", "vm.nr_hugepages": "0"}
findings:
  description: What a person should know, in sentences.
  type: list
  elements: str
  returned: always
  sample: ["This kernel has no setting kernel.numa_balancing; there is nothing to switch off."]
held:
  description: The text of the drop-in, by its path; empty where there is none.
  returned: success
  type: dict
  sample: {"/etc/sysctl.d/zz-gaudi-serving.conf": "..."}
kernel:
  description: Settings that the kernel runs with as desired. One that it does not let us change is not here.
  returned: success
  type: dict
  sample: {"kernel.numa_balancing": "0", "vm.nr_hugepages": "15000"}
refused_id:
  description: Id of the refusal, which stays the same between releases; C(msg) has the sentence.
  returned: when the task fails for a refusal
  type: str
  sample: too_many_hugepages
"""

import os
import tempfile
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.host import files as host_files
from ansible.module_utils.gaudi.host import sysctl
from ansible.module_utils.gaudi.node.host import kernel_settings, tuning
from ansible.module_utils.gaudi.node.module import NodeModule

ARGUMENT_SPEC: dict[str, Any] = {
    "path": {"type": "path", "required": True},
    "settings": {"type": "dict", "required": True},
    "max_memory_share": {"type": "int", "default": 50},
    "hugepage_size": {"type": "str", "choices": list(sysctl.SIZES), "default": sysctl.SIZE},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
}
PROC = Path("/proc")


def _proc(key: str) -> Path:
    return PROC / "sys" / key.replace(".", "/")


def _running(settings: dict[str, str]) -> dict[str, str]:
    values: dict[str, str] = kernel_settings.running_settings(PROC / "sys", settings)
    return values


def _write(module: AnsibleModule, path: str, text: str | None) -> None:
    if text is None:
        Path(path).unlink()
        return
    handle, temporary = tempfile.mkstemp(dir=module.tmpdir)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    Path(temporary).chmod(0o644)
    module.atomic_move(temporary, path)


def _own_text(module: AnsibleModule, path: str) -> str | None:
    if not Path(path).is_file():
        return None
    text = Path(path).read_text(errors="replace")
    foreign = host_files.foreign({path: text})
    if foreign:
        module.fail_json(msg=" ".join(foreign), refused_id="file_in_the_way")
    return text


def _memory() -> sysctl.NodeMemory:
    return sysctl.parse_meminfo((PROC / "meminfo").read_text())


def _request(module: AnsibleModule) -> dict[str, str]:
    """Return the requested settings; fails the module if no kernel accepts them."""
    given = {key: str(value) for key, value in module.params["settings"].items()}
    share, size = module.params["max_memory_share"], module.params["hugepage_size"]
    try:
        wanted: dict[str, str] = sysctl.check_request(given)
        if wanted.get(sysctl.HUGEPAGES) == sysctl.AUTO:
            cpuinfo = tuning.text_of(PROC / "cpuinfo") or ""
            wanted[sysctl.HUGEPAGES] = str(sysctl.counted(sysctl.AUTO, cpuinfo, size))
        present, memory = module.params["state"] == "present", _memory()
        pages = int(wanted.get(sysctl.HUGEPAGES, 0)) if present else 0
        refusal = sysctl.memory_refusal(pages, memory, share, size)
        wanted = sysctl.managed(wanted, size, memory) if present else wanted
    except Refusal as error:
        refusal = error
    if refusal:
        module.fail_json(msg=str(refusal), refused_id=refusal.id)
    return wanted


def _set(plan: sysctl.SysctlChanges) -> Refusal | None:
    """Set the running values; return why the kernel did not accept all of them, or None."""
    for key, value in plan.todo.items():
        try:
            _proc(key).write_text(f"{value}\n")
        except OSError as error:
            return Refusal(
                "sysctl_not_taken",
                f"The kernel did not take {key} = {value} ({error.strerror}). Ask for a value this kernel knows.",
            )
    if plan.text is None or sysctl.HUGEPAGES not in plan.todo:
        return None
    return sysctl.grant_refusal(int(plan.todo[sysctl.HUGEPAGES]), _memory())


def _set_or_put_back(module: AnsibleModule, plan: sysctl.SysctlChanges, before: dict[str, str]) -> None:
    """Set the running values; if the kernel rejects one, restore all and fail the module."""
    failure = _set(plan)
    if failure:
        for key, value in _running(before).items():
            if value != before[key]:
                _proc(key).write_text(f"{before[key]}\n")
        module.fail_json(msg=f"{failure} The previous values are back.", refused_id=failure.id, before=before)


def _found(path: str, plan: sysctl.SysctlChanges, before: dict[str, str], wanted: dict[str, str]) -> dict[str, Any]:
    """Return findings, and what a run compares at its end: the drop-in, and the values that are as desired."""
    after = {**before, **plan.todo}
    return {
        "findings": plan.findings,
        "held": {path: plan.text or ""},
        "kernel": {key: value for key, value in after.items() if wanted[key] == value},
    }


def main() -> None:
    """Decide, then act unless in check mode."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    path: str = module.params["path"]
    wanted = _request(module)
    try:
        before, old = _running(wanted), _own_text(module, path)
    except Refusal as refusal:
        module.fail_json(msg=str(refusal), refused_id=refusal.id)
    # access() answers "no" to root only where the whole of /proc/sys is mounted read-only.
    settable = [key for key in before if os.access(_proc(key), os.W_OK)]
    own = {found.key: found.value for found in sysctl.parse(path, old or "")}
    plan = sysctl.plan(wanted, before, settable, own, present=module.params["state"] == "present")
    obstacle = tuning.obstacle(Path(path)) if plan.text != old else None
    if obstacle:
        module.fail_json(msg=obstacle, refused_id="file_in_the_way")
    if not module.check_mode:
        # The running kernel first, as only it knows whether there is enough memory.
        _set_or_put_back(module, plan, before)
        if plan.text != old:
            _write(module, path, plan.text)
    file = {"before_header": path, "before": old or "", "after_header": path, "after": plan.text or ""}
    kernel = {"before_header": "running kernel", "before": before, "after": {**before, **plan.todo}}
    changed = plan.text != old or bool(plan.todo)
    module.exit_json(changed=changed, before=before, diff=[file, kernel], **_found(path, plan, before, wanted))


if __name__ == "__main__":
    main()
