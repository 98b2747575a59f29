"""A node that gets its driver in the same run: what comes first, and what can only be judged after it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..base.places import Room
from ..base.refusal import Refusal
from .checks import Problem
from .compatibility import Mismatch

# Checks of catalog/compatibility.yml whose result the driver's packages change, or that need a loaded driver.
CHECKS = (
    "driver",
    "driver-build",
    "nic-driver",
    "runtime-package",
    "runtime-package-build",
    "firmware",
    "firmware-rule",
)
# And those that another kernel changes, which the role installs and boots.
KERNEL_CHECKS = ("kernel", "kernel-untested")
# Further facts that only a loaded driver gives.
UNTOLD = ("which card is which module", "the state of each card and its links", "who uses a card")


@dataclass(frozen=True)
class DriverFirst:
    """Whether this run installs the driver before it serves anything, and what prevents it.

    ``awaited``: the node has no driver and should get one in this run, whether it can or not. Problems that a driver
    would resolve are then not reported. ``rooms``: disk space of its packages. ``stops``: instances that are stopped
    for it. ``kernel``: whether another kernel is chosen with it.
    """

    first: bool = False
    awaited: bool = False
    problems: tuple[Problem, ...] = ()
    findings: tuple[str, ...] = ()
    rooms: tuple[Room, ...] = ()
    stops: tuple[str, ...] = ()
    kernel: bool = False


def may_be_due(
    foreseen: bool, replace: bool, mismatches: Sequence[Mismatch], lacks_runtime: bool, kernel: bool = False
) -> bool:
    """Whether to look at the driver at all; not on a node whose driver is as its release wants.

    foreseen: the node has no driver. replace: the site allows replacing another release's driver. kernel: whether the
    site chooses another kernel, or none any more.
    """
    return (
        foreseen
        or lacks_runtime
        or kernel
        or (replace and any(mismatch.check.name in CHECKS for mismatch in mismatches))
    )


def with_reboot(driver: DriverFirst, lost: str, *, reboots: bool) -> DriverFirst:
    """Add that a reboot would leave the node without a driver: a problem if this run may reboot it, else a finding.

    lost: the sentence, "" if the driver stays. If this run installs the driver, the role reports it instead.
    """
    if not lost or driver.first:
        return driver
    if reboots:
        return dataclasses.replace(driver, problems=(*driver.problems, Problem("reboot_loses_driver", lost)))
    return dataclasses.replace(driver, findings=(*driver.findings, lost))


def with_sources(driver: DriverFirst, refusals: Sequence[Refusal], findings: Sequence[str] = ()) -> DriverFirst:
    """Add why a source of packages that the node has already cannot be used, and findings on sources."""
    problems = dict.fromkeys(Problem(refusal.id, str(refusal)) for refusal in refusals)
    return dataclasses.replace(driver, problems=(*driver.problems, *problems), findings=(*driver.findings, *findings))


def refused(refusals: Sequence[Refusal], *, foreseen: bool) -> DriverFirst:
    """Return the refusals of a driver as problems. foreseen: as in told()."""
    return DriverFirst(awaited=foreseen, problems=tuple(Problem(refusal.id, str(refusal)) for refusal in refusals))


def told(
    version: str,
    steps: Mapping[str, Sequence[str]],
    refusals: Sequence[Refusal],
    kernel_packages: Sequence[str],
    instances: Sequence[str],
    *,
    foreseen: bool,
    replace: bool,
    kernel: str = "",
) -> DriverFirst:
    """Return the driver's part of the judgement.

    steps, refusals: as decided. kernel_packages: packages to install besides. instances: those that are stopped for it.
    foreseen: the node has no driver, so plans use predicted cards. replace: as in may_be_due. If neither holds,
    refusals are not reported, as the installed driver is as it should be. kernel: what happens to the kernel before
    that, as a sentence.
    """
    if not (any(steps.values()) or kernel) or (refusals and not (foreseen or replace or kernel)):
        return DriverFirst()
    if refusals:
        return refused(refusals, foreseen=foreseen)
    packages = [*kernel_packages, *(name.partition("=")[0] for name in steps["install"])]
    doing = [f"{len(packages)} packages ({', '.join(packages)})"] if packages else []
    doing += [f"{name}, which is installed by half, is repaired" for name in steps["repair"]]
    doing += [f"its modules are built for kernel {kernel}" for kernel in steps["build"]]
    what = ", ".join(doing) or "its modules are loaded"
    cards = " Plans are for the cards on the PCI bus until then." if foreseen else ""
    names = ", ".join(instances)
    stopped = f" For it {names} stops; if driver or instances do not come up, those from before do." if names else ""
    later = ", ".join((*CHECKS, *UNTOLD))
    return DriverFirst(
        first=True,
        awaited=True,
        stops=tuple(instances),
        findings=(
            *([kernel] if kernel else []),
            f"The driver {version} comes first: {what}.{cards}{stopped}",
            f"Judged after the driver: {later}.",
        ),
        kernel=bool(kernel),
    )


def still_judged(mismatches: Sequence[Mismatch], *, kernel: bool = False) -> list[Mismatch]:
    """Return the mismatches that installing the driver's packages does not resolve, nor another kernel if one comes."""
    resolved = (*CHECKS, *(KERNEL_CHECKS if kernel else ()))
    return [mismatch for mismatch in mismatches if mismatch.check.name not in resolved]
