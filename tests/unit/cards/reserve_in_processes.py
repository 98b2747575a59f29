"""card_reservation in processes of their own, on a healthy node, with its state in a directory of the test.

Reads from standard input {"state": DIRECTORY, "requests": {NAME: the module's arguments}} as JSON. Every request
gets a process; when all of them are about to ask, their process ids follow as one line, {NAME: PID}; and what each
answers is written to DIRECTORY.NAME.json.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT), str(ROOT / "library")]
# What tests/conftest.py does for a test.
importlib.import_module("ansible.module_utils").__path__.append(str(ROOT / "module_utils"))


def main() -> None:
    """Replace what is the node's and what is the place; everything else is the module."""
    order = json.load(sys.stdin)
    module = importlib.import_module("card_reservation")
    nodes = importlib.import_module("tests.unit.cards.nodes")
    topology = importlib.import_module("ansible.module_utils.gaudi.cards.document").build_topology(nodes.sources())
    vars(os).update(geteuid=lambda: 0)
    vars(module).update(STATE=Path(order["state"]), read_topology=lambda _module, links: topology)
    ready, at_the_door = os.pipe()
    pids = {}
    for name, arguments in order["requests"].items():
        # Forked, because importing Ansible twenty times would take longer than the race.
        pids[name] = os.fork()
        if pids[name] == 0:
            ask(module, arguments, f"{order['state']}.{name}.json", at_the_door)
    for _name in pids:
        os.read(ready, 1)
    print(json.dumps(pids), flush=True)
    for pid in pids.values():
        os.waitpid(pid, 0)


def ask(module: Any, arguments: dict[str, Any], file: str, at_the_door: int) -> None:
    """Run the module to its end, which is this process's, too."""
    patch = importlib.import_module("ansible.module_utils.testing").patch_module_args
    os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT, 0o600), sys.stdout.fileno())
    with patch(arguments):
        os.write(at_the_door, b".")
        module.main()


if __name__ == "__main__":
    main()
