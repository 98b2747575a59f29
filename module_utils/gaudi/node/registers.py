"""Read and write model specific registers of processors through the kernel's msr module, msr(4)."""

from __future__ import annotations

import os
from pathlib import Path

DEVICES = Path("/dev/cpu")
# A register has 64 bits.
_BYTES = 8


def read_register(processor: int, register: int) -> int:
    """Return a register's value.

    Raises OSError: FileNotFoundError without the module msr, EIO if the processor has no such register.
    """
    device = os.open(DEVICES / str(processor) / "msr", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return int.from_bytes(os.pread(device, _BYTES, register), "little")
    finally:
        os.close(device)


def write_register(processor: int, register: int, value: int) -> None:
    """Set a register. Raises OSError; EPERM under kernel lockdown and with msr.allow_writes=off."""
    device = os.open(DEVICES / str(processor) / "msr", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.pwrite(device, value.to_bytes(_BYTES, "little"), register)
    finally:
        os.close(device)
