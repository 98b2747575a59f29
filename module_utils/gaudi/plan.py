"""The serving plan: a request, a release, a model and a node's topology in; one document out, or a refusal.

Pure: nothing is read, written or asked here. The module ``serving_plan`` collects the facts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from . import buckets, memory
from .catalogue import CardType, ModelEntry, ReleaseEntry
from .checks import Refusal, mapping, shown
from .placement import Card, Reservations, choose, cpu_binding, read_cards
from .plan_arguments import Surface, check_environment, join_arguments
from .plan_family import FAMILIES, Lengths, Wish, partial_warmup
from .plan_model import ModelFacts, facts, thinking_parser
from .plan_network import network, read_addresses
from .plan_weights import Weights
from .request import RecipeCache, Request, path
from .rules import REQUESTED, Draft, either

SCHEMA = 1
RECIPE_ROOT = "/data/recipe_cache"
PROFILE_ROOT = "/var/lib/gaudi-serving/profiles"

# FP8 models above this many parameters span cards that only host NICs connect well (manual v1.22 §3.1.1).
LARGE_FP8_PARAMETERS = 300 * 10**9


@dataclass(frozen=True)
class Node:
    """The machine a plan is for, and what is already spoken for on it."""

    topology: Mapping[str, Any]
    reservations: Reservations = field(default_factory=Reservations)
    planned: Mapping[int, str] = field(default_factory=dict)
    ports: Mapping[int, str] = field(default_factory=dict)
    weights_root: str = "/data/models"
    image_registry: str | None = None


def merged(request: object, release: ReleaseEntry, entry: ModelEntry | None, card_name: str) -> dict[str, object]:
    """The request over the model's defaults, later ones winning: model, model and release, model and card type.

    Options that belong together are replaced together: a length that is asked for drops the default ranges (where the
    release can plan by length) and the default token budget, ranges that are asked for drop a default length.
    """
    given = dict(mapping(request, "A request"))
    defaults: dict[str, object] = {}
    extra: dict[str, object] = {}
    arguments: list[object] = []
    layers: list[Mapping[str, object]] = []
    if entry is not None:
        layers = [entry.defaults, entry.release_defaults.get(release.name, {}), entry.card_defaults.get(card_name, {})]
    for layer in [*layers, given]:
        for name, value in layer.items():
            if name == "extra_environment" and isinstance(value, Mapping):
                extra.update(value)
            elif name == "extra_args" and isinstance(value, Sequence) and not isinstance(value, str):
                arguments += value
            elif layer is not given:
                defaults[name] = value
    asked = {name for name, value in given.items() if value is not None}
    if "max_model_len" in asked and not asked & {"input_range", "output_range"}:
        dropped = {"max_num_batched_tokens"} | ({"input_range", "output_range"} if release.rules == "1.22" else set())
    elif asked & {"input_range", "output_range"} and release.rules == "1.22":
        dropped = {"max_model_len", "max_num_batched_tokens"}
    else:
        dropped = set()
    result = {name: value for name, value in defaults.items() if name not in dropped}
    result.update({name: value for name, value in given.items() if value is not None})
    if extra and not isinstance(given.get("extra_environment", {}), str):
        result["extra_environment"] = extra
    if arguments and isinstance(given.get("extra_args", []), Sequence):
        result["extra_args"] = arguments if not isinstance(given.get("extra_args"), str) else given["extra_args"]
    return result


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
    card_name = _card_name(node.topology)
    wanted = Request.from_mapping(merged(request, release, entry, card_name))
    wanted = _from_environment(wanted, release)
    draft = Draft()
    path_, name = _weights_path(wanted, entry, node)
    weights = read_weights(path_) if read_weights is not None and path_.startswith("/") else None
    model = facts(path_, entry, wanted.model_config)
    label = wanted.instance or wanted.model or model.name
    _check_supported(wanted, release, entry, model, draft)
    chosen, all_cards, within = _place(wanted, release, entry, model, node, label, draft)
    count = len(chosen)
    dtype, quantization = _dtype(wanted, release, model, node, draft)
    if wanted.instance is not None and wanted.recipe_cache is None and not release.constants.get("recipe_cache"):
        wanted = replace(wanted, recipe_cache=RecipeCache(f"{RECIPE_ROOT}/{wanted.instance}"))
    elif wanted.recipe_cache is None and release.constants.get("recipe_cache"):
        wanted = replace(wanted, recipe_cache=RecipeCache(str(release.constants["recipe_cache"])))
    wish = Wish(
        request=wanted,
        release=release,
        model=model,
        weights=path_,
        dtype=dtype,
        quantization_config=quantization,
        parser=thinking_parser(model, entry),
        card_name=chosen[0].name or card_name,
        cards=count,
        profile_name=f"serve_{model.name}_{dtype}_{chosen[0].name or card_name}",
    )
    host_rule, host = either(wanted.host, release.constants.get("host", "127.0.0.1"))
    port_rule, port = either(wanted.port, release.constants.get("port", 8000))
    if port in node.ports:
        raise Refusal(f"{label}: port {port} is planned for {node.ports[port]} already. Choose another port.")
    draft.option("--host", host_rule, value=host)
    draft.option("--port", port_rule, value=port)
    if name is not None:
        draft.option("--served-model-name", REQUESTED, value=name)
    lengths = FAMILIES[release.rules](draft, wish)
    trusted = (
        wanted.trust_remote_code if wanted.trust_remote_code is not None else bool(entry and entry.trust_remote_code)
    )
    draft.option("--trust-remote-code", REQUESTED, value=trusted)
    if wanted.enforce_eager:
        draft.option("--enforce-eager", REQUESTED, value=True)
    _multimodal(draft, entry)
    _module_variables(draft, chosen, all_cards, release)
    _network(draft, wanted, release, host, node)
    surface = Surface(release)
    _extra_environment(draft, wanted, release, surface, within)
    partial_warmup(draft, wish)
    join_arguments(draft, wanted.extra_args, surface)
    _check_lengths(lengths, wanted, release, model, draft)
    check_environment(draft, surface)
    mode = _execution_mode(draft, wanted, release)

    bucket_part = _buckets(draft, release, lengths, wish, wanted)
    memory_part = _memory(draft, wish, chosen, cards, entry, weights, lengths, label)
    binding = cpu_binding(all_cards, chosen)
    draft.note(
        "cpu_binding",
        binding,
        "cores-by-rank",
        "vllm-fork 4cd8c0613 set_numactl; ranked within the node",
        {"cards": [{"module_id": card.module_id, "numa_node": card.node, "cpus": card.cpus} for card in chosen]},
    )
    if not binding:
        draft.warn("The node's CPU lists are not known, so that the server is not bound to cores near its cards.")
    _fabric(draft, model, entry, chosen, cards)
    return {
        "schema": SCHEMA,
        "instance": wanted.instance,
        "model": wanted.model,
        "served_model_name": name or path_,
        "release": release.name,
        "image": image(release, node.image_registry),
        "container": _container(wanted, release, entry, path_, quantization, node),
        "modules": [{"module_id": card.module_id, "serial": card.serial} for card in chosen],
        "environment": dict(sorted(draft.environment.items())),
        "cpu_binding": binding,
        "arguments": [
            "python3",
            "-m",
            "vllm.entrypoints.openai.api_server",
            *[part for option in draft.arguments for part in option if part is not None],
            *wanted.extra_args,
        ],
        "listen": {"host": host, "port": port},
        "execution_mode": mode,
        "buckets": bucket_part,
        "memory": memory_part,
        "requires": _requires(wanted, entry, path_, quantization, weights, count, release, node),
        "explain": draft.explain,
        "warnings": draft.warnings,
    }


def image(release: ReleaseEntry, registry: str | None) -> str:
    """The image reference, with the digest when the release file has one; ``registry`` is a mirror's name."""
    reference = f"{registry or release.image['registry']}/{release.image['path']}:{release.image['tag']}"
    return f"{reference}@{release.image['digest']}" if release.image["digest"] else reference


def _card_name(topology: Mapping[str, Any]) -> str:
    names = {card.get("name") for card in topology.get("cards") or [] if card.get("name")}
    return sorted(names)[0] if names else ""


def _from_environment(request: Request, release: ReleaseEntry) -> Request:
    """Variables of the caller that decide more than themselves become the options they stand for."""
    environment = dict(request.extra_environment)
    changed: dict[str, Any] = {}

    def take(variable: str, option: str) -> None:
        if variable in environment:
            value = environment.pop(variable)
            changed[option] = getattr(Request.from_mapping({option: value}), option)

    take("QUANT_CONFIG", "quantization_config")
    if release.rules in ("1.21", "deepseek-r1"):
        take("VLLM_GPU_MEMORY_UTILIZATION", "gpu_memory_utilization")
    if release.rules == "1.21":
        take("VLLM_MAX_SEQ_LEN_TO_CAPTURE", "max_seq_len_to_capture")
    if release.rules == "deepseek-r1":
        take("BUCKET_PADDING_RATIO", "padding_limit")
    return replace(request, extra_environment=environment, **changed) if changed else request


def _weights_path(request: Request, entry: ModelEntry | None, node: Node) -> tuple[str, str | None]:
    """The path (or hub id) that is served, and the name clients ask for."""
    if request.model is not None and entry is None:
        raise Refusal(
            f"model is {shown(request.model)}, which has no file in catalog/models. Choose one, or give weights."
        )
    if request.weights is not None:
        return request.weights, request.served_model_name or (request.model if entry is not None else None)
    if entry is None:
        raise Refusal("A request needs model (a name in catalog/models) or weights (a path on the node or a hub id).")
    root = path(node.weights_root, "weights_root")
    return f"{root.rstrip('/')}/{entry.directory}", request.served_model_name or entry.name


def _check_supported(
    request: Request, release: ReleaseEntry, entry: ModelEntry | None, model: ModelFacts, draft: Draft
) -> None:
    unsupported = release.unsupported

    def refuse(feature: str, seen: str) -> None:
        if feature in unsupported:
            raise Refusal(f"{seen}: {unsupported[feature]}")

    if request.dtype in ("fp8", "awq", "gptq"):
        refuse("quantization", f"dtype is {request.dtype}")
    if request.quantization_config is not None:
        refuse("quantization", "quantization_config is set")
    if request.kv_cache_dtype not in (None, "auto"):
        refuse("quantization", f"kv_cache_dtype is {request.kv_cache_dtype}")
    if model.stored_fp8:
        refuse("quantization", f"{model.name} is stored in FP8")
    if model.alibi:
        refuse("alibi", f"{model.name} uses attention with linear biases")
    for argument in request.extra_args:
        option = argument.split("=", 1)[0].replace("_", "-")
        if option.startswith(("--enable-lora", "--lora-")):
            refuse("lora", f"extra_args has {option}")
        if option == "--enable-chunked-prefill":
            refuse("chunked_prefill", f"extra_args has {option}")
        if option in ("--quantization", "-q", "--kv-cache-dtype"):
            refuse("quantization", f"extra_args has {option}")
        if "beam" in option:
            refuse("beam_search", f"extra_args has {option}")
    if entry is not None and entry.releases and release.name not in entry.releases:
        draft.warn(
            f"{entry.name} is known to be served with release {', '.join(entry.releases)}; "
            f"with {release.name} nobody is known to have tried."
        )
    if model.known_from == "name":
        draft.warn(
            f"Nothing is known of {shown(model.name)} but its name: rules that look into a model fall back to it. "
            f"Give model_config (the content of its config.json) or add a catalogue file."
        )


def _check_heads(model: ModelFacts, count: int, label: str) -> None:
    architecture = model.architecture
    if architecture is None:
        return
    heads, shared = architecture.num_attention_heads, architecture.num_key_value_heads
    if heads % count:
        fits = [n for n in range(1, min(heads, 16) + 1) if heads % n == 0 and n <= shared]
        raise Refusal(
            f"{label}: tensor_parallel_size is {count}, but {model.name} has {heads} attention heads, which {count} "
            f"does not divide. Use {_or(fits)}."
        )
    # Latent attention keeps one compressed vector that is not divided among the cards.
    if count > shared and architecture.kv_lora_rank is None:
        raise Refusal(
            f"{label}: tensor_parallel_size is {count}, above the {shared} key-value heads of {model.name} "
            f"(num_key_value_heads). Use {shared} cards at most."
        )


def _or(numbers: Sequence[int]) -> str:
    words = [str(number) for number in numbers]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _place(
    request: Request,
    release: ReleaseEntry,
    entry: ModelEntry | None,
    model: ModelFacts,
    node: Node,
    label: str,
    draft: Draft,
) -> tuple[list[Card], list[Card], tuple[int, ...] | None]:
    """The chosen cards, all cards, and the narrowing of HABANA_VISIBLE_MODULES if there was one."""
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
    _check_heads(model, count, label)
    cards = read_cards(node.topology, node.reservations, request.instance, node.planned)
    if not cards:
        raise Refusal(
            f"{label} asks for {count} card{'s' if count > 1 else ''}, but none was found on the node. "
            f"Check that the driver is loaded and hl-smi lists the cards."
        )
    within = _within(request, label, draft, count, fixed is not None)
    own = node.reservations.modules.get(request.instance or "", ())
    for card in cards:
        held = node.reservations.serials.get(card.module_id)
        if card.module_id in own and held and card.serial and held != card.serial:
            raise Refusal(
                f"{label}: module {card.module_id} had the serial {held} when it was reserved, now it has {card.serial}: "
                f"the card was exchanged. Release the instance's reservation and plan again."
            )
    chosen = choose(cards, count, what=label, wanted=request.modules, within=within, own=own)
    names = sorted({card.name for card in chosen if card.name})
    if len(names) > 1:
        raise Refusal(
            f"{label}: the chosen cards are of different types ({', '.join(names)}). Name modules of one type."
        )
    draft.note(
        "modules",
        [card.module_id for card in chosen],
        "modules-given" if request.modules else "emptiest-node-first",
        "the request" if request.modules else "gaudi-serving, placement",
        {
            "count": count,
            "free": [card.module_id for card in cards if card.taken is None],
            "numa_nodes": {str(card.module_id): card.node for card in chosen},
            "own": list(own),
        },
    )
    if count > 8:
        draft.warn(
            f"{count} cards on one node are more than any manual serves with: this is not a tried configuration."
        )
    return chosen, cards, within


def _within(request: Request, label: str, draft: Draft, count: int, fixed: bool) -> tuple[int, ...] | None:
    """The cards the caller's own variables narrow the choice to."""
    environment = request.extra_environment
    if "HABANA_VISIBLE_DEVICES" in environment:
        raise Refusal(
            f"{label}: extra_environment sets HABANA_VISIBLE_DEVICES, which counts device indexes that change over "
            f"reboots; they are looked up at every start. Use modules."
        )
    text = environment.get("HABANA_VISIBLE_MODULES") or environment.get("HLS_MODULE_ID")
    if not text or text.lower() == "all":
        return None
    listed = Request.from_mapping({"modules": text}).modules or ()
    if request.modules is not None:
        if tuple(sorted(request.modules)) != tuple(sorted(listed)):
            raise Refusal(
                f"{label}: modules is {_list(request.modules)}, but extra_environment narrows the cards to "
                f"{_list(listed)}. Keep one of the two."
            )
        return None
    if fixed and len(listed) != count:
        draft.warn(
            f"extra_environment narrows the cards to modules {_list(listed)}, but this release always serves on {count}: "
            f"all {count} are used. Use another release for fewer cards."
        )
        return None
    return listed


def _list(modules: Sequence[int]) -> str:
    return ",".join(str(module_id) for module_id in modules)


def _dtype(
    request: Request, release: ReleaseEntry, model: ModelFacts, node: Node, draft: Draft
) -> tuple[str, str | None]:
    """The data type and the quantisation file. A given file means FP8, as in the scripts of 1.22."""
    dtype = request.dtype or str(release.constants.get("dtype", "bfloat16"))
    if request.quantization_config is not None:
        if request.dtype in ("awq", "gptq"):
            raise Refusal(f"dtype is {request.dtype}, but quantization_config is for FP8. Leave one of the two out.")
        if request.dtype not in (None, "fp8", "bfloat16"):
            raise Refusal(f"quantization_config means dtype fp8, but dtype is {request.dtype}. Leave dtype out.")
        return "fp8", request.quantization_config
    if dtype == "fp8":
        template = str(release.constants.get("quantization_config", ""))
        if not template:
            raise Refusal(f"dtype is fp8, but release {release.name} serves no FP8. Use bfloat16 or another release.")
        file = template.format(name=model.name.lower(), fork=release.fork_directory)
        return "fp8", file
    return dtype, None


def _module_variables(draft: Draft, chosen: Sequence[Card], cards: Sequence[Card], release: ReleaseEntry) -> None:
    """Module ids for the framework: a list for several cards, HLS_MODULE_ID for one."""
    source = "vllm-fork 4cd8c0613 set_module_ids"
    ids = _list([card.module_id for card in chosen])
    name = "HLS_MODULE_ID" if len(chosen) == 1 else "HABANA_VISIBLE_MODULES"
    draft.environment[name] = ids
    draft.note(f"environment.{name}", ids, "module-ids", source, {"modules": [card.module_id for card in chosen]})
    if release.constants.get("visible_devices") and len(chosen) == len(cards):
        # The script of these releases says so, and with every card of the node it is what the supervisor's own list means.
        value = str(release.constants["visible_devices"])
        draft.environment["HABANA_VISIBLE_DEVICES"] = value
        draft.note(
            "environment.HABANA_VISIBLE_DEVICES",
            value,
            "all-devices",
            "vllm-fork 687dd5bbd start_vllm.sh",
            {"cards": len(cards)},
        )


def _network(draft: Draft, request: Request, release: ReleaseEntry, host: str, node: Node) -> None:
    family = str(release.constants.get("network", ""))
    asked = request.node_address is not None or request.network_interface is not None
    if not family and not asked:
        return
    found = network(
        family or "listen",
        host,
        request.node_address,
        request.network_interface,
        read_addresses(node.topology.get("addresses")),
    )
    inputs = {
        "host": host,
        "node_address": request.node_address,
        "network_interface": request.network_interface,
        "addresses": node.topology.get("addresses") or [],
    }
    values = {"VLLM_HOST_IP": found.address}
    if found.interface is None:
        draft.warn(
            f"No interface of this node is known to carry {found.address}: GLOO and HCCL choose one themselves. "
            f"Set network_interface."
        )
    else:
        values["GLOO_SOCKET_IFNAME"] = values["HCCL_SOCKET_IFNAME"] = found.interface
    for name, value in values.items():
        draft.environment[name] = value
        draft.note(f"environment.{name}", value, found.rule, found.source, inputs)
    for sentence in found.warnings:
        draft.warn(sentence)


def _extra_environment(
    draft: Draft, request: Request, release: ReleaseEntry, surface: Surface, within: tuple[int, ...] | None
) -> None:
    """The caller's variables win over computed ones; what the release does not read is dropped, not passed on."""
    forced = release.constants.get("forced_environment", ())
    for name, value in request.extra_environment.items():
        if name in ("HABANA_VISIBLE_MODULES", "HLS_MODULE_ID"):
            continue
        surface.check_variable(name)
        if not surface.reads(name):
            draft.warn(f"extra_environment sets {name}, which release {release.name} does not read: it is left out.")
            continue
        if name in forced:
            if draft.environment.get(name) != value:
                draft.warn(
                    f"extra_environment sets {name}={shown(value)}, but this release's script always exports "
                    f"{draft.environment.get(name)}. Use the option of the request instead."
                )
            continue
        draft.environment[name] = value
        draft.note(f"environment.{name}", value, "extra-environment", "the request", {"value": value})


def _multimodal(draft: Draft, entry: ModelEntry | None) -> None:
    if entry is None:
        return
    for option, value in (
        ("--limit-mm-per-prompt", entry.limit_mm_per_prompt),
        ("--mm-processor-kwargs", entry.mm_processor_kwargs),
    ):
        if value:
            draft.option(option, REQUESTED, value=json.dumps(value, sort_keys=True, separators=(",", ":")))


def _check_lengths(lengths: Lengths, request: Request, release: ReleaseEntry, model: ModelFacts, draft: Draft) -> None:
    """What vLLM refuses only after minutes of loading."""
    length, tokens = lengths.max_model_len, lengths.max_num_batched_tokens
    if length is not None and tokens is not None and tokens < length:
        raise Refusal(
            f"max_num_batched_tokens is {tokens}, below max_model_len {length}: without chunked prefill one longest "
            f"request must fit into a batch. Set max_num_batched_tokens to {length} at least."
        )
    if tokens is not None and tokens < lengths.max_num_seqs:
        raise Refusal(
            f"max_num_batched_tokens is {tokens}, below max_num_seqs {lengths.max_num_seqs}: every sequence of a batch "
            f"needs a token. Lower max_num_seqs or raise max_num_batched_tokens."
        )
    architecture = model.architecture
    if architecture is None or length is None:
        return
    stretched = any("rope" in argument or "hf-overrides" in argument for argument in request.extra_args)
    if length > architecture.max_position_embeddings and not stretched:
        if ceil_slack(request, length, architecture.max_position_embeddings):
            draft.warn(
                f"max_model_len {length} is rounded to whole blocks beyond the {architecture.max_position_embeddings} "
                f"positions of {model.name}; keep requests below that."
            )
            return
        raise Refusal(
            f"max_model_len is {length}, but {model.name} was made for {architecture.max_position_embeddings} positions "
            f"(max_position_embeddings). Lower max_model_len or the ranges."
        )


def ceil_slack(request: Request, length: int, positions: int) -> bool:
    """Whether only the rounding to whole blocks goes beyond the model's positions."""
    if request.max_model_len is not None:
        return request.max_model_len <= positions < length
    if request.input_range and request.output_range:
        return request.input_range[1] + request.output_range[1] <= positions < length
    return False


def _execution_mode(draft: Draft, request: Request, release: ReleaseEntry) -> str:
    """Which of the four modes PT_HPU_LAZY_MODE and enforce_eager select."""
    lazy = draft.environment.get("PT_HPU_LAZY_MODE", "1")
    eager = bool(request.enforce_eager) or "--enforce-eager" in request.extra_args
    key = f"{lazy} {'1' if eager else '0'}"
    mode = release.execution_modes.get(key)
    if mode is None:
        raise Refusal(f"PT_HPU_LAZY_MODE is {shown(lazy)}, but must be 0 or 1. Use the option lazy_mode.")
    note = release.execution_modes.get(f"note {lazy}")
    if note:
        draft.warn(note)
    draft.note(
        "execution_mode",
        mode,
        "execution-modes",
        "vLLM documentation, Intel Gaudi, execution modes",
        {"PT_HPU_LAZY_MODE": lazy, "enforce_eager": eager},
    )
    return mode


def _buckets(
    draft: Draft, release: ReleaseEntry, lengths: Lengths, wish: Wish, request: Request
) -> dict[str, object] | None:
    """The buckets as this release generates them from the final environment."""
    environment = dict(draft.environment)
    block = wish.block_size
    if release.rules == "vllm-defaults":
        if lengths.max_model_len is None:
            return None
        for name, value in default_buckets(lengths.max_num_seqs, lengths.max_model_len, block).items():
            environment.setdefault(name, str(value))
    limits = bool(release.constants.get("reads_bucket_limits"))
    ranges = buckets.from_environment(environment, limits=limits)
    exponential = environment.get("VLLM_EXPONENTIAL_BUCKETING", "false").lower() in ("true", "1")
    if exponential:
        draft.warn(
            "Exponential bucketing ignores the bucket variables; the lists below are those of the linear strategy, "
            "an upper bound."
        )
    document = buckets.document(ranges, lengths.max_num_batched_tokens, honour_limit=limits)
    draft.note(
        "buckets",
        {key: document[key] for key in ("prompt_graphs", "decode_graphs", "graphs")},
        "buckets-with-limit" if limits else "buckets-linear",
        "vllm-hpu-extension, bucketing",
        {
            "max_num_batched_tokens": lengths.max_num_batched_tokens,
            **{name: [entry.minimum, entry.step, entry.maximum, entry.limit] for name, entry in ranges.items()},
        },
    )
    return document


def default_buckets(max_num_seqs: int, max_model_len: int, block_size: int) -> dict[str, int]:
    """The bucket defaults of release 1.18's documentation."""
    return {
        "VLLM_PROMPT_BS_BUCKET_MIN": 1,
        "VLLM_PROMPT_BS_BUCKET_STEP": min(max_num_seqs, 32),
        "VLLM_PROMPT_BS_BUCKET_MAX": min(max_num_seqs, 64),
        "VLLM_PROMPT_SEQ_BUCKET_MIN": block_size,
        "VLLM_PROMPT_SEQ_BUCKET_STEP": block_size,
        "VLLM_PROMPT_SEQ_BUCKET_MAX": max(max_model_len, block_size),
        "VLLM_DECODE_BS_BUCKET_MIN": 1,
        "VLLM_DECODE_BS_BUCKET_STEP": min(max_num_seqs, 32),
        "VLLM_DECODE_BS_BUCKET_MAX": max_num_seqs,
        "VLLM_DECODE_BLOCK_BUCKET_MIN": block_size,
        "VLLM_DECODE_BLOCK_BUCKET_STEP": block_size,
        "VLLM_DECODE_BLOCK_BUCKET_MAX": max(128, max_num_seqs * max_model_len // block_size),
    }


def _memory(
    draft: Draft,
    wish: Wish,
    chosen: Sequence[Card],
    cards: Mapping[str, CardType],
    entry: ModelEntry | None,
    weights: Weights | None,
    lengths: Lengths,
    label: str,
) -> dict[str, object] | None:
    """What each card holds, and whether it fits; None where the weights' size is not known."""
    card_type = cards.get(wish.card_name)
    total = chosen[0].memory_total_mib or (card_type.memory_mib if card_type else None)
    size = weights.bytes if weights is not None and weights.bytes is not None else None
    size_from = "safetensors headers"
    if size is None and entry is not None and wish.weights.endswith("/" + entry.directory):
        size, size_from = entry.weights_bytes, "catalogue, from the model's own index"
    if total is None or size is None:
        draft.warn("The size of the weights or of the cards is not known: whether they fit is not checked.")
        return None
    idle = chosen[0].memory_used_mib
    if idle is None or idle > 4096:
        idle = card_type.idle_memory_mib if card_type and card_type.idle_memory_mib is not None else 0
    count = len(chosen)
    stored = weights.parameters if weights is not None else {}
    on_card = size
    if wish.dtype == "fp8" and wish.release.rules != "deepseek-r1" and not wish.model.stored_fp8:
        # Calibrated FP8 holds one byte for each bfloat16 weight; what stays in bfloat16 is read from the headers.
        on_card = size // 2
    per_card = on_card / count
    reserve = memory.BRIDGE_MIB + memory.PROFILE_RUN_MIB
    free_gib = ((total - idle - reserve) * memory.MIB - per_card) / memory.GIB
    utilization = float(
        next(
            (
                value
                for option, value in draft.arguments
                if option.replace("_", "-") == "--gpu-memory-utilization" and value
            ),
            None,
        )
        or "0.9"
    )
    graph_share = float(draft.environment.get("VLLM_GRAPH_RESERVED_MEM", "0.1"))
    split = memory.split(free_gib, utilization, graph_share)
    result: dict[str, object] = {
        "card_mib": total,
        "idle_mib": idle,
        "reserve_mib": reserve,
        "weights_bytes": size,
        "weights_gib_per_card": round(per_card / memory.GIB, 2),
        "free_gib": round(free_gib, 2),
        "usable_gib": round(split.usable, 2),
        "graphs_gib": round(split.graphs, 2),
        "kv_cache_gib": round(split.kv_cache, 2),
        "kv_cache_blocks": None,
        "kv_cache_tokens": None,
        "fits": True,
    }
    inputs = {
        "weights_bytes": size,
        "weights_from": size_from,
        "parameters_by_dtype": dict(stored),
        "cards": count,
        "card_mib": total,
        "idle_mib": idle,
        "reserve_mib": reserve,
        "gpu_memory_utilization": utilization,
        "graph_reserved_mem": graph_share,
    }
    if split.kv_cache <= 0:
        have = (total - idle - reserve) / 1024
        need = [n for n in (1, 2, 4, 8) if (on_card / n) / memory.GIB < have * 0.95 and n > count]
        advice = f"Use {need[0]} cards." if need else "It needs larger or more cards."
        raise Refusal(
            f"{label}: {per_card / memory.GIB:.1f} GiB of weights per card do not fit: a {wish.card_name or 'card'} has "
            f"{have:.1f} GiB beside the driver and the profiling run, with {count} card{'s' if count > 1 else ''}. {advice}"
        )
    architecture = wish.model.architecture
    if architecture is not None and lengths.max_model_len is not None and (entry is None or entry.task == "generate"):
        kv_dtype = next((value for option, value in draft.arguments if option == "--kv-cache-dtype"), "auto") or "auto"
        bytes_per_token = memory.kv_bytes_per_token(
            layers=architecture.num_hidden_layers,
            key_value_heads=architecture.num_key_value_heads,
            head_dim=architecture.head_dim or architecture.hidden_size // architecture.num_attention_heads,
            element_bytes=1 if kv_dtype.startswith("fp8") else 2,
            tensor_parallel_size=count,
            kv_lora_rank=architecture.kv_lora_rank,
            rope_head_dim=architecture.qk_rope_head_dim,
        )
        blocks = memory.blocks(split.kv_cache, bytes_per_token, wish.block_size)
        tokens = blocks * wish.block_size
        result.update({"kv_cache_blocks": blocks, "kv_cache_tokens": tokens})
        inputs["kv_bytes_per_token"] = bytes_per_token
        if tokens < lengths.max_model_len:
            raise Refusal(
                f"{label}: the KV cache would hold {tokens} tokens ({split.kv_cache:.1f} GiB per card), but one request may "
                f"have max_model_len {lengths.max_model_len}. Lower max_model_len, raise gpu_memory_utilization, or use "
                f"more cards."
            )
    draft.note("memory", {"fits": True}, "memory-split", "vLLM documentation, Intel Gaudi, HPU graph capture", inputs)
    return result


def _fabric(
    draft: Draft, model: ModelFacts, entry: ModelEntry | None, chosen: Sequence[Card], cards: Mapping[str, CardType]
) -> None:
    """Where cards need host NICs with libfabric between them: a warning here, a refusal at the start."""
    card_type = cards.get(chosen[0].name or "")
    alone = card_type.cards_without_host_nics if card_type else None
    parameters = model.architecture.parameters if model.architecture else None
    large = bool(model.stored_fp8 and parameters and parameters > LARGE_FP8_PARAMETERS)
    if alone is not None and len(chosen) > alone:
        draft.warn(
            f"{len(chosen)} {chosen[0].name} cards talk over host NICs beyond {alone}: libfabric and hccl_ofi_wrapper must "
            f"be in the image and the NICs verified before this starts."
        )
    elif large:
        draft.warn(
            f"{model.name} is an FP8 model above 300 B parameters: host NICs with libfabric must be verified before this "
            f"starts."
        )


def _container(
    request: Request,
    release: ReleaseEntry,
    entry: ModelEntry | None,
    weights: str,
    quantization: str | None,
    node: Node,
) -> dict[str, Any]:
    """How the container is run: the least that works. No --privileged, no /dev."""
    constants = release.constants
    profile = bool(request.profile)
    directory = f"{PROFILE_ROOT}/{request.instance or 'unnamed'}" if profile else "/tmp"
    mounts: list[dict[str, object]] = []

    def mount(source: str, target: str | None = None, *, writable: bool = False) -> None:
        entry_ = {"source": source, "target": target or source, "read_only": not writable}
        if entry_["target"] not in [known["target"] for known in mounts]:
            mounts.append(entry_)

    environment = {"OMPI_MCA_btl_vader_single_copy_mechanism": "none"}
    if weights.startswith("/"):
        mount(weights)
    else:
        hub = f"{node.weights_root.rstrip('/')}/.hub"
        mount(hub, writable=True)
        environment["HF_HOME"] = hub
    if isinstance(request.recipe_cache, RecipeCache):
        mount(request.recipe_cache.directory, writable=True)
    if profile:
        mount(directory, writable=True)
    if quantization is not None and request.quantization_config is not None:
        mount(quantization.rsplit("/", 1)[0] or "/")
    elif quantization is not None and not quantization.startswith(f"{release.fork_directory}/scripts/quant_configs"):
        source, target = default_quantization(quantization, directory, node)
        mount(source, target)
    if entry is not None and entry.measurements is not None and constants.get("measurements"):
        mount(
            f"{node.weights_root.rstrip('/')}/{entry.measurements.directory}",
            f"{release.fork_directory}/{constants['measurements']}",
            writable=True,
        )
    return {
        "name": f"vllm-{request.instance}" if request.instance else None,
        "runtime": "habana",
        "capabilities": list(constants.get("capabilities", ["SYS_NICE"])),
        "ulimits": {"nofile": 1048576, **({"memlock": -1} if constants.get("memlock") else {})},
        "ipc": "host",
        "network": "host",
        "read_only": True,
        "tmpfs": ["/tmp"],
        "working_directory": directory,
        "mounts": mounts,
        "environment": environment,
    }


def default_quantization(file: str, working_directory: str, node: Node) -> tuple[str, str]:
    """Host directory and place in the container of a model's own calibration, the output of calibrate_model.sh."""
    name = re.sub(r".*/quantization/", "", file).rsplit("/", 1)[0]
    target = file.rsplit("/", 1)[0]
    if target.startswith("./"):
        target = f"{working_directory}/{target[2:]}"
    return f"{node.weights_root.rstrip('/')}/quantization/{name}", target


def _requires(
    request: Request,
    entry: ModelEntry | None,
    weights_path: str,
    quantization: str | None,
    weights: Weights | None,
    count: int,
    release: ReleaseEntry,
    node: Node,
) -> dict[str, Any]:
    """What must be true before the start."""
    local = weights_path.startswith("/")
    size = weights.bytes if weights is not None and weights.bytes is not None else None
    if size is None and entry is not None:
        size = entry.weights_bytes
    cache = request.recipe_cache.size_mib if isinstance(request.recipe_cache, RecipeCache) else None
    recipe_mib = (
        (cache or release.constants.get("recipe_cache_mib", 0)) if isinstance(request.recipe_cache, RecipeCache) else 0
    )
    files = []
    if request.quantization_config is not None:
        files.append(request.quantization_config)
    elif quantization is not None and not quantization.startswith(release.fork_directory + "/scripts/quant_configs"):
        files.append(f"{default_quantization(quantization, '/tmp', node)[0]}/{quantization.rsplit('/', 1)[1]}")
    measurements = None
    if entry is not None and entry.measurements is not None and release.constants.get("measurements"):
        if entry.measurements.tensor_parallel_size != count:
            raise Refusal(
                f"The measurement files of {entry.name} are for {entry.measurements.tensor_parallel_size} cards, the "
                f"instance has {count}. Measure anew, or use {entry.measurements.tensor_parallel_size} cards."
            )
        measurements = {
            "path": f"{node.weights_root.rstrip('/')}/{entry.measurements.directory}",
            "files": 3 * count,
        }
    conversion = entry.conversion if entry is not None else None
    return {
        "weights_path": weights_path if local else None,
        "weights_bytes": size,
        "weights_missing": list(weights.missing) if weights is not None else [],
        "disk_bytes": recipe_mib * memory.MIB,
        "cards": count,
        "files": files,
        "measurements": measurements,
        "conversion": (
            {
                "tool": conversion.tool,
                "from_directory": conversion.from_directory,
                "card_types": list(conversion.card_types),
            }
            if conversion is not None
            else None
        ),
    }
