"""What is wrong, by the words of apt, DKMS or modprobe; and what a driver was before it is replaced."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent.parent))
from plugin_utils import brain

brain.on_path()

from ansible.errors import AnsibleFilterError
from ansible.module_utils.gaudi.base.certificates import OPTION
from ansible.module_utils.gaudi.base.checks import mapping
from ansible.module_utils.gaudi.base.printable import printable_lines
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.base.values import without_accounts, without_login
from ansible.module_utils.gaudi.driver.before import as_text, before
from ansible.module_utils.gaudi.driver.troubles import build_failed, recognised

# The end of long output, in characters: where the reason stands.
LAST = 1500
# What is looked at, and of each line: patterns take longer than its length for a line without an end, and a node can
# print anything.
LOOKED_AT, LINE = 1 << 20, 4096


def driver_trouble(
    said: str,
    repository: str = "",
    certificates: str = "",
    denials: dict[str, str] | None = None,
    build_failure: dict[str, str] | None = None,
) -> str:
    """Return what is wrong and what to do, with the end of what was printed; only that if no pattern matches.

    repository: the address of the driver's packages. certificates: those of the site, "" without any. denials: as in
    recognised(). build_failure: what the node's make.log shows, as gaudi_driver_info returns it. No account of an
    address is returned: dnf quotes the address of each repository that it cannot read, whosever it is.
    """
    said = without_accounts("\n".join(line[:LINE] for line in said[-LOOKED_AT:].split("\n")))
    trouble: object = recognised(said, without_login(repository), OPTION if certificates else "", denials)
    if build_failure and build_failed(said):
        trouble = printable_lines(build_failure["message"])
    words = printable_lines(said.strip()[-LAST:])
    return f"{trouble}\nIt said: {words}" if trouble else words


def driver_before(result: Mapping[str, object], found: Mapping[str, Any]) -> dict[str, Any]:
    """Return what driver and instances are before a change, or fail where the record is damaged.

    result: of node_report. found: what gaudi_driver_info returned.
    """
    try:
        return dict(before(mapping(result.get("report"), "The node's report"), found["present"], found["state"]))
    except Refusal as refusal:
        raise AnsibleFilterError(refusal.message_with_id) from None


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name the filters."""
        return {"driver_before": driver_before, "driver_record": as_text, "driver_trouble": driver_trouble}
