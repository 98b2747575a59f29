"""The serving plan: a request, a release, a model and a node's topology in; one document out, or a refusal.

Pure: nothing is read, written or asked here. The module ``serving_plan`` collects the facts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..base.absent import TWO_NODES, absent
from ..base.checks import Refusal, mapping, shown
from ..cards.placement import Card, Reservations, choose, cpu_binding, read_cards
from ..catalogue.entries import POOLING_TASKS, CardType, ModelEntry, ReleaseEntry
from ..families.base import Family
from ..families.registry import family_of
from ..model.facts import DTYPE_METHODS, ModelFacts, facts
from ..model.headers import Weights
from ..model.positions import overrides_in
from ..model.remote_code import check_code, code_of
from ..request.options import ALL, RecipeCache, Request, check_options, path, registry
from ..request.resolved import Wish
from ..rules.draft import Draft, Origin, given, rule
from .arguments import Surface, check_environment, join_arguments, options_in_arguments
from .buckets import buckets_part
from .container import Setting, check_places, container, image, requires
from .memory import memory_part
from .network import network, read_addresses
from .refusals import (
    check_block_size,
    check_card_names,
    check_card_type,
    check_fp8,
    check_heads,
    check_hub,
    check_kv_cache,
    check_lengths,
    check_missing,
    check_quantization,
    check_supported,
    fabric_warning,
    inputs_of,
    scale_once,
)

SCHEMA = 1
RECIPE_ROOT = "/data/recipe_cache"
# The kernel's own limit for processes that lack NET_BIND_SERVICE, which the container drops.
LOWEST_PORT = 1024
# More cards than this on one node are beyond every manual and script.
MOST_TRIED = 8


@dataclass(frozen=True)
class Node:
    """The machine a plan is for, and what is already spoken for on it."""

    topology: Mapping[str, Any]
    reservations: Reservations = field(default_factory=Reservations)
    # Module id and port to the instance that an earlier request of the same call gave them to.
    planned: Mapping[int, str] = field(default_factory=dict)
    ports: Mapping[int, str] = field(default_factory=dict)
    weights_root: str = "/data/models"
    image_registry: str | None = None


def plan(
    request: object,
    release: ReleaseEntry,
    entry: ModelEntry | None,
    cards: Mapping[str, CardType],
    node: Node,
    read_weights: Callable[[str], Weights | None] | None = None,
) -> dict[str, Any]:
    """Plan one request: the plan document. Raises :class:`Refusal` with one sentence for a person.

    ``read_weights`` tells what lies at a path of the node; None where the node is not there to be asked.
    """
    family = family_of(release)
    draft = Draft(origin_of(release))
    card_type = cards.get(_card_name(node.topology))
    said = options_in_arguments(check_options(request))
    asked = frozenset(name for name, value in said.items() if value is not None)
    wanted = Request.from_mapping(options_in_arguments(merged(request, release, entry, card_type)))
    wanted = _options_in_environment(wanted, family)
    if wanted.modules == ALL:
        wanted = replace(wanted, modules=_all_modules(node.topology) or None)
    weights_path, name = _weights_path(wanted, entry, node, card_type)
    weights = read_weights(weights_path) if read_weights is not None and weights_path.startswith("/") else None
    model = facts(weights_path, entry, wanted.model_config, overrides_in(wanted.extra_args))
    label = wanted.instance or wanted.model or model.name
    check_supported(wanted, asked, release, entry, model, draft, weights)
    # What lies on the node counts before what a request says of it.
    said_code = code_of(wanted.model_config) if wanted.model_config is not None else None
    check_code(wanted, entry, weights.code if weights is not None else said_code, release, label, draft)
    chosen, all_cards = _place(wanted, release, model, node, label, draft)
    check_card_type(chosen, cards, draft)
    card_type = cards.get(chosen[0].name or "")
    dtype, quantization = _dtype(wanted, release, model, card_type)
    wanted = _with_recipe_cache(wanted, release)
    wish = Wish(
        request=wanted,
        asked=asked,
        release=release,
        model=model,
        catalogue_name=entry.name if entry is not None else None,
        weights=weights_path,
        dtype=dtype,
        quantization_config=quantization,
        parser=entry.reasoning_parser if entry is not None else family.reasoning_parser(model),
        card_name=chosen[0].name or "",
        cards=len(chosen),
        profile_name=f"serve_{model.name}_{dtype}_{chosen[0].name}",
    )
    check_quantization(wish)
    check_missing(weights, weights_path, label)
    check_hub(weights_path, wanted, draft)
    check_fp8(wish, entry, weights, card_type, label)
    check_block_size(wish, draft)

    listen = _listen(draft, wish, node, label)
    if name is not None:
        draft.option("--served-model-name", served_names(name=name, weights=weights_path))
    lengths = family.fill(draft, wish)
    surface = Surface(release)
    _model_options(draft, wish, entry, surface)
    _module_variables(draft, chosen, all_cards, release)
    _network(draft, wanted, release, listen["host"], node)
    scale_once(draft, weights, card_type, surface)
    _extra_environment(draft, wanted, release, surface)
    family.fill_last(draft, wish)
    join_arguments(draft, wanted.extra_args, surface)
    check_lengths(lengths, wish, draft)
    check_environment(draft, surface)
    check_kv_cache(draft, wish)

    setting = Setting(
        request=wanted,
        release=release,
        entry=entry,
        weights_path=weights_path,
        weights=weights,
        quantization=quantization,
        cards=len(chosen),
        weights_root=_root(node),
    )
    check_places(setting)
    memory = memory_part(draft, wish, chosen, card_type, entry, weights, lengths, label)
    fabric = fabric_warning(wish, card_type)
    document = {
        "schema": SCHEMA,
        "instance": wanted.instance,
        "model": wanted.model,
        "served_model_name": name or weights_path,
        # What it can be asked: chat, completion, embedding, rerank.
        "task": entry.task if entry is not None else "generate",
        "release": release.name,
        "image": image(release, _registry(node)),
        "container": container(setting, draft.environment),
        "modules": [{"module_id": card.module_id, "serial": card.serial} for card in chosen],
        "environment": dict(sorted(draft.environment.items())),
        "cpu_binding": _cpu_binding(draft, release, all_cards, chosen),
        "arguments": [
            "python3",
            "-m",
            "vllm.entrypoints.openai.api_server",
            *[word for option in draft.arguments for word in option],
            *wanted.extra_args,
        ],
        "listen": listen,
        "execution_mode": _execution_mode(draft, wanted, release),
        "buckets": buckets_part(draft, wish, lengths, memory),
        "memory": memory,
        "requires": {**requires(setting), "host_nics": fabric is not None},
    }
    if fabric is not None:
        draft.warn(fabric)
    return {**document, "explain": draft.explain, "warnings": draft.warnings}


def merged(
    request: object, release: ReleaseEntry, entry: ModelEntry | None, card_type: CardType | None
) -> dict[str, object]:
    """The request over the model's defaults, later ones winning: model, model and release, model and card type.

    Options that belong together are replaced together: a length that is asked for drops the default ranges (where the
    release can plan by length) and the default token budget, ranges that are asked for drop a default length.
    Variables and further arguments add up.
    """
    said = mapping(request, "A request")
    wanted = {name: value for name, value in said.items() if value is not None}
    if "recipe_cache" in said and said["recipe_cache"] is None:
        # A cache without a value is no cache; leaving the option out asks for the default one.
        wanted["recipe_cache"] = False
    if entry is None:
        return wanted
    layers: list[Mapping[str, object]] = [entry.defaults, entry.release_defaults.get(release.name, {})]
    if card_type is not None:
        layers.append(entry.card_defaults.get(card_type.name, {}))
    defaults: dict[str, object] = {}
    for layer in layers:
        defaults.update(_added(defaults, layer))
    ranges = {"input_range", "output_range"}
    dropped: set[str] = set()
    by_length = family_of(release).plans_by_length
    if "max_model_len" in wanted and not ranges & set(wanted):
        dropped = {"max_num_batched_tokens"} | (ranges if by_length else set())
    elif ranges & set(wanted) and by_length:
        dropped = {"max_model_len", "max_num_batched_tokens"}
    kept = {name: value for name, value in defaults.items() if name not in dropped}
    return {**kept, **_added(kept, wanted)}


def _added(below: Mapping[str, object], above: Mapping[str, object]) -> dict[str, object]:
    """``above``, its variables and arguments joined to those below; values of a wrong type stay, to be refused."""
    result = dict(above)
    variables, more_variables = below.get("extra_environment"), above.get("extra_environment")
    if isinstance(variables, Mapping) and isinstance(more_variables, Mapping):
        result["extra_environment"] = {**variables, **more_variables}
    arguments, more_arguments = below.get("extra_args"), above.get("extra_args")
    if isinstance(arguments, (list, tuple)) and isinstance(more_arguments, (list, tuple)):
        result["extra_args"] = [*arguments, *more_arguments]
    return result


def origin_of(release: ReleaseEntry) -> Origin:
    """Where this release's rules are written down."""
    return Origin(f"vllm-fork {release.pins['vllm_fork'].commit[:9]}", release.constants.get("start_script"))


def _card_name(topology: Mapping[str, Any]) -> str:
    names = {card.get("name") for card in topology.get("cards") or [] if card.get("name")}
    return sorted(names)[0] if names else ""


def _all_modules(topology: Mapping[str, Any]) -> tuple[int, ...]:
    ids = (card.get("module_id") for card in topology.get("cards") or [])
    return tuple(sorted(module_id for module_id in ids if isinstance(module_id, int)))


def _options_in_environment(request: Request, family: Family) -> Request:
    """Variables of the caller that decide more than themselves become the options they stand for."""
    stands_for = {"QUANT_CONFIG": "quantization_config", **family.options_in_environment}
    environment = dict(request.extra_environment)
    changed: dict[str, Any] = {}
    for variable, option in stands_for.items():
        if variable in environment:
            changed[option] = getattr(Request.from_mapping({option: environment.pop(variable)}), option)
    return replace(request, extra_environment=environment, **changed)


def _weights_path(
    request: Request, entry: ModelEntry | None, node: Node, card_type: CardType | None
) -> tuple[str, str | None]:
    """The path (or hub id) that is served, and the name clients ask for; None leaves the name to the server."""
    if request.model is not None and entry is None:
        sentence = absent(request.model)
        if sentence is not None:
            raise Refusal(f"model is {shown(request.model)}. {sentence}")
        raise Refusal(
            f"model is {shown(request.model)}, which has no file in catalog/models. Choose one, or give weights."
        )
    name = request.served_model_name or (entry.name if entry is not None else None)
    if request.weights is not None:
        return request.weights, name
    if request.model_config is not None:
        raise Refusal(
            f"model_config describes weights, but the request names {shown(request.model)}, whose file in "
            f"catalog/models says what it is. Leave model_config out, or give weights."
        )
    if entry is None:
        raise Refusal("A request needs model (a name in catalog/models) or weights (a path on the node or a hub id).")
    directory = entry.directory
    if entry.conversion is not None and card_type is not None and card_type.name not in entry.conversion.card_types:
        # This card takes the weights as they are published.
        directory = entry.conversion.from_directory
    return f"{_root(node)}/{directory}", name


def _registry(node: Node) -> str | None:
    """The registry to take the image from; None where the release's own counts."""
    return registry(node.image_registry, "image_registry") if node.image_registry else None


def _root(node: Node) -> str:
    """The directory of all weights, without a slash at its end."""
    return path(node.weights_root, "weights_root").rstrip("/")


def _with_recipe_cache(request: Request, release: ReleaseEntry) -> Request:
    """The recipe cache of the release, or one of the instance's own; switched off it stays off."""
    directory = release.constants.get("recipe_cache")
    if directory is None and request.instance is not None:
        directory = f"{RECIPE_ROOT}/{request.instance}"
    if request.recipe_cache is not None or directory is None:
        return request
    return replace(request, recipe_cache=RecipeCache(str(directory)))


def _place(
    request: Request, release: ReleaseEntry, model: ModelFacts, node: Node, label: str, draft: Draft
) -> tuple[list[Card], list[Card]]:
    """The chosen cards and all cards."""
    fixed = release.constants.get("tensor_parallel_size")
    asked = request.tensor_parallel_size
    if fixed is not None and asked not in (None, fixed):
        raise Refusal(
            f"{label}: tensor_parallel_size is {asked}, but release {release.name} always serves on {fixed} cards. "
            f"Leave it out, or use another release."
        )
    count = int(fixed or asked or (len(request.modules) if request.modules else 1))
    if request.modules is not None and len(request.modules) != count:
        raise Refusal(
            f"{label}: modules names {len(request.modules)} cards, but tensor_parallel_size is {count}. "
            f"Name as many modules as the instance has cards."
        )
    cards = read_cards(node.topology, node.reservations, request.instance, node.planned)
    if not cards:
        raise Refusal(
            f"{label} asks for {count} card{'s' if count > 1 else ''}, but none was found on the node. "
            f"Check that the driver is loaded and that hl-smi lists the cards."
        )
    if request.modules is None and count > len(cards):
        raise Refusal(
            f"{label} asks for {count} cards, but the node has {len(cards)} "
            f"(modules {_list([card.module_id for card in cards])}). Lower tensor_parallel_size, or serve it on a node "
            f"with more cards. {TWO_NODES.sentence}"
        )
    check_heads(model, count, len(cards), label)
    own = node.reservations.modules.get(request.instance or "", ())
    for card in cards:
        held = node.reservations.serials.get(card.module_id)
        if card.module_id in own and held and card.serial and held != card.serial:
            raise Refusal(
                f"{label}: module {card.module_id} had the serial {held} when it was reserved, now it has "
                f"{card.serial}: the card was exchanged. Release the instance's reservation and plan again."
            )
    within = _within(request, label, draft, count, fixed=fixed is not None)
    chosen = choose(cards, count, what=label, wanted=request.modules, within=within, own=own)
    check_card_names(chosen, label)
    moved = sorted(own) != sorted(card.module_id for card in chosen)
    if request.modules is None and len(own) == count and moved:
        lost = "; ".join(f"{card.module_id}: {card.taken}" for card in cards if card.module_id in own and card.taken)
        draft.warn(
            f"{label} holds modules {_list(own)}, which it cannot have back ({lost or 'not there'}): it moves to "
            f"{_list([card.module_id for card in chosen])}."
        )
    draft.note(
        "modules",
        [card.module_id for card in chosen],
        "modules-given" if request.modules else "emptiest-node-first",
        "the request" if request.modules else "gaudi-serving: one NUMA node, the emptiest that fits",
        {
            "count": count,
            "free": [card.module_id for card in cards if card.taken is None],
            "numa_nodes": {str(card.module_id): card.node for card in chosen},
            "own": list(own),
        },
    )
    if count > MOST_TRIED:
        draft.warn(f"{count} cards on one node are more than any manual serves with: nobody is known to have tried.")
    return chosen, cards


def _within(request: Request, label: str, draft: Draft, count: int, *, fixed: bool) -> tuple[int, ...] | None:
    """The cards that variables of the caller narrow the choice to."""
    environment = request.extra_environment
    if "HABANA_VISIBLE_DEVICES" in environment:
        raise Refusal(
            f"{label}: extra_environment sets HABANA_VISIBLE_DEVICES, which counts device indexes that change over "
            f"reboots; they are looked up at every start. Use modules."
        )
    listed_text = environment.get("HABANA_VISIBLE_MODULES") or environment.get("HLS_MODULE_ID")
    if not listed_text or listed_text.lower() == "all":
        return None
    listed = Request.from_mapping({"modules": listed_text}).modules or ()
    if request.modules is not None:
        if sorted(request.modules) != sorted(listed):
            draft.warn(
                f"extra_environment narrows the cards to modules {_list(listed)}, but the option modules names "
                f"{_list(request.modules)}: the option counts. Leave the variable out."
            )
        return None
    if fixed and len(listed) != count:
        draft.warn(
            f"extra_environment narrows the cards to modules {_list(listed)}, but this release always serves on "
            f"{count}: all {count} are used. Use another release for fewer cards."
        )
        return None
    return listed


def _list(modules: Sequence[int]) -> str:
    return ",".join(str(module_id) for module_id in modules)


def _dtype(
    request: Request, release: ReleaseEntry, model: ModelFacts, card_type: CardType | None
) -> tuple[str, str | None]:
    """The data type and the quantisation file. A given file means FP8, as in the scripts of 1.22.

    The vendor's start scripts ask for the file of Gaudi2 on every card; calibrate_model.sh names what it writes after
    the card (g2, g3), so that they would not find what was measured on Gaudi3.
    """
    if request.quantization_config is not None:
        if request.dtype not in (None, "fp8", "bfloat16"):
            raise Refusal(f"quantization_config means FP8, but dtype is {request.dtype}. Leave one of the two out.")
        return "fp8", request.quantization_config
    dtype = request.dtype or _dtype_of_weights(model) or str(release.constants.get("dtype", "bfloat16"))
    if dtype != "fp8":
        return dtype, None
    template = release.constants.get("quantization_config")
    if not template:
        raise Refusal(f"dtype is fp8, but release {release.name} serves no FP8. Use bfloat16 or another release.")
    device = "g3" if card_type is not None and card_type.generation == "gaudi3" else "g2"
    return "fp8", str(template).format(name=model.name.lower(), fork=release.fork_directory, device=device)


def _dtype_of_weights(model: ModelFacts) -> str | None:
    """The data type of quantised weights where none is asked for; None where the release's own counts."""
    if model.stored_fp8:
        return "auto"
    return model.quant_method if model.quant_method in DTYPE_METHODS else None


def _listen(draft: Draft, wish: Wish, node: Node, label: str) -> dict[str, Any]:
    host, port = wish.pick("host"), wish.pick("port")
    if port.result in node.ports:
        holder = node.ports[port.result]
        raise Refusal(f"{label}: port {port.result} is planned for {holder} already. Choose another port.")
    if wish.request.host is None and host.result == "0.0.0.0":  # noqa: S104 - compared, not bound
        draft.warn(
            f"Nobody said where to listen: the server listens on every address ({host.result}), as the release's own "
            f"script has it. Set host to 127.0.0.1 unless other machines are meant to reach it."
        )
    if port.result < LOWEST_PORT:
        draft.warn(
            f"port is {port.result}: a container without capabilities on the host's network cannot bind below "
            f"{LOWEST_PORT}, unless the node's net.ipv4.ip_unprivileged_port_start allows it. Choose a higher port, "
            f"and put a proxy before it where clients need {port.result}."
        )
    draft.option("--host", host)
    draft.option("--port", port)
    return {"host": host.result, "port": port.result}


def _model_options(draft: Draft, wish: Wish, entry: ModelEntry | None, surface: Surface) -> None:
    """What a model brings with it: trust, its parser, its task, limits of its pictures and sounds as JSON."""
    request = wish.request
    from_catalogue = given("model-fact", f"catalog/models/{wish.catalogue_name}.yml")
    if request.trust_remote_code is not None:
        draft.option("--trust-remote-code", wish.said("trust_remote_code"))
    elif entry is not None:
        draft.option("--trust-remote-code", from_catalogue(value=entry.trust_remote_code))
    draft.option("--enforce-eager", wish.said("enforce_eager"))
    if wish.parser is not None and surface.knows("--reasoning-parser"):
        draft.option("--enable-reasoning", reasoning_parser(parser=True))
        draft.option("--reasoning-parser", reasoning_parser(parser=wish.parser))
    elif wish.parser is not None:
        draft.warn(f"Release {wish.release.name} has no reasoning parser: answers come with the thoughts before them.")
    if entry is None:
        return
    if entry.task in POOLING_TASKS:
        draft.option("--task", from_catalogue(value=entry.task))
    for option, value in (
        ("--limit-mm-per-prompt", entry.limit_mm_per_prompt),
        ("--mm-processor-kwargs", entry.mm_processor_kwargs),
    ):
        if value:
            draft.option(option, from_catalogue(value=json.dumps(value, sort_keys=True, separators=(",", ":"))))


def _module_variables(draft: Draft, chosen: Sequence[Card], cards: Sequence[Card], release: ReleaseEntry) -> None:
    """Module ids for the framework: a list for several cards, HLS_MODULE_ID for one."""
    name = "HLS_MODULE_ID" if len(chosen) == 1 else "HABANA_VISIBLE_MODULES"
    draft.variable(name, module_ids(modules=[card.module_id for card in chosen]))
    if release.constants.get("visible_devices") and len(chosen) == len(cards):
        # With every card of the node chosen, "all" is what the supervisor's own list of indexes means as well.
        draft.variable("HABANA_VISIBLE_DEVICES", ALL_DEVICES(value=release.constants["visible_devices"]))


@rule("served-names", "vLLM answers to every name and shows the first; the vendor's manuals ask by the path")
def served_names(name: str, weights: str) -> list[str]:
    """The name clients ask for, and the path as the server sees it, each once."""
    return [name] if name == weights else [name, weights]


@rule("reasoning-parser", "the model's file, or its type; only for models that think")
def reasoning_parser(parser: str | bool) -> str | bool:
    """The DeepSeek script names deepseek_r1 for every model; an answer of another model would come out empty."""
    return parser


@rule("module-ids", "script:set_module_ids")
def module_ids(modules: Sequence[int]) -> str:
    """Module ids, in the order of the request."""
    return _list(modules)


ALL_DEVICES = given("all-devices", "script:")


def _network(draft: Draft, request: Request, release: ReleaseEntry, host: str, node: Node) -> None:
    family = str(release.constants.get("network", ""))
    if not family and request.node_address is None and request.network_interface is None:
        return
    addresses = read_addresses(node.topology.get("addresses"))
    found = network(family or "listen", host, request.node_address, request.network_interface, addresses)
    values = {"VLLM_HOST_IP": found.address}
    if found.interface is None:
        draft.warn(
            f"No interface of this node is known to carry {found.address}: GLOO and HCCL choose one themselves. "
            f"Set network_interface."
        )
    else:
        values["GLOO_SOCKET_IFNAME"] = values["HCCL_SOCKET_IFNAME"] = found.interface
    inputs = {
        "host": host,
        "node_address": request.node_address,
        "network_interface": request.network_interface,
        "addresses": [list(pair) for pair in addresses],
    }
    for name, value in values.items():
        draft.environment[name] = value
        draft.note(f"environment.{name}", value, found.rule, found.source, inputs)
    for sentence in found.warnings:
        draft.warn(sentence)


def _extra_environment(draft: Draft, request: Request, release: ReleaseEntry, surface: Surface) -> None:
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


def _execution_mode(draft: Draft, request: Request, release: ReleaseEntry) -> str:
    """Which of the four modes PT_HPU_LAZY_MODE and enforce_eager select."""
    lazy = draft.environment.get("PT_HPU_LAZY_MODE", "1")
    eager = bool(request.enforce_eager)
    mode = release.execution_modes.get(f"{lazy} {int(eager)}")
    if mode is None:
        raise Refusal(f"PT_HPU_LAZY_MODE is {shown(lazy)}, but must be 0 or 1. Use the option lazy_mode.")
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


def _cpu_binding(draft: Draft, release: ReleaseEntry, cards: Sequence[Card], chosen: Sequence[Card]) -> list[str]:
    binding = cpu_binding(cards, chosen)
    by_script = family_of(release).script_binds_cpus
    source = "script:set_numactl; ranked within the node" if by_script else "gaudi-serving: a share of the node's cores"
    draft.note("cpu_binding", binding, "cores-by-rank", source, {"cards": inputs_of(chosen)})
    if not binding:
        draft.warn("The node's CPU lists are not known, so that the server is not bound to cores near its cards.")
    return binding
