"""The serving plan: a request, a release, a model and a node's topology in; one document out, or a refusal.

Pure: nothing is read, written or asked here. The module ``serving_plan`` collects the facts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..base.refusal import Refusal
from ..cards.placement import Card
from ..catalogue.entries import CardType, ModelEntry, ReleaseEntry
from ..catalogue.surface import Surface
from ..families.base import Lengths
from ..families.registry import family_of
from ..image.parts import needed
from ..model.facts import ModelFacts, facts
from ..model.headers import Weights
from ..model.positions import overrides_in
from ..model.remote_code import check_code, code_of
from ..request.node import Node
from ..request.options import ALL, Request, check_options
from ..request.resolved import ResolvedRequest
from ..rules.draft import Draft, Origin
from ..serving.last_start import sized_by
from ..serving.plan import MIDDLEWARE
from .arguments import check_environment, check_planned, join_arguments, options_in_arguments
from .buckets import buckets_of_start, buckets_part
from .chosen_cards import all_modules, bind_cpus, card_name, module_variables, place
from .container import Setting, check_places, container, image, requires
from .memory import memory_part
from .merging import merged, options_in_environment, with_recipe_cache
from .moved import check_values, moved, without_fork
from .refusals import (
    check_block_size,
    check_card_type,
    check_fp8,
    check_hub,
    check_kv_cache,
    check_lazy_mode,
    check_lengths,
    check_missing,
    check_quantization,
    check_ready_image,
    check_supported,
    check_validated,
    fabric_warning,
    scale_once,
)
from .server import (
    between_cards,
    execution_mode,
    extra_environment,
    guarded,
    listen,
    model_options,
    network_variables,
    ready_timeout,
    served_names,
    shutdown,
)
from .weights import data_type, served_name, weights_path

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
    "too_few_cards",
)


@dataclass(frozen=True)
class Subject:
    """What one plan is about: the request as it is planned, its weights, and the cards it gets."""

    resolved: ResolvedRequest
    # How a refusal names it.
    label: str
    # The name clients ask for; None leaves it to the server.
    name: str | None
    entry: ModelEntry | None
    weights: Weights | None
    cards: Sequence[Card]
    # All cards of the node.
    node_cards: Sequence[Card]
    card_type: CardType | None

    @property
    def request(self) -> Request:
        """The request over its model's defaults."""
        return self.resolved.request

    @property
    def release(self) -> ReleaseEntry:
        """The release it is planned for."""
        return self.resolved.release


def plan(
    request: object,
    release: ReleaseEntry,
    entry: ModelEntry | None,
    cards: Mapping[str, CardType],
    node: Node,
    read_weights: Callable[[str], Weights | None] | None = None,
    read_file: Callable[[str], str | None] | None = None,
) -> dict[str, Any]:
    """Plan one request: the plan document. Raises Refusal with one sentence for a person.

    ``read_weights`` tells what lies at a path of the node, ``read_file`` the text there; None where the node is not
    there to be asked.
    """
    if isinstance(request, Mapping) and request.get("tensor_parallel_size") == AUTO:
        return _on_fewest_cards(request, release, entry, cards, node, read_weights, read_file)
    draft = Draft(origin_of(release))
    subject = _subject(draft, request, release, entry, cards, node, read_weights, read_file)
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
    read_weights: Callable[[str], Weights | None] | None,
    read_file: Callable[[str], str | None] | None,
) -> dict[str, Any]:
    """The plan on the fewest cards that hold the model and one longest request.

    Raises the Refusal of the largest number that was tried where none does, and where the memory is not known.
    """
    tried: dict[str, str] = {}
    for count in SIZES:
        asked = {**request, "tensor_parallel_size": count}
        try:
            found = plan(asked, release, entry, cards, node, read_weights, read_file)
        except Refusal as refusal:
            if refusal.id not in TOO_FEW or (count == SIZES[-1] and not tried):
                raise
            tried[str(count)] = str(refusal)
            if refusal.id == "too_few_cards" or count == SIZES[-1]:
                raise Refusal("fits_on_no_cards", _nowhere(tried)) from None
            continue
        if found["memory"] is None:
            raise Refusal(
                "auto_without_size",
                "tensor_parallel_size is auto, but the size of the weights or of the cards is not known: nobody can "
                "say how many cards hold the model. Fetch the model first, or give a number.",
            )
        why = {
            "value": "tensor_parallel_size",
            "result": count,
            "rule": "fewest-cards",
            "source": "gaudi-serving: the first of 1, 2, 4 and 8 cards whose memory holds the weights and one longest "
            "request",
            "inputs": tried,
        }
        return {**found, "explain": [*found["explain"], why]}
    raise AssertionError("the last size returns or raises")


def _nowhere(tried: Mapping[str, str]) -> str:
    """Why no number of cards will do, by the last one that was planned."""
    return f"tensor_parallel_size is auto, but no number of cards will do. {list(tried.values())[-1]}"


def _subject(
    draft: Draft,
    request: object,
    release: ReleaseEntry,
    entry: ModelEntry | None,
    cards: Mapping[str, CardType],
    node: Node,
    read_weights: Callable[[str], Weights | None] | None,
    read_file: Callable[[str], str | None] | None,
) -> Subject:
    """Settle what is asked for, read what lies on the node, choose the cards; refuse what cannot be served."""
    wanted, asked = _wanted(request, release, entry, cards, node)
    wanted = moved(wanted, check_options(request), release, draft)
    check_values(wanted, release)
    card_type = cards.get(card_name(node.topology))
    scales = family_of(release).scales_while_loading
    served = weights_path(wanted, entry, card_type, node.root, scaled_while_loading=scales)
    if scales and entry is not None and entry.conversion is not None and wanted.weights is None:
        draft.change(
            f"weights: {served}, as they are published; the plugin scales FP8 for the card while it loads, so that "
            f"playbooks/convert_weights.yml is not needed (vllm_gaudi/ops/hpu_fp8.py)"
        )
    weights = read_weights(served) if read_weights is not None and served.startswith("/") else None
    model = facts(served, entry, _config(wanted, entry, weights), overrides_in(wanted.extra_args))
    label = wanted.instance or wanted.model or model.name
    check_supported(wanted, asked, release, entry, model, draft, weights)
    # What lies on the node counts before what a request says of it.
    said_code = code_of(wanted.model_config) if wanted.model_config is not None else None
    check_code(wanted, entry, weights.code if weights is not None else said_code, release, label, draft)
    chosen, node_cards = place(wanted, release, model, node, card_type, label, draft)
    check_card_type(chosen, cards, draft)
    card_type = cards.get(chosen[0].name or "")
    dtype, quantization = data_type(wanted, release, model, card_type)
    resolved = ResolvedRequest(
        request=with_recipe_cache(wanted, release),
        asked=asked,
        release=release,
        model=model,
        catalogue_name=entry.name if entry is not None else None,
        weights=served,
        dtype=dtype,
        quantization_config=quantization,
        parser=_parser(wanted, release, entry, model),
        card_name=chosen[0].name or "",
        cards=len(chosen) // (wanted.data_parallel_size or 1),
        profile_name=f"serve_{model.name}_{dtype}_{chosen[0].name}",
        bucket_file=read_file(wanted.bucketing_file) if read_file is not None and wanted.bucketing_file else None,
    )
    check_validated(entry, resolved, card_type, label, draft)
    check_quantization(resolved)
    check_missing(weights, served, label)
    check_hub(served, wanted, draft)
    check_fp8(resolved, entry, weights, card_type, label)
    check_block_size(resolved, draft)
    return Subject(resolved, label, served_name(wanted, entry), entry, weights, chosen, node_cards, card_type)


def _config(request: Request, entry: ModelEntry | None, weights: Weights | None) -> Mapping[str, object] | None:
    """The config.json to plan with: the request's, or for a model without figures the one beside its weights."""
    if request.model_config is None and entry is not None and entry.architecture is None and weights is not None:
        return weights.config
    return request.model_config


def _parser(request: Request, release: ReleaseEntry, entry: ModelEntry | None, model: ModelFacts) -> str | None:
    """The reasoning parser: as it was asked for, of the model's file, or the family's."""
    if request.reasoning_parser is not None:
        return request.reasoning_parser
    return entry.reasoning_parser if entry is not None else family_of(release).reasoning_parser(model)


def _wanted(
    request: object, release: ReleaseEntry, entry: ModelEntry | None, cards: Mapping[str, CardType], node: Node
) -> tuple[Request, frozenset[str]]:
    """The request over its model's defaults, and the options that stand in the request itself."""
    card_type = cards.get(card_name(node.topology))
    said = options_in_arguments(check_options(request))
    asked = frozenset(name for name, value in said.items() if value is not None)
    wanted = Request.from_mapping(options_in_arguments(merged(request, release, entry, card_type)))
    wanted = options_in_environment(wanted, family_of(release))
    if wanted.modules == ALL:
        wanted = replace(wanted, modules=all_modules(node.topology) or None)
    return wanted, asked


def _fill(draft: Draft, subject: Subject, host: str, node: Node) -> Lengths:
    """Everything the server is started with, in the order in which later values win."""
    resolved, request, release = subject.resolved, subject.request, subject.release
    family, surface = family_of(release), Surface(release)
    if subject.name is not None:
        draft.option("--served-model-name", served_names(name=subject.name, weights=resolved.weights))
    lengths = family.fill(draft, resolved)
    model_options(draft, resolved, subject.entry, surface)
    shutdown(draft, release, surface)
    module_variables(draft, subject.cards, subject.node_cards, release)
    host_nics = fabric_warning(resolved, subject.card_type) is not None
    network_variables(draft, request, release, host, node, host_nics)
    if not family.scales_while_loading:
        scale_once(draft, subject.weights, subject.card_type, surface)
    extra_environment(draft, request, release, surface)
    family.fill_last(draft, resolved)
    check_planned(draft, surface)
    join_arguments(draft, request.extra_args, surface)
    check_lengths(lengths, resolved, draft)
    check_environment(draft, surface)
    check_kv_cache(draft, resolved)
    return lengths


def _document(
    draft: Draft, subject: Subject, lengths: Lengths, address: Mapping[str, Any], node: Node
) -> dict[str, Any]:
    """The plan document without its explanation and warnings."""
    resolved, request, release, entry = subject.resolved, subject.request, subject.release, subject.entry
    fabric = fabric_warning(resolved, subject.card_type)
    setting = Setting(
        request=request,
        release=release,
        entry=entry,
        weights_path=resolved.weights,
        weights=subject.weights,
        quantization=resolved.quantization_config,
        cards=len(subject.cards),
        weights_root=node.root,
        host_nics=fabric is not None,
        interface=between_cards(request, node),
        guarded=guarded(request),
    )
    check_places(setting)
    memory = memory_part(
        draft, resolved, subject.cards, subject.card_type, entry, subject.weights, lengths, subject.label
    )
    binding = bind_cpus(draft, release, subject.node_cards, subject.cards)
    needs = needed(bool(binding), entry.limit_mm_per_prompt if entry is not None else (), fabric is not None)
    reference = image(release, replace(node, image=without_fork(node.image, release, draft)), needs)
    check_lazy_mode(draft, release, reference)
    check_ready_image(draft, release, reference)
    mode = execution_mode(draft, request, release)
    # A strategy that is chosen here adds to the environment.
    buckets = buckets_part(draft, resolved, lengths, memory)
    ready_timeout(draft, Surface(release), buckets, memory)
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "instance": request.instance,
        "model": request.model,
        "served_model_name": subject.name or resolved.weights,
        # What it can be asked: chat, completion, embedding, rerank.
        "task": entry.task if entry is not None else "generate",
        "release": release.name,
        "image": reference,
        "container": container(setting, draft.environment),
        "modules": [{"module_id": card.module_id, "serial": card.serial} for card in subject.cards],
        "environment": dict(sorted(draft.environment.items())),
        "cpu_binding": binding,
        "arguments": [
            "python3",
            "-m",
            "vllm.entrypoints.openai.api_server",
            *[word for option in draft.arguments for word in option],
            *request.extra_args,
            *(MIDDLEWARE if setting.guarded else ()),
        ],
        "guarded": setting.guarded,
        "listen": address,
        # Nobody without a key gets past the guard on any of them, which is looked at.
        "paths": list(release.paths),
        "execution_mode": mode,
        "buckets": buckets,
        "memory": memory,
        "requires": {**requires(setting), "host_nics": fabric is not None, **_parts(node, needs)},
    }
    document["buckets"] = buckets_of_start(draft, resolved, lengths, memory, buckets, _logged(node, document))
    if fabric is not None:
        draft.warn(fabric)
    return document


def _logged(node: Node, document: Mapping[str, Any]) -> int | None:
    """The KV blocks that the instance's last start logged; None where they follow from something that changed since."""
    start = node.last_starts.get(document["instance"] or "")
    return start.kv_blocks if start is not None and start.sized_by == sized_by(document) else None


def _parts(node: Node, needs: Sequence[str]) -> dict[str, list[str]]:
    """What the image must have, where the site says how its images come to be. Other plans stay as they were."""
    return {"image": list(needs)} if node.image.ref or node.image.build else {}


def origin_of(release: ReleaseEntry) -> Origin:
    """Where this release's rules are written down."""
    if "vllm_gaudi" in release.pins:
        return Origin(release.code, otherwise="gaudi-serving, as the start scripts of earlier releases")
    return Origin(release.code, release.constants.get("start_script"))
