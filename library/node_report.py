"""Report what is true of a node: read-only, part by part, in one call."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_report
short_description: Report what is true of a node
description:
  - Reads the parts that O(parts) selects, and changes nothing.
  - A part that cannot be read, and a folder or file in it, is an entry with C(error) in place of its content, and for a
    refusal with C(refused_id); the others are read all the same.
  - All parts, folders and files are read at once, each in a process of its own. One that is not read within a minute,
    such as a mounted folder whose server is gone, is an entry with C(error) as well.
  - The report concerns this node alone. Whoever takes it checks it first, since a node can report anything.
version_added: "0.1.0"
options:
  parts:
    description: Parts to report.
    type: list
    elements: str
    required: true
    choices:
      - acceptance
      - cards
      - driver_before
      - files
      - images
      - instances
      - jobs
      - last_starts
      - next_boot
      - plans
      - reservations
      - tuning
      - weight_folders
      - weights
  foresee:
    description: Names of cards by PCI id. Where they are given and the node has no driver, V(cards) has the cards on
      its PCI bus, with C(foreseen), and module ids in the order of addresses, which is not what a driver will say.
    type: dict
    default: {}
  weights:
    description: Absolute paths of directories of weights, for V(weights).
    type: list
    elements: str
    default: []
  weights_root:
    description: The weights root, for V(weight_folders), which needs it.
    type: path
  weight_folders:
    description: Names of folders of O(weights_root), for V(weight_folders). Without it all of them. Those that are not
      there are left out.
    type: list
    elements: str
  files:
    description: Absolute paths of text files, for V(files).
    type: list
    elements: str
    default: []
requirements:
  - root (C(become)), to see who uses which card, and to read every file
seealso:
  - module: gaudi_topology_info
  - module: model_weights_remove
  - module: serving_plan
extends_documentation_fragment: attributes.reads
author: The gaudi-serving authors
"""

EXAMPLES = r"""
- name: Read the cards, who has them, and what weights there are
  node_report:
    parts: [cards, reservations, weights]
    weights: [/data/models/Qwen3-8B]
  become: true
  register: node

- name: Show how large the model is
  ansible.builtin.debug:
    msg: "{{ node.report.weights['/data/models/Qwen3-8B'].bytes }} bytes"
"""

RETURN = r"""
report:
  description: The parts by name.
  returned: always
  type: dict
  contains:
    acceptance:
      description:
        - V(text) of the file of the last verdict on cards and links; null before the first one. V(damage) says why
          it is no text.
      type: dict
      sample: {text: null}
    cards:
      description: The topology, as RV(topology#module:gaudi_topology_info) of M(gaudi_topology_info) has it.
      type: dict
      sample: {schema: 1, cards: [], driver_version: 1.22.1-97ec1a4, addresses: [], findings: []}
    driver_before:
      description: V(text) of what was written down before a driver was replaced; null or V(damage) as in V(acceptance).
      type: dict
      sample: {text: null}
    files:
      description: The text of each file of O(files); null where there is none.
      type: dict
      sample: {/data/buckets.txt: {text: "(1, 128, 0)\n"}}
    images:
      description:
        - V(record) and V(bills) (by name) are files as in V(acceptance). V(ids) of images on record, and V(runs_in) of
          instances, have ids that the V(engine) gives.
      type: dict
      sample: {record: {text: null}, bills: {}, engine: true, ids: {}, runs_in: {chat: sha256:...}}
    instances:
      description:
        - RV(instances#module:vllm_service_info) and RV(strangers#module:vllm_service_info) of M(vllm_service_info).
        - V(lost_weights) has, by running instance, what is no longer complete of its weights; V(covers), by running
          instance, which option has the commonest shape warmed up that its server computed without warm-up.
      type: dict
      sample: {instances: [], strangers: [], lost_weights: {}, covers: {}}
    jobs:
      description: The long work of M(node_job) as V(jobs), with the state of its unit, what it recorded, and the time.
      type: dict
      sample:
        jobs:
          - key: fetch.qwen3-8b
            active: active
            state: {state: running, started: "2026-01-31T08:00:00Z"}
            progress: {phase: fetch}
            now: 1769846400.5
    last_starts:
      description: What the last start of each instance logged, by instance; what it was sized by, and its KV blocks.
      type: dict
      sample: {qwen3-8b: {sized_by: 6f1ed002ab5595859014ebf0951522d9, kv_blocks: 4096}}
    next_boot:
      description: The kernels that run, are chosen and boot next, and for which of them the driver is built.
      type: dict
      sample:
        running: 6.8.0-45-generic
        chosen: ""
        coming: 6.8.0-45-generic
        regenerated: ""
        place: ""
        built: [{version: 1.22.2-32, kernel: 6.8.0-45-generic, state: installed}]
    plans:
      description: V(text) of each instance's plan, null or V(damage) as in V(acceptance), and whether it is V(up).
      type: dict
      sample: {plans: {qwen3-8b: {up: true, text: '{"schema": 1}'}}}
    reservations:
      description: C(reservations) has the cards of each instance. C(damage) says why they were made up from the plans.
      type: dict
      sample:
        reservations: {qwen3-8b: {since: "2026-01-05T10:00:00Z", cards: [{module_id: 0, serial: AM50016138}]}}
        damage: ""
    tuning:
      description:
        - V(state) has the V(text) of the document that the role host_tuning wrote, null on a host that was never tuned,
          or its V(damage). V(kernel), V(command_line) and V(groups) (of the IOMMU, a card each) are of the running
          kernel.
      type: dict
      sample:
        state: {text: null}
        kernel: 6.8.0-45-generic
        command_line: [iommu=pt]
        groups: [{bus_id: "0000:33:00.0", number: "12", type: identity, module: 3, driver: habanalabs}]
    weight_folders:
      description:
        - V(status) of each folder of O(weights_root), by its record and the sizes of its files - V(whole),
          V(incomplete) (V(wrong) names what is missing, short, or was found damaged), V(damaged) (the record cannot be
          read), V(unfinished) (a fetch that runs or was interrupted), V(converted) (made of another folder, with the
          converter's record), or V(unknown) (no record of ours). No content is read.
        - V(source), V(repository), V(revision) and V(fetched) are of the record; V(verified) is when every byte was
          last read again, empty if never since; V(used_by) has the instances whose plan uses it, running or not.
        - V(damaged_plans) has the instances whose plan cannot be read, so what they use is unknown; V(storage) has
          the file system that the root is, or would be, on; V(giving) says whether the node gives a folder to others,
          or a run that was cut off left that behind; V(rsync) whether the node has rsync.
      type: dict
      sample:
        folders:
          - directory: Qwen3-8B
            status: whole
            bytes: 16392960421
            source: huggingface
            repository: Qwen/Qwen3-8B
            revision: b968826d9c46dd6066d109eabc6255188de91218
            fetched: "2026-01-31T08:00:00Z"
            verified: "2026-02-28T08:00:00Z"
            wrong: []
            used_by: [qwen3-8b]
        damaged_plans: []
        storage: {fstype: nfs4, source: "filer:/models"}
        giving: false
        rsync: true
    weights:
      description:
        - What is in each directory of O(weights). V(bytes) is null where a file is missing; V(parameters) counts
          elements by the kind that headers name; V(pickled) is true where the weights are in pickled tensors alone;
          V(fetched) is true where the directory, or one above it, has a record of a fetch; V(config) is the text of
          C(config.json); V(foreign) has what the files name of other repositories.
      type: dict
      sample:
        /data/models/Qwen3-8B:
          there: true
          bytes: 16381470720
          parameters: {BF16: 8190735360}
          missing: []
          converted: false
          fits_published: true
          pickled: false
          fetched: true
          config: '{"model_type":"qwen3"}'
          foreign: {references: [], unreadable: [], models: []}
"""

from typing import Any

from ansible.module_utils.gaudi.node.module import NodeModule
from ansible.module_utils.gaudi.node.report.parts import OF_PATHS, PARTS, read_parts

ARGUMENT_SPEC: dict[str, Any] = {
    "parts": {"type": "list", "elements": "str", "required": True, "choices": sorted({*PARTS, *OF_PATHS})},
    "foresee": {"type": "dict", "default": {}},
    "weights": {"type": "list", "elements": "str", "default": []},
    "weights_root": {"type": "path"},
    "weight_folders": {"type": "list", "elements": "str"},
    "files": {"type": "list", "elements": "str", "default": []},
}


def main() -> None:
    """Read, return."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    module.exit_json(changed=False, report=read_parts(module.params["parts"], module))


if __name__ == "__main__":
    main()
