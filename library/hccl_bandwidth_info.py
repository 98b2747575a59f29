#!/usr/bin/python
"""Ansible module: what hccl_demo printed, as figures, or as the sentence that says why they do not count."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hccl_bandwidth_info
short_description: Read what hccl_demo printed
version_added: "0.3.0"
author: The gaudi-serving authors
description:
  - Turns what a run of hccl_demo printed into figures - bandwidths, latencies, one for each size - or into the sentence
    that says why they do not count, such as wrong sums, a rank that ended, or a way that is not the one asked for.
  - Reads as M(fabric_check) does, and runs nothing. It is for a log that somebody has from elsewhere.
  - Knows the formats of 2022 (MB/s) to hccl_demo f623d69 of 2025, and what stands around them.
options:
  text:
    description: What the run printed, on both its streams. Either this or O(path).
    type: str
  path:
    description: A file that holds it.
    type: path
  ranks:
    description: How many ranks the run had, all nodes together. NW Bandwidth is checked against Algo Bandwidth with it.
    type: int
    required: true
  status:
    description: The exit status of the run, where it is known.
    type: int
    default: 0
  host_nics:
    description: Whether the run was to go over host NICs. One that fell back to another way then does not count.
    type: bool
    default: false
extends_documentation_fragment: attributes.reads
seealso:
  - module: fabric_check
"""

EXAMPLES = r"""
- name: Read the log of a run over eight cards
  hccl_bandwidth_info:
    path: /tmp/all_reduce.log
    ranks: 8
  register: bandwidth
"""

RETURN = r"""
figures:
  description: The measurements, in the order of their sizes. What was not printed is null.
  returned: success
  type: list
  elements: dict
  contains:
    collective:
      description: What was measured.
      type: str
      sample: all_reduce
    size:
      description: Bytes.
      type: int
      sample: 33554432
    loop:
      description: How often it was repeated.
      type: int
      sample: 1000
    nw_gb_s:
      description: NW Bandwidth in GB/s (10^9 bytes); of the MB/s of 2022 as well.
      type: float
      sample: 258.209121
    algo_gb_s:
      description: Algo Bandwidth in GB/s.
      type: float
      sample: 147.548069
    host_ms:
      description: Latency on the host in milliseconds.
      type: float
      sample: 0.2274
    device_ms:
      description: Latency on the card in milliseconds.
      type: float
      sample: 0.2153
failure:
  description: Why the figures do not count; null where they do.
  returned: success
  type: dict
  contains:
    id:
      description: Id of the failure, which stays the same between releases.
      type: str
      sample: hccl-wrong-result
    sentence:
      description: The same for people, with what to do.
      type: str
      sample: "The collective computed wrong sums: a card or a link damages data, whatever bandwidth was printed."
    rank:
      description: The rank that it names; null where it names none.
      type: int
      sample: 3
refused_id:
  description: Id of the refusal of an option, which stays the same between releases; C(msg) has the sentence.
  returned: when an option is refused
  type: str
  sample: no_output_of_hccl_demo
"""

from pathlib import Path
from typing import Any

from ansible.module_utils.gaudi.base.checks import integer
from ansible.module_utils.gaudi.base.documents import Damaged
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.fabric.output import parse_output
from ansible.module_utils.gaudi.fabric.pairs import MOST_NODES
from ansible.module_utils.gaudi.node.documents import read_text
from ansible.module_utils.gaudi.node.module import NodeModule

ARGUMENT_SPEC: dict[str, Any] = {
    "text": {"type": "str"},
    "path": {"type": "path"},
    "ranks": {"type": "int", "required": True},
    "status": {"type": "int", "default": 0},
    "host_nics": {"type": "bool", "default": False},
}
# Eight cards of as many nodes as are measured together anywhere here.
MOST_RANKS = 8 * MOST_NODES


def printed(text: str | None, path: str | None) -> str:
    """Return what the run printed. Raises Refusal for a file that is not there, or that cannot be read."""
    if text is not None or path is None:
        return text or ""
    try:
        found = read_text(Path(path))
    except Damaged as damage:
        raise Refusal(
            "no_output_of_hccl_demo", f"{damage}. Name the file that holds what hccl_demo printed."
        ) from damage
    if found is None:
        raise Refusal(
            "no_output_of_hccl_demo", f"{path} is not there. Name the file that holds what hccl_demo printed."
        )
    return found


def main() -> None:
    """Read, return."""
    module = NodeModule(
        argument_spec=ARGUMENT_SPEC,
        supports_check_mode=True,
        mutually_exclusive=[("text", "path")],
        required_one_of=[("text", "path")],
    )
    given = module.params
    try:
        ranks = integer(given["ranks"], "ranks", 2, MOST_RANKS)
        text = printed(given["text"], given["path"])
    except Refusal as refusal:
        module.fail_json(msg=str(refusal), refused_id=refusal.id)
        return
    output = parse_output(text, ranks=ranks, status=given["status"], host_nics=given["host_nics"])
    module.exit_json(changed=False, **output.as_dict())


if __name__ == "__main__":
    main()
