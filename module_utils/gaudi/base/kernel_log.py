"""Lines of the kernel's log about the driver that several packages recognise."""

from __future__ import annotations

import re

MISSING_FIRMWARE = re.compile(
    r"(?:Direct firmware load for|Firmware file) (?P<file>habanalabs/\S+) (?:failed with error -2|is not found)"
)
"""The kernel's own driver prints this where the vendor's packages are missing: recorded on a server with an HL-225."""
MISSING_SYMBOL = re.compile(r"(?P<module>habanalabs\w*): Unknown symbol (?P<symbol>\w+)")
"""The kernel prints this of a module that needs another one: recorded on a host with Gaudi 3 and 1.24.0."""
WARNINGS = r"habanalabs\w*: Unknown symbol|Direct firmware load for habanalabs|Firmware file habanalabs"
"""The same lines as a pattern for journalctl: the kernel prints them as warnings."""
CORRUPTED_BY = re.compile(
    r"(?:^<\d{1,3}>|^\w{1,10} *:\w{1,10} *: |\] |^)(?P<name>[^\]\n]+): Corrupted page table at address"
)
"""x86 kernels: the first line of pgtable_bad in arch/x86/mm/fault.c begins with the process's name.

dmesg --raw and --decode put the level before it.
"""
BAD_PAGE_TABLE = "Bad pagetable: "
PAGE_TABLES = f"Corrupted page table at address|{BAD_PAGE_TABLE}"
"""Each line of pgtable_bad, as a pattern for journalctl."""
