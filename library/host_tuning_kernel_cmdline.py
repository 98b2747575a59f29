#!/usr/bin/python
"""Give every kernel that can be booted the arguments asked for, or take them away."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_tuning_kernel_cmdline
short_description: Kernel arguments at the next boot
description:
  - Debian and Ubuntu get a drop-in of our own in C(/etc/default/grub.d) and, only when something changed,
    C(update-grub). Systems with C(grubby) get their arguments through it. Files of others are never edited.
  - When C(update-grub) or C(grubby) fails, or does not bring the arguments into the boot entries, what was there
    before is put back.
  - The running kernel keeps what it was started with; that takes a reboot, which is not this module's.
author: gaudi-serving
options:
  arguments:
    description: The arguments, as text. With O(state=absent), those to take away.
    type: list
    elements: raw
    required: true
  path:
    description: The drop-in for GRUB. It must be ours, or not be there.
    type: path
    required: true
  former:
    description: With grubby and O(state=absent), each kernel's arguments before the first change.
    type: dict
    default: {}
  state:
    description: Whether the kernels get the arguments.
    type: str
    choices: [present, absent]
    default: present
extends_documentation_fragment: attributes.node
attributes:
  check_mode:
    description: Says what would change and changes nothing.
    support: full
  diff_mode:
    description: Shows the drop-in, or the arguments of each kernel.
    support: full
"""

EXAMPLES = r"""
- name: Give the kernels their arguments
  host_tuning_kernel_cmdline:
    path: /etc/default/grub.d/zz-gaudi-serving.cfg
    arguments: [intel_idle.max_cstate=0]
"""

RETURN = r"""
entries:
  description: For each kernel that can be booted, its arguments.
  type: dict
  returned: always
  sample: {"/boot/vmlinuz-6.1.0-56-amd64": "root=UUID=41b2 ro quiet intel_idle.max_cstate=0"}
refused_id:
  description: Id of the refusal, which stays the same between releases; C(msg) has the sentence.
  returned: when the task fails for a refusal
  type: str
  sample: no_boot_tool
held:
  description: The text of the drop-in, by its path; empty where there is none.
  returned: where GRUB is set up by update-grub
  type: dict
  sample: {"/etc/default/grub.d/zz-gaudi-serving.cfg": "..."}
"""

from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gaudi.base.printable import printable
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.host import cmdline as kernel_cmdline
from ansible.module_utils.gaudi.host import files as host_files
from ansible.module_utils.gaudi.host import grub
from ansible.module_utils.gaudi.node.host import boot_loader, tuning
from ansible.module_utils.gaudi.node.module import NodeModule

ARGUMENT_SPEC: dict[str, Any] = {
    "arguments": {"type": "list", "elements": "raw", "required": True},
    "path": {"type": "path", "required": True},
    "former": {"type": "dict", "default": {}},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
}
_SYSTEM = ["/usr/sbin", "/sbin"]


def _shown(entries: list[grub.BootEntry]) -> dict[str, str]:
    return {entry.kernel: " ".join(entry.arguments) for entry in entries}


def _entries() -> list[grub.BootEntry]:
    return grub.parse_config(boot_loader.content(boot_loader.GRUB_CONFIG))


def _with_grub(module: AnsibleModule, update_grub: str, arguments: list[str]) -> dict[str, Any]:
    """Set the arguments in a drop-in, and run update-grub if the boot entries differ from the files."""
    path: str = module.params["path"]
    old = Path(path).read_text(errors="replace") if Path(path).is_file() else None
    foreign = host_files.foreign({path: old})
    if foreign:
        module.fail_json(msg=" ".join(foreign), refused_id="file_in_the_way")
    new = grub.render(arguments) if module.params["state"] == "present" and arguments else None
    line = grub.command_line(grub.evaluate(grub.replaced(boot_loader.grub_files(boot_loader.GRUB_DEFAULTS), path, new)))
    expected = kernel_cmdline.held(arguments, [word.text for word in line]) if new is not None else []
    changed = old != new or not kernel_cmdline.all_hold(expected, _entries())
    obstacle = tuning.obstacle(Path(path)) if old != new else None
    if obstacle:
        module.fail_json(msg=obstacle, refused_id="file_in_the_way")
    if changed and not module.check_mode:
        tuning.change_drop_in(
            module,
            [update_grub],
            Path(path),
            (old, new),
            host_files.MARK,
            lambda: _lacking(update_grub, expected),
        )
    return {
        "changed": changed,
        "entries": _shown(_entries()),
        "held": {path: new or ""},
        "diff": {"before_header": path, "before": old or "", "after_header": path, "after": new or ""},
    }


def _lacking(update_grub: str, expected: list[str]) -> str:
    """Return which arguments the boot entries lack, as a sentence; "" if none."""
    if kernel_cmdline.all_hold(expected, _entries()):
        return ""
    return f"{update_grub} ended well, but the boot entries in {boot_loader.GRUB_CONFIG} lack {' '.join(expected)}."


def _with_grubby(module: AnsibleModule, grubby: str, arguments: list[str]) -> dict[str, Any]:
    """Set the arguments with grubby, which changes each kernel's entry."""

    def read() -> list[grub.BootEntry]:
        rc, out, err = module.run_command([grubby, "--info=ALL"])
        if rc != 0:
            module.fail_json(
                msg=f"grubby cannot say which kernels there are: {printable(err.strip())}. Repair it, then run again."
            )
        found: list[grub.BootEntry] = grub.parse_grubby(out)
        return found

    entries = read()
    if module.params["state"] == "absent":
        calls = kernel_cmdline.grubby_restore(arguments, entries, module.params["former"])
    elif kernel_cmdline.all_hold(arguments, entries):
        calls = []
    else:
        calls = [kernel_cmdline.grubby_set(arguments)]
    before = after = _shown(entries)
    if calls and not module.check_mode:
        failure = next(
            (said for said in (tuning.run_boot_tool(module, [grubby, *call]) for call in calls) if said), None
        )
        after = _shown(read())
        if failure:
            for call in kernel_cmdline.grubby_restore(arguments, read(), before):
                tuning.run_boot_tool(module, [grubby, *call])
            module.fail_json(msg=f"{failure} The previous arguments are back in place.", before=before, after=after)
    return {"changed": bool(calls), "entries": after, "diff": {"before": before, "after": after}}


def main() -> None:
    """Set the arguments in the boot loader, under a lock: update-grub fails if another one runs."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    try:
        with tuning.boot_lock():
            _hold(module)
    except Refusal as refusal:
        module.fail_json(msg=str(refusal), refused_id=refusal.id)


def _hold(module: AnsibleModule) -> None:
    """Find the boot loader's tool and let it hold the arguments. Raises Refusal."""
    grubby = module.get_bin_path("grubby", opt_dirs=_SYSTEM)
    update_grub = module.get_bin_path("update-grub", opt_dirs=_SYSTEM)
    absent = module.params["state"] == "absent"
    arguments = kernel_cmdline.check(module.params["arguments"])
    if grubby:
        result = _with_grubby(module, grubby, arguments)
    elif update_grub and boot_loader.GRUB_CONFIG.exists() and (boot_loader.GRUB_DEFAULTS.exists() or absent):
        result = _with_grub(module, update_grub, arguments)
    elif absent:
        raise Refusal(
            "no_boot_tool",
            f"Kernel arguments of ours are in {module.params['path']}, and there is no update-grub (with "
            f"{boot_loader.GRUB_CONFIG}) to take them out of the boot entries. Remove that file and renew the boot "
            "entries by hand, then run again.",
        )
    else:
        raise Refusal(
            "no_boot_tool",
            "This system has neither grubby nor update-grub (with /etc/default/grub and /boot/grub/grub.cfg). "
            "Set the kernel arguments by hand, and host_tuning_kernel_cmdline: false.",
        )
    module.exit_json(**result)


if __name__ == "__main__":
    main()
