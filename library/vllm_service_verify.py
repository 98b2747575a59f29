#!/usr/bin/python
"""Look at the container of an instance, and ask the instance a question."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vllm_service_verify
short_description: Look at the container of a vLLM instance, and ask the instance a question
version_added: "0.1.0"
author: The gaudi-serving authors
description:
  - Fails unless the container is confined as planned, the server serves the planned model under its name, and the
    question is answered.
  - No proxy of the node is used, because the server is on the node itself.
options:
  plan:
    description: The plan of the instance, from M(serving_plan).
    type: dict
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
import urllib.error
import urllib.request
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gaudi.serving import answers, confinement

ARGUMENT_SPEC: dict[str, Any] = {
    "plan": {"type": "dict", "required": True},
    "url": {"type": "str", "required": True},
    "api_key": {"type": "str", "no_log": True},
    "question": {"type": "str", "default": ""},
    "tokens": {"type": "int", "default": 32, "no_log": False},
    "timeout": {"type": "int", "default": 300},
}


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
        said = error.read(2000).decode(errors="replace")
        module.fail_json(msg=f"{url} answered with status {error.code}: {said}")
    except (OSError, ValueError) as error:
        module.fail_json(msg=f"{url} gave no answer: {error}")
    raise AssertionError("fail_json ends the module")


def inspect(module: AnsibleModule, container: str) -> dict[str, Any]:
    """What the engine knows of a container. Ends the module where it does not answer."""
    docker = module.get_bin_path("docker", required=True)
    code, out, err = module.run_command([docker, "container", "inspect", container])
    if code != 0:
        module.fail_json(msg=f"The container {container} cannot be looked at: {err.strip()}")
    return dict(json.loads(out)[0])


def main() -> None:
    """Look, ask, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params, plan = module.params, module.params["plan"]
    container, model = plan["container"]["name"], plan["served_model_name"]
    wrong = confinement.differences(inspect(module, container), plan)
    if wrong:
        module.fail_json(msg=f"The container {container} is not confined as planned: {'; '.join(wrong)}.")
    models = [served["id"] for served in ask(module, "/v1/models")["data"]]
    if model not in models:
        module.fail_json(msg=f"{params['url']} serves {', '.join(models)}, but not {model}.")
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
