"""The energy preference of processors that have no cpufreq driver: its controls, and what performance is.

The kernel shows no cpufreq on some Sapphire Rapids servers with HWP (Dell XE9680, Ubuntu's kernel 6.8): the firmware
keeps the processor's speed to itself, and no governor can ask for more. Two registers still can. The vendor's page on
hosts of Gaudi 3 asks for both on Sapphire and Granite Rapids; bits and flags are those of Intel's Software Developer's
Manual, volume 4. Not tried on hardware by this project.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Control:
    """A field of a register, and the file in which the kernel may offer it."""

    name: str
    register: int
    """Number of the model specific register."""
    mask: int
    """Its bits that are the preference; others are never changed."""
    flag: str
    """The flag in /proc/cpuinfo of processors that have it."""
    file: str
    """What the kernel offers instead, below the processor's directory in /sys; "" for nothing."""

    @property
    def shift(self) -> int:
        """The number of bits below the field."""
        return (self.mask & -self.mask).bit_length() - 1

    def field(self, value: int) -> int:
        """Return the field of a register's value."""
        return (value & self.mask) >> self.shift

    def changed(self, value: int, field: int) -> int:
        """Return a register's value with another field. Raises ValueError for a number that is too large for it."""
        if field != self.field(field << self.shift):
            raise ValueError(f"{self.name} cannot be {field}")
        return value & ~self.mask | field << self.shift


# 0 is performance in both, the highest number saves most. IA32_ENERGY_PERF_BIAS has it in bits 3:0, IA32_HWP_REQUEST
# in bits 31:24; below these are the bounds of the frequency, which stay as they are.
CONTROLS = (
    Control("energy bias", 0x1B0, 0xF, "epb", "power/energy_perf_bias"),
    Control("energy preference", 0x774, 0xFF << 24, "hwp_epp", ""),
)
PERFORMANCE = 0
FASTEST = "performance"


def controls(cpuinfo: str) -> list[Control]:
    """Return the controls that this node's processors have. cpuinfo: the text of /proc/cpuinfo."""
    flags = {
        flag
        for line in cpuinfo.splitlines()
        if line.partition(":")[0].strip() == "flags"
        for flag in line.partition(":")[2].split()
    }
    return [control for control in CONTROLS if control.flag in flags]


def described(values: Mapping[str, int | None]) -> str:
    """Say in a few words what a processor prefers. values: by the names of its controls; None for an unread one."""
    if all(value == PERFORMANCE for value in values.values()):
        return FASTEST
    return ", ".join(f"{name} {'unreadable' if value is None else value}" for name, value in values.items())


def saves(processors: Iterable[Mapping[str, int | None]]) -> bool:
    """Whether a processor is known to prefer anything but performance."""
    return any(value not in (PERFORMANCE, None) for values in processors for value in values.values())


def refusal(*, virtual: bool, lockdown: str, registers: bool) -> str | None:
    """Say why the preference cannot be set on this node, or return None.

    lockdown: the text of /sys/kernel/security/lockdown, "" if the kernel has none. registers: whether a register has to
    be written because the kernel offers no file.
    """
    if virtual:
        return (
            "host_tuning_energy_performance is true, but this is a virtual machine: its processors are the host's to "
            "set. Set it to false for this node, and tune the host."
        )
    mode = lockdown.partition("[")[2].partition("]")[0]
    if registers and mode not in ("", "none"):
        return (
            f"host_tuning_energy_performance is true, but the kernel is locked down ({mode}), as with Secure Boot: it "
            "lets nobody write the processors' registers. Set the power profile to performance in the firmware's setup "
            "and the option to false, or boot without lockdown."
        )
    return None
