#!/usr/bin/python
"""Read which Gaudi cards a node has, where they sit and who uses them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gaudi_topology_info
short_description: Read which Gaudi cards a node has, where they sit and who uses them
version_added: "0.1.0"
author: The gaudi-serving authors
description:
  - Reads every Gaudi card of the node with its module id (the slot, by which people, cabling and reservations
    know it), its index (the number of its device file, which may change at a reboot), serial number, PCI
    address, NUMA node, local CPUs, memory, temperature, versions, internal links, state and users.
  - Asks C(hl-smi) (releases 1.12 to 1.24), the kernel (C(/sys), C(/proc)), C(lspci), C(ip) and, for the names
    of containers, C(docker). Nothing is changed and no card is opened.
  - The output of hl-smi 1.12 to 1.23 was recorded on real cards, and is read in tests; of 1.24 no recording was to
    be had.
  - Fields every release knows are asked for first. An unknown field fails a whole C(hl-smi -Q) call, so the
    others are asked for in calls of their own, and what is still open is taken from C(hl-smi -L), from the
    summary table and from the kernel.
  - A fact that no source gives is null. Sources that disagree are reported in RV(topology.findings), never
    averaged; only the kernel's word on NUMA nodes and CPUs is preferred to that of hl-smi.
  - A node without driver, without hl-smi or without cards is not an error of this module. It is a finding; who
    needs the cards decides.
options: {}
requirements:
  - root (C(become)); without it hl-smi answers N/A and other users' processes are not seen
seealso:
  - module: card_reservation
  - module: serving_plan
extends_documentation_fragment: attributes.reads
"""

EXAMPLES = r"""
- name: Read the cards
  gaudi_topology_info:
  become: true
  register: node

- name: Refuse a node with broken cards
  ansible.builtin.assert:
    that: node.topology.findings | selectattr('severity', 'eq', 'error') | length == 0
    fail_msg: "{{ node.topology.findings | map(attribute='message') | join('\n') }}"

- name: Show who has which card
  ansible.builtin.debug:
    msg: "{{ node.picture }}"

# 2 x HL-225 (96 GiB), driver 1.22.1-97ec1a4, hl-smi 1.22.1, eth0 10.20.0.11/24
#
# +- NUMA node 0, CPUs 0-39, 80-119 ---------------------------------------------------------+
# | module  accel  address       serial      used GiB  temp  links  who has it               |
# |      0      1  0000:4d:00.0  AM50016133       0.8  27 C  21/21  for qwq-32b              |
# |      1      0  0000:34:00.0  AM50016132      61.4  35 C  21/21  pid 4242 python3         |
# +------------------------------------------------------------------------------------------+
"""

RETURN = r"""
picture:
  description:
    - The node in text of at most 92 columns, for people. A box for each NUMA node, a line for each card with
      who has it (also the instance it is reserved for), and what is odd.
  returned: always
  type: str
  sample: "2 x HL-225 (96 GiB), driver 1.22.1-97ec1a4, hl-smi 1.22.1, eth0 10.20.0.11/24 ..."
topology:
  description: The topology document.
  returned: always
  type: dict
  contains:
    schema:
      description: Version of this document's form.
      type: int
      sample: 1
    cards:
      description:
        - The cards hl-smi sees, or, where it does not answer, those the driver shows. Sorted by module id.
        - A card that is only on the PCI bus is not in this list but in RV(topology.findings).
      type: list
      elements: dict
      contains:
        index:
          description: Number of the device file, C(/dev/accel/accelN). May change at a reboot.
          type: int
          sample: 1
        module_id:
          description: Module id, the number of the card's slot; null if no source gives it.
          type: int
          sample: 0
        name:
          description: Product name.
          type: str
          sample: HL-225
        serial:
          description: Serial number, which moves with the card.
          type: str
          sample: AM50016138
        uuid:
          description: The card's own id.
          type: str
          sample: 01P0-HL2080A0-15-TF8A81-09-07-06
        bus_id:
          description: PCI address.
          type: str
          sample: "0000:43:00.0"
        numa_node:
          description: NUMA node next to the card; null where there is none, as in most virtual machines.
          type: int
          sample: 0
        cpus:
          description: CPUs of that node, SMT siblings included, as the kernel writes them. Empty where not
            known.
          type: str
          sample: 0-39,80-119
        memory_total_mib:
          description: Memory of the card in MiB.
          type: int
          sample: 98304
        memory_used_mib:
          description: Memory in use in MiB. An idle card holds some hundred for itself.
          type: int
          sample: 768
        temperature_c:
          description: Temperature in degrees Celsius; null for the 0 of a card that did not start and for
            values no card survives.
          type: int
          sample: 30
        driver_version:
          description: Version of the compute driver.
          type: str
          sample: 1.12.1-cb7a7bc
        nic_driver_version:
          description: Version of the network driver, which hl-smi shows from release 1.20 on.
          type: str
          sample: 1.22.1-97ec1a4
        firmware:
          description: Firmware in the card's flash. It may lag behind the driver.
          type: str
          sample: hl-gaudi2-1.12.1-fw-46.0.5-sec-6
        boot_fit:
          description: The image that the card boots, Boot FIT; null where hl-smi does not list it.
          type: str
          sample: hl-gaudi2-1.12.1-fw-46.0.5-sec-6
        links_up:
          description: Internal links that are up; null for a card without any and where hl-smi does not say.
          type: int
          sample: 21
        links_total:
          description: Internal links of the card.
          type: int
          sample: 21
        state:
          description: The driver's word for the card's state, in lower case.
          type: str
          sample: operational
        users:
          description:
            - Processes with the card's device files open, and those that hl-smi lists. Empty for a free card.
            - A card whose memory is in use by a process nobody sees has one user, of which everything is null.
          type: list
          elements: dict
          contains:
            pid:
              description: Process id.
              type: int
              sample: 618796
            name:
              description: Name of the process, as the kernel keeps it (15 characters).
              type: str
              sample: python3
            account:
              description: Whose process it is on the node, the user's name or C(user NUMBER).
              type: str
              sample: alice
            unit:
              description: Systemd unit that owns the process.
              type: str
              sample: vllm-qwen3-8b.service
            container:
              description: Id of the container the process lives in, as C(docker ps) shows it.
              type: str
              sample: 4f1d2c3b4a59
            container_name:
              description: Name of that container, where docker knows it.
              type: str
              sample: vllm-qwen3-8b
    hl_smi_version:
      description: Release of hl-smi, which need not be the driver's.
      type: str
      sample: 1.22.1
    driver_version:
      description: Version of the loaded compute driver.
      type: str
      sample: 1.22.1-97ec1a4
    addresses:
      description: IPv4 addresses of the node, pairs of interface and address with prefix.
      type: list
      elements: list
      sample: [[lo, 127.0.0.1/8], [eth0, 10.20.0.11/24]]
    findings:
      description: Inconsistencies and faults of the node, each as a sentence that says what to do.
      type: list
      elements: dict
      contains:
        id:
          description:
            - Which oddity. V(not-root), V(no-hl-smi), V(no-driver), V(hl-smi-failed), V(no-cards),
              V(lost-card), V(not-operational), V(zero-temperature), V(module-id-unknown) and
              V(duplicate-identity) are errors.
            - V(implausible-temperature), V(not-available), V(nic-driver-mismatch), V(link-down),
              V(rows-pending), V(memory-without-process), V(unknown-card), V(sources-disagree) and V(unreadable) are
              warnings.
            - V(hl-smi-mismatch), V(groups) and V(numa-unknown) are for information.
          type: str
          sample: link-down
        severity:
          description: V(error), V(warning) or V(info). After an error the node, or the card named, cannot serve
            as it is.
          type: str
          sample: warning
        message:
          description: What was seen, what it means, what to do.
          type: str
          sample: >-
            Module 5 (accel4, 0000:4e:00.0) has 20 of 21 internal links up; down: port 9. A model on more than
            one card needs all of them. Nothing over several cards is measured or started with it. Look at dmesg | grep
            habanalabs; if it stays, have the card
            and its neighbours on the board checked.
"""

from typing import Any

from ansible.module_utils.gaudi.cards.text import describe_node
from ansible.module_utils.gaudi.node.module import NodeModule
from ansible.module_utils.gaudi.node.reader import read_holders, read_topology

ARGUMENT_SPEC: dict[str, Any] = {}


def main() -> None:
    """Read, return."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    topology = read_topology(module)
    holders, unreadable = read_holders()
    topology["findings"] += unreadable
    module.exit_json(changed=False, topology=topology, picture=describe_node(topology, holders))


if __name__ == "__main__":
    main()
