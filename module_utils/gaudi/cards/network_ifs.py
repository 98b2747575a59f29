"""Parse ``manage_network_ifs.sh --status`` of the package habanalabs-qual: the external ports of each card.

The script prints a line with the device (accel0), and below it how many ports are up and down, with their numbers.
"""

from __future__ import annotations

import re

from ..base.cpulist import shown

# Older drivers called a device hl0.
_DEVICE = re.compile(r"(?:accel|hl)(?P<index>[0-9]{1,4})\b:?")
_PORTS = re.compile(
    r"(?P<count>[0-9]{1,3}) ports? (?P<state>up|down)"
    r"(?: *[(\[]{1,2}(?P<numbers>[0-9]{1,3}(?: *, *[0-9]{1,3})*)[)\]]{1,2})?\.?"
)
# A line about ports that has another form.
_OTHER = re.compile(r"\bports?\b.{0,80}[0-9]|[0-9].{0,80}\bports?\b", re.IGNORECASE)


def parse_status(text: str) -> dict[int, dict[int, bool]]:
    """Return for each device index which of its external ports are up.

    A device without such ports has an empty entry. Raises ValueError for ports without a device, without as many
    numbers as were counted, named twice, or in another form.
    """
    found: dict[int, dict[int, bool]] = {}
    ports: dict[int, bool] | None = None
    for line in text.splitlines():
        if device := _DEVICE.fullmatch(line.strip()):
            ports = found.setdefault(int(device["index"]), {})
        elif match := _PORTS.fullmatch(line.strip()):
            numbers = [int(number) for number in (match["numbers"] or "").replace(",", " ").split()]
            if ports is None or len(numbers) != int(match["count"]) or not ports.keys().isdisjoint(numbers):
                raise ValueError(f"manage_network_ifs.sh printed ports that cannot be read: {shown(line)}")
            ports.update(dict.fromkeys(numbers, match["state"] == "up"))
        elif ports is not None and _OTHER.search(line):
            raise ValueError(f"manage_network_ifs.sh printed ports that cannot be read: {shown(line)}")
    return found
