"""Check what a node reports before another node, or the controller's disk, receives it.

A node that an attacker controls can report anything. What is done is decided on the controller, from the inventory
and the catalogue; a report says what the node has and lacks, and concerns this node alone. Where another node needs a
value of it, the value is checked here first.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from . import values
from .checks import MAX_TEXT, integer, mapping, matching, number, sequence, shown, switch, text
from .documents import DEEPEST, bounded, deeper, leaves
from .printable import printable
from .refusal import Refusal

# The most entries of a list or mapping that are read. An honest node stays far below.
MOST_ENTRIES = 1024
MOST_ADDRESSES = 256
# Keys and values of a whole document, and characters of its texts. A record of weights has five for each file.
MOST_LEAVES = 100_000
MOST_CHARACTERS = 16 << 20
# Of one text in a JSON file about several nodes.
LONGEST_ON_PAGE = 1 << 18
MOST_CARDS = 256
# In place of a node's report in a table of several nodes, which a report of another form must not end.
UNREADABLE = "reports nothing that can be read"
# Of a sentence, in characters; the rest is cut.
LONGEST_SENTENCE = 2000
# Above any figure of one run: catalog/cards.yml has at most 515 GB/s.
MOST_GB_S = 10_000
# Without the ports of system services.
PORTS = (1024, 65535)

_ID = re.compile(r"sha256:[0-9a-f]{64}")
_FSTYPE = re.compile(r"[A-Za-z0-9._-]{1,64}")
# A folder of compiled recipes (base/recipes.py), as one part of a path.
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_TOKEN = re.compile(r"[A-Za-z0-9_-]{20,200}")
# The name of a key (serving/keys.py).
_KEY_NAME = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,46}[a-z0-9])?")
_NUMBER = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*")
# The id of a refusal.
_REFUSED = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_REFERENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,254}")


def part(report: Mapping[str, object], name: str) -> Mapping[str, object]:
    """A part of a node's report (module node_report), or an entry of a part.

    Raises Refusal: the report has none, or the node could not read it; with the node's reason.
    """
    what = f"What the node reports of {shown(name)}"
    if name not in report:
        raise Refusal("not_reported", f"The node reports nothing of {shown(name)}, though it was asked for it.")
    found = mapping(report[name], what)
    why = found.get("error")
    if not isinstance(why, str):
        return found
    if "refused_id" in found and isinstance(found["refused_id"], str) and _REFUSED.fullmatch(found["refused_id"]):
        raise Refusal(found["refused_id"], sentence(why))
    raise Refusal("node_unreadable", sentence(why), "Read the node as root (become: true).")


def image_id(value: object) -> str:
    """The id of the image that a node gives to others: a checksum of all that is in the image."""
    return matching(value, "The id of an image", _ID, "sha256: and 64 hexadecimal digits")


def images(value: object) -> list[str]:
    """The images that a node uses or lacks; what is no reference is left out."""
    listed = value[:MOST_ENTRIES] if isinstance(value, list) else []
    return [str(each) for each in listed if isinstance(each, str) and _REFERENCE.fullmatch(each)]


def storage(value: object) -> dict[str, str]:
    """The type and source of the file system that a node's weights are on. Both may be empty."""
    found = mapping(value, "What the node reports of its weights root")
    kind = text(found.get("fstype"), "The type of a file system", empty=True)
    return {
        "fstype": matching(kind, "The type of a file system", _FSTYPE, "one word") if kind else "",
        "source": text(found.get("source"), "The source of a file system", empty=True),
    }


def addresses(value: object) -> list[str]:
    """The addresses, of IPv4 and IPv6, from which a node connects to the node that gives it a folder."""
    return [str(_ip(each)) for each in sequence(value, "The node's addresses", MOST_ADDRESSES)]


def token(value: object) -> str:
    """The secret that a node made for one transfer. No sentence quotes it."""
    if not isinstance(value, str) or not _TOKEN.fullmatch(value):
        raise Refusal("no_token", "The node reports no valid token. A token has 20 to 200 letters, digits, - and _.")
    return str(value)


def instance(value: object) -> str:
    """The name of an instance on the node."""
    return matching(value, "The name of an instance", values.INSTANCE, "at most 48 of a-z, 0-9 and -")


def instances(value: object) -> list[str]:
    """The names of a node's instances (module vllm_service_info); an entry without a valid name is left out."""
    return [name for name in _each(value, "instances", "instance") if values.INSTANCE.fullmatch(name)]


def instance_names(value: object) -> list[str]:
    """The names of instances in a list; what is no valid name is left out."""
    entries = value[:MOST_ENTRIES] if isinstance(value, list) else []
    return [str(name) for name in entries if isinstance(name, str) and values.INSTANCE.fullmatch(name)]


def key_names(value: object) -> list[str]:
    """The names of the keys of an instance (module instance_keys); an entry without a valid name is left out."""
    return [name for name in _each(value, "keys", "name") if _KEY_NAME.fullmatch(name)]


def guarded(value: object) -> bool | None:
    """Whether a node's instance asks for keys (module instance_keys); None where the node reports no such instance."""
    found = value.get("guarded") if isinstance(value, Mapping) else None
    return bool(found) if isinstance(found, bool) else None


def _each(value: object, part: str, key: str) -> Iterator[str]:
    """Yield what has this key in the entries of a list in a module's result, where it is text."""
    listed = value.get(part) if isinstance(value, Mapping) else None
    for entry in listed[:MOST_ENTRIES] if isinstance(listed, list) else []:
        name = entry.get(key) if isinstance(entry, Mapping) else None
        if isinstance(name, str):
            yield str(name)


def listener(value: object) -> tuple[str, str, int]:
    """The instance of a plan, and the host and port at which it listens. The controller connects there once."""
    plan = mapping(value, "A plan that the node reports")
    listen = mapping(plan.get("listen"), "Where an instance listens")
    host = asked_at(listen.get("host"))
    return instance(plan.get("instance")), host, integer(listen.get("port"), "The port of an instance", 1, PORTS[1])


def asked_at(value: object) -> str:
    """The host at which the controller asks an instance: a name, or an address as the standard library writes it.

    The C library reads numbers such as 2852039166 or 0xa9fea9fe as addresses, so a name does not end in one.
    """
    host = values.node(value, "The host on which an instance listens")
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        last = host.rstrip(".").rpartition(".")[2]
        if ":" not in host and last and not _NUMBER.fullmatch(last):
            return host
        raise Refusal(
            "no_address", f"The node reports the address {shown(host)}. An IP address or a host name is required."
        ) from None
    if not (found.is_unspecified or found.is_loopback or values.is_routable(host)):
        raise Refusal("no_address", f"The node reports the address {host}, at which no other machine reaches it.")
    return str(found)


def recipes(value: object) -> dict[str, dict[str, str]]:
    """The compiled recipes that a node has and lacks: an instance by key. What has no such form is left out."""
    found = value if isinstance(value, Mapping) else {}
    parts = {part: found.get(part) for part in ("has", "lacks")}
    return {part: dict(_recipes(said)) if isinstance(said, Mapping) else {} for part, said in parts.items()}


def _recipes(said: Mapping[object, object]) -> Iterator[tuple[str, str]]:
    for key, name in list(said.items())[:MOST_ENTRIES]:
        if isinstance(key, str) and isinstance(name, str) and _KEY.fullmatch(key) and values.INSTANCE.fullmatch(name):
            yield str(key), str(name)


def pair(value: object) -> dict[str, Any]:
    """What a node that is to be measured together with others reports of itself (module fabric_pair)."""
    found = mapping(value, "What the node reports of its cards")
    ready = switch(found.get("ready"), "Whether the node can be measured")
    cards = sequence(found.get("modules"), "The node's cards", MOST_CARDS)
    return {
        "ready": ready,
        "why": sentence(found.get("why")),
        "card_type": text(found.get("card_type"), "The type of the node's cards", longest=64, empty=not ready),
        "modules": sorted({integer(each, "The id of a card", 0, MOST_CARDS - 1) for each in cards}),
        "address": address(found.get("address")) if ready else "",
        "port": integer(found.get("port"), "The node's port", *PORTS) if ready else 0,
        "direct": switch(found.get("direct"), "Whether the node asks for Gaudi Direct"),
    }


def half(value: object) -> dict[str, Any]:
    """The result of a node's half of a run over two nodes (module fabric_pair): GB/s or None, and why it failed."""
    found = mapping(value, "The result of the node's half of the run")
    figure = found.get("nw_gb_s")
    return {
        "nw_gb_s": None if figure is None else float(number(figure, "The bandwidth", 0, MOST_GB_S)),
        "sentence": sentence(found.get("sentence")),
        "no_direct": switch(found.get("no_direct"), "Whether the node lacks Gaudi Direct"),
    }


def address(value: object) -> str:
    """The IPv4 address at which others reach the node. No name: that could be another node's."""
    found = _ip(value)
    if found.version != 4:
        raise Refusal("no_address", f"The node reports the address {found}. An address of IPv4 is required.")
    # Two nodes may share a link without a router.
    if not (found.is_link_local or values.is_routable(str(found))):
        raise Refusal("no_address", f"The node reports the address {found}, at which no other node reaches it.")
    return str(found)


def _ip(value: object) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Read an address without a scope (fe80::1%eth0). Python takes any text as one, such as *."""
    said = text(value, "The node's address", longest=64)
    try:
        found = ipaddress.ip_address(said)
    except ValueError:
        found = None
    if found is None or "%" in said:
        raise Refusal("no_address", f"The node reports the address {shown(said)}. An IP address is required.")
    return found


def document(value: object, longest: int = MAX_TEXT) -> dict[str, Any]:
    """A mapping that can be written, compared and drawn: not nested too deeply, not too large, nor is a part of it.

    longest: characters that a key or text may have.
    """
    found = dict(mapping(value, "What the node reports"))
    if deeper(found, DEEPEST):
        raise Refusal("report_too_deep", "What the node reports is nested too deeply.")
    characters = 0
    for count, leaf in enumerate(leaves(found), 1):
        characters += len(leaf) if isinstance(leaf, str) else 0
        if _unbounded(leaf, longest):
            raise Refusal("report_out_of_bounds", f"The node reports {shown(leaf)}, which is too large.")
        if count > MOST_LEAVES or characters > MOST_CHARACTERS:
            raise Refusal(
                "report_too_large",
                f"The node reports more than {MOST_LEAVES} keys and values, or {MOST_CHARACTERS} characters, at once.",
            )
    return found


def on_page(value: object) -> object:
    """A list or mapping of a node for a JSON file about several nodes. Its texts may be long."""
    return document({"reported": value}, LONGEST_ON_PAGE)["reported"]


def _unbounded(leaf: object, longest: int) -> bool:
    """Whether a leaf is too large, or NaN."""
    return not bounded(leaf) or (isinstance(leaf, str) and len(leaf) > longest)


def sentence(value: object) -> str:
    """What a node reports for people: one line, cut where it is too long."""
    return printable(value[:LONGEST_SENTENCE]) if isinstance(value, str) else "" if value is None else shown(value)


# By the name that the filter `reported` takes.
CHECKS: Mapping[str, Callable[[object], Any]] = {
    "address": address,
    "addresses": addresses,
    "sentence": sentence,
    "storage": storage,
    "token": token,
    "document": document,
    "guarded": guarded,
    "half": half,
    "image_id": image_id,
    "instances": instances,
    "instance_names": instance_names,
    "key_names": key_names,
    "pair": pair,
}
