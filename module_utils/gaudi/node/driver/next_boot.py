"""Read which kernels a node has, runs and boots next, and for which of them DKMS has built the driver."""

from __future__ import annotations

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ...driver import dkms, kernel_pin, kernels
from ...driver.next_boot import NextBoot
from ..host import boot_loader
from ..module import output

ROOT = Path("/")
# Not uname, which is the same on every simulated node; a file can be replaced by a mount.
RUNNING = Path("/proc/sys/kernel/osrelease")
BOOT = Path("/boot")
MODULES = Path("/lib/modules")
# The drop-in with which the role has GRUB boot a chosen kernel.
PIN = Path(kernel_pin.PIN)


def running_kernel() -> str:
    """Return the kernel that runs now."""
    return RUNNING.read_text(encoding="ascii").strip()


def next_kernel(module: AnsibleModule) -> str:
    """Return the kernel that boots next."""
    return kernel_of(boot_loader.boots_next(module).image)


def kernel_of(image: str) -> str:
    """Return the kernel of the image that the boot loader takes; the newest one where that image is not known."""
    images = {path.name: path for path in (*BOOT.glob("vmlinuz*"), *ROOT.glob("vmlinuz*"))}
    name = image.rpartition("/")[2]
    if name in images:
        # An entry of somebody's own may boot a link, such as /vmlinuz.
        name = images[name].resolve().name
    coming: str = kernels.boots_next(images, running_kernel(), name)
    return coming


def pinned_kernel() -> str:
    """Return the kernel that our drop-in has GRUB boot; "" without one."""
    kernel: str = kernel_pin.pinned_in(PIN.read_text(encoding="utf-8", errors="replace")) if PIN.is_file() else ""
    return kernel


def dkms_status(module: AnsibleModule) -> tuple[tuple[dkms.DkmsBuild, ...], dict[str, tuple[str, ...]]]:
    """Return what DKMS says of the driver, corrected by the modules' files, and those of 0 bytes by kernel."""
    status = dkms.parse(output(module, ["dkms", "status"]) or "")
    # Debian and Ubuntu: updates/dkms. RHEL: extra, or weak-updates, whose links lead there.
    empty = {
        kernel: tuple(
            path.name
            for folder in ("updates/dkms", "updates", "extra")
            for path in sorted((MODULES / kernel / folder).glob("habanalabs*.ko*"))
            if path.is_file() and path.stat().st_size == 0
        )
        for kernel in sorted({built.kernel for built in status if built.kernel})
    }
    found = {kernel: files for kernel, files in empty.items() if files}
    return dkms.with_files(status, found), found


def read(module: AnsibleModule) -> NextBoot:
    """Read what the next boot changes for the driver."""
    later = boot_loader.boots_after_update(module)
    return NextBoot(
        running_kernel(),
        pinned_kernel(),
        next_kernel(module),
        kernel_of(later.image) if later.image else "",
        later.place,
        dkms_status(module)[0],
    )
