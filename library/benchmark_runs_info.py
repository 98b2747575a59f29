#!/usr/bin/python
"""Read which benchmarks a node has kept."""

from __future__ import annotations

DOCUMENTATION = r"""
module: benchmark_runs_info
short_description: Read the benchmarks that a node has kept
version_added: "0.2.0"
author: The gaudi-serving authors
description:
  - Reads the documents that C(bench.py) of the role C(benchmark) has written, of all instances of the node.
  - A document that cannot be read is skipped, with a warning that names it.
options: {}
requirements:
  - root (C(become))
extends_documentation_fragment: attributes.reads
"""

EXAMPLES = r"""
- name: Read what was measured
  benchmark_runs_info:
  become: true
  register: measured
"""

RETURN = r"""
runs:
  description: The runs, sorted by when they began.
  returned: always
  type: list
  elements: dict
  sample:
    - run: 3f2a91c07d1e-20260131T080000Z
      instance: qwen3-8b
      steps: [{concurrency: 1, requests: 4, failed: 0, tokens_per_second: 71.3}]
"""

from pathlib import Path
from typing import Any

from ansible.module_utils.gaudi.base import paths
from ansible.module_utils.gaudi.base.documents import Damaged
from ansible.module_utils.gaudi.benchmark import figures
from ansible.module_utils.gaudi.node.documents import read
from ansible.module_utils.gaudi.node.module import NodeModule

ARGUMENT_SPEC: dict[str, Any] = {}


def main() -> None:
    """Read, report."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    runs = []
    for file in sorted(Path(paths.BENCHMARKS).glob("*/*.json")):
        if not figures.RUN.match(file.stem):
            continue
        try:
            run = read(file, figures.read)
        except Damaged as damaged:
            module.warn(f"{damaged}; it is passed over")
            continue
        if run is not None:
            runs.append(run)
    module.exit_json(changed=False, runs=sorted(runs, key=lambda run: str(run["started"])))


if __name__ == "__main__":
    main()
