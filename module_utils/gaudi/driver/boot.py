"""Judge what a rebuilt driver needs of the boot process: space for an initramfs, kernel files, Secure Boot."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..base.refusal import Refusal
from .kernels import sort_key

MIB = 1024 * 1024
# Beside the file itself: the maps and backups that DKMS and update-initramfs write.
MARGIN = 16 * MIB
# EFI's variable: four bytes of attributes, and 1 where Secure Boot is on (UEFI 2.10, 3.3).
SECURE_BOOT = "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
# What DKMS 3 and Ubuntu's package of it sign modules with (dkms(8), update-secureboot-policy).
KEYS = ("/var/lib/dkms/mok.pub", "/var/lib/shim-signed/mok/MOK.der")
_CONFIGURED = re.compile(r"^\s*mok_certificate\s*=\s*[\"']?([^\"'\s#]+)", re.MULTILINE)
# RHEL's rescue image has all drivers, and is not rebuilt.
_INITRAMFS = re.compile(r"initrd\.img-|initramfs-(?!0-rescue-).*\.img")
_REST = re.compile(r"^(?:initrd\.img|vmlinu[xz])-.*\.(?:dpkg-\w+|new|tmp)$")


@dataclass(frozen=True)
class BootFiles:
    """Files beside the kernels. Sizes in bytes.

    ``files``: sizes by name in /boot. ``modules``: names in /lib/modules. ``kept``: kernels of update-initramfs's
    record. ``filesystem``, ``free``: of /boot.
    """

    files: Mapping[str, int]
    modules: frozenset[str]
    kept: frozenset[str]
    filesystem: str
    free: int


@dataclass(frozen=True)
class SecureBoot:
    """What the kernel demands of modules.

    ``on``: Secure Boot, by EFI's variable. ``lockdown``: the file of the same name, "" if there is none; ``enforced``:
    whether the kernel takes signed modules only. ``keys``: paths of DKMS's certificates, and whether the firmware's
    list has each; None if the list cannot be read.
    """

    on: bool = False
    lockdown: str = ""
    enforced: bool = False
    keys: tuple[tuple[str, bool | None], ...] = ()


def is_on(variable: bytes) -> bool:
    """Whether EFI's variable says that Secure Boot is on."""
    return len(variable) == 5 and variable[4] == 1


def configured_keys(framework: str) -> list[str]:
    """Return the certificates that DKMS's configuration names."""
    return [path for path in _CONFIGURED.findall(framework) if "$" not in path]


def not_enrolled(secure: SecureBoot) -> tuple[list[Refusal], list[str]]:
    """Return why the kernel would not load modules built here, and what is only suspected."""
    # shim can switch validation off although the firmware has Secure Boot on; the kernel then locks nothing down.
    free = "[none]" in secure.lockdown and not secure.enforced
    if not (secure.on or secure.enforced) or free or any(there for _, there in secure.keys):
        return [], []
    names = ", ".join(path for path, _ in secure.keys)
    if not (secure.lockdown or secure.enforced):
        return [], [
            "Secure Boot is on, and /sys/kernel/security/lockdown cannot be read: whether this kernel takes signed "
            "modules only shows when the driver is loaded (mokutil --sb-state)."
        ]
    if names and any(there is None for _, there in secure.keys):
        return [], [
            f"Secure Boot is on, and the keys that the firmware accepts cannot be read: whether {names} is enrolled, "
            "by which DKMS signs the driver, shows when it is loaded (mokutil --test-key FILE)."
        ]
    enrol = f"mokutil --import {secure.keys[0][0] if secure.keys else KEYS[0]}"
    demands = "Secure Boot is on" if secure.on else "This kernel takes signed modules only (module.sig_enforce)"
    found = f"DKMS's key ({names}) is not enrolled" if names else "DKMS has no key yet"
    make = "" if names else "install dkms and run dkms generate_mok (Ubuntu: update-secureboot-policy --new-key), "
    return [
        Refusal(
            "secure_boot_key_not_enrolled",
            f"{demands}, and {found}, so that the kernel would not load a driver that is built on this node. "
            f"Before the driver changes, {make}run {enrol}, reboot and confirm it at the console, or switch Secure "
            "Boot off in the firmware's setup. Then run again.",
        )
    ], []


def no_space(boot: BootFiles, kernels: Iterable[str]) -> tuple[list[Refusal], list[str]]:
    """Return why no initramfs can be rebuilt, and what is only suspected; nothing where /boot has none.

    A new initramfs is written beside the old one, which it then replaces. DKMS may keep the old ones of all kernels
    (dkms(8), REMAKE_INITRD).
    """
    size = max((size for name, size in boot.files.items() if _INITRAMFS.match(name)), default=0)
    count = len(set(kernels))
    if not size or size * count + MARGIN <= boot.free:
        return [], []
    where = "" if boot.filesystem == "/boot" else f" (on {boot.filesystem})"
    free = f"{boot.free / MIB:.0f} MiB are free in /boot{where}"
    if size + MARGIN <= boot.free:
        most = f"{size * count / MIB:.0f} MiB while they are rebuilt, and files beside them {MARGIN // MIB} MiB"
        return [], [f"{free}. The initramfs of {count} kernels may take {most}. {FREE_BOOT}"]
    return [
        Refusal(
            "boot_full",
            f"{free}, but {(size + MARGIN) / MIB:.0f} MiB are needed: the initramfs of a kernel takes "
            f"{size / MIB:.0f} MiB while it is rebuilt, and {MARGIN // MIB} MiB are kept for files beside it. "
            f"{FREE_BOOT} Then run again.",
        )
    ], []


FREE_BOOT = (
    "Remove unused kernels (apt-get autoremove --purge; RHEL: dnf remove --oldinstallonly), and files "
    "in /boot that no package owns, but never those of the running kernel (uname -r)."
)


def left_over(boot: BootFiles, running: str) -> tuple[list[Refusal], list[str]]:
    """Return which kernel files would make update-initramfs fail, and which are only in the way.

    running: the release of the running kernel, whose files are to stay.
    update-initramfs rebuilds the newest kernel by name (update-initramfs(8)); without modules for it mkinitramfs fails,
    and with it each package that triggers it.
    """
    named = {name.partition("-")[2] for name in boot.files if name.startswith(("vmlinuz-", "vmlinux-"))}
    # Without an initramfs there is nothing to update.
    versions = {version for version in named | boot.kept if f"initrd.img-{version}" in boot.files}
    lacking = sorted((version for version in versions if version not in boot.modules), key=sort_key)
    newest = max(versions, key=lambda version: (sort_key(version), version), default="")
    rest = sorted(name for name in boot.files if _REST.match(name))
    # Debian has the modules in the image's package, and no other by this name.
    reinstall = (
        f"Debian: apt-get install --reinstall linux-image-{running}; Ubuntu: the same with linux-modules-{running} and "
        f"linux-modules-extra-{running}"
    )
    findings = [
        f"/lib/modules/{version}, of the running kernel, does not exist, so that it cannot boot again and loads no "
        f"further module. Install its packages again ({reinstall}). Leave its files in /boot."
        if version == running
        else f"/boot has files of {version}, but /lib/modules does not, so that it cannot boot. Remove them if no "
        "package owns them (dpkg --search)."
        for version in lacking
        if version != newest
    ]
    if rest:
        findings.append(f"/boot has left-over files ({', '.join(rest)}), which take its space. Remove them.")
    if newest not in lacking:
        return [], findings
    if newest == running:
        return [
            Refusal(
                "running_kernel_without_modules",
                f"/lib/modules/{newest} does not exist, although {newest} is the running kernel and the newest one in "
                "/boot. update-initramfs would fail on it, and with it the driver's packages; nor would the kernel "
                f"load the driver. Install its packages again ({reinstall}), or boot a kernel whose modules are there. "
                f"Leave the files of {newest} in /boot until then. Then run again.",
            )
        ], findings
    return [
        Refusal(
            "boot_left_over",
            f"/boot or /var/lib/initramfs-tools has files of {newest}, which counts as the newest kernel, but "
            f"/lib/modules/{newest} does not exist. update-initramfs would fail on it, and with it the driver's "
            f"packages. Remove what no package owns: vmlinuz-{newest} and initrd.img-{newest} in /boot, and "
            f"/var/lib/initramfs-tools/{newest}. Then run again.",
        )
    ], findings
