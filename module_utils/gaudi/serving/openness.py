"""Compare how open two plans of an instance are: who may ask its server without a key, and who reaches it.

Two plans may each open something that the other keeps closed, so they are compared part by part. Without a person, no
plan is restored that opens anything which the present plan keeps closed. Options and variables that are known to open
nothing (known_settings.py) make no difference; in any other, a difference counts as one that opens something.

Keys are not part of a plan: they stay as they are. Neither are rules of a node's firewall.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..base.command_line import hub_ids, options, reads_pickles, words_of
from ..base.documents import parse
from ..base.paths import STATE
from ..base.printable import printable
from ..base.values import is_loopback, without_accounts
from .kept import PLAN, StoredPlan
from .known_settings import HARMLESS_OPTIONS, HARMLESS_VARIABLES, PLANNED_VARIABLES
from .plan import GUARD_CLASS

# Variables and arguments with which vLLM's server answers on further paths, which stop, profile or exchange models:
# vllm/entrypoints/openai/api_server.py of 0.6 to 0.9, vllm/entrypoints/serve of later versions.
MORE_PATHS = ("VLLM_SERVER_DEV_MODE", "VLLM_ALLOW_RUNTIME_LORA_UPDATING", "VLLM_TORCH_PROFILER_DIR")
MORE_PATHS_BY_ARGUMENT = (
    *("--enable-tokenizer-info-endpoint", "--profiler-config", "--enable-sleep-mode", "--enable-elastic-ep"),
    *("--enable-offline-docs", "--tokens-only", "--models"),
)
# Arguments with which a server runs code that comes with its weights, or reads what a request names or sends: files
# below a path, tensors, templates (vllm/engine/arg_utils.py and vllm/entrypoints/openai/cli_args.py). Without them it
# does not; with another value it may read or run something else.
TRUSTED_BY_ARGUMENT = (
    *("--trust-remote-code", "--trust-request-chat-template"),
    *("--enable-prompt-embeds", "--enable-mm-embeds"),
)
TRUSTED_WITH_VALUE = (
    *("--logits-processors", "--logits-processor-pattern", "--tool-server", "--io-processor-plugin"),
    *("--reasoning-parser-plugin", "--tool-parser-plugin", "--worker-cls", "--worker-extension-cls"),
    *("--kv-events-config", "--kv-transfer-config", "--ec-transfer-config", "--weight-transfer-config"),
    *("--otlp-traces-endpoint", "--enable-log-requests", "--enable-log-outputs", "--enable-log-deltas"),
)
# Variables that open something where a plan switches them on, and where it does not switch them off.
TRUSTED_BY_VARIABLE = (
    *("VLLM_ALLOW_INSECURE_SERIALIZATION", "VLLM_DEBUG_LOG_API_SERVER_RESPONSE"),
    *("VLLM_ENABLE_RESPONSES_API_STORE", "VLLM_DISABLE_REQUEST_ID_RANDOMIZATION", "VLLM_USE_RUST_FRONTEND"),
)
TRUSTED_WITHOUT_VARIABLE = ("VLLM_MEDIA_URL_ALLOW_REDIRECTS",)
LOCAL_FILES = "--allowed-local-media-path"
# Without this option a request may name a picture by any address.
MEDIA_DOMAINS = "--allowed-media-domains"
# Without this option, older releases write each request with its text to the log (vllm/engine/arg_utils.py).
NO_LOG = "--disable-log-requests"
# These releases write requests to the log only with this option, and have none to disable it.
LOG = "--enable-log-requests"
LOG_ON_REQUEST = ("1.23", "1.24", "1.24.1")
# Options of which these values open nothing, and others may.
HARMLESS_VALUES = {
    # A level. Anything else may name a class that the server loads.
    "--compilation-config": re.compile(r"[0-9]+"),
    "--distributed-executor-backend": re.compile(r"mp|uni"),
    "--load-format": re.compile(r"auto|safetensors|fastsafetensors|mistral|hf|dummy"),
    "--middleware": re.compile(re.escape(GUARD_CLASS)),
    "-m": re.compile(r"vllm\.entrypoints\.openai\.(mm_)?api_server"),
}
# Keys of config.json of which --hf-overrides opens nothing, with those below them: positions of a text, and what an
# embedding or a score is made of. Any other one may name code, or a model that the server fetches.
OVERRIDES = "--hf-overrides"
HARMLESS_KEYS = frozenset(
    {
        *("attention_factor", "attn_factor", "beta_fast", "beta_slow", "classifier_from_token", "factor"),
        *("high_freq_factor", "is_matryoshka", "is_original_qwen3_reranker", "long_factor", "low_freq_factor"),
        *("matryoshka_dimensions", "max_position_embeddings", "mrope_section", "mscale", "mscale_all_dim"),
        *("original_max_position_embeddings", "partial_rotary_factor", "rope_parameters", "rope_scaling"),
        *("rope_theta", "rope_type", "short_factor", "sliding_window", "text_config", "type"),
    }
)
# The first words of a command, with a path of weights behind them.
COMMAND = re.compile(r"(python3|vllm( serve( /\S+)?)?)?")
# Values with which such a variable adds nothing.
_OFF = ("", "0", "false")
# Where a server's own processes talk to each other, on ports without keys. Plans of releases that do not read one of
# them do not have it.
BETWEEN_PROCESSES = ("VLLM_HOST_IP", "GLOO_SOCKET_IFNAME", "HCCL_SOCKET_IFNAME")
_LOOPBACK_INTERFACE = "lo"
_PORTS_NOT_CLOSED = "they are not closed"
# No domain has this name.
ALL_DOMAINS = frozenset({""})
# The host of a server that only processes of the node reach, and of one whose plan has no host.
_NODE, _UNKNOWN = "", "an address that the plan does not name"
# Sets of which a larger one is more open, with the clause for the difference.
_PARTS = {
    "paths": "it answers on further paths",
    "between_processes": "other machines may reach ports of its own processes",
    "rights": "its container has more rights",
}


@dataclass(frozen=True)
class Openness:
    """What a plan opens. Two plans with the same value are equally open.

    without_key: whether every client that reaches the server may ask it without a key. The guard asks for a key on each
    path of the server; without it none has one (vLLM's own keys leave paths beside /v1 open, and are refused in plans).
    host, port: where other machines reach the server; "" and 0 if only processes of the node do, whatever its port.
    paths: what makes the server answer on further paths. trusted: what makes it run code of its weights, or read what a
    request names or sends. fetched: what it fetches from a hub by itself. logs_requests: whether it may write requests
    to its log. media_domains: the domains of which a request may name pictures, ALL_DOMAINS for all.
    between_processes: what lets other machines reach ports of the server's own processes. rights: what the container
    may do on the node, and shares with it. others: options and variables with their values that are not known to open
    nothing; whatever differs in them may open something.
    """

    without_key: bool
    host: str
    port: int
    paths: frozenset[str]
    trusted: frozenset[str]
    fetched: frozenset[str]
    logs_requests: bool
    media_domains: frozenset[str]
    between_processes: frozenset[str]
    rights: frozenset[str]
    others: frozenset[tuple[str, str]]


def of_plan(plan: Mapping[str, Any]) -> Openness:
    """Return what a plan opens. Parts that are missing, such as ``guarded`` in plans of release 0.1, count as open."""
    listen = _mapping(plan.get("listen"))
    port = listen.get("port")
    environment = {**_mapping(plan.get("environment")), **_mapping(_mapping(plan.get("container")).get("environment"))}
    host = _address(str(listen.get("host", "")))
    given = options(plan.get("arguments"))
    return Openness(
        without_key=not plan.get("guarded"),
        host=host,
        port=port if host != _NODE and isinstance(port, int) else 0,
        paths=frozenset({*_switched_on(environment, MORE_PATHS), *(set(MORE_PATHS_BY_ARGUMENT) & given.keys())}),
        trusted=frozenset({*_trusted(given, environment), *(["pickled tensors"] if reads_pickles(plan) else [])}),
        # Nothing pins it, and the hub may send something else each time.
        fetched=frozenset(hub_ids(plan)),
        logs_requests=(
            LOG in given
            if plan.get("release") in LOG_ON_REQUEST
            else NO_LOG not in given or f"--no-{NO_LOG[2:]}" in given
        ),
        media_domains=_media_domains(given),
        between_processes=frozenset(
            {*_not_local(environment), *([] if listen.get("closed_ports") else [_PORTS_NOT_CLOSED])}
        ),
        rights=frozenset(_rights(_mapping(plan.get("container")), str(plan.get("instance", "")))),
        others=frozenset(
            {*_other_options(given), *_other_variables(environment), *_domains_twice(plan.get("arguments"))}
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


def _switched_on(environment: Mapping[str, Any], known: Iterable[str]) -> Iterable[str]:
    """Return those of the variables that are there and not switched off."""
    return (name for name in known if str(environment.get(name, "")).strip().lower() not in _OFF)


def _trusted(given: Mapping[str, Sequence[str]], environment: Mapping[str, Any]) -> Iterable[str]:
    """Yield what makes a server run code, or read what a request names or sends; some with the value after a space."""
    yield from (name for name in TRUSTED_BY_ARGUMENT if name in given)
    yield from (" ".join([name, *given[name]]) for name in TRUSTED_WITH_VALUE if name in given)
    # Another path counts as more. The last one counts.
    paths = [path for path in given.get(LOCAL_FILES, ())[-1:] if path]
    yield from (f"{LOCAL_FILES} {path}" for path in paths)
    yield from _switched_on(environment, TRUSTED_BY_VARIABLE)
    yield from _switched_on(
        {name: environment.get(name, "1") for name in TRUSTED_WITHOUT_VARIABLE}, TRUSTED_WITHOUT_VARIABLE
    )


def _media_domains(given: Mapping[str, Sequence[str]]) -> frozenset[str]:
    """Return the domains of which a request may name pictures. A list without any allows all."""
    return frozenset(domain.lower() for domain in given.get(MEDIA_DOMAINS, ()) if domain) or ALL_DOMAINS


def _domains_twice(arguments: object) -> Iterable[tuple[str, str]]:
    """Yield the option of domains where a plan has it twice: only the last one counts for the server."""
    if sum(MEDIA_DOMAINS in options([word]) for word in words_of(arguments)) > 1:
        yield MEDIA_DOMAINS, " ".join(words_of(arguments))


def _other_options(given: Mapping[str, Sequence[str]]) -> Iterable[tuple[str, str]]:
    """Yield options that are not known to open nothing and are compared in no other part, with their values."""
    known = {*MORE_PATHS_BY_ARGUMENT, *TRUSTED_BY_ARGUMENT, *TRUSTED_WITH_VALUE, LOCAL_FILES, MEDIA_DOMAINS, NO_LOG, ""}
    for name, values in given.items():
        base = f"--{name[5:]}" if name.startswith("--no-") else name
        harmless = base in HARMLESS_OPTIONS or base in known
        if name in HARMLESS_VALUES:
            harmless = all(HARMLESS_VALUES[name].fullmatch(value) for value in values)
        elif name == OVERRIDES:
            harmless = all(map(_overrides_nothing, values))
        if not harmless:
            yield name, " ".join(values)
    if not COMMAND.fullmatch(" ".join(given[""])):
        yield "the command", " ".join(given[""])


def _overrides_nothing(value: str) -> bool:
    """Return whether a value of OVERRIDES is a JSON object of which all keys are known to open nothing."""
    try:
        waiting = [json.loads(value)]
    except (ValueError, RecursionError):
        return False
    if not isinstance(waiting[0], dict):
        return False
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            if not part.keys() <= HARMLESS_KEYS:
                return False
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part
    return True


def _other_variables(environment: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Yield variables that are not known to open nothing and are compared in no other part, with their values."""
    known = {*MORE_PATHS, *TRUSTED_BY_VARIABLE, *TRUSTED_WITHOUT_VARIABLE, *BETWEEN_PROCESSES}
    for name, value in environment.items():
        if str(name) not in HARMLESS_VARIABLES | PLANNED_VARIABLES | known:
            yield str(name), str(value)


def _not_local(environment: Mapping[str, Any]) -> Iterable[str]:
    """Return the addresses and interfaces between a server's processes that other machines may reach."""
    for name in BETWEEN_PROCESSES:
        value = str(environment.get(name, _LOOPBACK_INTERFACE))
        if value != _LOOPBACK_INTERFACE and not is_loopback(value):
            # Of an empty one the server makes the node's own address (get_ip in vllm/utils/network_utils.py).
            yield f"{name} is {value or 'empty'}"


def _rights(container: Mapping[str, Any], instance: str) -> Iterable[str]:
    """Yield what a container may do on the node; without a word about it, shared memory is the node's."""
    capabilities = container.get("capabilities")
    yield from (f"capability {name}" for name in (capabilities if isinstance(capabilities, list) else ()))
    if container.get("ipc") != "private":
        yield "shared memory of the node"
    if not container.get("read_only", True):
        yield "a root that it may write to"
    if container.get("network", "host") == "host":
        yield "the network of the node"
    mounts = container.get("mounts")
    for each in mounts if isinstance(mounts, list) else ():
        source = str(_mapping(each).get("source"))
        own = source.startswith(f"{STATE}/") and source.endswith(f"/{instance}")
        if not _mapping(each).get("read_only") and not own:
            yield f"writes to {source}"


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
    for part, said in _PARTS.items():
        if opened_there := getattr(one, part) - getattr(other, part):
            found.append(f"{said} ({', '.join(sorted(opened_there))})")
    if one.trusted - other.trusted:
        more = ", ".join(sorted(_without_value(part) for part in one.trusted - other.trusted))
        found.append(f"it runs code of its weights, or reads more that a request names ({more})")
    if one.fetched - other.fetched:
        more = ", ".join(without_accounts(name) for name in sorted(one.fetched - other.fetched))
        found.append(f"it fetches from a hub by itself ({more})")
    if one.logs_requests and not other.logs_requests:
        found.append("it may write requests to its log")
    if other.media_domains != ALL_DOMAINS and not one.media_domains <= other.media_domains:
        more = ", ".join(sorted(one.media_domains - other.media_domains)) or "all domains"
        found.append(f"a request may name pictures of more domains ({more})")
    if one.others != other.others:
        # A value may be an address with an account.
        more = ", ".join(sorted({name for name, _ in one.others ^ other.others}))
        found.append(f"it differs in what may open something ({more})")
    return [printable(clause) for clause in found]


def _without_value(part: str) -> str:
    """Return a part of ``Openness.trusted`` as messages have it: other values than a path may hold an account."""
    return part if part.startswith(LOCAL_FILES) else part.partition(" ")[0]


def opened(plan: Mapping[str, Any], present: Mapping[str, Any]) -> list[str]:
    """Return what a plan opens that the present one keeps closed, a clause each; see ``beyond``.

    A plan from before the key ``unpickles`` has that of a present plan of the same release.
    """
    if plan.get("release") == present.get("release"):
        plan = {"unpickles": present.get("unpickles"), **plan}
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


def opened_by(each: StoredPlan, files: Mapping[str, str]) -> list[str]:
    """Return what a kept plan opens that the plan with these files keeps closed, a clause each."""
    return opened(parse(each.files[PLAN]), parse(files[PLAN]))
