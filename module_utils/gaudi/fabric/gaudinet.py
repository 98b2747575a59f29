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
from .static import Fault, Interface

_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_LIST = "NIC_NET_CONFIG"
_ADVICE = "Write it anew for the cards that are there, or remove it where the NICs are not routed."


def check_gaudinet(text: str | None, interfaces: Sequence[Interface], path: str) -> tuple[Fault, ...]:
    """Return what is wrong with the file's text; None means that there is no file, which is not a fault."""
    if text is None:
        return ()
    if not text.strip():
        return (Fault("gaudinet_empty", f"{path} is empty: the habana runtime leaves it out.", fatal=False),)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return (Fault("gaudinet_unreadable", f"{path} is no JSON: {shown(text)}. {_ADVICE}"),)
    entries = document.get(_LIST) if isinstance(document, Mapping) else None
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        return (Fault("gaudinet_unreadable", f"{path} holds no list {_LIST} of entries. {_ADVICE}"),)
    wrong = [problem for entry in entries for problem in _entry(entry)]
    wrong += _twice([str(entry.get("NIC_MAC", "")).lower() for entry in entries], "NIC_MAC")
    wrong += _twice([str(entry.get("NIC_IP", "")) for entry in entries], "NIC_IP")
    if wrong:
        more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        return (Fault("gaudinet_entry", f"{path}: {'; '.join(wrong[:3])}{more}. {_ADVICE}"),)
    return _against_cards({str(entry["NIC_MAC"]).lower() for entry in entries}, interfaces, path)


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


def _against_cards(macs: set[str], interfaces: Sequence[Interface], path: str) -> tuple[Fault, ...]:
    """Return faults for addresses that belong to no card of the node, and for ports that the file lacks."""
    if not interfaces:
        said = f"{path} is there, and no interface of a card is: nobody can tell whether it is of these cards."
        return (Fault("gaudinet_not_compared", f"{said} Load habanalabs_en; see dmesg.", fatal=False),)
    here = {interface.mac.lower(): interface for interface in interfaces}
    strange, lacking = sorted(macs - set(here)), sorted(set(here) - macs)
    faults = []
    if strange:
        said = (
            f"{path} is stale: {len(strange)} of its {len(macs)} addresses belong to no card here, {strange[0]} first."
        )
        faults.append(Fault("gaudinet_stale", f"{said} Runs between nodes end with QPC errors. {_ADVICE}"))
    if lacking:
        modules = tuple(sorted({here[mac].module for mac in lacking}))
        said = f"{path} lacks {len(lacking)} addresses of the cards here, {here[lacking[0]].name} ({lacking[0]}) first."
        faults.append(Fault("gaudinet_incomplete", f"{said} {_ADVICE}", modules))
    return tuple(faults)
