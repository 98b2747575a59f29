#!/usr/bin/python
"""Say what the options of all roles are for a host, and what is wrong with them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: role_options
short_description: Say what the options of all roles are for a host, and what is wrong with them
version_added: "0.1.0"
author: gaudi-serving
description:
  - Reads C(meta/argument_specs.yml), C(meta/ranges.yml) and C(defaults/main.yml) of every role on the controller, and
    gives each option the value that the host has for it, or else its default. So a role that needs another one's option
    need not know where that has its defaults.
  - Holds every option that the host has a value of against its type, choices and range, API keys against what a key is,
    and every variable that begins with a role's name or with C(gaudi_), or nearly so, against the names that there are.
  - It asks no node, and never fails because of what it finds, so that all of it can be reported at once.
  - Values of options with C(no_log) are neither returned nor shown.
options:
  options:
    description: Names of the options whose values are wanted. All are judged, whatever is asked for.
    type: list
    elements: str
    default: []
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
  - module: gaudi_preflight
"""

EXAMPLES = r"""
- name: Read what the downloader goes by
  role_options:
    options: [model_weights_reserve, model_weights_mounted_on]
  register: downloader
"""

RETURN = r"""
options:
  description:
    - The options that were asked for. One whose value is wrong, or cannot be read, has its default.
    - What is a secret is left out of them.
  returned: always
  type: dict
  sample: {"model_weights_mounted_on": "/data", "model_weights_reserve": 10000000000}
is_set:
  description: Whether each secret that was asked for has a value that is not empty.
  returned: always
  type: dict
  sample: {"container_runtime_habana_repository": false}
wrong:
  description: Names of the options whose values are wrong or cannot be read, of all roles.
  returned: always
  type: list
  elements: str
  sample: []
problems:
  description: What is wrong, each with what would be right.
  returned: always
  type: list
  elements: dict
  sample: [{"id": "unknown_variable", "message": "There is no variable host_tuning_hugepage, so nothing reads it. ..."}]
findings:
  description: Findings for a person, which do not prevent the setup.
  returned: always
  type: list
  elements: str
  sample: []
"""
