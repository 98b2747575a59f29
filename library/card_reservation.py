#!/usr/bin/python
"""Take or free the Gaudi cards of an instance."""

from __future__ import annotations

DOCUMENTATION = r"""
module: card_reservation
short_description: Take or free the Gaudi cards of an instance
version_added: "0.1.0"
author: The gaudi-serving authors
description:
  - Writes down which cards belong to which instance, in C(/var/lib/gaudi-serving/cards.lock), and is the only
    one that does. Reservations survive a reboot; an instance's own cards stay its own on every later run.
  - Looks at the cards again before it writes. A card that is not there, has another serial number, is
    reserved by another instance or is used by anything but this instance is refused, with the name of whoever
    has it. All cards are given, or none.
  - Where the file is damaged, it is written again from the plans on the node; with O(state=absent) from those of the
    others. Plans that do not say clearly who has which card refuse the others, and never O(state=absent), which then
    leaves the file as it is.
  - Callers take turns (a lock on C(cards.lock.guard)), and the file is replaced as a whole, so two instances
    never get one card and an interruption leaves the old file or the new one.
options:
  instance:
    description: Name of the instance. At most 48 of a-z, 0-9 and V(-), which is neither first nor last.
    type: str
    required: true
  cards:
    description:
      - The cards the instance is to hold; no others, so what it held before and is not named here becomes free.
      - Needed with O(state=present); of no importance with O(state=absent), which frees all.
    type: list
    elements: dict
    default: []
    suboptions:
      module_id:
        description: The card's slot.
        type: int
        required: true
      serial:
        description: Serial number the card must have. Without it any card in that slot will do, and its number
          is written down.
        type: str
  given_up_by:
    description:
      - Instances that give up those of the cards that they hold, and were stopped for it. They keep their other cards.
      - In check mode, where nothing was stopped, they may still use them.
    type: list
    elements: str
    default: []
  state:
    description: Whether the instance should have cards.
    type: str
    choices: [present, absent]
    default: present
requirements:
  - root (C(become))
extends_documentation_fragment: attributes.node
attributes:
  check_mode:
    description: Refuses what it would refuse, says whether it would change something, changes nothing.
    support: full
  diff_mode:
    description: Shows the file before and after.
    support: full
seealso:
  - module: gaudi_topology_info
"""

EXAMPLES = r"""
- name: Reserve the cards of the plan
  card_reservation:
    instance: qwen3-8b
    cards: "{{ plan.modules }}"
  become: true

- name: Reserve two cards by hand
  card_reservation:
    instance: qwq-32b
    cards:
      - {module_id: 0, serial: AM50016138}
      - {module_id: 1, serial: AM50016139}
  become: true

- name: Free the cards of an instance that is gone
  card_reservation:
    instance: qwen3-8b
    state: absent
  become: true
"""

RETURN = r"""
reservations:
  description: All reservations of the node after the module ran (in check mode, as they would be), by instance.
  returned: when the file was read
  type: dict
  sample:
    qwen3-8b:
      cards:
        - {module_id: 0, serial: AM50016138}
        - {module_id: 1, serial: AM50016139}
      since: "2026-11-21T03:04:05+00:00"
refused_id:
  description: Id of the refusal, which stays the same between releases; C(msg) has the sentence.
  returned: when the request is refused
  type: str
  sample: card_reserved
"""

import os
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gaudi.base import paths
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.cards import reservations as decisions
from ansible.module_utils.gaudi.node.documents import make_room
from ansible.module_utils.gaudi.node.files import write_text
from ansible.module_utils.gaudi.node.module import NodeModule
from ansible.module_utils.gaudi.node.reader import read_topology
from ansible.module_utils.gaudi.node.reservations import read_reservations, turn

STATE = Path(paths.STATE)
PLANS = Path(paths.INSTANCES)

ARGUMENT_SPEC: dict[str, Any] = {
    "instance": {"type": "str", "required": True},
    "cards": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {"module_id": {"type": "int", "required": True}, "serial": {"type": "str"}},
    },
    "given_up_by": {"type": "list", "elements": "str", "default": []},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
}


def read_file(module: AnsibleModule) -> tuple[str, decisions.Reservations, bool]:
    """Return the reservations, as text and parsed, and whether the file is damaged; empty without a file.

    Ends the module if they cannot be determined, unless an instance only gives its cards up: its removal is a way out
    of the damage. Then the module warns, and writes nothing.
    """
    path = STATE / "cards.lock"
    leaving = module.params["instance"] if module.params["state"] == "absent" else ""
    try:
        found = read_reservations(path, PLANS, now(), leaving)
    except Refusal as refusal:
        if leaving:
            module.warn(f"{refusal}. {leaving} holds no card once its plan is gone.")
            module.exit_json(changed=False)
        module.fail_json(msg=f"{refusal}. Nothing was changed.", refused_id=refusal.id)
        raise
    if found.damage:
        module.warn(f"{found.damage}. It is written again.")
        return "", found.reservations, True
    return path.read_text(encoding="utf-8") if path.exists() else "", found.reservations, False


def now() -> str:
    """Now, in UTC, to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def write_file(text: str) -> None:
    """Replace the file in one durable rename; neither a reader nor a power cut sees a part of it."""
    path = STATE / "cards.lock"
    make_room(path)
    write_text(path, text, mode=0o600)


def topology_of(module: AnsibleModule) -> dict[str, Any] | None:
    """Check the request and return the node's topology; None where cards are only freed. Raises Refusal."""
    if os.geteuid() != 0:
        raise Refusal(
            "not_root",
            f"Reservations are root's, and only root sees who uses a card; this ran as user id {os.geteuid()}. "
            "Run the task with become: true.",
        )
    instance, cards, state = (module.params[name] for name in ("instance", "cards", "state"))
    decisions.check_request(instance, cards, state)
    return read_topology(module, links=False) if state == "present" else None


def decide(
    module: AnsibleModule, before: decisions.Reservations, topology: dict[str, Any] | None
) -> decisions.Reservations:
    """Return the new reservations; ends the module if they are refused. topology: None to free the instance's cards."""
    instance, cards, leaving = (module.params[name] for name in ("instance", "cards", "given_up_by"))
    try:
        if topology is None:
            return decisions.free(before, instance)
        return decisions.reserve(before, instance, cards, topology, now(), leaving, module.check_mode)
    except Refusal as refusal:
        module.fail_json(msg=str(refusal), refused_id=refusal.id, reservations=before)
        raise


def main() -> None:
    """Wait for the turn, read, decide, write."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    try:
        # Before the lock is taken: on a busy node hl-smi and /proc take seconds, for which others would have to wait.
        topology = topology_of(module)
        with turn(STATE, module.check_mode):
            text, before, damaged = read_file(module)
            after = decide(module, before, topology)
            # A damaged file is rewritten, whatever the request.
            changed = after != before or damaged
            new_text = decisions.render_reservations(after) if changed else text
            if changed and not module.check_mode:
                write_file(new_text)
    except Refusal as refusal:
        module.fail_json(msg=str(refusal), refused_id=refusal.id)
        return
    path = str(STATE / "cards.lock")
    result: dict[str, Any] = {"changed": changed, "reservations": after}
    if module._diff:
        result["diff"] = {"before_header": path, "after_header": path, "before": text, "after": new_text}
    module.exit_json(**result)


if __name__ == "__main__":
    main()
