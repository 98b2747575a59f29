"""The serving plan: a request, a release, a model and a node's topology in; one document out, or a refusal.

Pure: nothing is read, written or asked here. The module ``serving_plan`` collects the facts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..base.recipes import RecipeKey
from ..base.refusal import Refusal
from ..catalogue.entries import CardType, ModelEntry, ReleaseEntry
from ..catalogue.surface import ServerSurface
from ..families.base import Lengths
from ..families.registry import family_of
from ..image.parts import INC_CALIBRATION, needed
from ..request.node import Node
from ..request.options import InstanceRequest
from ..rules.draft import Draft
from ..serving.last_start import sized_by
from ..serving.plan import MIDDLEWARE
from .arguments import check_environment, check_parsers, check_planned, join_arguments, media_limits
from .buckets import buckets_of_start, buckets_part
from .chosen_cards import bind_cpus, module_variables
from .container import Setting, base_image, check_places, container, image, requires
from .links import CardPath, path_between
from .memory import lacking_for_graphs, memory_part
from .moved import by_way, for_release
from .refusals import (
    check_kernels,
    check_kv_cache,
    check_lazy_mode,
    check_lengths,
    check_ready_image,
)
from .server import (
    between_cards,
    closed_ports,
    execution_mode,
    extra_environment,
    guarded,
    listen,
    media,
    model_options,
    network_variables,
    own_ports_variable,
    ready_timeout,
    served_names,
    shutdown,
    warn_of_media_defaults,
)
from .subject import Subject, settled
from .weights import require_safetensors, scale_once

SCHEMA = 1
# A request's word for the fewest cards that hold its model, and the numbers that are tried.
AUTO = "auto"
SIZES = (1, 2, 4, 8)
# What more cards may help against, and what the number itself may be wrong with.
TOO_FEW = (
    "weights_too_large",
    "kv_cache_too_small",
    "heads_not_divisible",
    "more_cards_than_heads",
    "scales_not_divisible",
    "expert_width_not_divisible",
    "too_few_cards",
    "measured_for_other_cards",
)


def plan(
    request: object,
    release: ReleaseEntry,
    entry: ModelEntry | None,
    cards: Mapping[str, CardType],
    node: Node,
) -> dict[str, Any]:
    """Plan one request: the plan document. Raises Refusal with one sentence for a person."""
    if isinstance(request, Mapping) and request.get("tensor_parallel_size") == AUTO:
        return _on_fewest_cards(request, release, entry, cards, node)
    draft = Draft(family_of(release).origin(release))
    release = by_way(release, node.image, draft)
    subject = settled(draft, request, release, entry, cards, node)
    address = listen(draft, subject.resolved, node, subject.label)
    lengths = _fill(draft, subject, address["host"], node)
    document = _document(draft, subject, lengths, address, node)
    changes = {"changes": draft.changes} if draft.changes else {}
    return {**document, **changes, "explain": draft.explain, "warnings": draft.warnings}


def _on_fewest_cards(
    request: Mapping[str, object],
    release: ReleaseEntry,
    entry: ModelEntry | None,
    cards: Mapping[str, CardType],
    node: Node,
) -> dict[str, Any]:
    """The plan on the fewest cards that hold the model, one longest request, and what a start takes beside them.

    If no number leaves the last, the largest that holds the rest is the plan, with its warning. A release that always
    takes the same number is planned with it.

    Raises the Refusal of the largest number that was tried where none does, and where the memory is not known.
    """
    fixed = release.constants.get("tensor_parallel_size")
    if fixed is not None:
        return plan({**request, "tensor_parallel_size": fixed}, release, entry, cards, node)
    tried: dict[str, str] = {}
    tight: tuple[int, dict[str, Any]] | None = None
    for count in SIZES:
        asked = {**request, "tensor_parallel_size": count}
        try:
            found = plan(asked, release, entry, cards, node)
        except Refusal as refusal:
            if tight is not None:
                # The smaller number holds the model, whatever prevents a larger one.
                tried[str(count)] = str(refusal)
                break
            if refusal.id not in TOO_FEW or (count == SIZES[-1] and not tried):
                raise
            tried[str(count)] = str(refusal)
            if refusal.id == "too_few_cards" or count == SIZES[-1]:
                raise Refusal(
                    "fits_on_no_cards",
                    f"tensor_parallel_size is auto, but no number of cards will do. {refusal.cause}",
                    refusal.remedy,
                ) from refusal
            continue
        if found["memory"] is None:
            raise Refusal(
                "auto_without_size",
                "tensor_parallel_size is auto, but the size of the weights or of the cards is not known: nobody can "
                "say how many cards hold the model. Fetch the model first, or give a number.",
            )
        lacking = lacking_for_graphs(found["memory"])
        if lacking > 0:
            tried[str(count)] = f"{lacking:.1f} GiB of each card are missing for graphs."
            tight = count, found
            continue
        return _chosen(found, count, tried)
    if tight is None:
        raise AssertionError("the last size returns or raises")
    return _chosen(tight[1], tight[0], tried)


def _chosen(found: Mapping[str, Any], count: int, tried: Mapping[str, str]) -> dict[str, Any]:
    """The plan with the reason for its number of cards."""
    why = {
        "value": "tensor_parallel_size",
        "result": count,
        "rule": "fewest-cards",
        "source": "gaudi-serving: the first of 1, 2, 4 and 8 cards whose memory holds the weights, one longest request "
        "and the graphs; if none leaves memory for graphs, the largest that holds the rest",
        "inputs": {number: sentence for number, sentence in tried.items() if int(number) != count},
    }
    return {**found, "explain": [*found["explain"], why]}


def _fill(draft: Draft, subject: Subject, host: str, node: Node) -> Lengths:
    """Fill the draft with all that the server is started with; of two values the later one wins. Return the lengths."""
    resolved, request, release = subject.resolved, subject.request, subject.release
    family, surface = family_of(release), ServerSurface(release)
    if subject.name is not None:
        draft.option("--served-model-name", served_names(name=subject.name, weights=resolved.weights))
    lengths = family.fill(draft, resolved)
    model_options(draft, resolved, subject.entry, surface)
    if release.unpickles:
        require_safetensors(draft, request, subject.entry, subject.weights, subject.label)
    shutdown(draft, release, surface)
    module_variables(draft, subject.cards, subject.node_cards, release)
    network_variables(draft, request, release, host, node, _path(subject, node).host_nics)
    own_ports_variable(draft, subject.cards, surface)
    if not family.scales_while_loading:
        scale_once(draft, subject.weights, subject.entry, subject.resolved.weights, subject.card_type, surface)
    extra_environment(draft, request, release, surface)
    family.fill_last(draft, resolved)
    warn_of_media_defaults(draft, surface)
    check_planned(draft, surface)
    join_arguments(draft, request.extra_args, surface)
    check_parsers(draft, request.extra_args, surface)
    check_lengths(lengths, resolved, draft)
    check_kernels(lengths, resolved, draft)
    check_environment(draft, surface)
    check_kv_cache(draft, resolved)
    return lengths


def _document(
    draft: Draft, subject: Subject, lengths: Lengths, address: Mapping[str, Any], node: Node
) -> dict[str, Any]:
    """The plan document without its explanation and warnings."""
    resolved, request, release, entry = subject.resolved, subject.request, subject.release, subject.entry
    path = _path(subject, node)
    setting = _setting(subject, node, host_nics=path.host_nics)
    check_places(setting)
    memory = memory_part(draft, subject, lengths)
    binding = bind_cpus(draft, release, subject.node_cards, subject.cards)
    elsewhere = setting.measurements is not None and INC_CALIBRATION in release.pins
    needs = needed(bool(binding), media(request, entry), path.host_nics, release.build, measured=elsewhere)
    reference = image(release, replace(node, image=for_release(node.image, release, draft)), needs)
    check_lazy_mode(draft, release, reference)
    check_ready_image(draft, release, reference)
    mode = execution_mode(draft, request, release)
    # A strategy that is chosen here adds to the environment.
    buckets = buckets_part(draft, resolved, lengths, memory)
    ready_timeout(draft, ServerSurface(release), buckets, memory)
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "instance": request.instance,
        "model": request.model,
        "served_model_name": subject.name or resolved.weights,
        # What it can be asked: chat, completion, embedding, rerank.
        "task": entry.task if entry is not None else "generate",
        "ask": _ask(subject, draft, request),
        "release": release.name,
        # Plans of other releases stay as they were.
        **({"unpickles": True} if release.unpickles else {}),
        "image": reference,
        "container": container(setting, draft.environment),
        "modules": [{"module_id": card.module_id, "serial": card.serial} for card in subject.cards],
        "environment": dict(sorted(draft.environment.items())),
        "cpu_binding": binding,
        "arguments": _arguments(draft, request),
        "guarded": setting.guarded,
        "listen": {**address, **closed_ports(draft.environment)},
        # Nobody without a key gets past the guard on any of them, which is looked at.
        "paths": list(release.paths),
        "execution_mode": mode,
        "buckets": buckets,
        "memory": memory,
        "requires": {**requires(setting), "host_nics": path.host_nics, **_parts(node, needs)},
    }
    document["buckets"] = buckets_of_start(draft, resolved, lengths, memory, buckets, _logged(node, document))
    if path.warning:
        draft.warn(path.warning)
    return document


def _path(subject: Subject, node: Node) -> CardPath:
    """What carries the data between the cards of a plan."""
    return path_between(subject.resolved, subject.cards, subject.node_cards, subject.card_type, node)


def _ask(subject: Subject, draft: Draft, request: InstanceRequest) -> dict[str, Any]:
    """What is known beforehand of the answers it has to give once it serves; it lies beside the plan on a node."""
    entry, size = subject.entry, subject.resolved.model.shape.hidden_size
    limits = media_limits(_arguments(draft, request))
    counted = {"media": limits} if limits else {}
    if entry is None:
        return counted
    dimensions = {"dimensions": size} if entry.task == "embed" and size is not None else {}
    check = {"check": {**vars(entry.check), "contains": list(entry.check.contains)}} if entry.check else {}
    return {**dimensions, **check, **counted}


def _setting(subject: Subject, node: Node, *, host_nics: bool) -> Setting:
    """What the container of a plan depends on."""
    return Setting(
        request=subject.request,
        release=subject.release,
        entry=subject.entry,
        weights_path=subject.resolved.weights,
        weights=subject.weights,
        quantization=subject.resolved.quantization_config,
        cards=len(subject.cards),
        weights_root=node.root,
        recipes=_recipes(subject, node),
        host_nics=host_nics,
        interface=between_cards(subject.request, node),
        guarded=guarded(subject.request),
    )


def _recipes(subject: Subject, node: Node) -> RecipeKey:
    """What the recipes of a plan are compiled for."""
    resolved, request, release, entry = subject.resolved, subject.request, subject.release, subject.entry
    named = entry if request.weights is None else None
    quantized = (request.quantization, resolved.quantization_config, request.kv_cache_dtype)
    return RecipeKey(
        model=named.name if named is not None else resolved.weights,
        revision=" ".join(sorted({source.revision or "" for source in named.repositories.values()})) if named else "",
        quantization=" ".join(str(each) for each in quantized if each is not None),
        image=base_image(release, node),
        driver=str(release.software.get("driver", "")),
        card_type=resolved.card_name,
        cards=resolved.cards,
        dtype=resolved.dtype,
        block_size=resolved.block_size,
    )


def _arguments(draft: Draft, request: InstanceRequest) -> list[str]:
    """The server's command line."""
    return [
        "python3",
        "-m",
        "vllm.entrypoints.openai.api_server",
        *[word for option in draft.arguments for word in option],
        *request.extra_args,
        *(MIDDLEWARE if guarded(request) else ()),
    ]


def _logged(node: Node, document: Mapping[str, Any]) -> int | None:
    """The KV blocks that the instance's last start logged; None where they follow from something that changed since."""
    start = node.last_starts.get(document["instance"] or "")
    return start.kv_blocks if start is not None and start.sized_by == sized_by(document) else None


def _parts(node: Node, needs: Sequence[str]) -> dict[str, list[str]]:
    """What the image must have, where the site says how its images come to be. Other plans stay as they were."""
    return {"image": list(needs)} if node.image.ref or node.image.build else {}
