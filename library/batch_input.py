#!/usr/bin/python
"""Read a batch on the controller, and what is answered of it already."""

from __future__ import annotations

DOCUMENTATION = r"""
module: batch_input
short_description: Read a file of requests in OpenAI's batch format
version_added: "0.2.0"
author: The gaudi-serving authors
description:
  - Reads a file on the controller whose lines are requests in OpenAI's batch format. Refuses it with the first lines
    that are wrong, before anything is asked.
  - Looks whether an output is there already that answers every request.
options:
  input:
    description: The file of requests.
    type: path
    required: true
  output:
    description: Where the answers are to be. Without it, beside the input, called NAME.output.jsonl.
    type: path
    default: ""
extends_documentation_fragment: attributes.reads
attributes:
  action:
    description: Runs on the controller only.
    support: full
  platform:
    description: Asks nothing of the node.
    support: full
    platforms: all
seealso:
  - module: batch_answers
"""

EXAMPLES = r"""
- name: Read the requests
  batch_input:
    input: questions.jsonl
  register: batch
"""

RETURN = r"""
input:
  description: The absolute path of the file of requests.
  returned: success
  type: str
  sample: /srv/questions.jsonl
output:
  description: The absolute path of the file of answers.
  returned: success
  type: str
  sample: /srv/questions.output.jsonl
digest:
  description: SHA-256 of the file of requests.
  returned: success
  type: str
  sample: 0d599f0ec05c3bda8c3b8a68c32a1b47e1b2f9b6a0b0cc0b4b1f6f6f6b8a2e11
requests:
  description: How many requests it has.
  returned: success
  type: int
  sample: 1200
model:
  description: The model that all requests name.
  returned: success
  type: str
  sample: qwen3-8b
urls:
  description: The URL paths of the requests.
  returned: success
  type: list
  elements: str
  sample: [/v1/chat/completions]
kept:
  description: Number of requests that the output already answers; an answer to a changed request does not count.
  returned: success
  type: int
  sample: 0
whole:
  description: Whether the output is there and answers all of them.
  returned: success
  type: bool
  sample: false
refused_id:
  description: Id of the refusal, which stays the same between releases; C(msg) has the sentence.
  returned: when the file is refused
  type: str
  sample: batch_lines
"""
