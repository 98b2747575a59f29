"""The kernel that a site chooses for the driver: which one it is, its packages, and the files that keep it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..base.refusal import Refusal
from ..preflight import versions
from .facts import DEB, KERNEL, DriverCatalogue
from .kernel_pin import OPTION
from .kernels import sort_key

SUPPORTED = "supported"
PATTERN = "linux-image-"
"""How the names of packages begin that contain a kernel."""

_IMAGE = re.compile(r"linux-image-(?P<kernel>[0-9]+\.[0-9]+\.[0-9][A-Za-z0-9.+~-]*)$")
_NO_IMAGE = re.compile(r"-(?:dbg|dbgsym|unsigned)$")


@dataclass(frozen=True)
class KernelChoice:
    """The kernel that is requested, "" if none is, or if the node's package lists do not have it yet.

    ``requested``: the option. ``pinned``: the kernel that the node's drop-in names, "" without one.
    """

    requested: str = ""
    kernel: str = ""
    pinned: str = ""

    @property
    def up_to_date(self) -> bool:
        """Whether the drop-in is as requested."""
        return self.pinned == self.kernel and bool(self.kernel) == bool(self.requested)


def render_keep(packages: Iterable[str]) -> str:
    """Return a file for /etc/apt/apt.conf.d that keeps packages from autoremove (apt.conf(5), APT::NeverAutoRemove)."""
    lines = ['  "^' + re.sub(r"([.+])", r"\\\1", name) + '$";' for name in packages]
    about = "// Written by the role gaudi_driver: the kernel that gaudi_driver_kernel chooses is not removed."
    return "\n".join([about, "APT::NeverAutoRemove {", *lines, "};", ""])


def flavour(kernel: str) -> str:
    """Return the kind of a kernel: generic of 6.8.0-110-generic, cloud-amd64 of 6.1.0-56-cloud-amd64."""
    parts = kernel.split("-")
    return "-".join(part for place, part in enumerate(parts) if place and not part[:1].isdigit())


def listed(software: Mapping[str, object], system: str, family: str = "ubuntu") -> str:
    """Return the newest kernel of a release's list, such as 6.8; "" if it names none.

    Of a system that the list does not have, such as Debian, the newest that it names for any system of a family.
    """
    lists = [_list(software, key) for key in ("kernel_newest", "kernel_minimum")]
    own = next((found[system] for found in lists if found.get(system)), None)
    others = [version for found in lists for name, version in found.items() if version and name.startswith(family)]
    return own or max(others, key=sort_key, default="")


def _list(software: Mapping[str, object], key: str) -> dict[str, str]:
    found = software.get(key)
    return {str(name): str(value) for name, value in found.items() if value} if isinstance(found, Mapping) else {}


def of_packages(names: Iterable[str]) -> list[str]:
    """Return the kernels of packages by their names, such as linux-image-6.8.0-110-generic."""
    found = (_IMAGE.match(name) for name in names if not _NO_IMAGE.search(name))
    return [match["kernel"] for match in found if match]


def newest(listing: str, running: str, there: Iterable[str]) -> str:
    """Return the newest of some kernels that are of a release's list and of the kind of the running one; "" if none.

    listing: the version of the list, whose numbers the kernel begins with.
    """
    wanted = versions.read(listing)
    fitting = [
        kernel
        for kernel in there
        if (found := versions.read(kernel)) is not None
        and wanted is not None
        and found.numbers[: len(wanted.numbers)] == wanted.numbers
        and flavour(kernel) == flavour(running)
    ]
    return max(fitting, key=sort_key, default="")


def choose(
    requested: str, listing: str, running: str, pinned: str, images: Iterable[str], offered: Iterable[str]
) -> KernelChoice:
    """Return the kernel that an option means.

    A kernel that is pinned already stays for as long as it is of the list: a newer package does not bring a reboot.
    Raises Refusal for a text that is no kernel's name.
    """
    if requested not in ("", SUPPORTED) and not KERNEL.fullmatch(requested):
        raise Refusal(
            "kernel_not_named",
            f"{OPTION} is {requested!r}. Set {SUPPORTED}, or the full name of a kernel as uname -r prints it, such as "
            "6.8.0-45-generic.",
        )
    if requested != SUPPORTED:
        return KernelChoice(requested, requested, pinned)
    kept = newest(listing, running, [pinned]) if pinned else ""
    return KernelChoice(requested, kept or newest(listing, running, [*images, *offered]), pinned)


def names_of(facts: DriverCatalogue, kernel: str) -> list[str]:
    """Return the packages of a kernel: its image, its headers, and further ones that the distribution may have."""
    return [*facts.images_of(DEB, kernel), *facts.headers_of(DEB, kernel), *facts.extra_of(DEB, kernel)]


def missing(facts: DriverCatalogue, kernel: str, there: Iterable[str]) -> list[str]:
    """Return the packages of a kernel that are not on the node."""
    present = set(there)
    return [name for name in names_of(facts, kernel) if name not in present]


def not_listed(listing: str, running: str, offered: Sequence[str]) -> Refusal:
    """Return the refusal of a node whose repositories have no kernel of the release's list."""
    others = sorted({kernel for kernel in offered if flavour(kernel) == flavour(running)}, key=sort_key)[-4:]
    have = f"They have {', '.join(others)}. " if others else ""
    kind = f" of the kind {flavour(running)}" if flavour(running) else ""
    return Refusal(
        "no_supported_kernel",
        f"{OPTION} asks for a kernel of the release's list ({listing or 'which names none'}), but no package "
        f"repository of this node has one{kind}. {have}Add the repository that has it, or name a kernel in full.",
    )


def not_offered(kernel: str, lacking: Sequence[str], offered: Sequence[str]) -> Refusal:
    """Return the refusal of a kernel whose packages no repository has."""
    near = sorted({name for name in offered if flavour(name) == flavour(kernel)}, key=sort_key)[-4:]
    have = f" They have kernels {', '.join(near)}." if near else ""
    return Refusal(
        "kernel_not_offered",
        f"{OPTION} is {kernel}, but no package repository of this node has {', '.join(lacking)}.{have} Name a kernel "
        "that they have, or add the repository.",
    )


def elsewhere(family: str) -> Refusal:
    """Return the refusal of a system on which no kernel is chosen."""
    return Refusal(
        "kernel_not_chosen_here",
        f"{OPTION} chooses a kernel on Debian and Ubuntu, not on systems of the family {family}. Install the kernel "
        "with dnf, choose it with grubby --set-default, reboot, and leave the option empty.",
    )


def no_grub() -> Refusal:
    """Return the refusal of a node whose boot loader is not GRUB with update-grub."""
    return Refusal(
        "kernel_without_grub",
        f"{OPTION} chooses the kernel in GRUB, but this node has no update-grub, /etc/default/grub or "
        "/boot/grub/grub.cfg. Choose the kernel in its boot loader, and leave the option empty.",
    )


def waits(kernel: str, running: str, version: str) -> Refusal:
    """Return the refusal to build a driver for the running kernel while another one is chosen."""
    return Refusal(
        "kernel_waits_for_reboot",
        f"Kernel {kernel} ({OPTION}) is installed and boots next. The driver {version} does not build on "
        f"the running kernel {running}. Reboot the node, then run again, or set gaudi_driver_reboot: if_needed.",
    )
