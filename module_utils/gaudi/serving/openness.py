"""Compare how open two plans of an instance are: who may ask its server without a key, and who reaches it.

Two plans may each open something that the other keeps closed, so they are compared part by part. Without a person, no
plan is restored that opens anything which the present plan keeps closed.

Keys are not part of a plan: they stay as they are. Neither are rules of a node's firewall.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..base.printable import printable
from ..base.values import is_loopback

# Variables and arguments with which vLLM's server answers on further paths, which stop, profile or exchange models:
# vllm/entrypoints/openai/api_server.py of 0.6 to 0.9, vllm/entrypoints/serve of later versions.
MORE_PATHS = ("VLLM_SERVER_DEV_MODE", "VLLM_ALLOW_RUNTIME_LORA_UPDATING", "VLLM_TORCH_PROFILER_DIR")
MORE_PATHS_BY_ARGUMENT = ("--enable-tokenizer-info-endpoint", "--profiler-config")
# Arguments with which a server runs code that comes with its weights, or reads what a request names or sends: files
# below a path, tensors, templates (vllm/engine/arg_utils.py and vllm/entrypoints/openai/cli_args.py).
TRUSTED_BY_ARGUMENT = (
    *("--trust-remote-code", "--trust-request-chat-template"),
    *("--enable-prompt-embeds", "--enable-mm-embeds"),
)
LOCAL_FILES = "--allowed-local-media-path"
# Values with which such a variable adds nothing.
_OFF = ("", "0", "false")
# Where a server's own processes talk to each other, on ports without keys. Releases that do not read one of them have
# no value for it.
BETWEEN_PROCESSES = ("VLLM_HOST_IP", "GLOO_SOCKET_IFNAME", "HCCL_SOCKET_IFNAME")
_LOOPBACK_INTERFACE = "lo"
_PORTS_NOT_CLOSED = "they are not closed"
# The host of a server that only processes of the node reach, and of one whose plan has no host.
_NODE, _UNKNOWN = "", "an address that the plan does not name"


@dataclass(frozen=True)
class Openness:
    """What a plan opens. Two plans with the same value are equally open.

    without_key: whether every client that reaches the server may ask it without a key. The guard asks for a key on each
    path of the server; without it none has one (vLLM's own keys leave paths beside /v1 open, and are refused in plans).
    host, port: where other machines reach the server; "" and 0 if only processes of the node do, whatever its port.
    paths: what makes the server answer on further paths. trusted: what makes it run code of its weights, or read what a
    request names or sends. between_processes: what lets other machines reach ports of the server's own processes.
    """

    without_key: bool
    host: str
    port: int
    paths: frozenset[str]
    trusted: frozenset[str]
    between_processes: frozenset[str]


def of_plan(plan: Mapping[str, Any]) -> Openness:
    """Return what a plan opens. Parts that are missing, such as ``guarded`` in plans of release 0.1, count as open."""
    listen = _mapping(plan.get("listen"))
    port = listen.get("port")
    environment = {**_mapping(plan.get("environment")), **_mapping(_mapping(plan.get("container")).get("environment"))}
    host = _address(str(listen.get("host", "")))
    return Openness(
        without_key=not plan.get("guarded"),
        host=host,
        port=port if host != _NODE and isinstance(port, int) else 0,
        paths=frozenset({*_switched_on(environment), *_given(plan.get("arguments"), MORE_PATHS_BY_ARGUMENT)}),
        trusted=frozenset({*_given(plan.get("arguments"), TRUSTED_BY_ARGUMENT), *_local_files(plan.get("arguments"))}),
        between_processes=frozenset(
            {*_not_local(environment), *([] if listen.get("closed_ports") else [_PORTS_NOT_CLOSED])}
        ),
    )


def _address(host: str) -> str:
    """Return a host in the form in which hosts are compared."""
    if is_loopback(host):
        return _NODE
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        # A name may stand for any address.
        return host.lower() or _UNKNOWN


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _switched_on(environment: Mapping[str, Any]) -> Iterable[str]:
    """Return the variables that make the server answer on further paths."""
    return (name for name in MORE_PATHS if str(environment.get(name, "")).strip().lower() not in _OFF)


def _name(word: object) -> str:
    """Return an argument's name. vLLM reads _ as -, and a dot before a part of a JSON value."""
    return str(word).partition("=")[0].partition(".")[0].replace("_", "-")


def _given(arguments: object, known: Iterable[str]) -> Iterable[str]:
    """Return those of the known arguments that a plan has."""
    names = {_name(word) for word in arguments} if isinstance(arguments, Sequence) else set()
    return (name for name in known if name in names)


def _local_files(arguments: object) -> Iterable[str]:
    """Return the argument with each path whose files a request may name; another path counts as more."""
    words = [str(word) for word in arguments] if isinstance(arguments, Sequence) else []
    for word, following in zip(words, [*words[1:], ""]):
        path = word.partition("=")[2] if "=" in word else following
        if _name(word) == LOCAL_FILES and path:
            yield f"{LOCAL_FILES} {path}"


def _not_local(environment: Mapping[str, Any]) -> Iterable[str]:
    """Return the addresses and interfaces between a server's processes that other machines may reach."""
    for name in BETWEEN_PROCESSES:
        value = str(environment.get(name, ""))
        if value not in ("", _LOOPBACK_INTERFACE) and not is_loopback(value):
            yield f"{name} is {value}"


def _reached(host: str, other: str) -> bool:
    """Whether a server at the second host is reached at the first one: the same, or all addresses of its version."""
    if host in (_NODE, other):
        return True
    try:
        address, all_of = ipaddress.ip_address(host), ipaddress.ip_address(other)
    except ValueError:
        return False
    # Whether :: includes IPv4 depends on the node and on the server's release.
    return all_of.is_unspecified and address.version == all_of.version


def beyond(one: Openness, other: Openness) -> list[str]:
    """Return what the first opens and the second keeps closed, a clause each; empty if that is nothing.

    Ports count where other machines reach them: a firewall may let more machines to one port than to another.
    """
    found = []
    if one.without_key and not other.without_key:
        found.append("it asks for no key")
    if one.host != _NODE and not (_reached(one.host, other.host) and one.port == other.port):
        found.append(f"other machines reach it at {one.host}, port {one.port}")
    if one.paths - other.paths:
        found.append(f"it answers on further paths ({', '.join(sorted(one.paths - other.paths))})")
    if one.trusted - other.trusted:
        more = ", ".join(sorted(one.trusted - other.trusted))
        found.append(f"it runs code of its weights, or reads more that a request names ({more})")
    if one.between_processes - other.between_processes:
        more = ", ".join(sorted(one.between_processes - other.between_processes))
        found.append(f"other machines may reach ports of its own processes ({more})")
    return [printable(clause) for clause in found]


def opened(plan: Mapping[str, Any], present: Mapping[str, Any]) -> list[str]:
    """Return what a plan opens that the present one keeps closed, a clause each; see ``beyond``."""
    return beyond(of_plan(plan), of_plan(present))


def left_stopped(before: Mapping[str, Mapping[str, Any]], desired: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the instances that a failed run must not restore, each with a message.

    before: plans from before the run, by instance. desired: the plans of the run. An instance without a plan in the run
    is compared with the plans that use its port: it may have been renamed.
    """
    found = {}
    for name, plan in before.items():
        same = [each for each in desired if each.get("instance") == name]
        present = same or [each for each in desired if _port(each) is not None and _port(each) == _port(plan)]
        more = dict.fromkeys(clause for each in present for clause in opened(plan, each))
        if more:
            found[name] = (
                f"{name} stays stopped, also at boot: its plan from before is more open than the one of this run "
                f"({'; '.join(more)}). Fix what failed, and run site.yml again. To run the old plan all the same, find "
                "it with playbooks/history.yml. If it is the plan on the node, start it with playbooks/start.yml "
                f"-e instance={name}. Otherwise restore it with playbooks/rollback.yml -e instance={name}."
            )
    return found


def _port(plan: Mapping[str, Any]) -> object:
    return _mapping(plan.get("listen")).get("port")
