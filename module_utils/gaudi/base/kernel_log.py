"""Lines of the kernel's log about the driver that several packages recognise."""

from __future__ import annotations

import re

MISSING_FIRMWARE = re.compile(
    r"(?:Direct firmware load for|Firmware file) (?P<file>habanalabs/\S+) (?:failed with error -2|is not found)"
)
"""The kernel's own driver prints this where the vendor's packages are missing: recorded on a server with an HL-225."""
