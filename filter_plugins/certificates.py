"""Read the site's certificates on the controller, and choose a proxy for an address."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from ansible.errors import AnsibleFilterError

sys.path.append(str(Path(__file__).resolve().parent.parent))
from plugin_utils import brain

brain.on_path()

from ansible.module_utils.gaudi.base.access import (
    BUNDLE,
    bundle_variables,
    dnf_access,
    hub_routes,
    pip_conf,
    proxy_of,
    registry_certificates,
)
from ansible.module_utils.gaudi.base.certificates import OPTION, REJECTED, advice
from ansible.module_utils.gaudi.base.printable import printable_lines
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.base.values import without_accounts

from plugin_utils import certificates

# The end of pip's output, in characters: where the reason stands.
LAST = 1500


def ca_certificates(value: str) -> str:
    """Return the certificates in PEM, of the path of a file or of a text; empty stays empty."""
    try:
        return certificates.pem_of(value)
    except Refusal as refusal:
        raise AnsibleFilterError(refusal.message_with_id) from None


def ca_bundle(value: str) -> str:
    """Return where a node has the certificates that the site names, with its own; empty stays empty."""
    return BUNDLE if value else ""


def pip_trouble(printed: str, index: str, site: str = "") -> str:
    """Return what to do about an installation that failed, and the end of what pip printed.

    index: address of the index. site: the certificates of the site, "" without any.
    """
    printed = without_accounts(printed)
    todo = "Check model_weights_python_index and the proxies of the site."
    if REJECTED.search(printed):
        todo = advice(printed, urlsplit(index).hostname or "the index", OPTION if site else "")
    return f"{todo}\nIt said: {printable_lines(printed.strip()[-LAST:])}"


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., object]]:
        """Name the filters."""
        return {
            "bundle_variables": bundle_variables,
            "ca_bundle": ca_bundle,
            "ca_certificates": ca_certificates,
            "dnf_access": dnf_access,
            "hub_routes": hub_routes,
            "pip_conf": pip_conf,
            "pip_trouble": pip_trouble,
            "proxy_of": proxy_of,
            "registry_certificates": registry_certificates,
        }
