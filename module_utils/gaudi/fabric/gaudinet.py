"""Check ``gaudinet.json``: the addresses of external ports, and whether they belong to the node's cards.

HCL reads MAC and IP addresses of the cards' own NICs from it if they communicate over routers. A file left from other
cards causes queue pair errors. It holds one list of entries, ``NIC_NET_CONFIG``, each with NIC_MAC, NIC_IP, SUBNET_MASK
and optionally GATEWAY_MAC. No such file of a real node was available.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Mapping, Sequence

from ..base.checks import shown
from ..faults.words import say
from .static import Interface, StaticFault

_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_LIST = "NIC_NET_CONFIG"


def check_gaudinet(text: str | None, interfaces: Sequence[Interface], path: str) -> tuple[StaticFault, ...]:
    """Return what is wrong with the file's text; None means that there is no file, which is not a fault."""
    if text is None:
        return ()
    if not text.strip():
        return (StaticFault("gaudinet-empty", say("gaudinet-empty", path=path), fatal=False),)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return (_unreadable(path, f"is no JSON: {shown(text)}"),)
    entries = document.get(_LIST) if isinstance(document, Mapping) else None
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        return (_unreadable(path, f"holds no list {_LIST} of entries"),)
    wrong = [problem for entry in entries for problem in _entry(entry)]
    wrong += _twice([str(entry.get("NIC_MAC", "")).lower() for entry in entries], "NIC_MAC")
    wrong += _twice([str(entry.get("NIC_IP", "")) for entry in entries], "NIC_IP")
    if wrong:
        more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        return (StaticFault("gaudinet-entry", say("gaudinet-entry", path=path, wrong="; ".join(wrong[:3]) + more)),)
    return _against_cards({str(entry["NIC_MAC"]).lower() for entry in entries}, interfaces, path)


def _unreadable(path: str, wrong: str) -> StaticFault:
    return StaticFault("gaudinet-unreadable", say("gaudinet-unreadable", path=path, wrong=wrong))


def _entry(entry: Mapping[str, object]) -> list[str]:
    """Return faults for values that cannot be addresses."""
    wrong = []
    if not _MAC.fullmatch(str(entry.get("NIC_MAC", "")).lower()):
        wrong.append(f"NIC_MAC {shown(entry.get('NIC_MAC'))} is no MAC address")
    for key in ("NIC_IP", "SUBNET_MASK"):
        try:
            ipaddress.IPv4Address(str(entry.get(key)))
        except ValueError:
            wrong.append(f"{key} {shown(entry.get(key))} is no IPv4 address")
    return wrong


def _twice(values: Sequence[str], key: str) -> list[str]:
    return [f"{key} {value} is there twice" for value in sorted({each for each in values if values.count(each) > 1})]


def _against_cards(macs: set[str], interfaces: Sequence[Interface], path: str) -> tuple[StaticFault, ...]:
    """Return faults for addresses that belong to no card of the node, and for ports that the file lacks."""
    if not interfaces:
        return (StaticFault("gaudinet-not-compared", say("gaudinet-not-compared", path=path), fatal=False),)
    here = {interface.mac.lower(): interface for interface in interfaces}
    strange, lacking = sorted(macs - set(here)), sorted(set(here) - macs)
    faults = []
    if strange:
        said = say("gaudinet-stale", path=path, count=len(strange), total=len(macs), first=strange[0])
        faults.append(StaticFault("gaudinet-stale", said))
    if lacking:
        modules = tuple(sorted({here[mac].module for mac in lacking}))
        first = f"{here[lacking[0]].name} ({lacking[0]})"
        said = say("gaudinet-incomplete", path=path, count=len(lacking), first=first)
        faults.append(StaticFault("gaudinet-incomplete", said, modules))
    return tuple(faults)
