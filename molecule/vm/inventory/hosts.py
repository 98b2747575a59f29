#!/usr/bin/env python3
"""Inventory of a scenario's virtual machine (python -m simulator.vm up molecule-SCENARIO wrote it), vm by itself."""

from __future__ import annotations

import json
import os
from pathlib import Path

import yaml

SCENARIO = os.environ.get("MOLECULE_SCENARIO_NAME", "vm")
WRITTEN = Path(__file__).resolve().parents[3] / f".cache/simulator/vm/machines/molecule-{SCENARIO}/inventory.yml"
# Without the machine there is still one to be named: a playbook fails with this sentence instead of ending well on
# no hosts at all.
HINT = f"The virtual machine does not run: molecule create -s {SCENARIO}"
NONE = {"vm": {"ansible_host": f"{{{{ undef(hint='{HINT}') }}}}"}}


def main() -> None:
    """Print the inventory."""
    hosts = NONE
    if WRITTEN.exists():
        hosts = yaml.safe_load(WRITTEN.read_text())["all"]["children"]["gaudi_nodes"]["hosts"]
    print(json.dumps({"gaudi_nodes": {"hosts": sorted(hosts)}, "_meta": {"hostvars": hosts}}))


if __name__ == "__main__":
    main()
