"""Judge a node's driver: what is installed, what prevents the release's driver, and the steps to install it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..base.refusal import Refusal
from ..preflight import versions
from . import dkms, kernel_choice, kernels, troubles
from .dkms import DkmsBuild
from .facts import DEB, DRIVERS, RPM, DriverCatalogue, ReleasePackages
from .packages import BROKEN, INCOMPLETE, MIXED, NEWER, OLDER, RIGHT, DriverPackage, PackageComparison, judge, order

# Origins of an installed driver.
NOBODY, PACKAGES, INSTALLER, KERNEL, BY_HAND = "", "packages", "installer", "kernel", "by_hand"
_CHOOSE = {
    DEB: "Set gaudi_driver_kernel: supported, which installs and boots the newest kernel of the release's list, or "
    "name one in full",
    RPM: "Install and boot a kernel of the release's list",
}
_REBOOTED = "The node cannot be rebooted into the kernel of gaudi_driver_kernel"


@dataclass(frozen=True)
class DriverState:
    """Facts read from a node; an empty value means not known.

    ``packages``: the vendor's, by name. ``traces``: paths that only the vendor's installer makes. ``modules``: names of
    all loaded modules. ``version``: the loaded driver's version. ``file``: the driver's module file for the running
    kernel. ``status``: dkms status. ``kernel``, ``next_kernel``: the running kernel, and the one that boots next.
    ``users``: users of cards, for people; ``instances``: our instances that use cards, not repeated in ``users``.
    ``chosen``: the kernel that the site chose, "" if it chose none; the node boots it before a driver is built that the
    running kernel does not take.
    ``interrupted``: dpkg was cut off during a change, and no program has resumed it. ``holder``: the process that locks
    dpkg's database, for people. ``others``: half-installed packages that are not the driver's, if they block it.
    ``empty``: by kernel, the driver's module files of 0 bytes; ``status`` has them as such.
    """

    kernel: str
    next_kernel: str
    chosen: str = ""
    packages: Mapping[str, DriverPackage] = field(default_factory=dict)
    traces: tuple[str, ...] = ()
    modules: frozenset[str] = frozenset()
    version: str = ""
    file: str = ""
    status: tuple[DkmsBuild, ...] = ()
    users: tuple[str, ...] = ()
    instances: tuple[str, ...] = ()
    interrupted: bool = False
    holder: str = ""
    others: tuple[str, ...] = ()
    empty: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class DriverPolicy:
    """What a site allows: ``replace`` a driver of another version, and ``take_over`` one of the vendor's installer.

    ``drain``: the caller stops our instances before the change, and starts them again after it. ``reboots``: the node
    is rebooted for another kernel.
    """

    replace: bool = False
    take_over: bool = False
    drain: bool = False
    reboots: bool = False


@dataclass(frozen=True)
class Steps:
    """The steps, in this order; an unneeded step is empty.

    ``repair``: half-installed packages. ``unpack``: those of them to reinstall, with their versions; the others are
    only configured. ``forget``: modules that DKMS must remove before that, as MODULE/VERSION. ``install``: packages
    with their versions. ``build``: kernels that lack the driver. ``unload``, ``load``: modules.
    """

    repair: tuple[str, ...] = ()
    forget: tuple[str, ...] = ()
    unpack: tuple[str, ...] = ()
    install: tuple[str, ...] = ()
    build: tuple[str, ...] = ()
    unload: tuple[str, ...] = ()
    load: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, list[str]]:
        """Return the steps as a mapping for JSON."""
        return {name: list(items) for name, items in dataclasses.asdict(self).items()}


@dataclass(frozen=True)
class Judgement:
    """The state of a node's driver: refusals, steps, and reasons to reboot.

    ``replaces``: the steps replace an installed driver, so that no card is available meanwhile.
    """

    present: PackageComparison
    origin: str
    refusals: tuple[Refusal, ...]
    steps: Steps
    reboot: tuple[str, ...]
    replaces: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Return the judgement as a mapping for JSON."""
        return {
            "state": self.present.state,
            "origin": self.origin,
            "refusals": [{"id": refusal.id, "message": str(refusal)} for refusal in self.refusals],
            "steps": self.steps.as_dict(),
            "reboot": list(self.reboot),
            "replaces": self.replaces,
        }


def origin(found: DriverState, wanted: ReleasePackages) -> str:
    """Return where the installed driver came from.

    The vendor's installer also installs packages; its own traces beside them tell the two apart. A module without a
    package is the kernel's own if it lies in the kernel's tree, otherwise it was built by hand.
    """
    driver = found.packages.get(DRIVERS[wanted.format])
    if driver is not None:
        return INSTALLER if found.traces else PACKAGES
    if not found.file and not found.version:
        return NOBODY
    return KERNEL if "/kernel/" in found.file else BY_HAND


def decide(found: DriverState, wanted: ReleasePackages, facts: DriverCatalogue, policy: DriverPolicy) -> Judgement:
    """Judge a node before its driver is touched."""
    present, source = judge(found.packages, wanted), origin(found, wanted)
    refusals = [*_in_the_way(found, wanted, present, source, policy)]
    # The loaded driver names only a hash of its build, so another build is recognised by its packages.
    replaces = _runs_other(found, wanted) or _is_other(present)
    what = f"The driver {found.version} cannot be replaced" if replaces else _REBOOTED
    boots = policy.reboots and found.chosen not in ("", found.kernel)
    if (replaces or boots) and (refusal := _in_use(found, policy, what)):
        refusals.append(refusal)
    refusals += _does_not_build(found, wanted, facts)
    steps = _steps(found, wanted, facts, present)
    return Judgement(present, source, tuple(refusals), steps, tuple(reboot(found, wanted)), replaces)


def _is_other(present: PackageComparison) -> bool:
    """Whether packages of another version than the release's are installed, also if some are half-installed."""
    return present.state in (OLDER, NEWER, MIXED) or (present.state == BROKEN and bool(present.differing))


def _does_not_build(found: DriverState, wanted: ReleasePackages, facts: DriverCatalogue) -> list[Refusal]:
    """Return the refusal of a kernel on which the driver is known not to build; of a chosen kernel, only that one."""
    kernels_built = (found.chosen,) if found.chosen else (found.kernel, found.next_kernel)
    for kernel in dict.fromkeys(kernels_built):
        if has_driver(found, wanted, kernel) or facts.builds_on(wanted.version, kernel):
            continue
        when = "runs" if kernel == found.kernel else "boots next"
        todo = "Name an older kernel in gaudi_driver_kernel" if found.chosen else _CHOOSE[wanted.format]
        return [
            Refusal(
                "kernel_unbuildable",
                f"Kernel {kernel}, which {when}, is too new for the driver {wanted.version}: it is known not to build "
                f"there (catalog/driver.yml). {todo}.",
            )
        ]
    return []


def waits_for_reboot(found: DriverState, wanted: ReleasePackages, facts: DriverCatalogue) -> list[Refusal]:
    """Return the refusal to go on before the chosen kernel runs, where the driver does not build on the running one."""
    builds = has_driver(found, wanted, found.kernel) or facts.builds_on(wanted.version, found.kernel)
    if found.chosen in ("", found.kernel) or builds:
        return []
    return [kernel_choice.waits(found.chosen, found.kernel, wanted.version)]


def _in_use(found: DriverState, policy: DriverPolicy, what: str) -> Refusal | None:
    """Return the refusal if a card is in use by a process that will not be stopped; else None. what: not possible."""
    ours = () if policy.drain else tuple(f"the instance {name}" for name in found.instances)
    if not (found.users or ours):
        return None
    advice = " site.yml stops instances, and starts them with the new release's plan." if ours else ""
    return Refusal(
        "cards_in_use",
        f"{what} while cards are in use: {'; '.join((*found.users, *ours))}. Stop what uses them.{advice}",
    )


def _in_the_way(
    found: DriverState, wanted: ReleasePackages, present: PackageComparison, source: str, policy: DriverPolicy
) -> list[Refusal]:
    """Return refusals: the installed state is broken, or the site does not allow replacing it."""
    repaired = _forget(found, wanted)
    if present.state not in (RIGHT, INCOMPLETE) and dkms.left_over(found.status, wanted.version) and not repaired:
        return [troubles.left_over(f"{dkms.MODULE}/{wanted.version}")]
    if present.state == BROKEN and found.holder:
        return [troubles.locked(found.holder)]
    if found.others and present.state != RIGHT:
        return [troubles.others_by_half(found.others)]
    refusals = []
    if source == BY_HAND:
        refusals.append(
            Refusal(
                "driver_of_nobody",
                f"A driver is on the node ({found.version or 'not loaded'}, {found.file or 'its file was not found'}) "
                "that no package brought. Remove it as it was installed, then run again.",
            )
        )
    if source == INSTALLER and present.state != RIGHT and not policy.take_over:
        refusals.append(
            Refusal(
                "driver_of_installer",
                f"The vendor's installer put the driver on this node ({', '.join(found.traces)}). Set "
                "gaudi_driver_take_over: true to have its packages brought to the release, or keep on using the "
                "installer.",
            )
        )
    if _is_other(present) and not policy.replace:
        kinds = {OLDER: "an older driver", NEWER: "a newer driver", MIXED: "packages of several releases"}
        kind = kinds.get(present.state, "packages of another release, some of them installed by half")
        refusals.append(
            Refusal(
                "driver_of_other_release",
                f"The node has {kind}: {present.seen}, where the release wants {wanted.version}. Set "
                "gaudi_driver_replace: true to have it replaced once the cards are free, or set gaudi_release to the "
                "release that is there.",
            )
        )
    held = [name for name in present.held if name in present.differing]
    if held and not policy.take_over:
        refusals.append(
            Refusal(
                "driver_packages_held",
                f"{', '.join(held)} is on hold in another version than {wanted.version}. Run apt-mark unhold "
                f"{' '.join(held)} on the node, or set gaudi_driver_take_over: true.",
            )
        )
    return refusals


def removal(found: DriverState) -> list[Refusal]:
    """Return refusals to remove the driver: apt does not remove half-installed packages, nor much else beside them."""
    halves = [name for name, package in found.packages.items() if not package.whole]
    if halves and found.holder:
        return [troubles.locked(found.holder)]
    if halves:
        return [
            Refusal(
                "driver_half_installed",
                f"dpkg was cut off on this node, and left {', '.join(halves)} installed by half, which apt does not "
                "take off. Run playbooks/driver.yml, which repairs that, then run this again.",
            )
        ]
    if found.others:
        return [troubles.others_by_half(found.others)]
    return [troubles.interrupted()] if found.interrupted else []


def _runs_other(found: DriverState, wanted: ReleasePackages) -> bool:
    """Whether another driver than the release's is loaded; builds are not compared, as the driver gives only a hash.

    The kernel's own driver reports no version.
    """
    if not found.version:
        return "habanalabs" in found.modules and origin(found, wanted) == KERNEL
    one, other = versions.vendors(found.version), versions.vendors(wanted.version)
    return one is None or other is None or versions.difference(one, other) is not None


def _forget(found: DriverState, wanted: ReleasePackages) -> tuple[str, ...]:
    """Return what DKMS must remove before dpkg configures the driver's package again, as MODULE/VERSION.

    The package's script adds the module again, which DKMS refuses ("DKMS tree already contains"). Nothing is needed if
    dpkg was cut off in the old package's removal script: that script runs again and removes it.
    """
    package = found.packages.get(DRIVERS[wanted.format])
    again = package is not None and not package.whole and not package.leaving and package.version == wanted.version
    return (f"{dkms.MODULE}/{wanted.version}",) if again and dkms.registered(found.status, wanted.version) else ()


def _unpack(found: DriverState, wanted: ReleasePackages, present: PackageComparison) -> tuple[str, ...]:
    """Return half-installed packages to reinstall, with the release's versions."""
    halves = [found.packages[name] for name in present.unfinished]
    reinstalled = {half.name for half in halves if half.torn or half.version != wanted.version}
    return tuple(exact for exact in wanted.exact if exact.partition("=")[0] in reinstalled)


def _steps(found: DriverState, wanted: ReleasePackages, facts: DriverCatalogue, present: PackageComparison) -> Steps:
    right, other = present.state == RIGHT, _runs_other(found, wanted)
    modules = facts.order(wanted.version).load
    lacking = [
        kernel for kernel in dict.fromkeys((found.kernel, found.next_kernel)) if not has_driver(found, wanted, kernel)
    ]
    return Steps(
        repair=present.unfinished,
        forget=_forget(found, wanted),
        unpack=_unpack(found, wanted, present),
        install=() if right else tuple(wanted.exact),
        # Newly installed packages build their modules themselves.
        build=tuple(lacking) if right else (),
        unload=tuple(kernels.to_unload(facts.order(found.version).unload, found.modules)) if other else (),
        load=modules if other else tuple(kernels.to_load(modules, found.modules)),
    )


def _empty(kernel: str, when: str, files: Sequence[str], version: str) -> Refusal:
    """Return the refusal for module files of 0 bytes."""
    return Refusal(
        "driver_modules_empty",
        f"The modules of kernel {kernel}, which {when}, are files of 0 bytes ({', '.join(files)}), though dkms status "
        "calls them installed: dkms install copied files that were never built. Run playbooks/driver.yml, or by hand "
        f"dkms build habanalabs/{version} -k {kernel} --force, then dkms install with the same arguments.",
    )


def has_driver(found: DriverState, wanted: ReleasePackages, kernel: str) -> bool:
    """Whether the release's modules are installed for a kernel."""
    return any(order(version, wanted.version) == 0 for version in dkms.installed(found.status, kernel))


def reboot(found: DriverState, wanted: ReleasePackages) -> list[str]:
    """Return what only a reboot brings into effect, as sentences."""
    waits = []
    if not has_driver(found, wanted, found.kernel) and has_driver(found, wanted, found.next_kernel):
        waits.append(
            f"kernel {found.next_kernel}, which boots next, has the driver; kernel {found.kernel}, which runs, has not"
        )
    if judge(found.packages, wanted).state == RIGHT and _runs_other(found, wanted):
        waits.append(f"{wanted.version} is installed, {found.version or 'the driver of the kernel'} is loaded")
    return waits


def verify(
    found: DriverState, wanted: ReleasePackages, facts: DriverCatalogue, cards: int, devices: int, shown: int | None
) -> list[Refusal]:
    """Return what differs from the manuals' requirements after the installation; nothing if all is right.

    cards: Gaudi cards on the PCI bus. devices: those in /dev/accel. shown: those that hl-smi lists, None without
    hl-smi.
    """
    present, wrong = judge(found.packages, wanted), []
    if present.state != RIGHT:
        other = present.seen or ", ".join((*present.missing, *present.unfinished))
        wrong.append(
            Refusal(
                "driver_not_as_wanted",
                f"The packages of the driver are not those of {wanted.version}: {other}. Run the role gaudi_driver.",
            )
        )
    for kernel in dict.fromkeys((found.kernel, found.next_kernel)):
        when = "runs" if kernel == found.kernel else "boots next"
        if found.empty.get(kernel):
            wrong.append(_empty(kernel, when, found.empty[kernel], wanted.version))
        elif not has_driver(found, wanted, kernel):
            wrong.append(
                Refusal(
                    "kernel_has_no_driver",
                    f"Kernel {kernel}, which {when}, has no habanalabs module of {wanted.version}. Install its "
                    f"headers, then run dkms install habanalabs/{wanted.version} -k {kernel}.",
                )
            )
    if missing := kernels.to_load(facts.order(wanted.version).load, found.modules):
        wrong.append(
            Refusal(
                "driver_not_loaded",
                f"{', '.join(missing)} is not loaded. Run modprobe, or look at dmesg for the reason.",
            )
        )
    if _runs_other(found, wanted):
        wrong.append(
            Refusal(
                "other_driver_loaded",
                f"The driver {found.version} is loaded, not {wanted.version}. Reboot the node, or unload its modules.",
            )
        )
    if shown is None:
        wrong.append(
            Refusal("no_hl_smi", "hl-smi is not on the node. Install habanalabs-firmware-tools of the release.")
        )
    if devices != cards or (shown is not None and shown != cards):
        wrong.append(
            Refusal(
                "cards_missing",
                f"{cards} Gaudi cards are on the PCI bus, {devices} in /dev/accel and {shown or 0} in hl-smi. Look at "
                "dmesg for those that are missing.",
            )
        )
    return wrong
