"""What the server is told beside its family's rules: where it listens, its model, its network, more variables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..base.checks import shown
from ..base.listeners import outside
from ..base.refusal import Refusal
from ..cards.placement import PlacementCard
from ..catalogue.entries import POOLING_TASKS, ModelEntry, ReleaseEntry
from ..catalogue.surface import ServerSurface
from ..request.node import Node
from ..request.options import InstanceRequest
from ..request.resolved import ResolvedRequest
from ..rules.draft import Draft, Rule, given, rule
from ..serving.closed_ports import EVERY, VARIABLE, closed_from, first_port
from ..serving.starts import GRAPH_SECONDS, LONGEST_START
from .network import LOOPBACK, Network, check_reach, network, read_addresses
from .refusals import MEDIA_OPTIONS

# Where the processes of one server talk to each other (1.22's own script does so where it listens on 127.0.0.1).
ONE_NODE = Network(
    LOOPBACK[1],
    LOOPBACK[0],
    "one-node",
    "gaudi-serving: ports between a server's processes have no key, and one node needs no network for them",
)
# Seconds a server with the plugin may take to be ready. Somebody's Gaudi 2 took 2 to 3 minutes for 7B to 32B models,
# 19 minutes for Qwen3-235B on eight cards with about as many graphs (150, eight seconds each), and 30 minutes with long
# contexts; two hours were set there. 200 MB/s is a slow disk. The rest are numbers of ours.
ENGINE_READY = "VLLM_ENGINE_READY_TIMEOUT_S"
LOADED_A_SECOND = 200 * 10**6
SHORTEST_START = 1800
# What a pooling model of the catalogue becomes, in vLLM's words.
CONVERSIONS = {"embed": "embed", "score": "classify"}
# Sizes that the start script of 1.22 sets, and the manual of multimodal models does not.
SCRIPT_SIZES = ("max_model_len", "max_num_seqs", "max_num_prefill_seqs", "max_num_batched_tokens")
# The kernel's own limit for processes that lack NET_BIND_SERVICE, which the container drops.
LOWEST_PORT = 1024


@rule("served-names", "vLLM answers to every name and shows the first; the vendor's manuals ask by the path")
def served_names(name: str, weights: str) -> list[str]:
    """The name clients ask for, and the path as the server sees it, each once."""
    return [name] if name == weights else [name, weights]


@rule("reasoning-parser", "the model's file, or its type; only for models that think")
def reasoning_parser(parser: str | bool) -> str | bool:
    """The DeepSeek script names deepseek_r1 for every model; an answer of another model would come out empty."""
    return parser


def guarded(request: InstanceRequest) -> bool:
    """Whether every request must bring an API key. The site says so; the action serving_plan does where it has keys."""
    return bool(request.guarded)


def listen(draft: Draft, resolved: ResolvedRequest, node: Node, label: str) -> dict[str, Any]:
    """The address and the port, which no other instance of the same call may have."""
    host, port = resolved.pick("host"), resolved.pick("port")
    if port.result in node.ports:
        holder = node.ports[port.result]
        raise Refusal(
            "port_taken", f"{label}: port {port.result} is planned for {holder} already. Choose another port."
        )
    if EVERY.first <= port.result <= EVERY.last:
        raise Refusal(
            "port_kept",
            f"{label}: port {port.result} is one of those that servers have for their own processes "
            f"({EVERY.first} to {EVERY.last}), which are closed to others. Choose another port.",
        )
    because = resolved.request.open_without_keys
    check_reach(host.result, guarded(resolved.request), because)
    if because is not None:
        draft.warn(f"Whoever reaches {host.result}:{port.result} may ask without a key: {because}")
    if port.result < LOWEST_PORT:
        draft.warn(
            f"port is {port.result}: a container without capabilities on the host's network cannot bind below "
            f"{LOWEST_PORT}, unless the node's net.ipv4.ip_unprivileged_port_start allows it. Choose a higher port, "
            f"and put a proxy before it where clients need {port.result}."
        )
    draft.option("--host", host)
    draft.option("--port", port)
    opened = {} if because is None else {"open_without_keys": because}
    return {"host": host.result, "port": port.result, **opened}


def model_options(draft: Draft, resolved: ResolvedRequest, entry: ModelEntry | None, surface: ServerSurface) -> None:
    """What a model brings with it: trust, its parser, its task, limits of its pictures and sounds as JSON."""
    request = resolved.request
    from_catalogue = given("model-fact", f"catalog/models/{resolved.catalogue_name}.yml")
    if request.trust_remote_code is not None:
        draft.option("--trust-remote-code", resolved.said("trust_remote_code"))
    elif entry is not None:
        draft.option("--trust-remote-code", from_catalogue(value=entry.trust_remote_code))
    draft.option("--enforce-eager", resolved.said("enforce_eager"))
    _parser(draft, resolved, surface)
    if entry is not None and entry.task in POOLING_TASKS:
        _pooling(draft, entry, from_catalogue, surface)
    own = {name: getattr(entry, name) for name in MEDIA_OPTIONS} if entry is not None else {}
    for name, option in MEDIA_OPTIONS.items():
        asked = getattr(request, name)
        value = own.get(name) if asked is None else asked
        if value:
            source = from_catalogue if asked is None else resolved.source(name)
            draft.option(option, source(value=_written(name, value, resolved)))


def warn_of_media_defaults(draft: Draft, surface: ServerSurface) -> None:
    """Say where a fork's plan for pictures, films and sounds differs from its manual.

    Manual v1.22 §3.4.1 gives --limit-mm-per-prompt and --mm_processor_kwargs alone. It does not use the start script,
    whose values these plans have.
    """
    linear = draft.environment.get("VLLM_EXPONENTIAL_BUCKETING") == "false"
    if not linear or draft.argument("--limit-mm-per-prompt") is None:
        return
    sizes = {name: draft.argument(f"--{name.replace('_', '-')}") for name in SCRIPT_SIZES}
    told = ", ".join(f"{name} {value}" for name, value in sizes.items() if value is not None)
    draft.warn(
        f"The manual leaves buckets and sizes of models for pictures, films and sounds to the server of release "
        f"{surface.release}: exponential buckets, the model's length and vLLM's own batch. This plan has the start "
        f"script's: linear buckets, {told}. Set exponential_bucketing: true for the manual's buckets, and the sizes "
        f"where others are meant."
    )


def media(request: InstanceRequest, entry: ModelEntry | None) -> Mapping[str, int]:
    """How many pictures, films and sounds a prompt may have: the request's, else those of the model's file."""
    if request.limit_mm_per_prompt is not None:
        return request.limit_mm_per_prompt
    return entry.limit_mm_per_prompt if entry is not None else {}


def _written(name: str, value: Mapping[str, object], resolved: ResolvedRequest) -> str:
    """A mapping as the release's parser takes it: JSON, or limits of media as ``image=5,video=5``.

    The DeepSeek branch parses those pairs only (nullable_kvs of vllm-fork 687dd5bbd and 016b6bd20, arg_utils.py); the
    forks of 1.21 and 1.22 call the pairs deprecated, and vLLM from 0.10 on takes JSON only.
    """
    if name == "limit_mm_per_prompt" and resolved.release.constants.get("media_limits") == "pairs":
        return ",".join(f"{kind}={count}" for kind, count in sorted(value.items()))
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _parser(draft: Draft, resolved: ResolvedRequest, surface: ServerSurface) -> None:
    """The parser of a model that thinks; vLLM until 0.9 asks for the switch as well."""
    if resolved.parser is not None and surface.knows("--reasoning-parser"):
        if surface.knows("--enable-reasoning"):
            draft.option("--enable-reasoning", reasoning_parser(parser=True))
        draft.option("--reasoning-parser", reasoning_parser(parser=resolved.parser))
    elif resolved.parser is not None:
        draft.warn(
            f"Release {resolved.release.name} has no reasoning parser: answers come with the thoughts before them."
        )


def _pooling(draft: Draft, entry: ModelEntry, from_catalogue: Rule, surface: ServerSurface) -> None:
    """What a model is for that writes no text. vLLM since 0.11 says what it is run as, and what its output becomes."""
    if surface.knows("--convert"):
        draft.option("--runner", from_catalogue(value="pooling"))
        draft.option("--convert", from_catalogue(value=CONVERSIONS[entry.task]))
    else:
        draft.option("--task", from_catalogue(value=entry.task))


def shutdown(draft: Draft, release: ReleaseEntry, surface: ServerSurface) -> None:
    """How long a server finishes its requests after it is told to stop, if its release can do that; most abort them."""
    seconds = release.constants.get("shutdown_timeout")
    if seconds is not None and surface.knows("--shutdown-timeout"):
        draft.option("--shutdown-timeout", given("shutdown", f"catalog/releases/{release.name}.yml")(value=seconds))


@rule("engine-ready-timeout", "gaudi-serving: twice the estimate; vLLM's own 600 s ends a start that is well")
def engine_ready_timeout(weights_bytes: int | None, graphs: int | None) -> int:
    """Seconds for the engine to load and warm up, twice over.

    Two hours where the graphs are not known; two hours beside the graphs where the size of the weights is not.
    """
    if graphs is None:
        return LONGEST_START
    warm_up = 2 * graphs * GRAPH_SECONDS
    if weights_bytes is None:
        return LONGEST_START + warm_up
    return max(SHORTEST_START, 2 * (weights_bytes // LOADED_A_SECOND) + warm_up)


def ready_timeout(
    draft: Draft, surface: ServerSurface, buckets: Mapping[str, object] | None, memory: Mapping[str, object] | None
) -> None:
    """How long the process that answers waits for the engine, where the server reads that and nobody said it."""
    if surface.reads(ENGINE_READY) and ENGINE_READY not in draft.environment:
        size, graphs = (memory or {}).get("weights_bytes"), (buckets or {}).get("graphs")
        draft.variable(ENGINE_READY, engine_ready_timeout(weights_bytes=size, graphs=graphs))


def network_variables(
    draft: Draft, request: InstanceRequest, release: ReleaseEntry, host: str, node: Node, host_nics: bool
) -> None:
    """The address a server's processes announce to each other, and the interface they talk over.

    Ports between them have no key, so that processes of one node talk over loopback unless a network is asked for, or
    the cards talk over host NICs. What the release's own script does still says which addresses cannot be.
    """
    family = str(release.constants.get("network", ""))
    asked = request.node_address is not None or request.network_interface is not None
    addresses = read_addresses(node.topology.get("addresses"))
    found = ONE_NODE
    if family or asked:
        scripts = network(family or "listen", host, request.node_address, request.network_interface, addresses)
        found = scripts if asked or host_nics else ONE_NODE
    elif host_nics:
        return
    values = {"VLLM_HOST_IP": found.address}
    if found.interface is None:
        draft.warn(
            f"No interface of this node is known to carry {found.address}: GLOO and HCCL choose one themselves. "
            f"Set network_interface."
        )
    else:
        values["GLOO_SOCKET_IFNAME"] = found.interface
        # Loopback is no way between cards that leave the node's own links.
        leaves = between_cards(request, node) if host_nics and found.interface == "lo" and not asked else None
        values["HCCL_SOCKET_IFNAME"] = leaves or found.interface
    inputs = {
        "host": host,
        "node_address": request.node_address,
        "network_interface": request.network_interface,
        "addresses": [list(pair) for pair in addresses],
    }
    surface = ServerSurface(release)
    for name, value in values.items():
        if surface.reads(name):
            draft.environment[name] = value
            draft.note(f"environment.{name}", value, found.rule, found.source, inputs)
    for sentence in found.warnings:
        draft.warn(sentence)


@rule("own-ports", "gaudi-serving: PyTorch's store listens on every address, so that its port is closed to others")
def own_ports(modules: Sequence[int]) -> str:
    """The first port that the server's own processes try, by its lowest card."""
    return str(first_port(modules))


def own_ports_variable(draft: Draft, cards: Sequence[PlacementCard], surface: ServerSurface) -> None:
    """Ports that are known beforehand, so that they can be closed; nothing where the release does not read which."""
    if surface.reads(VARIABLE):
        draft.variable(VARIABLE, own_ports(modules=[card.module_id for card in cards]))


def closed_ports(environment: Mapping[str, str]) -> dict[str, Any]:
    """The part of a plan's address that says which ports are closed to others; empty if they are unknown."""
    ports = closed_from(environment.get(VARIABLE, ""))
    return {} if ports is None else {"closed_ports": [ports.first, ports.last]}


def between_cards(request: InstanceRequest, node: Node) -> str | None:
    """The interface over which cards find each other: the one asked for, else the first that leaves the node."""
    found = outside(read_addresses(node.topology.get("addresses")))
    by_address = {address: interface for interface, address in found}
    if request.network_interface is not None or request.node_address in by_address:
        return request.network_interface or by_address[str(request.node_address)]
    return found[0][0] if found else None


def extra_environment(draft: Draft, request: InstanceRequest, release: ReleaseEntry, surface: ServerSurface) -> None:
    """The caller's variables win over computed ones; what the release does not read is left out, with a warning."""
    forced = release.constants.get("forced_environment", ())
    for name, value in request.extra_environment.items():
        if name in ("HABANA_VISIBLE_MODULES", "HLS_MODULE_ID"):
            continue
        surface.check_variable(name, value)
        if not surface.reads(name):
            draft.warn(f"extra_environment sets {name}, which release {release.name} does not read: it is left out.")
        elif name in forced and name in draft.environment:
            if draft.environment[name] != value:
                draft.warn(
                    f"extra_environment sets {name}={shown(value)}, but this release needs "
                    f"{draft.environment[name]}, which stays. Use an option of the request instead."
                )
        else:
            draft.environment[name] = value
            draft.note(f"environment.{name}", value, "extra-environment", "the request, or its model", {"value": value})


def execution_mode(draft: Draft, request: InstanceRequest, release: ReleaseEntry) -> str:
    """Which of the four modes PT_HPU_LAZY_MODE and enforce_eager select."""
    lazy = draft.environment.get("PT_HPU_LAZY_MODE", "1")
    eager = bool(request.enforce_eager)
    mode = release.execution_modes.get(f"{lazy} {int(eager)}")
    if mode is None:
        raise Refusal(
            "unknown_choice", f"PT_HPU_LAZY_MODE is {shown(lazy)}, but must be 0 or 1. Use the option lazy_mode."
        )
    if f"note {lazy}" in release.execution_modes:
        draft.warn(release.execution_modes[f"note {lazy}"])
    draft.note(
        "execution_mode",
        mode,
        "execution-modes",
        "vLLM documentation, Intel Gaudi, execution modes",
        {"PT_HPU_LAZY_MODE": lazy, "enforce_eager": eager},
    )
    return mode
