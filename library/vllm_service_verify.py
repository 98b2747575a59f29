#!/usr/bin/python
"""Look at the container of an instance, and ask the instance a question."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vllm_service_verify
short_description: Look at the container of a vLLM instance, and ask the instance a question
version_added: "0.1.0"
author: The gaudi-serving authors
description:
  - Fails unless the container was made of what this run has written, is confined as planned by the engine
    and by the kernel, the server serves the planned model under its name, and the question is answered.
  - Waits until the supervisor runs with the program, the library and the unit on the disk, and fails where it does not.
  - No proxy of the node is used, because the server is on the node itself.
options:
  plan:
    description: The plan of the instance, from M(serving_plan).
    type: dict
    required: true
  labels:
    description: The labels that its container may have, from M(vllm_service_changes).
    type: list
    elements: str
    required: true
  url:
    description: Where the server answers, without a path.
    type: str
    required: true
  api_key:
    description: A key that opens the server.
    type: str
  question:
    description: What is asked. Empty asks nothing.
    type: str
    default: ""
  tokens:
    description: The most tokens an answer may have.
    type: int
    default: 32
  timeout:
    description: How many seconds the server may take for a reply.
    type: int
    default: 300
requirements:
  - root (C(become))
attributes:
  check_mode:
    description: Reads only, so does the same.
    support: full
  diff_mode:
    description: Changes nothing.
    support: none
  platform:
    description: Linux with Docker.
    support: full
    platforms: posix
"""

EXAMPLES = r"""
- name: Ask an instance
  vllm_service_verify:
    plan: "{{ vllm_service_plan }}"
    labels: "{{ changes.labels }}"
    url: http://127.0.0.1:30001
    question: What is the capital of France?
  become: true
"""

RETURN = r"""
answer:
  description: What was answered; empty when nothing was asked.
  type: str
  returned: always
  sample: Paris.
models:
  description: The names under which the server serves.
  type: list
  elements: str
  returned: always
  sample: [qwen3-8b]
"""

import json
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gaudi.base import paths
from ansible.module_utils.gaudi.base.documents import Damaged
from ansible.module_utils.gaudi.base.printable import printable
from ansible.module_utils.gaudi.node import containers, instances
from ansible.module_utils.gaudi.node.documents import read_json
from ansible.module_utils.gaudi.serving import answers, confinement

ARGUMENT_SPEC: dict[str, Any] = {
    "plan": {"type": "dict", "required": True},
    "labels": {"type": "list", "elements": "str", "required": True},
    "url": {"type": "str", "required": True},
    "api_key": {"type": "str", "no_log": True},
    "question": {"type": "str", "default": ""},
    "tokens": {"type": "int", "default": 32, "no_log": False},
    "timeout": {"type": "int", "default": 300},
}

PROC = Path("/proc")
# How long a hand-over may take, in seconds: with another unit, systemd starts the supervisor again after five.
HAND_OVER_SECONDS = 60.0
LOOK_AGAIN = 0.5


def ask(module: AnsibleModule, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a reply of the server; with a body the request is a POST. Ends the module where there is none."""
    url, key = module.params["url"] + path, module.params["api_key"]
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    data = None if body is None else json.dumps(body).encode()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        request = urllib.request.Request(url, data, headers)  # noqa: S310  # the role makes the address, and of http
        with opener.open(request, timeout=module.params["timeout"]) as reply:
            return dict(json.load(reply))
    except urllib.error.HTTPError as error:
        said = printable(error.read(2000).decode(errors="replace"))
        module.fail_json(msg=f"{url} answered with status {error.code}: {said}")
    except (OSError, ValueError) as error:
        module.fail_json(msg=f"{url} gave no answer: {printable(str(error))}")
    raise AssertionError("fail_json ends the module")


def written_by(instance: str) -> str:
    """Who wrote the plan that is on the disk, where that can be told."""
    try:
        said = read_json(Path(paths.INSTANCES) / instance / "explanation.json", {"written": {"by": str, "at": str}})
    except Damaged:
        said = None
    if said is None:
        return ""
    return f" The plan on the node was written by {said['written']['by']} at {said['written']['at']}."


def check_container(module: AnsibleModule, plan: dict[str, Any]) -> None:
    """End the module unless the container that runs is the one this run wished for."""
    name, instance = plan["container"]["name"], plan["instance"]
    container = containers.look(module, name)
    if container is None or not container.running:
        module.fail_json(msg=f"The container {name} does not run. Look at journalctl -u {name}.")
        return
    if container.plan not in module.params["labels"]:
        module.fail_json(
            msg=f"{instance} does not run with what this run has written: another run, or somebody on the node, "
            f"changed it meanwhile.{written_by(instance)} Run the playbook again when nobody else does."
        )
    try:
        process = (PROC / str(container.inspected["State"]["Pid"]) / "status").read_text(encoding="utf-8")
    except OSError:
        module.fail_json(msg=f"The container {name} has just ended. Look at journalctl -u {name}.")
        return
    wrong = confinement.differences(container.inspected, plan, process)
    if wrong:
        module.fail_json(msg=f"The container {name} is not confined as planned: {'; '.join(wrong)}.")


def await_supervisor(module: AnsibleModule, instance: str) -> None:
    """End the module unless the supervisor takes up what is on the disk."""
    deadline = time.monotonic() + HAND_OVER_SECONDS
    while not (here := instances.read(module, [instance])[0])["current"]:
        if here["unwritten"]:
            module.fail_json(
                msg=f"What the supervisor of {instance} runs with cannot be told, because {here['unwritten']}. Its "
                "server goes on. Make room there, then run the playbook again."
            )
        if time.monotonic() > deadline:
            damage = f" ({here['damaged']})" if here["damaged"] else ""
            module.fail_json(
                msg=f"The supervisor of {instance} does not run with the program, the library and the unit on the "
                f"disk{damage}. Its server goes on. Look at journalctl -u vllm-{instance}, then: "
                f"systemctl reload vllm-{instance}"
            )
        time.sleep(LOOK_AGAIN)


def main() -> None:
    """Look, ask, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params, plan = module.params, module.params["plan"]
    model = plan["served_model_name"]
    check_container(module, plan)
    await_supervisor(module, plan["instance"])
    models = [served["id"] for served in ask(module, "/v1/models")["data"]]
    if model not in models:
        module.fail_json(msg=f"{params['url']} serves {printable(', '.join(models))}, but not {model}.")
    answer = ""
    if params["question"]:
        reply = ask(module, *answers.question_of(plan["task"], model, params["question"], params["tokens"]))
        try:
            answer = answers.answer_of(plan["task"], reply)
        except (KeyError, IndexError, TypeError):
            answer = ""
        if not answer:
            module.fail_json(msg=f"{plan['instance']} answered {json.dumps(reply)} to: {params['question']}")
    module.exit_json(changed=False, answer=answer, models=models)


if __name__ == "__main__":
    main()
