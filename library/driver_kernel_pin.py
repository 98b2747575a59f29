#!/usr/bin/python
"""Have GRUB boot a chosen kernel, by a drop-in of our own, or remove that drop-in."""

from __future__ import annotations

DOCUMENTATION = r"""
module: driver_kernel_pin
short_description: Have GRUB boot a chosen kernel
version_added: "0.3.0"
author: gaudi-serving
description:
  - Writes C(GRUB_DEFAULT) into a drop-in of our own in C(/etc/default/grub.d), by the ids of the menu, so that the
    kernel boots also after a newer one was installed, and runs C(update-grub). Files of others are never edited.
  - If C(update-grub) fails, or the kernel is not what GRUB boots then, what was there before is put back.
  - The running kernel stays; a reboot is not this module's.
options:
  kernel:
    description: Release of the kernel, as C(uname -r) prints it. Its image must be in C(/boot).
    type: str
    default: ""
  path:
    description: The drop-in. It must be ours, or not be there.
    type: path
    default: /etc/default/grub.d/zz-gaudi-serving-kernel.cfg
  state:
    description: Whether the kernel is chosen by us.
    type: str
    choices: [present, absent]
    default: present
requirements:
  - root (C(become))
attributes:
  check_mode:
    description: Says what would change and changes nothing.
    support: full
  diff_mode:
    description: Shows the drop-in.
    support: full
  platform:
    description: Debian and Ubuntu with GRUB.
    support: full
    platforms: posix
"""

EXAMPLES = r"""
- name: Have GRUB boot this kernel
  driver_kernel_pin:
    kernel: 6.8.0-110-generic
  become: true

- name: Have GRUB choose as before
  driver_kernel_pin:
    state: absent
  become: true
"""

RETURN = r"""
boots:
  description: The kernel that GRUB boots from now on, whatever is chosen for one boot. Empty if that is not known.
  type: str
  returned: always
  sample: 6.8.0-110-generic
refused_id:
  description: Id of the refusal, which stays the same between releases; C(msg) has the sentence.
  returned: when the task fails for a refusal
  type: str
  sample: kernel_not_in_menu
"""

from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.driver import kernel_choice, kernel_pin
from ansible.module_utils.gaudi.host import boot_menu
from ansible.module_utils.gaudi.host import files as host_files
from ansible.module_utils.gaudi.node.host import boot_loader, tuning
from ansible.module_utils.gaudi.node.module import NodeModule

ARGUMENT_SPEC: dict[str, Any] = {
    "kernel": {"type": "str", "default": ""},
    "path": {"type": "path", "default": kernel_pin.PIN},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
}


def persistent_kernel() -> str:
    """Return the kernel that GRUB boots from now on."""
    variables = {name: value for name, value in boot_loader.boot_variables().items() if name != "next_entry"}
    default = boot_menu.default_of(boot_loader.GRUB_CONFIG.read_text(errors="replace"), variables)
    entry = boot_menu.chosen_entry(boot_loader.boot_entries(), default)
    return entry.release if entry else ""


def mismatch(kernel: str) -> str:
    """Return that GRUB would not boot the kernel, as a sentence; "" if it would, or if none is chosen."""
    if not kernel or persistent_kernel() == kernel:
        return ""
    found = boot_menu.of_files(boot_loader.grub_files(boot_loader.GRUB_DEFAULTS), boot_loader.boot_variables())
    place = f" {found[1]} sets GRUB_DEFAULT." if found and found[1] else ""
    return f"update-grub ended well, but GRUB would boot kernel {persistent_kernel() or 'none'}, not {kernel}.{place}"


def drop_in_text(module: AnsibleModule, kernel: str, command: list[str]) -> str:
    """Return the drop-in's text. Raises Refusal if the menu has no such kernel, or another one boots once."""
    once = boot_loader.boot_variables().get("next_entry", "")
    if once:
        raise Refusal(
            "other_kernel_boots_once",
            f"{once!r} is chosen for the next boot alone (grub-reboot), so that kernel {kernel} would not boot then. "
            "Run grub-editenv - unset next_entry, then run again.",
        )
    path = boot_menu.path_to(boot_loader.boot_entries(), kernel)
    if not path and not module.check_mode and tuning.run_boot_tool(module, command) is None:
        # The script of a kernel's package writes the menu; one that was copied into /boot is not in it yet.
        path = boot_menu.path_to(boot_loader.boot_entries(), kernel)
    if not path and not module.check_mode:
        raise Refusal(
            "kernel_not_in_menu",
            f"{boot_loader.GRUB_CONFIG} has no entry of kernel {kernel}. Its image must be in /boot, and update-grub "
            "must write an entry for it (/etc/grub.d/10_linux).",
        )
    return str(kernel_pin.render_pin(kernel, path))


def apply(module: AnsibleModule) -> dict[str, Any]:
    """Bring the drop-in and the menu to what is asked for. Raises Refusal."""
    drop_in, present = Path(module.params["path"]), module.params["state"] == "present"
    kernel: str = module.params["kernel"] if present else ""
    old = drop_in.read_text(errors="replace") if drop_in.is_file() else None
    foreign = host_files.foreign({str(drop_in): old}, kernel_pin.MARK)
    if foreign:
        raise Refusal("file_in_the_way", " ".join(foreign))
    if not boot_loader.grub_is_set_up(module):
        if old is None and not present:
            return {"changed": False, "boots": ""}
        raise kernel_choice.no_grub()
    update_grub = [module.get_bin_path("update-grub", opt_dirs=["/usr/sbin", "/sbin"])]
    new = drop_in_text(module, kernel, update_grub) if present else None
    obstacle = tuning.obstacle(drop_in) if old != new else None
    if obstacle:
        raise Refusal("file_in_the_way", obstacle)
    changed = old != new or bool(mismatch(kernel))
    if changed and not module.check_mode:
        tuning.change_drop_in(module, update_grub, drop_in, (old, new), kernel_pin.MARK, lambda: mismatch(kernel))
    diff = {"before_header": str(drop_in), "before": old or "", "after_header": str(drop_in), "after": new or ""}
    return {"changed": changed, "boots": persistent_kernel(), "diff": diff}


def main() -> None:
    """Change the drop-in under the lock of all that writes GRUB's menu."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    try:
        with tuning.boot_lock():
            result = apply(module)
    except Refusal as refusal:
        module.fail_json(msg=str(refusal), refused_id=refusal.id)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
