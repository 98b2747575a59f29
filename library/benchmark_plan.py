#!/usr/bin/python
"""Say what measuring a running instance would ask of it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: benchmark_plan
short_description: Say what a benchmark would send to a running vLLM instance
version_added: "0.2.0"
author: The gaudi-serving authors
description:
  - Makes, from the plan that lies on the node, the document that C(bench.py) of the role C(benchmark) reads, which
    calls the benchmark client of the instance's release. Fails unless the instance serves. Changes nothing.
  - The action of this name adds what the release files of C(catalog/) say of their clients.
options:
  instance:
    description: Name of the instance.
    type: str
    required: true
  concurrency:
    description: How many requests are in flight, one measurement for each.
    type: list
    elements: str
    default: ["1", "4", "16"]
  input_tokens:
    description: Tokens of a prompt. V(0) is 1024, or what the model has room for.
    type: int
    default: 0
  output_tokens:
    description: Tokens of an answer. V(0) is 128, or what the model has room for.
    type: int
    default: 0
  requests:
    description: Requests of each measurement. V(0) is four for each one in flight.
    type: int
    default: 0
  releases:
    description: What the release files say of their benchmark clients. The action gives it.
    type: dict
    default: {}
requirements:
  - root (C(become))
extends_documentation_fragment: attributes.node
attributes:
  action:
    description: Runs on the controller first, which has the catalogue.
    support: full
  check_mode:
    description: Changes nothing.
    support: full
  diff_mode:
    description: Changes nothing.
    support: none
"""

EXAMPLES = r"""
- name: Say what measuring would ask
  benchmark_plan:
    instance: qwen3-8b
    concurrency: [1, 8]
  become: true
  register: benchmark
"""

RETURN = r"""
document:
  description: The configuration of C(bench.py).
  returned: success
  type: dict
  sample: {schema: 1, instance: qwen3-8b, release: "1.22", input_tokens: 1024, output_tokens: 128}
said:
  description: The same in a sentence.
  returned: success
  type: str
  sample: "qwen3-8b (qwen3-8b, release 1.22) is asked at http://127.0.0.1:30001: 4 with 1 at a time; 1024 tokens of
    input and 128 of output each."
refused_id:
  description: Id of the refusal, which stays the same between releases; C(msg) has the sentence.
  returned: when the instance cannot be measured so
  type: str
  sample: not_serving
"""

from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gaudi.base import paths
from ansible.module_utils.gaudi.base.documents import Damaged
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.benchmark import asked
from ansible.module_utils.gaudi.node import containers, instances, listening, states
from ansible.module_utils.gaudi.node.documents import read_json
from ansible.module_utils.gaudi.node.module import NodeModule

ARGUMENT_SPEC: dict[str, Any] = {
    "instance": {"type": "str", "required": True},
    "concurrency": {"type": "list", "elements": "str", "default": ["1", "4", "16"]},
    "input_tokens": {"type": "int", "default": 0, "no_log": False},
    "output_tokens": {"type": "int", "default": 0, "no_log": False},
    "requests": {"type": "int", "default": 0},
    "releases": {"type": "dict", "default": {}},
}


def serving_plan(module: AnsibleModule) -> tuple[dict[str, Any], str]:
    """Return the plan that an instance serves with, and its digest. Raises Refusal if it does not serve."""
    name = module.params["instance"]
    if name not in states.installed():
        known = ", ".join(states.installed()) or "none"
        raise Refusal("no_such_instance", f"There is no instance {name!r} on this node. There are: {known}.")
    found = instances.read(module, [name])[0]
    state = found["state"]
    if found["active"] != "active" or state.get("phase") != "serving":
        said = found["damaged"] or state.get("status") or found["active"]
        raise Refusal("not_serving", f"{name} does not serve ({said}), so there is nothing to measure. Start it first.")
    try:
        plan = read_json(Path(paths.INSTANCES) / name / "plan.json", {"instance": str, "release": str, "task": str})
    except Damaged as damaged:
        raise Refusal("record_damaged", f"{damaged}; run site.yml, which writes it again.") from damaged
    if plan is None:
        raise Refusal("not_there", f"{name} has no plan on this node; run site.yml, which writes it.")
    return plan, str(state.get("plan", ""))


def check_listener(module: AnsibleModule, container: str, url: str) -> None:
    """Raise Refusal if a process of something else listens at the port: it would receive the token."""
    server, found = containers.look(module, container), listening.asked_at(url)
    if server is None or not server.running or not found:
        raise Refusal("not_serving", f"Nobody listens at {url} for {container}. playbooks/status.yml says why.")
    stranger = listening.stranger_among(found, server.inspected["Id"], int(server.inspected["State"]["Pid"]))
    if stranger:
        raise Refusal(
            "another_listens",
            f"{url} is taken by {listening.describe(stranger)}, which is not of the container {container}. Nothing was "
            "sent to it. Stop it, then run this again.",
        )


def main() -> None:
    """Read, decide, report."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    given = module.params
    try:
        concurrency = asked.concurrencies(given["concurrency"])
        load = asked.BenchmarkLoad(concurrency, given["input_tokens"], given["output_tokens"], given["requests"])
        plan, digest = serving_plan(module)
        client = asked.BenchmarkClient.of_release(given["releases"].get(plan["release"], {}))
        document = asked.describe(plan, digest, client, load)
        check_listener(module, plan["container"]["name"], document["url"])
    except Refusal as refusal:
        module.fail_json(msg=str(refusal), refused_id=refusal.id)
    module.exit_json(changed=False, document=document, said=asked.said(document))


if __name__ == "__main__":
    main()
