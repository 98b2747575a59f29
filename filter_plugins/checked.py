"""Check the form of a value where it is written into a file of the system, or leaves the node that reports it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleFilterError

sys.path.append(str(Path(__file__).resolve().parent.parent))
from plugin_utils import brain

brain.on_path()

from ansible.module_utils.gaudi.base import reported as reports
from ansible.module_utils.gaudi.base import values
from ansible.module_utils.gaudi.base.printable import printable
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.utils.display import Display


def checked(value: object, kind: str, what: str) -> str:
    """Return the value, or fail with why it cannot stand where it would be written; empty stays empty."""
    try:
        return "" if value == "" else values.KINDS[kind](value, what)
    except Refusal as refusal:
        raise AnsibleFilterError(refusal.message_with_id) from None


def reported(value: object, kind: str) -> Any:
    """Return what a node reported, or fail with why no other node may receive it."""
    try:
        return reports.CHECKS[kind](value)
    except Refusal as refusal:
        raise AnsibleFilterError(refusal.message_with_id) from None


def readable_nodes(nodes: Mapping[str, object]) -> dict[str, object]:
    """Return what can be written of each node's report; a node with another report is left out with a warning."""
    found = {}
    for node, value in nodes.items():
        try:
            found[str(node)] = reports.on_page(value)
        except Refusal as refusal:
            Display().warning(printable(f"{node} {reports.UNREADABLE}, so it is left out. {refusal}"))
    return found


def apt_login(address: str) -> str:
    """Return apt's line for the account in an address; empty where there is none."""
    try:
        return values.apt_login(address)
    except Refusal as refusal:
        raise AnsibleFilterError(refusal.message_with_id) from None


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name the filters."""
        return {
            "apt_login": apt_login,
            "checked": checked,
            "login": values.login,
            "readable_nodes": readable_nodes,
            "reported": reported,
            "without_login": values.without_login,
        }
