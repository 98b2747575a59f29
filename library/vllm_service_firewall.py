#!/usr/bin/python
"""Let others reach the port of an instance through the node's firewall, or close it again."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vllm_service_firewall
short_description: Open the node's firewall for the port of an instance
version_added: "0.1.0"
author: The gaudi-serving authors
description:
  - Adds a rule of ours to firewalld and to ufw, wherever one of them runs, and records it. Rules that are not needed
    any more are removed, as after a change of the port. firewalld has the rule in the running and in the permanent
    configuration, and is not reloaded.
  - An equal rule that was there before is used and stays at the end. No other rule is changed.
  - Rules of nftables and iptables are not changed; M(vllm_service_reach) names them.
options:
  instance:
    description: Name of the instance.
    type: str
    required: true
  state:
    description: V(present) opens the port, V(absent) removes the rules that were recorded.
    type: str
    choices: [present, absent]
    default: present
  host:
    description: What the instance listens on. One that only the node itself reaches needs no rule.
    type: str
    default: 127.0.0.1
  port:
    description: Its port.
    type: int
    default: 0
  sources:
    description: Addresses and networks that may connect. Empty means everywhere.
    type: list
    elements: str
    default: []
requirements:
  - root (C(become))
extends_documentation_fragment: attributes.node
attributes:
  check_mode:
    description: Says which rules would change and changes nothing.
    support: full
  diff_mode:
    description: Shows the rules of ours.
    support: full
"""

EXAMPLES = r"""
- name: Let one network reach an instance
  vllm_service_firewall:
    instance: chat
    host: 0.0.0.0
    port: 30001
    sources: [10.20.0.0/16]
  become: true

- name: Close its port again
  vllm_service_firewall:
    instance: chat
    state: absent
  become: true
"""

RETURN = r"""
rules:
  description: The rules that are ours afterwards, a line each.
  returned: success
  type: list
  elements: str
  sample: ["firewalld, zone public: TCP port 30001 from 10.20.0.0/16"]
refused_id:
  description: Id of the refusal, which stays the same between releases; C(msg) has the sentence.
  returned: when the task fails for a refusal
  type: str
  sample: firewall_unchanged
"""

from pathlib import Path
from typing import Any

from ansible.module_utils.gaudi.base import paths
from ansible.module_utils.gaudi.base.documents import Damaged
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.node.documents import read_json
from ansible.module_utils.gaudi.node.files import write_json
from ansible.module_utils.gaudi.node.firewall import Firewalls
from ansible.module_utils.gaudi.node.module import NodeModule
from ansible.module_utils.gaudi.serving import firewall
from ansible.module_utils.gaudi.serving.firewall import FirewallChange, FirewallRule

ARGUMENT_SPEC: dict[str, Any] = {
    "instance": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "host": {"type": "str", "default": "127.0.0.1"},
    "port": {"type": "int", "default": 0},
    "sources": {"type": "list", "elements": "str", "default": []},
}
INSTANCES = Path(paths.INSTANCES)


def wanted(node: Firewalls, params: dict[str, Any]) -> list[FirewallRule]:
    """Return the rules that the instance is to have."""
    if params["state"] == "absent":
        return []
    sources = firewall.networks(params["sources"], "vllm_service_firewall_sources")
    return firewall.desired(node.active(params["host"]), params["host"], params["port"], sources)


def apply(node: Firewalls, change: FirewallChange, recorded: list[FirewallRule], path: Path) -> None:
    """Change the firewalls. Whatever ends this, each rule of ours that is there is in the record."""
    if change.add:
        write_json(
            path, firewall.record_of([*recorded, *(rule for rule in change.ours if rule not in recorded)]), mode=0o600
        )
    for rule in change.add:
        node.add(rule)
    for rule in change.remove:
        node.remove(rule)
    if change.ours:
        write_json(path, firewall.record_of(change.ours), mode=0o600)
    else:
        path.unlink(missing_ok=True)


def main() -> None:
    """Read, decide, change unless in check mode."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    path = INSTANCES / module.params["instance"] / paths.FIREWALL
    try:
        recorded = firewall.rules_of(read_json(path, firewall.FORM) or {"rules": []})
        node = Firewalls(module, module.params["instance"])
        rules = wanted(node, module.params)
        change = firewall.decide(rules, recorded, node.found(dict.fromkeys([*rules, *recorded])))
        if not module.check_mode and (change.add or change.remove or list(change.ours) != recorded):
            apply(node, change, recorded, path)
    except Refusal as refusal:
        module.fail_json(msg=str(refusal), refused_id=refusal.id)
    except Damaged as damage:
        module.fail_json(msg=f"{damage}. Move it away: then no rule counts as ours.", refused_id="record_damaged")
    texts = ["".join(map(str, some)) for some in (recorded, change.ours)]
    module.exit_json(
        changed=bool(change.add or change.remove),
        rules=[str(rule).strip() for rule in change.ours],
        diff={"before": texts[0], "after": texts[1]},
    )


if __name__ == "__main__":
    main()
