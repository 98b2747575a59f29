#!/usr/bin/python
"""Read by what others reach a node, and which firewalls may keep them out."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vllm_service_reach
short_description: Try from the controller whether others reach instances
version_added: "0.1.0"
author: The gaudi-serving authors
description:
  - Connects from the controller to each instance that listens on more than loopback, all at once and for at most 5
    seconds, without a key and without a proxy. Any answer over HTTP counts, 401 too.
  - Warns where none comes, and never fails for it. The warning has the address and the port, what happened, and the
    firewalls of the node that may be the cause; the node is asked for them only then.
  - The address is that on which the instance listens. For all addresses it is C(ansible_host). Where that is a loopback
    address, as through a tunnel, it is the first address of the node that others can reach.
  - With a local connection nothing is tried, as the controller is the node itself.
options:
  plans:
    description: The plans of the instances, from M(serving_plan).
    type: list
    elements: dict
    required: true
  opened:
    description: Whether the run has opened the node's firewall, see M(vllm_service_firewall).
    type: bool
    default: false
requirements:
  - root (C(become))
extends_documentation_fragment: attributes.node
attributes:
  check_mode:
    description: Only reads, so check mode makes no difference.
    support: full
  diff_mode:
    description: Changes nothing.
    support: none
  action:
    description: Runs on the controller, with a module on the node where it is needed.
    support: full
seealso:
  - module: vllm_service_firewall
"""

EXAMPLES = r"""
- name: Try whether others reach the instances
  vllm_service_reach:
    plans: "{{ serving.plans }}"
  become: true
"""

RETURN = r"""
unreached:
  description: What was warned of, a sentence for each instance that did not answer.
  returned: always
  type: list
  elements: str
  sample: []
"""

from typing import Any

from ansible.module_utils.gaudi.node.firewall import Firewalls
from ansible.module_utils.gaudi.node.module import NodeModule

# What the action of the same name asks the node for: what a server listens on.
ARGUMENT_SPEC: dict[str, Any] = {"host": {"type": "str", "required": True}}


def main() -> None:
    """Read, report."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    node = Firewalls(module, "")
    host = module.params["host"]
    module.exit_json(changed=False, firewalls=node.named(host), addresses=node.outside())


if __name__ == "__main__":
    main()
