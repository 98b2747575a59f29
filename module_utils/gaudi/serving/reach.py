"""Whether others reach an instance, as far as the controller can tell, and in which words it is warned of."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any

from ..base import reported
from ..base.printable import printable
from ..base.values import is_loopback

NAME = "the controller knows no address for this name"
INSIDE = "the controller resolves this name only to addresses at which no other machine is reached"
OWN = "the address is one of the controller itself, which it does not ask"
# Firewalls that the project opens by option.
OPENED = ("firewalld", "ufw")


def targets(plans: Sequence[Mapping[str, Any]], known: str) -> dict[str, tuple[str, int]]:
    """Return address and port of each instance that others are to reach, by its name.

    known: the address by which the controller knows the node; it stands for all addresses. Raises Refusal for what is
    no plan.
    """
    found = {}
    for plan in plans:
        instance, host, port = reported.listener(plan)
        address = known if _is_unspecified(host) else host
        if not is_loopback(address):
            found[instance] = (address, port)
    return found


def _is_unspecified(host: str) -> bool:
    """Whether a host stands for all addresses of the node."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def cause(error: Exception, seconds: int, *, connected: bool = False) -> str:
    """Return what happened to a connection, as the middle of a sentence. seconds: how long it was given."""
    slow = isinstance(error, TimeoutError)
    if connected:
        what = f"nothing within {seconds} s" if slow else printable(str(error) or type(error).__name__)
        return f"the connection was accepted, and the answer to GET /health was {what}"
    if slow:
        return f"nothing answered within {seconds} s"
    if isinstance(error, ConnectionRefusedError):
        return "the connection was refused"
    if type(error).__name__ == "gaierror":
        return NAME
    return f"no connection was possible ({printable(getattr(error, 'strerror', None) or str(error))})"


def sentence(
    instance: str, node: str, target: tuple[str, int], why: str, firewalls: Sequence[str] | None, *, opened: bool
) -> str:
    """Return the warning: what was found, which firewall may be the cause, what to do.

    firewalls: those of the node; None where it could not be asked. opened: whether this run has opened them.
    """
    host, port = target
    shown = f"[{host}]" if ":" in host else host
    said = f"{instance} serves on {node}, but the controller does not reach it at http://{shown}:{port}: {why}."
    if why == NAME:
        return f"{said} Set ansible_host to an address of the node, or ignore this if clients know another one."
    if why == INSIDE:
        return f"{said} Have the name resolve to an address of the node, or ignore this if clients know another one."
    if why == OWN:
        return f"{said} Have it listen at an address that only {node} has, or ignore this if clients know another one."
    if not firewalls:
        what = "has no firewall that was found" if firewalls is not None else "did not say which firewall it has"
        return f"{said} {node} {what}. Check the network between, or ignore this if clients come another way."
    said = f"{said} {node} filters incoming connections: {', '.join(firewalls)}."
    if any(not each.startswith(OPENED) for each in firewalls):
        return f"{said} Open TCP port {port} there; this project does not change these rules."
    if opened:
        return f"{said} A rule of ours admits this port: check vllm_service_firewall_sources, and rules before ours."
    return f"{said} Open TCP port {port} there, or set vllm_service_open_firewall: true."
