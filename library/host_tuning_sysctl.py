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
  state:
    description: Whether the drop-in holds the settings, or is taken away.
    type: str
    choices: [present, absent]
    default: present
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
"""

import os
import tempfile
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gaudi import host_state_sysctl as sysctl

ARGUMENT_SPEC: dict[str, Any] = {
    "path": {"type": "path", "required": True},
    "settings": {"type": "dict", "required": True},
    "max_memory_share": {"type": "int", "default": 50},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
}
PROC = Path("/proc")


def _proc(key: str) -> Path:
    return PROC / "sys" / key.replace(".", "/")


def _running(settings: dict[str, str]) -> dict[str, str]:
    return {key: sysctl.normal(_proc(key).read_text()) for key in settings if _proc(key).exists()}


def _set(module: AnsibleModule, values: dict[str, str]) -> None:
    for key, value in values.items():
        try:
            _proc(key).write_text(f"{value}\n")
        except OSError as error:
            module.fail_json(
                msg=f"The kernel did not take {key} = {value} ({error.strerror}). "
                "Ask for a value this kernel knows, and run as root."
            )


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
    if not Path(path).exists():
        return None
    text = Path(path).read_text()
    if not text.startswith(sysctl.MARK):
        module.fail_json(msg=f"{path} was not written by this role. Move it away, then run again.")
    return text


def _memory() -> sysctl.Memory:
    return sysctl.parse_meminfo((PROC / "meminfo").read_text())


def main() -> None:
    """Decide, then act unless in check mode."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    options = module.params
    present = options["state"] == "present"
    try:
        wanted = sysctl.check_request({key: str(value) for key, value in options["settings"].items()})
        pages = int(wanted.get(sysctl.HUGEPAGES, 0))
        refusal = sysctl.memory_refusal(pages, _memory(), options["max_memory_share"]) if present and pages else None
    except ValueError as error:
        module.fail_json(msg=str(error))
    if refusal:
        module.fail_json(msg=refusal)
    before = _running(wanted)
    missing = [key for key in wanted if key not in before]
    old = _own_text(module, options["path"])
    new = sysctl.render(wanted, missing) if present else None
    differ = {key: wanted[key] for key in before if before[key] != wanted[key]}
    # access() answers "no" to root only where the whole of /proc/sys is mounted read-only.
    todo = {key: value for key, value in differ.items() if os.access(_proc(key), os.W_OK)}
    findings = [f"This kernel has no setting {key}; there is nothing to set." for key in missing]
    findings += [
        f"{key} is {before[key]} and cannot be set to {differ[key]} from here: /proc/sys is read-only. "
        "In a container this is the host's to set."
        for key in differ
        if key not in todo
    ]
    if not module.check_mode:
        # The running kernel first: only it knows whether there is enough memory.
        _set(module, todo)
        short = sysctl.grant_refusal(pages, _memory()) if present and sysctl.HUGEPAGES in todo else None
        if short:
            _set(module, {key: before[key] for key in todo})
            module.fail_json(msg=f"{short} The previous values are back.", before=before)
        if new != old:
            _write(module, options["path"], new)
    module.exit_json(
        changed=new != old or bool(todo),
        before=before,
        findings=findings,
        diff=[
            {
                "before_header": options["path"],
                "before": old or "",
                "after_header": options["path"],
                "after": new or "",
            },
            {"before_header": "running kernel", "before": before, "after": {**before, **todo}},
        ],
    )


if __name__ == "__main__":
    main()
