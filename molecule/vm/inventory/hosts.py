#!/usr/bin/env python3
"""Inventory of this scenario's virtual machine (python -m simulator.vm up molecule-vm wrote it)."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

WRITTEN = Path(__file__).resolve().parents[3] / ".cache/simulator/vm/machines/molecule-vm/inventory.yml"


def main() -> None:
    """Print the inventory; before the machine is there, no host."""
    hosts = {}
    if WRITTEN.exists():
        hosts = yaml.safe_load(WRITTEN.read_text())["all"]["children"]["gaudi_nodes"]["hosts"]
    print(json.dumps({"gaudi_nodes": {"hosts": sorted(hosts)}, "_meta": {"hostvars": hosts}}))


if __name__ == "__main__":
    main()
