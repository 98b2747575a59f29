"""What is said of a node that gets its driver in the same run: what comes, and what can only be judged then."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..base.refusal import Refusal
from .checks import Problem, Room
from .compatibility import Mismatch

# Checks of catalog/compatibility.yml whose answer the driver's packages change, or only a loaded driver gives.
CHECKS = (
    "driver",
    "driver_build",
    "nic_driver",
    "runtime_package",
    "runtime_package_build",
    "firmware",
    "firmware_rule",
)
# What else only a driver tells.
UNTOLD = ("which card is which module", "the state of each card and its links", "who uses a card")


@dataclass(frozen=True)
class DriverFirst:
    """Whether the driver is brought before anything is served; what keeps it from that, and what to know of it.

    ``awaited``: the node has no driver and was to get one in this run, whether it can or not. What a driver would end
    is then no problem of its own. ``rooms``: what its packages take.
    """

    first: bool = False
    awaited: bool = False
    problems: tuple[Problem, ...] = ()
    findings: tuple[str, ...] = ()
    rooms: tuple[Room, ...] = ()


def may_be_due(foreseen: bool, replace: bool, mismatches: Sequence[Mismatch], lacks_runtime: bool) -> bool:
    """Whether to look what the driver of a node needs; of a node that is as its release wants nobody asks.

    foreseen: it has no driver. replace: the site has another release's driver replaced.
    """
    return foreseen or lacks_runtime or (replace and any(mismatch.check.name in CHECKS for mismatch in mismatches))


def with_reboot(driver: DriverFirst, lost: str, *, reboots: bool) -> DriverFirst:
    """The same with why a reboot would leave the node without its driver: a problem where this run may reboot it.

    lost: a sentence, empty where the driver stays. A node that gets its driver in this run is told by the role.
    """
    if not lost or driver.first:
        return driver
    if reboots:
        return dataclasses.replace(driver, problems=(*driver.problems, Problem("reboot_loses_driver", lost)))
    return dataclasses.replace(driver, findings=(*driver.findings, lost))


def refused(refusals: Sequence[Refusal], *, foreseen: bool) -> DriverFirst:
    """What keeps a driver from a node. foreseen: as in told()."""
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
) -> DriverFirst:
    """Judge a look at the driver: steps and refusals as decided, kernel_packages to install besides, instances that
    are stopped for it.

    foreseen: the node has no driver, so that plans are for the cards that PCI promises. replace: as in may_be_due. With
    neither, what keeps packages from a node whose driver is as it should be is nobody's problem.
    """
    if not any(steps.values()) or (refusals and not (foreseen or replace)):
        return DriverFirst()
    if refusals:
        return refused(refusals, foreseen=foreseen)
    packages = [*kernel_packages, *(name.partition("=")[0] for name in steps["install"])]
    doing = [f"{len(packages)} packages ({', '.join(packages)})"] if packages else []
    doing += [f"{name}, which is installed by half, is mended" for name in steps["mend"]]
    doing += [f"its modules are built for kernel {kernel}" for kernel in steps["build"]]
    what = ", ".join(doing) or "its modules are loaded"
    cards = " Plans are for the cards on the PCI bus until then." if foreseen else ""
    names = ", ".join(instances)
    stopped = f" For it {names} stops; if driver or instances do not come up, those from before do." if names else ""
    later = ", ".join((*CHECKS, *UNTOLD))
    return DriverFirst(
        first=True,
        awaited=True,
        findings=(
            f"The driver {version} comes first: {what}.{cards}{stopped}",
            f"Judged after the driver: {later}.",
        ),
    )


def still_judged(mismatches: Sequence[Mismatch]) -> list[Mismatch]:
    """The mismatches that the driver's packages do not end."""
    return [mismatch for mismatch in mismatches if mismatch.check.name not in CHECKS]
