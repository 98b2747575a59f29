"""The drop-in that has GRUB boot the kernel that a site chooses for the driver."""

from __future__ import annotations

import re

OPTION = "gaudi_driver_kernel"
PIN = "/etc/default/grub.d/zz-gaudi-serving-kernel.cfg"
"""The path of the drop-in. It comes after those of other packages, since the last value counts."""
MARK = "# Written by gaudi-serving (role gaudi_driver)."
_KERNEL_LINE = re.compile(r"^# Kernel (\S+)$", re.MULTILINE)


def pinned_in(drop_in: str) -> str:
    """Return the kernel that our drop-in names."""
    match = _KERNEL_LINE.search(drop_in)
    return match[1] if match else ""


def render_pin(kernel: str, path: str) -> str:
    """Return the text of our drop-in. path: the default that boots this kernel, as boot_menu.path_to gives it."""
    return f'{MARK}\n# {OPTION} decides it; do not edit it here.\n# Kernel {kernel}\nGRUB_DEFAULT="{path}"\n'
