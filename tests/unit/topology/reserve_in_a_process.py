"""card_reservation as a process of its own, on a healthy node, with its state in a directory of the test.

Arguments: that directory, the module's arguments as JSON. Says "ready", then answers.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT), str(ROOT / "library")]
# What tests/conftest.py does for a test.
importlib.import_module("ansible.module_utils").__path__.append(str(ROOT / "module_utils"))


def main() -> None:
    """Replace what is the node's and what is the place; everything else is the module."""
    card_reservation = importlib.import_module("card_reservation")
    nodes = importlib.import_module("tests.unit.topology.nodes")
    topology = importlib.import_module("ansible.module_utils.gaudi.topology").build_topology(nodes.sources())
    vars(os).update(geteuid=lambda: 0)
    vars(card_reservation).update(STATE=Path(sys.argv[1]), read_topology=lambda _module, links: topology)
    # From here to the lock it is a matter of microseconds.
    print("ready", flush=True)
    with importlib.import_module("ansible.module_utils.testing").patch_module_args(json.loads(sys.argv[2])):
        card_reservation.main()


if __name__ == "__main__":
    main()
