#!/usr/bin/env python3
"""Inventory of this scenario's virtual machine (python -m simulator.vm up molecule-vm wrote it)."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

WRITTEN = Path(__file__).resolve().parents[3] / ".cache/simulator/vm/machines/molecule-vm/inventory.yml"
# Without the machine there is still one to be named: a playbook fails with this sentence instead of ending well on
# no hosts at all.
NONE = {"vm": {"ansible_host": "{{ undef(hint='The virtual machine does not run: molecule create -s vm') }}"}}


def main() -> None:
    """Print the inventory."""
    hosts = NONE
    if WRITTEN.exists():
        hosts = yaml.safe_load(WRITTEN.read_text())["all"]["children"]["gaudi_nodes"]["hosts"]
    print(json.dumps({"gaudi_nodes": {"hosts": sorted(hosts)}, "_meta": {"hostvars": hosts}}))


if __name__ == "__main__":
    main()
