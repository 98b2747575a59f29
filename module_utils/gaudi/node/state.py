"""The one place that reads what long work and instances wrote about themselves, and asks systemd about their units."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; {} if it is not there. Raises ValueError for a damaged file."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return {}


def systemctl(module: AnsibleModule, *arguments: str) -> str:
    """Run systemctl and return what it printed; fails the module with its words."""
    status, output, errors = module.run_command([module.get_bin_path("systemctl", required=True), *arguments])
    if status != 0:
        module.fail_json(msg=f"systemctl {' '.join(arguments)} failed with status {status}: {errors.strip()}")
    return str(output)
