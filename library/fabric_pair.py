#!/usr/bin/python
"""Ansible module: a node's part in runs of hccl_demo over two nodes."""

from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_pair
short_description: Say whether a node can be measured together with another one, or run its half
version_added: "0.3.0"
author: The gaudi-serving authors
description:
  - With V(ready) looks at cards, ports and image as M(fabric_check) does, and says which cards take part in runs over
    two nodes, and at which address and port the node waits for the other one.
  - With V(measured) runs hccl_demo over cards of this node and of another one, in a container of the serving image that
    is gone afterwards. The other node runs the other half at the same time; both wait for each other. A run that fails
    is a result, and no failure of the module - so that the other pairs go on.
options:
  state:
    description: Whether to say that the node is ready, or to run its half.
    type: str
    choices: [ready, measured]
    default: measured
  image:
    description: Image with hccl_demo, as the engine knows it.
    type: str
    required: true
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
    description: What C(catalog/cards.yml) holds. Needed with O(state=ready).
    type: dict
  expected_cards:
    description: Number of cards that the node should have. Without it the number is not checked.
    type: int
  host_nics:
    description: Whether host NICs carry the traffic between nodes. Otherwise the cards' own external ports do.
    type: bool
    default: false
  address:
    description: >-
      IPv4 address. With O(state=ready), at which other nodes reach this one; empty takes one of O(preferred), or else
      the first one that others can reach. With O(state=measured), where the node of half 0 is reached.
    type: str
  preferred:
    description: IPv4 addresses that the inventory has for this node.
    type: list
    elements: str
    default: []
  half:
    description: >-
      0 on the node that holds rank 0 and prints the figures, 1 on the other one. Needed with O(state=measured), as are
      O(address), O(port), O(modules), O(collective), O(size), O(loop) and O(limit).
    type: int
    choices: [0, 1]
  port:
    description: Port at which the node of half 0 is reached.
    type: int
  modules:
    description: Module ids of the cards that take part. The other node has as many.
    type: list
    elements: int
  collective:
    description: What is measured.
    type: str
  size:
    description: Bytes.
    type: int
  loop:
    description: How often it is repeated.
    type: int
  limit:
    description: Seconds after which the run counts as hanging.
    type: int
  interface:
    description: Interface of this node over which the ranks of both nodes find each other. Empty leaves it open.
    type: str
    default: ""
  direct:
    description: Whether Gaudi Direct is asked for over host NICs.
    type: bool
    default: false
requirements:
  - root (C(become))
extends_documentation_fragment: attributes.node
attributes:
  check_mode:
    description: Builds no image, and runs nothing.
    support: full
  diff_mode:
    description: Shows no text.
    support: none
"""

EXAMPLES = r"""
- name: Ask whether the node can be measured with others
  fabric_pair:
    state: ready
    image: vault.habana.ai/gaudi-serving/vllm:1.22
    card_types: "{{ lookup('ansible.builtin.file', 'catalog/cards.yml') | from_yaml }}"
    expected_cards: 8
  register: pair

- name: Run our half
  fabric_pair:
    image: vault.habana.ai/gaudi-serving/vllm:1.22
    half: 1
    address: 10.20.0.11
    port: 41234
    modules: [0, 1, 2, 3, 4, 5, 6, 7]
    collective: all_reduce
    size: 33554432
    loop: 10000
    limit: 850
"""

RETURN = r"""
ready:
  description: Whether it can.
  returned: with O(state=ready)
  type: bool
  sample: true
why:
  description: Why it cannot, as a sentence; empty where it can.
  returned: with O(state=ready)
  type: str
  sample: ""
image:
  description: The image to measure with - the named one, or one with hccl_demo that was built on top of it.
  returned: with O(state=ready)
  type: str
  sample: gaudi-serving/vllm:1.22
modules:
  description: The module ids of the cards that take part.
  returned: with O(state=ready)
  type: list
  elements: int
  sample: [0, 1, 2, 3, 4, 5, 6, 7]
card_type:
  description: The type of its cards, as the catalogue names it; empty if unknown.
  returned: with O(state=ready)
  type: str
  sample: HL-225
address:
  description: Its address for other nodes; empty if unknown.
  returned: with O(state=ready)
  type: str
  sample: 10.20.0.11
interface:
  description: The interface that has this address; empty where it is not known.
  returned: with O(state=ready)
  type: str
  sample: ens1
port:
  description: A port of that address that nobody listens on; 0 without an address.
  returned: with O(state=ready)
  type: int
  sample: 41234
direct:
  description: >-
    Whether a run asks for Gaudi Direct - host NICs carry the traffic, and its verdict does not say that they are
    without.
  returned: with O(state=ready)
  type: bool
  sample: false
verdict:
  description: Its verdict, for the page; empty before the first one.
  returned: with O(state=ready)
  type: dict
  sample: {}
nw_gb_s:
  description: The NW Bandwidth in GB/s that was printed; null where none was, as on the node of half 1.
  returned: with O(state=measured)
  type: float
  sample: 180.5
sentence:
  description: Why the run failed; empty where it did not.
  returned: with O(state=measured)
  type: str
  sample: ""
no_direct:
  description: Whether it failed because Gaudi Direct, which it asked for, is missing here.
  returned: with O(state=measured)
  type: bool
  sample: false
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
from ansible.module_utils.gaudi.fabric import asked, measuring, meetings, nics, runs, static
from ansible.module_utils.gaudi.fabric.classes import modules_text
from ansible.module_utils.gaudi.fabric.output import RunOutput
from ansible.module_utils.gaudi.faults.words import with_id
from ansible.module_utils.gaudi.node import links
from ansible.module_utils.gaudi.node.module import NodeModule
from ansible.module_utils.gaudi.node.reader import read_topology
from ansible.module_utils.gaudi.planning.network import read_addresses

ARGUMENT_SPEC: dict[str, Any] = {
    "state": {"type": "str", "choices": ["ready", "measured"], "default": "measured"},
    "image": {"type": "str", "required": True},
    "demo": {"type": "dict", "default": {}},
    "proxies": {"type": "dict", "default": {}, "no_log": True},
    "card_types": {"type": "dict"},
    "expected_cards": {"type": "int"},
    "host_nics": {"type": "bool", "default": False},
    "address": {"type": "str"},
    "preferred": {"type": "list", "elements": "str", "default": []},
    "half": {"type": "int", "choices": [0, 1]},
    "port": {"type": "int"},
    "modules": {"type": "list", "elements": "int"},
    "collective": {"type": "str"},
    "size": {"type": "int"},
    "loop": {"type": "int"},
    "limit": {"type": "int"},
    "interface": {"type": "str", "default": ""},
    "direct": {"type": "bool", "default": False},
}
NEEDED = [
    ("state", "ready", ["card_types"]),
    ("state", "measured", ["half", "address", "port", "modules", "collective", "size", "loop", "limit"]),
]


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
    address, interface, port = reached_at(cards.topology, given["address"] or "", given["preferred"])
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


def perform(module: AnsibleModule) -> RunOutput:
    """Run this node's half, and return what it printed.

    Raises Refusal where cards came into use, or another run measures.
    """
    given = module.params
    topology = read_topology(module, links=False)
    busy = sorted(set(asked.busy(topology["cards"], drain=False)) & set(given["modules"]))
    if busy:
        raise Refusal("cards_in_use_now", f"Modules {modules_text(busy)} came into use. Stop what uses them.")
    run = runs.DemoRun(
        tuple(given["modules"]), given["collective"], given["size"], given["loop"], over_host_nics=given["host_nics"]
    )
    command = runs.command(
        run,
        port=given["port"],
        address=given["address"],
        directory=links.DEMO,
        node=given["half"],
        nodes=2,
        direct=given["direct"],
    )
    if given["interface"]:
        command["environment"]["HCCL_SOCKET_IFNAME"] = given["interface"]
    indexes = {card["module_id"]: card["index"] for card in topology["cards"]}
    known = {"driver": topology["driver_version"], "release": links.read_release(module, given["image"])}
    with links.alone(links.LOCK):
        return links.perform(
            module, given["image"], run, indexes, command, given["limit"], **known, nodes=2, node=given["half"]
        )


def result(output: RunOutput, *, direct: bool) -> dict[str, Any]:
    """Return the figure in GB/s, why the half failed, and whether it failed for lack of Gaudi Direct."""
    figures = [figure.nw_gb_s for figure in output.figures if figure.nw_gb_s]
    return {
        "nw_gb_s": figures[0] if figures else None,
        "sentence": with_id(output.failure.sentence, output.failure.id) if output.failure else "",
        "no_direct": direct and nics.goes_without(output),
    }


def half(module: AnsibleModule) -> dict[str, Any]:
    """Run this node's half, and return its result; in check mode none."""
    if module.check_mode:
        return {"nw_gb_s": None, "sentence": "", "no_direct": False}
    try:
        return result(perform(module), direct=module.params["direct"])
    except Refusal as refusal:
        return {"nw_gb_s": None, "sentence": str(refusal), "no_direct": False}


def main() -> None:
    """Look or run, return."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True, required_if=NEEDED)
    if module.params["state"] == "measured":
        module.exit_json(changed=False, **half(module))
    try:
        found = look(module)
    except Refusal as refusal:
        module.fail_json(msg=str(refusal), refused_id=refusal.id)
        return
    module.exit_json(changed=False, **found)


if __name__ == "__main__":
    main()
