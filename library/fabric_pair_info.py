#!/usr/bin/python
"""Ansible module: whether a node can be measured together with another one, and what that takes."""

from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_pair_info
short_description: Say whether a node can be measured together with another one
version_added: "0.3.0"
author: The gaudi-serving authors
description:
  - Looks at cards, ports and image as M(fabric_check) does, and says which cards take part in runs over two nodes,
    and at which address and port the node waits for the other one.
options:
  image:
    description: Image with hccl_demo, as the engine knows it.
    type: str
    default: ""
  demo:
    description: >-
      Where hccl_demo comes from for an image that has none, as M(fabric_check) takes it. Empty builds none.
    type: dict
    default: {}
  proxies:
    description: Proxies of such a build, by the variables that they are in, such as C(https_proxy).
    type: dict
    default: {}
  card_types:
    description: What C(catalog/cards.yml) holds.
    type: dict
    required: true
  expected_cards:
    description: Number of cards that the node should have. Without it the number is not checked.
    type: int
  host_nics:
    description: Whether host NICs carry the traffic between nodes. Otherwise the cards' own external ports do.
    type: bool
    default: false
  address:
    description: >-
      IPv4 address at which other nodes reach this one. Empty takes one of O(preferred), or else the first one that
      others can reach.
    type: str
    default: ""
  preferred:
    description: IPv4 addresses that the inventory has for this node.
    type: list
    elements: str
    default: []
requirements:
  - root (C(become))
extends_documentation_fragment: attributes.node
attributes:
  check_mode:
    description: Builds no image.
    support: full
  diff_mode:
    description: Shows no text.
    support: none
"""

EXAMPLES = r"""
- name: Ask whether the node can be measured with others
  fabric_pair_info:
    image: vault.habana.ai/gaudi-serving/vllm:1.22
    card_types: "{{ lookup('ansible.builtin.file', 'catalog/cards.yml') | from_yaml }}"
    expected_cards: 8
  register: pair
"""

RETURN = r"""
ready:
  description: Whether it can.
  returned: success
  type: bool
  sample: true
why:
  description: Why it cannot, as a sentence; empty where it can.
  returned: success
  type: str
  sample: ""
image:
  description: The image to measure with - the named one, or one with hccl_demo that was built on top of it.
  returned: success
  type: str
  sample: gaudi-serving/vllm:1.22
modules:
  description: The module ids of the cards that take part.
  returned: success
  type: list
  elements: int
  sample: [0, 1, 2, 3, 4, 5, 6, 7]
card_type:
  description: The type of its cards, as the catalogue names it; empty if unknown.
  returned: success
  type: str
  sample: HL-225
address:
  description: Its address for other nodes; empty if unknown.
  returned: success
  type: str
  sample: 10.20.0.11
interface:
  description: The interface that has this address; empty where it is not known.
  returned: success
  type: str
  sample: ens1
port:
  description: A port of that address that nobody listens on; 0 without an address.
  returned: success
  type: int
  sample: 41234
direct:
  description: >-
    Whether a run asks for Gaudi Direct - host NICs carry the traffic, and its verdict does not say that they are
    without.
  returned: success
  type: bool
  sample: false
verdict:
  description: Its verdict, for the page; empty before the first one.
  returned: success
  type: dict
  sample: {}
refused_id:
  description: Id of the refusal of an option, which stays the same between releases; C(msg) has the sentence.
  returned: when an option is refused
  type: str
  sample: unknown_choice
"""

from collections.abc import Sequence
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gaudi.base.listeners import outside
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.fabric import asked, measuring, meetings, static
from ansible.module_utils.gaudi.node import links
from ansible.module_utils.gaudi.node.module import NodeModule
from ansible.module_utils.gaudi.planning.network import read_addresses

ARGUMENT_SPEC: dict[str, Any] = {
    "image": {"type": "str", "default": ""},
    "demo": {"type": "dict", "default": {}},
    "proxies": {"type": "dict", "default": {}, "no_log": True},
    "card_types": {"type": "dict", "required": True},
    "expected_cards": {"type": "int"},
    "host_nics": {"type": "bool", "default": False},
    "address": {"type": "str", "default": ""},
    "preferred": {"type": "list", "elements": "str", "default": []},
}


def reached_at(topology: Any, asked: str, preferred: Sequence[str] = ()) -> tuple[str | None, str, int]:
    """Return the address at which other nodes reach this one, its interface, and a free port there.

    asked: fabric_check_address. preferred: addresses that the inventory has for the node; the node need not have them.
    Raises Refusal for an address that the node does not have.
    """
    pairs = outside(read_addresses(topology["addresses"]))
    found = {address: interface for interface, address in pairs if ":" not in address}
    address = asked or next((each for each in (*preferred, *found) if each in found), None)
    if address is None:
        return None, "", 0
    try:
        return address, found.get(address, ""), links.free_port(address)
    except OSError as error:
        raise Refusal(
            "no_such_address_here",
            f"fabric_check_address is {address}, and this node cannot listen there ({error.strerror}). It has "
            f"{', '.join(found) or 'no address that others reach'}. Choose one of these.",
        ) from error


def look(module: AnsibleModule) -> dict[str, Any]:
    """Read the node; changes nothing. Raises Refusal for a wrong address."""
    given = module.params
    # The ports that carry traffic between the nodes must be up.
    wanted = static.ExpectedFabric(cards=given["expected_cards"], external=not given["host_nics"])
    cards = links.read_cards(module, given["card_types"], wanted)
    demo = measuring.Demo.from_mapping(given["demo"])
    image = links.read_measured(module, given["image"], "", demo, given["proxies"], build=not module.check_mode)
    modules = cards.modules if cards.fabric else ()
    address, interface, port = reached_at(cards.topology, given["address"], given["preferred"])
    document = links.last_verdict()[0] or {}
    why = meetings.not_ready(
        cards.faults,
        modules,
        cards.busy(),
        asked.image_lacks(image, given["image"]),
        ways=given["host_nics"] or bool(cards.kind and cards.kind.external_ports),
        address=address,
    )
    return {
        "ready": not why,
        "why": why,
        "image": image.get("measures", given["image"]),
        "card_type": cards.kind.name if cards.kind else "",
        "modules": list(modules),
        "address": address or "",
        "interface": interface,
        "port": port,
        "direct": given["host_nics"] and (document.get("host_nics") or {}).get("gaudi_direct") is not False,
        "verdict": document,
    }


def main() -> None:
    """Read, return."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    try:
        found = look(module)
    except Refusal as refusal:
        module.fail_json(msg=str(refusal), refused_id=refusal.id)
        return
    module.exit_json(changed=False, **found)


if __name__ == "__main__":
    main()
