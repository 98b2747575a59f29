"""Which kernel boots next, and which kernels have the driver's modules."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_NUMBERS = re.compile(r"[0-9]+|[^0-9]+")
# Images beside a bootable kernel: RHEL's rescue image, and backups of packages.
_NO_KERNEL = re.compile(r"rescue|\.(?:old|bak|new|tmp|save|orig|dpkg-\w+|old-dkms)$")


def sort_key(kernel: str) -> tuple[tuple[int, str], ...]:
    """Return a sort key for kernel releases in GRUB's order: digits by value, the text between them as text."""
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in _NUMBERS.findall(kernel))


def boots_next(images: Iterable[str], running: str, chosen: str = "") -> str:
    """Return the kernel that boots next.

    images: names in /boot such as vmlinuz-6.8.0-45-generic. chosen: the image that the boot loader takes; "" if that is
    not known, and then the newest kernel boots. A node without an image, such as a container, boots the running kernel.
    """
    found = [name.partition("vmlinuz-")[2] for name in (chosen, *images) if "vmlinuz-" in name]
    if "vmlinuz-" in chosen:
        return found[0]
    kernels = [kernel for kernel in found if kernel and not _NO_KERNEL.search(kernel)]
    return max(kernels, key=lambda kernel: (sort_key(kernel), kernel)) if kernels else running


def loaded(lsmod: str) -> frozenset[str]:
    """Names of the modules that are loaded, from what lsmod prints or /proc/modules holds."""
    return frozenset(line.split()[0] for line in lsmod.splitlines() if line.strip() and not line.startswith("Module "))


def to_load(order: Sequence[str], there: Iterable[str]) -> list[str]:
    """The modules of an order that are not loaded, in that order."""
    present = set(there)
    return [module for module in order if module not in present]


def to_unload(order: Sequence[str], there: Iterable[str]) -> list[str]:
    """Return the loaded modules in unload order; other modules of the vendor come first."""
    present = set(there)
    others = sorted(module for module in present if module.startswith("habanalabs") and module not in order)
    return [*others, *(module for module in order if module in present)]
