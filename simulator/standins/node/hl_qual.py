#!/usr/bin/python3
"""Stand-in for hl_qual on a simulated node: stresses nothing, and says of each test what the node's description says.

No output of the real one was to be had: its lines are made up but for the heading ``Test result summary`` and the words
PASSED and FAILED, which a public program looks for. It ends with 1 where a test failed, and where a card is in use.
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


def answer(arguments: list[str], node: dict[str, Any], busy: bool) -> tuple[list[str], int]:
    """Return the lines and the status of a command line."""
    family = node["cards"][0]["family"]
    if arguments[:2] != [f"-{family}", "-c"] or arguments[3:6] != ["-rmod", "parallel", "-dis_mon"]:
        return [f"hl_qual (simulated): these are no arguments for {family}: {' '.join(arguments)}"], 1
    test = TESTS.get(tuple(arguments[6:]))
    if test is None or arguments[2] not in SETS:
        return [f"hl_qual (simulated): there is no such test, or no such set of cards: {' '.join(arguments)}"], 1
    if busy:
        return ["hl_qual (simulated): a device is in use"], 1
    if node["hl_qual"]["silent"]:
        return ["hl_qual (simulated): done"], 0
    failed = test in node["hl_qual"]["failed"]
    word = "FAILED" if failed else "PASSED"
    head = ["=== hl qual report (simulated) ===", f"cards: {arguments[2]}", "", "Test result summary"]
    return [*head, f"  {TITLES[test]} : {word}"], int(failed)


def main() -> int:
    """Answer the command line of this process."""
    lines, status = answer(sys.argv[1:], json.loads(NODE_DOCUMENT.read_text(encoding="utf-8")), in_use())
    print("\n".join(lines))
    return status


if __name__ == "__main__":
    sys.exit(main())
