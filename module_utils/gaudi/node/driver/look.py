"""Read a node's driver, and what its package repositories offer, for the decisions in the package driver."""

from __future__ import annotations

import dataclasses
import fcntl
import gzip
import io
import os
import re
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.urls import ConnectionError as NotConnected
from ansible.module_utils.urls import open_url

from ...apt.config import AptProxy
from ...apt.faults import advice, of_proxy
from ...base import certificates, paths
from ...base.documents import Damaged
from ...base.places import Room
from ...base.printable import printable
from ...base.refusal import Refusal
from ...base.systems import vendor_system
from ...cards.document import build_topology, users_of_unlisted
from ...cards.sources import Sources
from ...cards.users import describe_user, instance_of
from ...driver import (
    apt_files,
    at_boot,
    boot,
    build_log,
    decision,
    dkms,
    kernel_choice,
    kernels,
    offered,
    packages,
    room,
)
from ...driver.decision import DriverPolicy, DriverState, Judgement
from ...driver.facts import DEB, DRIVERS, DriverCatalogue, ReleasePackages
from ...driver.kernel_choice import KernelChoice
from ...engine.packages import family_of
from .. import apt, folders, web
from ..documents import read_json
from ..host import boot_loader
from ..module import output
from . import next_boot
from .next_boot import dkms_status, kernel_of, next_kernel, pinned_kernel, running_kernel

OS_RELEASE = Path("/etc/os-release")
EFI = Path("/sys/firmware/efi")
LOCKDOWN = Path("/sys/kernel/security/lockdown")
ENFORCED = Path("/sys/module/module/parameters/sig_enforce")
INITRAMFS = Path("/var/lib/initramfs-tools")
DKMS_SETTINGS = Path("/etc/dkms")
# Where DKMS builds; and bytes of a log that are read, from its end: an attempt prints some hundred kilobytes.
DKMS_TREE = Path("/var/lib/dkms")
LOG_LIMIT = 4 * 1024 * 1024
DEVICES = Path("/dev/accel")
PCI = Path("/sys/bus/pci/devices")
# Where the role keeps replaced packages.
KEPT = paths.DRIVER_KEPT
# IFF_UP of <linux/if.h>: the interface is enabled, with or without a cable.
UP = 0x1
# What the role has a node do at boot.
AT_BOOT = {name: Path(path) for name, path in (("modules", at_boot.MODULES_FILE), ("unit", at_boot.UNIT_FILE))}
ENABLED = Path(at_boot.ENABLED)
APT_LISTS = Path("/var/lib/apt/lists")
DPKG = Path("/var/lib/dpkg")
PROC = Path("/proc")
# The record of packages that this project installed, by the module brought_packages.
BROUGHT = Path(paths.BROUGHT)
# struct flock of <fcntl.h>: type, whence, start, length, process.
FLOCK = "hhlli"
# Seconds and bytes: an index has some megabytes, and a mirror that is silent for this long counts as down.
INDEX_SECONDS = 20
INDEX_LIMIT = 64 * 1024 * 1024


def said(module: AnsibleModule, command: Sequence[str]) -> str:
    """Return a program's output, whatever its status; "" if the program is missing."""
    return output(module, command) or ""


def index_of(
    repository: str,
    suite: str,
    variables: Mapping[str, str],
    ca_file: str = "",
    proxy: AptProxy | None = None,
) -> str:
    """Read a repository's package index without configuring apt for it.

    variables: of the environment, which say how the address is reached. ca_file: as in certificates.advice(). proxy:
    the one that they name, for messages.
    Nothing is installed from it, so its signature is not checked. Raises Refusal if the repository does not answer, or
    lacks the suite.
    """
    place = f"{repository.rstrip('/')}/dists/{suite}/main/binary-amd64/Packages"
    seen = ""
    for name in (f"{place}.gz", place):
        try:
            with (
                web.variables(variables),
                web.within(web.WHOLE_SECONDS),
                open_url(name, timeout=INDEX_SECONDS, **web.WITHOUT_ACCOUNTS) as answer,
            ):
                packed = io.BytesIO(answer.read(INDEX_LIMIT + 1))
            # A few kilobytes may unpack to any size, and their signature is not checked here.
            text = (gzip.GzipFile(fileobj=packed) if name.endswith(".gz") else packed).read(INDEX_LIMIT + 1)
            if len(text) > INDEX_LIMIT:
                raise ValueError(f"it is larger than {INDEX_LIMIT >> 20} MiB")
            return text.decode("utf-8", "replace")
        # Not gzip, not found, no answer: HTTPError, URLError and BadGzipFile are all OSErrors.
        except (OSError, EOFError, ValueError, zlib.error, NotConnected) as error:
            # The reason of an HTTP answer lacks its number.
            seen = str(error if hasattr(error, "code") else getattr(error, "reason", error))
    if not certificates.REJECTED.search(seen) and (denial := of_proxy(seen, proxy)):
        raise Refusal(
            "repository_behind_proxy",
            f"{denial} Through it the index of packages for {suite} in gaudi_driver_repository could not be read from "
            f"this node ({seen}).",
        )
    todo = advice(seen, "Check its address, gaudi_driver_suite, and the node's proxy.", repository, ca_file, proxy)
    raise Refusal(
        "repository_not_read",
        f"gaudi_driver_repository has no index of packages for {suite} that can be read from this node ({seen}). "
        f"{todo}",
    )


def who_holds_dpkg() -> str:
    """Which program changes packages now, in words; empty if none does.

    The lock is only tested, since taking it would block other programs.
    """
    for name in ("lock-frontend", "lock"):
        if not (DPKG / name).exists():
            continue
        with (DPKG / name).open("rb") as file:
            asked = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, _, _, _, process = struct.unpack(FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, asked))
        if kind == fcntl.F_UNLCK:
            continue
        comm = PROC / str(process) / "comm"
        return f"{process} ({printable(comm.read_text().strip())})" if comm.exists() else str(process)
    return ""


def cut_off() -> bool:
    """Whether dpkg has unfinished changes in its journal; apt changes nothing until they are completed."""
    return any(path.name.isdigit() for path in (DPKG / "updates").glob("*"))


def kernel_is_due(requested: str, *, reboots: bool) -> bool:
    """Whether the role has something to do for the kernel: a drop-in that is not as requested, or a reboot."""
    pinned = pinned_kernel()
    waits = reboots and pinned not in ("", running_kernel())
    if requested in ("", kernel_choice.SUPPORTED):
        return bool(pinned) != bool(requested) or waits
    return pinned != requested or waits


def _filesystem(path: str, wanted: int) -> tuple[str, int, int]:
    """Return the mount point of a path, the wanted bytes, and the free bytes."""
    mount, free = folders.space_at(Path(path))
    return mount, wanted, free


def _boot_files() -> boot.BootFiles:
    """Read what lies beside the kernels."""
    mount, free = folders.space_at(next_boot.BOOT)
    return boot.BootFiles(
        files={
            path.name: path.stat().st_size
            for path in next_boot.BOOT.glob("*")
            if path.is_file() and not path.is_symlink()
        },
        modules=frozenset(path.name for path in next_boot.MODULES.glob("*")),
        kept=frozenset(path.name for path in INITRAMFS.glob("*")),
        filesystem=mount,
        free=free,
    )


def _secure_boot() -> boot.SecureBoot:
    """Read whether the kernel takes modules that this node signs itself."""
    variable = EFI / "efivars" / boot.SECURE_BOOT
    on = variable.is_file() and boot.is_on(variable.read_bytes())
    enforced = ENFORCED.is_file() and ENFORCED.read_text(encoding="ascii").strip() == "Y"
    if not (on or enforced):
        return boot.SecureBoot()
    # The kernel's copy of shim's list and the firmware's own have each certificate as it is.
    lists = [
        *(EFI / "mok-variables").glob("MokListRT*"),
        *(EFI / "efivars").glob("MokListRT*"),
        *(EFI / "efivars").glob("db-*"),
    ]
    accepted = b"".join(path.read_bytes() for path in lists)
    framework = [DKMS_SETTINGS / "framework.conf", *sorted((DKMS_SETTINGS / "framework.conf.d").glob("*.conf"))]
    named = [name for file in framework if file.is_file() for name in boot.configured_keys(file.read_text("utf-8"))]
    keys = [next_boot.ROOT / name.lstrip("/") for name in dict.fromkeys((*named, *boot.KEYS))]
    return boot.SecureBoot(
        on=on,
        lockdown=LOCKDOWN.read_text(encoding="ascii") if LOCKDOWN.is_file() else "",
        enforced=enforced,
        keys=tuple((str(key), key.read_bytes() in accepted if lists else None) for key in keys if key.is_file()),
    )


class Look:
    """The facts of a node's driver, and the decisions from them.

    ``given``: the options of the module gaudi_driver_info.
    """

    def __init__(self, module: AnsibleModule, given: Mapping[str, Any], sources: Sources) -> None:
        self.module, self.given, self.sources = module, given, sources
        system = OS_RELEASE.read_text(encoding="utf-8")
        self.family = family_of(system)
        codename = re.search(r'^VERSION_CODENAME="?([a-z]+)', system, re.MULTILINE)
        self.suite = given.get("suite") or (codename[1] if codename else "")
        version = re.search(r'^VERSION_ID="?(\d+)', system, re.MULTILINE)
        self.facts = DriverCatalogue.from_document(given["facts"])
        suffix = f".el{version[1]}" if version else ""
        self.wanted: ReleasePackages = self.facts.wanted(given["software"], self.family, suffix)
        values = dict(re.findall(r"^(ID|ID_LIKE|VERSION_ID)=[\"']?([^\"'\n]*)", system, re.MULTILINE))
        self.system: str = vendor_system(values)
        self.listing: str = kernel_choice.listed(given["software"], self.system)
        self.offered_kernels: list[str] = []
        """Kernels that the repositories have, if they were asked."""
        self.choice = self._choose()
        self.found = self._read()
        self.keep: list[str] = []
        """Packages that are about to be replaced and that a repository still has, as apt-get download takes them."""
        self.rooms: list[Room] = []
        """What the packages will take that come and are kept; of rpms nobody says it."""
        self.packages_lacking = self._kernel_packages()

    def _choose(self) -> KernelChoice:
        """Return the kernel that the site chooses."""
        requested, pinned = self.given.get("kernel") or "", pinned_kernel()
        running = running_kernel()
        if requested and self.wanted.format == DEB:
            names = said(self.module, ["apt-cache", "pkgnames", kernel_choice.PATTERN]).split()
            self.offered_kernels = kernel_choice.of_packages(names)
        images = [path.name.partition("-")[2] for path in next_boot.BOOT.glob("vmlinuz-*")]
        choice: KernelChoice = kernel_choice.choose(
            requested, self.listing, running, pinned, images, self.offered_kernels
        )
        return choice

    def _coming(self, coming: str) -> str:
        """Return the kernel that boots once the role has chosen it, or has taken the choice back."""
        if self.choice.kernel or self.given.get("kernel") is None or not self.choice.pinned:
            return self.choice.kernel or coming
        image = boot_loader.boots_after_update(self.module, without=str(next_boot.PIN)).image
        return kernel_of(image)

    def kernel_refusals(self) -> list[Refusal]:
        """Return why the requested kernel cannot be chosen."""
        choice = self.choice
        if not choice.requested:
            return []
        if self.wanted.format != DEB:
            return [kernel_choice.elsewhere(self.family)]
        if not boot_loader.grub_is_set_up(self.module):
            return [kernel_choice.no_grub()]
        # What a node's repositories have shows once it has read their lists.
        if not self.given["offered"] or not any(APT_LISTS.glob("*Packages*")):
            return []
        if not choice.kernel:
            return [kernel_choice.not_listed(self.listing, self.found.kernel, self.offered_kernels)]
        images = self.facts.images_of(DEB, choice.kernel)
        lacking = [
            name for name in self.kernel_packages if name in images and choice.kernel not in self.offered_kernels
        ]
        return [kernel_choice.not_offered(choice.kernel, lacking, self.offered_kernels)] if lacking else []

    @property
    def kernel_packages(self) -> list[str]:
        """The packages of the chosen kernel that are not on the node; of further ones, those that are offered."""
        kernel = self.choice.kernel
        if not kernel or self.wanted.format != DEB:
            return []
        extra = self.facts.extra_of(DEB, kernel)
        headers, image = self.facts.headers_of(DEB, kernel), self.facts.images_of(DEB, kernel)
        there = packages.parse(said(self.module, packages.query(DEB, [*image, *headers, *extra])))
        # An image or headers that somebody built count too.
        own = [*(image if (next_boot.BOOT / f"vmlinuz-{kernel}").exists() else ())]
        own += headers if (next_boot.MODULES / kernel / "build").exists() else []
        lacking = kernel_choice.missing(self.facts, kernel, [*own, *(name for name in there if there[name].whole)])
        if any(name in extra for name in lacking):
            listed = offered.parse(said(self.module, offered.query(DEB, extra)))
            lacking = [name for name in lacking if name not in extra or name in listed]
        return lacking

    @property
    def kernel(self) -> dict[str, Any]:
        """What the role does for the chosen kernel."""
        choice, kernel = self.choice, self.choice.kernel
        kept = kernel_choice.render_keep(kernel_choice.names_of(self.facts, kernel)) if kernel else ""
        return {
            "requested": choice.requested,
            "kernel": kernel,
            "pinned": choice.pinned,
            "packages": self.kernel_packages,
            "keep": kept,
            "up_to_date": choice.up_to_date,
            "waits": bool(kernel) and kernel != self.found.kernel,
        }

    def kernel_sentence(self) -> str:
        """Say what the role does to the kernel."""
        choice = self.choice
        if not choice.requested:
            boots = self.found.next_kernel
            return f"Kernel {choice.pinned} is not chosen any more: GRUB chooses as before, and {boots} boots next."
        if not choice.kernel:
            return f"The kernel comes first: {choice.requested}, once the package lists are read."
        comes = ", ".join(self.kernel_packages)
        return f"The kernel {choice.kernel} comes first, by a reboot{f' ({comes})' if comes else ''}."

    def _read(self) -> DriverState:
        """Read all facts for the decisions."""
        running, coming = running_kernel(), next_kernel(self.module)
        status, empty = dkms_status(self.module)
        coming = self._coming(coming)
        topology = build_topology(self.sources)
        cards = topology["cards"]
        users = [(f"module {card['module_id']}", user) for card in cards for user in card["users"]]
        # A lost card keeps its device file, and so the module, as long as a process has it open.
        users += [
            (f"{DEVICES}/accel{index}, which hl-smi does not list", user)
            for index, user in users_of_unlisted(self.sources, cards)
        ]
        instances = {name for _, user in users if (name := instance_of(user))}
        there = packages.parse(said(self.module, packages.query(self.wanted.format, ["habanalabs*"])))
        holder, interrupted = (who_holds_dpkg(), cut_off()) if self.wanted.format == DEB else ("", False)
        half = any(not package.whole for package in there.values())
        return DriverState(
            kernel=running,
            next_kernel=coming,
            chosen=self.choice.kernel,
            packages=there,
            traces=tuple(
                str(path) for trace in self.facts.traces for path in sorted(next_boot.ROOT.glob(trace.lstrip("/")))
            ),
            modules=kernels.loaded(said(self.module, ["lsmod"])),
            version=topology["driver_version"] or "",
            file=said(self.module, ["modinfo", "-F", "filename", "habanalabs"]).strip(),
            status=status,
            empty=empty,
            users=tuple(f"{card}: {describe_user(user)}" for card, user in users if not instance_of(user)),
            instances=tuple(sorted(instances)),
            # A running dpkg also has such a journal.
            interrupted=interrupted and not holder,
            holder=holder,
            others=self._others() if half or (interrupted and not holder) else (),
        )

    def _others(self) -> tuple[str, ...]:
        """Return half-installed packages that are neither the driver's nor installed by this project."""
        try:
            brought = (read_json(BROUGHT, {"packages": {str: [str]}}) or {"packages": {}})["packages"]
        except Damaged as damage:
            raise Refusal("record_damaged", f"{damage}. Move it away: then nothing counts as ours.") from damage
        ours = [*self.wanted.packages, *(name for names in brought.values() for name in names)]
        found: tuple[str, ...] = packages.unfinished(said(self.module, packages.query(DEB, [])), ours)
        return found

    def _kernel_packages(self) -> dict[str, tuple[list[str], list[str]]]:
        """Return missing header packages and further missing packages, by kernel."""
        lacking = {}
        for kernel in dict.fromkeys((self.found.kernel, self.found.next_kernel)):
            headers = self.facts.headers_of(self.wanted.format, kernel)
            extra = self.facts.extra_of(self.wanted.format, kernel)
            there = packages.parse(said(self.module, packages.query(self.wanted.format, [*headers, *extra])))
            # Headers that somebody built by hand count too.
            built = (next_boot.MODULES / kernel / "build").exists()
            lacking[kernel] = (
                [name for name in headers if (name not in there or there[name].torn) and not built],
                [name for name in extra if name not in there],
            )
        return lacking

    def judgement(self) -> Judgement:
        """The judgement of the node as it is."""
        reboots = bool(self.given.get("reboots"))
        policy = DriverPolicy(self.given["replace"], self.given["take_over"], self.given["drain"], reboots)
        judged: Judgement = decision.decide(self.found, self.wanted, self.facts, policy)
        return judged

    def offers(self) -> tuple[list[Refusal], list[str]]:
        """Return refusals for packages that no repository offers, and the packages to install for the kernels."""
        headers = [name for lacking, _ in self.packages_lacking.values() for name in lacking]
        if not self.given["offered"]:
            return [], headers
        extra = [name for _, lacking in self.packages_lacking.values() for name in lacking]
        names = [*self.wanted.packages, *headers, *extra]
        listed = offered.parse(said(self.module, offered.query(self.wanted.format, names)))
        index, unread = self._shown(listed), False
        if self.given.get("repository") and self.wanted.format == DEB:
            # The repository is configured on the node only when nothing is refused; until then it is asked only here.
            try:
                # First: it starts programs, and within through() the environment has the proxy's account.
                route, proxy = apt.coming(self.module, self.given["repository"], self.given)
                with web.through(self.given["repository"], self.given):
                    ca_file = certificates.OPTION if self.given.get("certificates") else route.get("SSL_CERT_FILE", "")
                    asked = index_of(self.given["repository"], self.suite, route, ca_file, proxy)
                listed, index = offered.together(listed, offered.of_index(asked)), f"{index}\n{asked}"
            except Refusal as refusal:
                return [refusal], headers
            unread = not any(APT_LISTS.glob("*Packages*"))
        other = [
            name
            for name in self.wanted.packages
            if self.installed.get(name) != self.wanted.version or self.found.packages[name].torn
        ]
        replaced = {name: self.installed[name] for name in other if self._is_other(name)}
        self.keep = [f"{name}={version}" for name, version in replaced.items() if version in listed.get(name, ())]
        comes = [*headers, *(name for name in extra if name in listed)]
        self.rooms = self._rooms(room.parse(index), [*comes, *(f"{name}={self.wanted.version}" for name in other)])
        not_offered = offered.refusal(listed, self.wanted, other)
        refusals = [not_offered]
        if not self.given["no_way_back"]:
            refusals.append(offered.way_back_refusal(listed, replaced))
        # Headers come from the distribution. Without its index none are offered; they are checked again once it was
        # read. If no driver repository is configured, missing headers are not reported as well.
        unread = unread or (not_offered is not None and not_offered.id == "driver_package_not_offered")
        for kernel, (lacking, _) in () if unread else self.packages_lacking.items():
            refusals.append(offered.headers_refusal(listed, lacking, kernel))
        return [refusal for refusal in refusals if refusal], comes

    def boot(self, judged: Judgement) -> tuple[list[Refusal], list[str]]:
        """Return what of the boot process keeps a driver from being built and loaded, and what is only reported."""
        steps = judged.steps
        if not (steps.install or steps.repair or steps.build):
            return [], []
        files = _boot_files()
        kept, reported = boot.left_over(files, self.found.kernel)
        unsigned, suspected = boot.not_enrolled(_secure_boot())
        full, tight = boot.no_space(files, (self.found.kernel, self.found.next_kernel))
        return [*unsigned, *kept, *full], [*suspected, *reported, *tight]

    def _shown(self, listed: Mapping[str, Sequence[str]]) -> str:
        """Return apt's descriptions of offered packages; "" for rpms."""
        exact = [f"{name}={version}" for name, versions in listed.items() for version in versions]
        return said(self.module, ["apt-cache", "show", *exact]) if exact and self.wanted.format == DEB else ""

    def _rooms(self, sizes: Mapping[str, room.Size], comes: Sequence[str]) -> list[Room]:
        """Return the space for packages to install and to keep, with their file systems."""
        there = [
            name
            for place, names in ((room.ARCHIVES, comes), (KEPT, self.keep))
            for name in names
            # apt writes the colon of an epoch as %3a.
            if any(Path(place).glob(f"{name.replace('=', '_').replace(':', '%3a')}_*.deb"))
        ]
        demands = room.space_demands(sizes, comes, self.keep, there, KEPT)
        return [Room(what, path, *_filesystem(path, size)) for what, path, size in demands]

    @property
    def installed(self) -> dict[str, str]:
        """Versions by name."""
        return {name: package.version for name, package in self.found.packages.items()}

    def _is_other(self, name: str) -> bool:
        """Whether a package is there in another version."""
        return name in self.installed and self.installed[name] != self.wanted.version

    @property
    def interfaces_down(self) -> list[str]:
        """The interfaces of the cards' external ports that are not up; there may be none."""
        places = [place for card in self.sources.pci for place in sorted((PCI / card.bus_id / "net").glob("*/flags"))]
        return [place.parent.name for place in places if not int(place.read_text(encoding="ascii"), 16) & UP]

    @property
    def loaded(self) -> list[str]:
        """Return the loaded modules in the running driver's unload order."""
        order = self.facts.order(self.found.version or self.wanted.version)
        return kernels.to_unload(order.unload, (name for name in self.found.modules if name.startswith(dkms.MODULE)))

    @property
    def present(self) -> dict[str, Any]:
        """Return a description of the installed driver, recorded before a change so that it can be restored."""
        own = self.installed.get(DRIVERS[self.wanted.format], "")
        there = dataclasses.replace(self.wanted, version=own)
        return {
            "version": own,
            "says": self.found.version,
            "packages": self.installed,
            "modules": list(self.facts.order(own).load),
            "preferences": apt_files.preferences(there, {}, replace=True) if own and there.format == DEB else "",
        }

    @property
    def build_failure(self) -> Refusal | None:
        """Why the release's modules were not built for a kernel that lacks them; None if no log shows it."""
        log = DKMS_TREE / dkms.MODULE / self.wanted.version / "build" / "make.log"
        lacking = [
            kernel
            for kernel in dict.fromkeys((self.found.kernel, self.found.next_kernel))
            if not decision.has_driver(self.found, self.wanted, kernel)
        ]
        if not lacking or not log.is_file():
            return None
        with log.open("rb") as stream:
            stream.seek(max(0, log.stat().st_size - LOG_LIMIT))
            kernel, attempt = build_log.last_attempt(stream.read(LOG_LIMIT).decode("utf-8", "replace"))
        if kernel and kernel not in lacking:
            return None
        newest = str(self.given["software"].get("kernel_newest", {}).get(self.system) or "")
        found: Refusal | None = build_log.cause(attempt, kernel or lacking[0], self.wanted.version, newest)
        return found

    @property
    def at_boot(self) -> dict[str, Any]:
        """What the node is to do at boot, and whether it does.

        The modules are those of the installed driver, so that a driver that comes back gets its own.
        """
        own = self.installed.get(DRIVERS[self.wanted.format], "") or self.wanted.version
        texts = {"modules": at_boot.modules_file(self.facts.order(own).load), "unit": ""}
        if self.given.get("external_ports"):
            texts["unit"] = at_boot.ports_unit()
        there = {name: path.read_text("utf-8", "replace") if path.is_file() else "" for name, path in AT_BOOT.items()}
        enabled = ENABLED.is_symlink()
        return {
            **texts,
            "up_to_date": there == texts and enabled == bool(texts["unit"]),
            "ports": bool(there["unit"]) or enabled,
        }

    def texts(self) -> tuple[str, str]:
        """The two files for apt."""
        if self.wanted.format != DEB:
            return "", ""
        held = {}
        if self.given["hold_kernel"]:
            listed = packages.parse(said(self.module, packages.query(DEB, apt_files.KERNEL_PATTERNS)))
            held = apt_files.kernel_packages({name: package.version for name, package in listed.items()})
        kept = apt_files.preferences(self.wanted, held, replace=self.given["replace"])
        return kept, apt_files.unattended(self.wanted, held)

    def booted(self) -> list[Refusal]:
        """Return the refusal to go on while the chosen kernel waits for a reboot."""
        waiting: list[Refusal] = decision.waits_for_reboot(self.found, self.wanted, self.facts)
        return waiting

    def removal(self) -> list[Refusal]:
        """Return refusals to remove the driver."""
        wrong: list[Refusal] = decision.removal(self.found)
        return wrong

    def unverified(self) -> list[Refusal]:
        """Return differences from the manuals' requirements."""
        devices = [path for path in DEVICES.glob("accel*") if re.fullmatch(r"accel\d+", path.name)]
        seen = self.sources.seen
        shown = None if seen is None else len(seen.cards)
        wrong: list[Refusal] = decision.verify(
            self.found, self.wanted, self.facts, len(self.sources.pci), len(devices), shown
        )
        return wrong
