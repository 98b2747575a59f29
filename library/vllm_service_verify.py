#!/usr/bin/python
"""Look at the container of an instance, and ask the instance a question."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vllm_service_verify
short_description: Look at the container of a vLLM instance, and ask the instance a question
version_added: "0.1.0"
author: The gaudi-serving authors
description:
  - Fails unless the container was made of what this run has written, sees the directories of its guard that are on
    the node, has the image that the plan names, is confined as planned by the engine
    and by the kernel, the server serves the planned model under its name, and the question is answered.
  - An answer has to have the shape of its kind. Text has come to its end, with counts of its tokens. An embedding model
    gives each of two texts finite numbers, not all zero, as many as the hidden_size of its model where the plan knows
    it. A rerank model gives each of two documents a finite score, the highest first.
  - A model whose plan has a C(check) below C(ask) is asked that question too, and its answer has to have one of the
    words in it. That finds garbled output, whatever the cause.
  - A model whose plan has C(media) below C(ask) is asked about a picture, two pictures, a film and a sound, as far as
    it takes them. The files are made by this module. Only the shape of the answers counts.
  - A model that writes text is asked again, streamed and with a fixed number of tokens. How long the first token
    took, and how many came a second, is written down below the instance's state by O(label). Less than half as good as
    the record there is a warning. An instance that has other requests is not measured.
  - With O(long_prompt) the instance is given one prompt as long as the longest that its plan warms up, with a number at
    its beginning. An answer that nobody can read fails. One without the number is a warning, and so is none within 60
    seconds. An embedding or rerank model gets the text beside a short one, and its numbers are checked as above.
  - Waits until the supervisor runs with the program, the library and the unit on the disk, and fails where it does not.
  - Waits until its supervisor has closed the ports of the server's own processes to others; fails where it does not.
  - Fails where another process than the container's listens at the port. That is checked before and after each
    connection, and nothing is sent to the other process.
  - A guarded server is asked without a key on every path of its release, and has to answer 401; then it is asked with
    the token that its supervisor has drawn for it. No key is needed.
  - No proxy of the node is used, because the server is on the node itself.
options:
  plan:
    description: The plan of the instance, from M(serving_plan).
    type: dict
    required: true
  label:
    description: The label that its container has to have, from M(vllm_service_changes).
    type: str
    required: true
  url:
    description: Where the server answers, without a path.
    type: str
    required: true
  question:
    description: What is asked. Empty asks nothing.
    type: str
    default: ""
  tokens:
    description: The most tokens an answer may have; that to a C(check) may have 256.
    type: int
    default: 32
  timeout:
    description: How many seconds the server may take for a reply.
    type: int
    default: 300
  long_prompt:
    description: Whether to ask with a prompt that fills the longest bucket as well.
    type: bool
    default: false
requirements:
  - root (C(become))
extends_documentation_fragment: attributes.node
attributes:
  check_mode:
    description: Asks the same, but does not measure how quickly the instance writes, and writes nothing down.
    support: partial
  diff_mode:
    description: Changes nothing.
    support: none
"""

EXAMPLES = r"""
- name: Ask an instance
  vllm_service_verify:
    plan: "{{ vllm_service_plan }}"
    label: "{{ changes.label }}"
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
pace:
  description: How quickly the instance wrote; empty where it was not measured.
  type: dict
  returned: always
  sample: {first_token_seconds: 0.21, tokens_per_second: 38.5}
long_prompt:
  description:
    - What came of the long prompt. V(right), V(doubtful) for an answer without the number, V(unanswered) for none in
      time, V(none) where the plan warms up no prompt that is long enough; empty when it was not asked.
  type: str
  returned: always
  sample: right
refused_id:
  description: Id of the refusal, which stays the same between releases; C(msg) has the sentence.
  returned: when the task fails for a refusal
  type: str
  sample: answer_misshapen
models:
  description: The names under which the server serves.
  type: list
  elements: str
  returned: always
  sample: [qwen3-8b]
"""

import contextlib
import http.client
import json
import secrets
import shlex
import socket
import time
from functools import partial
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gaudi.base import paths
from ansible.module_utils.gaudi.base.documents import Damaged
from ansible.module_utils.gaudi.base.printable import printable
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.node import containers, instances, listening
from ansible.module_utils.gaudi.node.documents import read_json
from ansible.module_utils.gaudi.node.files import write_json
from ansible.module_utils.gaudi.node.module import NodeModule
from ansible.module_utils.gaudi.serving import answers, load, long_prompt, pace
from ansible.module_utils.gaudi.serving.closed_ports import ClosedPorts, is_closed, table_of

ARGUMENT_SPEC: dict[str, Any] = {
    "plan": {"type": "dict", "required": True},
    "label": {"type": "str", "required": True},
    "url": {"type": "str", "required": True},
    "question": {"type": "str", "default": ""},
    "tokens": {"type": "int", "default": 32, "no_log": False},
    "timeout": {"type": "int", "default": 300},
    "long_prompt": {"type": "bool", "default": False},
}

# How long a hand-over may take, in seconds: with another unit, systemd starts the supervisor again after five.
HAND_OVER_SECONDS = 60.0
LOOK_AGAIN = 0.5
# Bytes: a list of models, or an answer of some hundred tokens, is a few thousand.
LONGEST_REPLY = 1 << 20
# The same of a stream, where each token comes with some hundred bytes.
LONGEST_STREAM = 1 << 20
# The handshake of a websocket, and what it is refused with; the key in it is the example of RFC 6455, and no secret.
WEBSOCKET = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}
REFUSED = {"a websocket": (403, 401)}


def own_sockets(
    module: AnsibleModule, container: containers.InstanceContainer, address: str, port: int
) -> frozenset[int]:
    """Return the inodes of the container's listening sockets; end the module where another process listens."""
    found = listening.listeners_at(address, port)
    if not found:
        module.fail_json(
            msg=f"Nobody listens at {module.params['url']}. Look at journalctl -u {container_name(module)}."
        )
    stranger = listening.stranger_among(found, container.inspected["Id"], int(container.inspected["State"]["Pid"]))
    if stranger:
        module.fail_json(
            msg=f"{module.params['url']} is taken by {listening.describe(stranger)}, which is not of the container "
            f"{container_name(module)}. Nothing was sent to it. Stop it, then run the playbook again."
        )
    return frozenset(listener.inode for listener in found)


def container_name(module: AnsibleModule) -> str:
    """The container, which is called as its unit is."""
    return str(module.params["plan"]["container"]["name"])


def status_without_a_key(
    module: AnsibleModule, container: containers.InstanceContainer, path: str, headers: dict[str, str]
) -> int:
    """What a server answers to somebody without a key. Ends the module where it does not answer."""
    try:
        with connection_to(module, container) as connection:
            return listening.answer(connection, path, headers, 0)[0]
    except (OSError, http.client.HTTPException) as error:
        module.fail_json(msg=f"{module.params['url']}{path} gave no answer: {printable(str(error))}")
    raise AssertionError("fail_json ends the module")


def check_guard(module: AnsibleModule, container: containers.InstanceContainer, plan: dict[str, Any]) -> None:
    """End the module where a guarded server lets anybody in without a key, on whatever path."""
    asked = answers.asked_without_a_key(plan["paths"])
    found = {path: status_without_a_key(module, container, path, {}) for path in asked}
    # A server without the library for websockets takes the handshake for a request.
    found["a websocket"] = status_without_a_key(module, container, asked[0], WEBSOCKET)
    let_in = [f"{path} ({status})" for path, status in found.items() if status not in REFUSED.get(path, (401,))]
    if let_in:
        module.fail_json(
            msg=f"{plan['instance']} is to ask everybody for a key, but answered without one: {', '.join(let_in)}. "
            f"Stop it (playbooks/stop.yml -e instance={plan['instance']}), and look at journalctl -u "
            f"{container_name(module)}."
        )


def connection_to(
    module: AnsibleModule, container: containers.InstanceContainer, timeout: float | None = None
) -> contextlib.closing[http.client.HTTPConnection]:
    """A connection to the container, without proxies and redirections: no other process or host may receive the token.

    timeout: seconds; None for those of the module's option. Raises OSError.
    """
    own = partial(own_sockets, module, container)
    connection, _ = listening.connected(module.params["url"], own, timeout or module.params["timeout"])
    return contextlib.closing(connection)


def headers_of(module: AnsibleModule) -> dict[str, str]:
    """What a question is sent with."""
    plan = module.params["plan"]
    return listening.headers_for(plan["instance"] if plan["guarded"] else None)


def reply_of(
    module: AnsibleModule,
    container: containers.InstanceContainer,
    path: str,
    headers: dict[str, str],
    body: dict[str, Any] | None = None,
    timeout: float | None = None,
) -> tuple[int, bytes]:
    """The status and the body of a reply. Raises OSError and http.client.HTTPException."""
    data = None if body is None else json.dumps(body).encode()
    with connection_to(module, container, timeout) as connection:
        return listening.answer(connection, path, headers, LONGEST_REPLY, data)


def ask(
    module: AnsibleModule,
    container: containers.InstanceContainer,
    path: str,
    body: dict[str, Any] | None = None,
    asked: str = "",
) -> dict[str, Any]:
    """Return a reply of the server; with a body the request is a POST. Ends the module where there is none.

    asked: the question, for people.
    """
    url, headers = module.params["url"] + path, headers_of(module)
    try:
        status, said = reply_of(module, container, path, headers, body)
        if status == http.client.OK:
            return dict(json.loads(said))
        why = printable(said[:2000].decode(errors="replace"))
        module.fail_json(msg=f"{url} answered with status {status}: {why}{f' It was asked: {asked}' if asked else ''}")
    except (OSError, http.client.HTTPException, ValueError, TypeError, RecursionError) as error:
        module.fail_json(msg=f"{url} gave no answer: {printable(str(error))}")
    raise AssertionError("fail_json ends the module")


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


def await_closed_ports(module: AnsibleModule, plan: dict[str, Any]) -> None:
    """End the module unless the supervisor keeps others out of the ports of the server's own processes."""
    if "closed_ports" not in plan["listen"]:
        return
    ports, deadline = ClosedPorts(*plan["listen"]["closed_ports"]), time.monotonic() + HAND_OVER_SECONDS
    command = ["nft", "list", "table", "inet", table_of(plan["instance"])]
    while True:
        status, listed, said = module.run_command(command)
        if status == 0 and is_closed(listed, ports):
            return
        if time.monotonic() > deadline:
            module.fail_json(
                msg=f"Ports {ports} of the server's own processes are not closed to others: {shlex.join(command)} says "
                f"{printable(said.strip() or listed.strip() or 'nothing')}. Look at journalctl -u "
                f"{container_name(module)}."
            )
        time.sleep(LOOK_AGAIN)


def read_record(module: AnsibleModule, path: Path) -> dict[str, Any] | None:
    """How quickly the instance wrote before; None where that is not known."""
    try:
        return read_json(path, pace.FORM, pace.SCHEMA)
    except Damaged as damage:
        module.warn(f"{damage}. It is begun again.")
        return None


def is_idle(module: AnsibleModule, container: containers.InstanceContainer) -> bool:
    """Whether the server works on no other request, as far as its metrics say."""
    status, said = reply_of(module, container, "/metrics", headers_of(module))
    found = load.read(said.decode(errors="replace")) if status == http.client.OK else None
    return found is not None and found.requests == 0


def measured(module: AnsibleModule, container: containers.InstanceContainer) -> pace.Pace | None:
    """How quickly the instance writes; None if it works on other requests, or if that is not known."""
    path, body = pace.question_of(module.params["plan"])
    try:
        if not is_idle(module, container):
            return None
        with connection_to(module, container) as connection:
            asked = (connection, path, headers_of(module), LONGEST_STREAM, json.dumps(body).encode())
            found = pace.read(listening.streamed(*asked))
        # Another's request in between slows it down.
        return found if is_idle(module, container) else None
    except (OSError, http.client.HTTPException, ValueError, TypeError, AttributeError, RecursionError) as error:
        module.warn(f"How quickly {module.params['plan']['instance']} writes is not known: {printable(str(error))}")
        return None


def keep_pace(module: AnsibleModule, container: containers.InstanceContainer) -> dict[str, Any]:
    """Measure how quickly the instance writes, compare it with what is usual, write it down; empty where nobody can."""
    plan, label = module.params["plan"], module.params["label"]
    if module.check_mode or plan["task"] not in pace.TASKS:
        return {}
    found = measured(module, container)
    if found is None:
        return {}
    path = Path(paths.INSTANCE_STATES) / plan["instance"] / paths.PACE
    before, now = read_record(module, path), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    for sentence in pace.slower(before, label, found, plan["instance"]):
        module.warn(sentence)
    try:
        write_json(path, pace.recorded(before, label, found, now), mode=0o600)
    except OSError as error:
        module.warn(f"How quickly {plan['instance']} writes is not written down: {printable(str(error))}")
    return vars(found)


def answer_to(module: AnsibleModule, container: containers.InstanceContainer) -> str:
    """What the instance answers to the question; raises Refusal where that, or another answer of it, is none."""
    params, plan = module.params, module.params["plan"]
    said = []
    for exchange in answers.questions(plan, params["question"], params["tokens"]):
        reply = ask(module, container, exchange.path, dict(exchange.body), exchange.asked)
        said.append(answers.answer_of(exchange, reply, plan["instance"]))
    return said[0]


def tokens_of_sentences(module: AnsibleModule, container: containers.InstanceContainer) -> int:
    """The tokens of the sentences that a long prompt is made of; an estimate where the server counts none."""
    body = long_prompt.counting(module.params["plan"])
    if body is None:
        return long_prompt.ESTIMATE
    asked = (long_prompt.TOKENIZE, headers_of(module), body, long_prompt.TIMEOUT)
    try:
        _status, said = reply_of(module, container, *asked)
        return int(long_prompt.counted(dict(json.loads(said))))
    except (OSError, http.client.HTTPException, ValueError, TypeError, RecursionError):
        # The prompt itself shows whether the server answers.
        return long_prompt.ESTIMATE


def check_long_prompt(module: AnsibleModule, container: containers.InstanceContainer) -> str:
    """What came of a prompt that fills the longest bucket. Raises Refusal for an answer that nobody can read.

    Ends the module where the server fails with it.
    """
    plan, marker = module.params["plan"], str(100_000 + secrets.randbelow(900_000))
    name, url = plan["instance"], module.params["url"]
    asked = long_prompt.exchange(plan, tokens_of_sentences(module, container), marker)
    if asked is None:
        module.warn(f"{name} was not given a long prompt, because its plan warms up none that is long enough.")
        return "none"
    sent = (asked.path, headers_of(module), dict(asked.body), long_prompt.TIMEOUT)
    try:
        status, said = reply_of(module, container, *sent)
        if status != http.client.OK:
            raise ValueError(f"status {status}: {said[:300].decode(errors='replace')}")
        reply = dict(json.loads(said))
    except (TimeoutError, socket.timeout):  # two classes before Python 3.10
        module.warn(f"{name} did not answer a prompt that fills its longest bucket within {long_prompt.TIMEOUT} s.")
        return "unanswered"
    except (OSError, http.client.HTTPException, ValueError, TypeError, RecursionError) as error:
        module.fail_json(msg=f"{url} failed with a prompt that fills its longest bucket: {printable(str(error))}")
        raise AssertionError("fail_json ends the module") from error
    warning = long_prompt.judge(asked, reply, marker, name)
    if warning:
        module.warn(printable(warning))
    return "doubtful" if warning else "right"


def main() -> None:
    """Look, ask, report."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params, plan = module.params, module.params["plan"]
    model = plan["served_model_name"]
    try:
        container = containers.check_container(module, plan, params["label"])
    except Refusal as refusal:
        module.fail_json(msg=str(refusal), refused_id=refusal.id)
    await_supervisor(module, plan["instance"])
    await_closed_ports(module, plan)
    if plan["guarded"]:
        check_guard(module, container, plan)
    try:
        models = answers.served_models(ask(module, container, answers.MODELS), plan["instance"])
        if model not in models:
            module.fail_json(msg=f"{params['url']} serves {printable(', '.join(models))}, but not {model}.")
        answer = answer_to(module, container) if params["question"] else ""
        figures = keep_pace(module, container) if params["question"] else {}
        long = check_long_prompt(module, container) if params["long_prompt"] else ""
    except Refusal as refusal:
        module.fail_json(msg=str(refusal), refused_id=refusal.id)
    module.exit_json(changed=False, answer=answer, models=models, pace=figures, long_prompt=long)


if __name__ == "__main__":
    main()
