"""Say what the options of all roles are for a host, and what is wrong with them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

sys.path.append(str(Path(__file__).resolve().parent.parent))
from plugin_utils import brain

brain.on_path()

from ansible.module_utils.gaudi.preflight import keys
from ansible.module_utils.gaudi.preflight import options as rules
from ansible.module_utils.gaudi.preflight.checks import Problem
from ansible.module_utils.gaudi.preflight.values import (
    key_faults,
    landing_faults,
    network_faults,
    push_faults,
    trust_faults,
    unencrypted,
)

from plugin_utils import certificates, role_options

ARGUMENT_SPEC: dict[str, Any] = {"options": {"type": "list", "elements": "str", "default": []}}

# Ansible imports this before it forks its workers, which then have what was read.
DECLARED = role_options.declared()

# Where a build gets things from, and what decides whether it reaches that.
BUILT_FROM = (
    "serving_image_apt_sources",
    "serving_image_git_mirrors",
    "serving_image_pins",
    "serving_image_python_indexes",
    "serving_image_http_proxy",
    "serving_image_https_proxy",
)
BUILT_BY = ("serving_image_build", "serving_image_build_network")
# Keys of packages that root installs, and what tells each from another key.
TRUSTED = {
    "container_runtime_habana_key": (
        "container_runtime_habana_key_fingerprint",
        "container_runtime_habana_key_checksum",
    ),
    "container_runtime_rhel_key": ("container_runtime_rhel_key_fingerprint",),
}


def judged(
    host: role_options.HostOptions, reported_by_another: Callable[[str], bool] = lambda _name: False
) -> tuple[list[Problem], list[str], set[str]]:
    """Problems and findings of all options the host has values of, and which of these are wrong.

    reported_by_another: whether another host of the play reports an unknown name.
    """
    problems, findings, wrong = [], [], set()
    for name, option, read in host.given():
        if read.why_not is not None:
            # Ansible reads late: what is missing now may be there when a role asks for it.
            why = "" if rules.secret(option) else f": {read.why_not}"
            findings.append(f"{name} cannot be read yet{why}. What uses it fails unless that changes.")
            wrong.add(name)
            continue
        said = (
            rules.faults(name, option, read.value)
            or keys.faults(name, read.value)
            or list(landing_faults(name, read.value))
        )
        if name in certificates.OPTIONS and not said:
            said, ended = certificates.judged(name, str(read.value or ""))
            findings += ended
        findings += [] if said else unencrypted(name, read.value)
        problems += [Problem("option", sentence) for sentence in said]
        wrong |= {name} if said else set()
    known, asked = host.read(keys.OPTION), host.read("gaudi_serving_instances")
    if keys.OPTION not in wrong and known.value and asked.value:
        mistyped, unused = keys.strangers(known.value, named(asked.value))
        problems, findings = problems + [Problem("option", said) for said in mistyped], findings + unused
    pushed = ("serving_image_build", "serving_image_push", "serving_image_name")
    if not wrong.intersection(pushed):
        problems += [Problem("option", said) for said in push_faults(*(host.read(name).value for name in pushed))]
    keyed = ("serving_image_apt_sources", "serving_image_apt_key")
    if not wrong.intersection(keyed):
        problems += [Problem("option", said) for said in key_faults(*(host.read(name).value for name in keyed))]
    for key, beside in TRUSTED.items():
        if not wrong.intersection((key, *beside)):
            told = {name: host.read(name).value for name in (key, *beside)}
            problems += [Problem("option", said) for said in trust_faults(key, told)]
    if not wrong.intersection(BUILT_FROM + BUILT_BY):
        build, network = (host.read(name).value for name in BUILT_BY)
        addresses = {name: host.read(name).value for name in BUILT_FROM}
        problems += [Problem("option", said) for said in network_faults(build, network, addresses)]
    strange, unread = rules.unknown(host.set, DECLARED.options, DECLARED.results, DECLARED.roles, reported_by_another)
    return problems + strange, findings + unread, wrong


def set_before(variables: Mapping[str, Any]) -> Callable[[str], bool]:
    """Return whether a name is set on a host that comes before this one in the play, and so is reported there."""
    hosts = list(variables.get("ansible_play_hosts_all", []))
    own = variables.get("inventory_hostname")
    # Variables of a host are put together when it is asked for, so no more hosts are asked than necessary.
    before, every = hosts[: hosts.index(own)] if own in hosts else [], variables.get("hostvars", {})
    return lambda name: any(name in every[host] for host in before)


def named(requests: object) -> list[str]:
    """The names of the instances of an inventory, as far as they can be read."""
    listed = requests if isinstance(requests, (list, tuple)) else ()
    return [str(request["instance"]) for request in listed if isinstance(request, Mapping) and "instance" in request]


class ActionModule(ActionBase):  # type: ignore[misc]  # ansible-core carries no types
    """Reads on the controller; no node is asked."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Judge all options, and return the values that were asked for."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, arguments = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        nobodys = sorted(set(arguments["options"]) - set(DECLARED.options))
        if nobodys:
            raise AnsibleActionFail(f"No role has an option {' or '.join(nobodys)} (roles/*/meta/argument_specs.yml).")
        host = role_options.HostOptions(self._loader, task_vars or {})
        problems, findings, wrong = judged(host, set_before(task_vars or {}))
        values = {name: host.default(name) if name in wrong else host.read(name).value for name in arguments["options"]}
        shared = {name: rules.shareable(DECLARED.options[name], value) for name, value in values.items()}
        return {
            **result,
            "changed": False,
            "options": shared,
            "is_set": {name: bool(value) for name, value in values.items() if DECLARED.options[name].get("no_log")},
            "wrong": sorted(wrong),
            "problems": [problem.as_dict() for problem in problems],
            "findings": findings,
        }
