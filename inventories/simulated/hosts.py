#!/usr/bin/env python3
"""Inventory of the simulated nodes that run on this machine (python -m simulator up wrote it).

Another set of nodes than the demo's: GAUDI_SIMULATOR_SCOPE=<scope>.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

# Without a running node there is still one to be named, so that a playbook fails with this sentence
# instead of ending well on no hosts at all.
NONE = {
    "gaudi_nodes": {"hosts": ["simulated-gaudi-1"]},
    "_meta": {
        "hostvars": {
            "simulated-gaudi-1": {
                "ansible_host": "{{ undef(hint='No simulated node runs. Start one: python -m simulator up') }}"
            }
        }
    },
}


def main() -> None:
    """Print the inventory, whatever Ansible asks for (--list; there is no --host thanks to _meta)."""
    scope = os.environ.get("GAUDI_SIMULATOR_SCOPE", "demo")
    root = Path(__file__).resolve().parents[2]
    written = root / ".cache" / "simulator" / "scopes" / Path(scope).name / "inventory.json"
    inventory = json.loads(written.read_text()) if written.exists() else NONE
    print(json.dumps(inventory if inventory["gaudi_nodes"]["hosts"] else NONE))


if __name__ == "__main__":
    main()
