#!/usr/bin/python3
"""Stand-in for hl_qual on a simulated node: stresses nothing, and says of each test what the node's description says.

Its end is as recorded with 1.24.1 (tests/unit/fabric/recorded): measurements by card, a line for each card below
``Test result summary``, ``hl qual report`` and the bare word. Arguments without a known test fail in the same way as
there: no plugin, all measurements 0, FAILED for each card. What a test that runs prints before that is made up. It ends
with 1 where a test failed, and where a card is in use; the real one's status was not recorded.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

NODE_DOCUMENT = Path("/etc/gaudi-simulator/node.json")
PROC = Path("/proc")
DEVICE = re.compile(r"/dev/accel/accel[0-9]+")
SETS = ("all", "quad_0", "quad_1")
# The arguments of each test, as they are called in public.
TESTS = {("-mb", "-memOnly"): "memory", ("-mb", "-pciOnly"): "pci", ("-ser",): "serdes", ("-s",): "power"}
TITLES = {"memory": "Memory bandwidth", "pci": "PCI bandwidth", "serdes": "SerDes", "power": "Power stress"}


def in_use() -> bool:
    """Whether a process of the node holds a card."""
    for entry in PROC.glob("[0-9]*/fd/*"):
        try:
            if DEVICE.fullmatch(str(entry.readlink())):
                return True
        except OSError:
            continue
    return False


def report(node: dict[str, Any], word: str, *, measured: bool) -> list[str]:
    """Return the end of what is printed: measurements, a line for each card, and the outcome."""
    cards = [card for card in node["cards"] if not card["lost"]]
    lines = ["", f"{'#' * 34}   Device measurment report {'#' * 39}", ""]
    lines += [f"{'':19}{'  '.join(card['bus_id'] for card in cards)}"]
    for label, value in (("Min Temp:", 30), ("max Temp:", 40), ("min Clock:", 1000), ("max Clock:", 1650)):
        lines.append(f"{label:30}{'  '.join(str(value if measured else 0) for _ in cards)}")
    lines.append(f"{'#' * 34}   Test result summary      {'#' * 39}")
    lines += [f"hl_qual - device with busID: {card['bus_id']} result: {word}" for card in cards]
    return [*lines, f"{'#' * 34}   hl qual report {'#' * 39}", word]


def answer(arguments: list[str], node: dict[str, Any], busy: bool) -> tuple[list[str], int]:
    """Return the lines and the status of a command line."""
    family = node["cards"][0]["family"]
    if arguments[:2] != [f"-{family}", "-c"] or arguments[3:6] != ["-rmod", "parallel", "-dis_mon"]:
        return [f"hl_qual (simulated): these are no arguments for {family}: {' '.join(arguments)}"], 1
    test = TESTS.get(tuple(arguments[6:]))
    if test is None or arguments[2] not in SETS:
        no_plugin = ["Runner - No plugin was identified", "Failed to set plugin under test"]
        return [*no_plugin, "hl_qual - Plugin report END: ", *report(node, "FAILED", measured=False)], 1
    if busy:
        return ["hl_qual (simulated): a device is in use"], 1
    if node["hl_qual"]["silent"]:
        return ["hl_qual (simulated): done"], 0
    failed = test in node["hl_qual"]["failed"]
    head = [f"hl_qual (simulated): {TITLES[test]} of {arguments[2]}"]
    return [*head, *report(node, "FAILED" if failed else "PASSED", measured=True)], int(failed)


def main() -> int:
    """Answer the command line of this process."""
    lines, status = answer(sys.argv[1:], json.loads(NODE_DOCUMENT.read_text(encoding="utf-8")), in_use())
    print("\n".join(lines))
    return status


if __name__ == "__main__":
    sys.exit(main())
