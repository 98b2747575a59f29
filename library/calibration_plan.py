#!/usr/bin/python
"""Say what a calibration of a planned instance would run."""

from __future__ import annotations

DOCUMENTATION = r"""
module: calibration_plan
short_description: Say what measuring a model for static FP8 would run
version_added: "0.1.0"
author: The gaudi-serving authors
description:
  - Makes, from a plan of the action M(serving_plan), the document that C(calibrate.py) of the role
    C(fp8_calibration) runs, the vendor's measuring tool in the serving image with the plan's cards
    and environment. Reads nothing and changes nothing.
  - Models whose catalogue entry names measurements are measured as C(run_inc_calib.sh) does (releases deepseek-r1 and
    1.22), others with C(calibrate_model.sh) of vllm-hpu-extension.
options:
  plan:
    description: The plan of an instance that serves static FP8.
    type: dict
    required: true
  prompts:
    description: Number of prompts. C(calibrate_model.sh) measures 512 of a data set by name, whatever is wanted.
    type: int
    default: 512
  dataset:
    description:
      - Absolute path of the data set on the node, a folder such as NeelNanda/pile-10k or, for C(calibrate_model.sh), a
        pickled table. Nothing is asked of a hub then. Empty has the tool fetch NeelNanda/pile-10k.
    type: str
    default: ""
  extension_directory:
    description: Where the image holds C(calibrate_model.sh).
    type: str
    default: /opt/vllm-hpu-extension/calibration
attributes:
  check_mode:
    description: Changes nothing.
    support: full
  diff_mode:
    description: Changes nothing.
    support: none
  platform:
    description: Any.
    support: full
    platforms: posix
"""

EXAMPLES = r"""
- name: Say what measuring would run
  calibration_plan:
    plan: "{{ serving.plans[0] }}"
    prompts: 512
    dataset: /data/datasets/pile-10k
  register: calibration
"""

RETURN = r"""
document:
  description: The configuration of C(calibrate.py).
  returned: success
  type: dict
  sample: {schema: 1, model: qwen3-coder-480b-a35b-instruct-fp8, tool: run_example_tp.py, tensor_parallel_size: 8}
refused_id:
  description: Id of the refusal, which stays the same between releases; C(msg) has the sentence.
  returned: when the plan or an option is refused
  type: str
  sample: served_without_measurements
"""

from typing import Any

from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.calibration import run as calibration
from ansible.module_utils.gaudi.node.module import NodeModule

ARGUMENT_SPEC: dict[str, Any] = {
    "plan": {"type": "dict", "required": True},
    "prompts": {"type": "int", "default": 512},
    "dataset": {"type": "str", "default": ""},
    "extension_directory": {"type": "str", "default": "/opt/vllm-hpu-extension/calibration"},
}


def main() -> None:
    """Decide, report."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    given = module.params
    options = calibration.Options(given["prompts"], given["dataset"], given["extension_directory"])
    try:
        document = calibration.describe(given["plan"], options)
    except Refusal as refusal:
        module.fail_json(msg=str(refusal), refused_id=refusal.id)
    module.exit_json(changed=False, document=document)


if __name__ == "__main__":
    main()
