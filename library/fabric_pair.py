#!/usr/bin/python
"""Ansible module: one half of a run of hccl_demo over two nodes."""

from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_pair
short_description: Run one half of hccl_demo over two nodes
version_added: "0.3.0"
author: The gaudi-serving authors
description:
  - Runs hccl_demo over cards of this node and of another one, in a container of the serving image that is gone
    afterwards. The other node runs the other half at the same time; both wait for each other.
  - A run that fails is a result, and no failure of the module - so that the other pairs go on.
options:
  image:
    description: Image with hccl_demo, as the engine knows it.
    type: str
    required: true
  half:
    description: 0 on the node that holds rank 0 and prints the figures, 1 on the other one.
    type: int
    required: true
    choices: [0, 1]
  address:
    description: Where the node of half 0 is reached.
    type: str
    required: true
  port:
    description: Port there.
    type: int
    required: true
  modules:
    description: Module ids of the cards that take part. The other node has as many.
    type: list
    elements: int
    required: true
  collective:
    description: What is measured.
    type: str
    required: true
  size:
    description: Bytes.
    type: int
    required: true
  loop:
    description: How often it is repeated.
    type: int
    required: true
  limit:
    description: Seconds after which the run counts as hanging.
    type: int
    required: true
  host_nics:
    description: Whether host NICs carry the traffic between the nodes.
    type: bool
    default: false
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
    description: Runs nothing.
    support: full
  diff_mode:
    description: Shows no text.
    support: none
"""

EXAMPLES = r"""
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
nw_gb_s:
  description: The NW Bandwidth in GB/s that was printed; null where none was, as on the node of half 1.
  returned: success
  type: float
  sample: 180.5
sentence:
  description: Why the run failed; empty where it did not.
  returned: success
  type: str
  sample: ""
no_direct:
  description: Whether it failed because Gaudi Direct, which it asked for, is missing here.
  returned: success
  type: bool
  sample: false
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.fabric import asked, nics, runs
from ansible.module_utils.gaudi.fabric.classes import modules_text
from ansible.module_utils.gaudi.fabric.output import Output
from ansible.module_utils.gaudi.faults.words import with_id
from ansible.module_utils.gaudi.node import links
from ansible.module_utils.gaudi.node.module import NodeModule
from ansible.module_utils.gaudi.node.reader import read_topology

ARGUMENT_SPEC: dict[str, Any] = {
    "image": {"type": "str", "required": True},
    "half": {"type": "int", "required": True, "choices": [0, 1]},
    "address": {"type": "str", "required": True},
    "port": {"type": "int", "required": True},
    "modules": {"type": "list", "elements": "int", "required": True},
    "collective": {"type": "str", "required": True},
    "size": {"type": "int", "required": True},
    "loop": {"type": "int", "required": True},
    "limit": {"type": "int", "required": True},
    "host_nics": {"type": "bool", "default": False},
    "interface": {"type": "str", "default": ""},
    "direct": {"type": "bool", "default": False},
}


def perform(module: AnsibleModule) -> Output:
    """Run this node's half, and return what it printed.

    Raises Refusal where cards came into use, or another run measures.
    """
    given = module.params
    topology = read_topology(module, links=False)
    busy = sorted(set(asked.busy(topology["cards"], drain=False)) & set(given["modules"]))
    if busy:
        raise Refusal("cards_in_use_now", f"Modules {modules_text(busy)} came into use. Stop what uses them.")
    run = runs.Run(
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


def result(output: Output, *, direct: bool) -> dict[str, Any]:
    """Return the figure in GB/s, why the half failed, and whether it failed for lack of Gaudi Direct."""
    figures = [figure.nw_gb_s for figure in output.figures if figure.nw_gb_s]
    return {
        "nw_gb_s": figures[0] if figures else None,
        "sentence": with_id(output.failure.sentence, output.failure.id) if output.failure else "",
        "no_direct": direct and nics.goes_without(output),
    }


def main() -> None:
    """Run, return."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    if module.check_mode:
        module.exit_json(changed=False, nw_gb_s=None, sentence="", no_direct=False)
    try:
        found = result(perform(module), direct=module.params["direct"])
    except Refusal as refusal:
        found = {"nw_gb_s": None, "sentence": str(refusal), "no_direct": False}
    module.exit_json(changed=False, **found)


if __name__ == "__main__":
    main()
