"""Try from the controller whether others reach instances, and warn with the cause where they do not."""

from __future__ import annotations

import http.client
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

sys.path.append(str(Path(__file__).resolve().parent.parent))
from plugin_utils import brain
from plugin_utils.resolving import addresses_of, is_own

brain.on_path()

from ansible.module_utils.gaudi.base import reported
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.base.values import is_loopback, is_routable
from ansible.module_utils.gaudi.serving import reach

ARGUMENT_SPEC: dict[str, Any] = {
    "plans": {"type": "list", "elements": "dict", "required": True},
    "opened": {"type": "bool", "default": False},
}
# Seconds for one connection, and for all of them, the resolution of names included.
TIMEOUT = 3
LONGEST = 5


def try_once(host: str, port: int) -> str:
    """Return why no HTTP server answers at a host; empty where one does. No proxy is used.

    A name is resolved once, and only routable addresses of other machines are tried: a node that reports the name may
    have it resolve to any address. It may also have reported an address of the controller.
    """
    try:
        found = [address for address in addresses_of(host, TIMEOUT) if is_routable(address)]
    except OSError as error:
        return reach.cause(error, TIMEOUT)
    why = reach.OWN if found else reach.INSIDE
    for address in [each for each in found if not is_own(each)]:
        why, connected = try_address(address, port)
        if connected:
            break
    return why


def try_address(address: str, port: int) -> tuple[str, bool]:
    """Return why no HTTP server answers at an address (empty where one does), and whether it accepts connections."""
    connection = http.client.HTTPConnection(address, port, timeout=TIMEOUT)
    connected = False
    try:
        connection.connect()
        connected = True
        connection.request("GET", "/health")
        connection.getresponse()
    except (OSError, http.client.HTTPException) as error:
        return reach.cause(error, TIMEOUT, connected=connected), connected
    finally:
        connection.close()
    return "", True


def is_here(host: str) -> bool:
    """Whether a host of the inventory is the controller itself, as for a tunnel; false for an unknown name."""
    try:
        return is_loopback(host) or all(is_loopback(each) or is_own(each) for each in addresses_of(host, TIMEOUT))
    except OSError:
        return False


def try_all(targets: Mapping[str, tuple[str, int]]) -> dict[str, str]:
    """Return the causes by instance, all tried at once. What has not ended in time counts as not answered."""
    causes = dict.fromkeys(targets, reach.cause(TimeoutError(), LONGEST))

    def one(instance: str, address: str, port: int) -> None:
        causes[instance] = try_once(address, port)

    # Daemons: a name with several addresses may take longer than all have together.
    threads = [threading.Thread(target=one, args=(name, *target), daemon=True) for name, target in targets.items()]
    deadline = time.monotonic() + LONGEST
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return {instance: why for instance, why in causes.copy().items() if why}


class ActionModule(ActionBase):  # type: ignore[misc]  # ansible-core carries no types
    """The action."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Connect; a report of the node that names no address fails the task."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        try:
            return self._reach(result, task_vars or {})
        except Refusal as refusal:
            return {**result, "failed": True, "msg": str(refusal), "refused_id": refusal.id}

    def _reach(self, result: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Connect; ask the node for its firewalls where that fails. Raises Refusal."""
        _, options = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        node = str(variables.get("inventory_hostname", "the node"))
        result.update(changed=False, unreached=[])
        plans = [plan for plan in options["plans"] if reported.listener(plan)]
        listening = [plan["listen"] for plan in plans if not is_loopback(plan["listen"]["host"])]
        if not listening or self._connection.transport == "local":
            return result
        seen: dict[str, Any] = {}
        # An inventory may have an expression for it.
        known = str(self._templar.template(variables.get("ansible_host")) or node)
        here = is_here(known)
        if here:
            seen = self._look(listening, variables)
            known = next(map(reported.asked_at, reported.addresses(seen.get("addresses", []))), known)
        targets = reach.targets(options["plans"], known)
        causes = try_all(targets)
        if here:
            # The node may be the controller, and then its own connections prove nothing.
            causes = {instance: why for instance, why in causes.items() if why != reach.OWN}
        if causes and not seen:
            seen = self._look(listening, variables)
        result["unreached"] = [
            reach.sentence(instance, node, targets[instance], why, seen.get("firewalls"), opened=options["opened"])
            for instance, why in causes.items()
        ]
        if causes:
            result["warnings"] = result["unreached"]
        return result

    def _look(self, listening: Sequence[Mapping[str, Any]], variables: dict[str, Any]) -> dict[str, Any]:
        """Ask the node for its firewalls and addresses."""
        seen: dict[str, Any] = self._execute_module(
            module_name="vllm_service_reach", module_args={"host": listening[0]["host"]}, task_vars=variables
        )
        return seen
