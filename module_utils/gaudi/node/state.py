"""Ask systemd about the units of what runs on a node."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule


def systemctl(module: AnsibleModule, *arguments: str) -> str:
    """Run systemctl and return what it printed; fails the module with its words."""
    status, output, errors = module.run_command([module.get_bin_path("systemctl", required=True), *arguments])
    if status != 0:
        module.fail_json(msg=f"systemctl {' '.join(arguments)} failed with status {status}: {errors.strip()}")
    return str(output)
