"""What a plan is about: the request settled, the weights that lie on the node, the cards; and what cannot be served."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..cards.placement import PlacementCard
from ..catalogue.entries import CardType, ModelEntry, ReleaseEntry
from ..families.registry import family_of
from ..model.architectures import check_architectures
from ..model.facts import ModelFacts, facts
from ..model.headers import Weights
from ..model.positions import overrides_in
from ..model.remote_code import ForeignCode, code_of, foreign_references
from ..request.node import Node
from ..request.options import ALL, InstanceRequest, check_options
from ..request.resolved import ResolvedRequest
from ..rules.draft import Draft
from .arguments import options_in_arguments
from .chosen_cards import all_modules, card_name, place
from .merging import merged, options_in_environment, with_recipe_cache
from .moved import check_values, moved
from .refusals import (
    check_block_size,
    check_cache_type,
    check_card_type,
    check_class_on_cards,
    check_float16,
    check_fp8,
    check_head_size,
    check_hub,
    check_media,
    check_missing,
    check_mtp,
    check_named_models,
    check_quantization,
    check_quantized,
    check_rows,
    check_supported,
    check_validated,
)
from .remote_code import check_code, check_foreign, may_run_code
from .weights import data_type, served_name, weights_path


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
    cards: Sequence[PlacementCard]
    # All cards of the node.
    node_cards: Sequence[PlacementCard]
    card_type: CardType | None

    @property
    def request(self) -> InstanceRequest:
        """The request over its model's defaults."""
        return self.resolved.request

    @property
    def release(self) -> ReleaseEntry:
        """The release it is planned for."""
        return self.resolved.release


def settled(
    draft: Draft,
    request: object,
    release: ReleaseEntry,
    entry: ModelEntry | None,
    cards: Mapping[str, CardType],
    node: Node,
) -> Subject:
    """Settle what is asked for, read what lies on the node, choose the cards; refuse what cannot be served."""
    said = options_in_arguments(check_options(request), family_of(release).options_in_arguments)
    asked = frozenset(name for name, value in said.items() if value is not None)
    wanted = moved(_wanted(request, release, entry, cards, node), said, release, draft)
    check_values(wanted, release)
    card_type = cards.get(card_name(node.topology))
    scales = family_of(release).scales_while_loading
    served = weights_path(wanted, entry, card_type, node.root, scaled_while_loading=scales)
    conversion = None if entry is None or wanted.weights is not None else entry.conversion
    if scales and conversion is not None and conversion.published_in_fp8:
        draft.change(
            f"weights: {served}, as they are published; the plugin scales FP8 for the card while it loads, so that "
            f"playbooks/convert_weights.yml is not needed (vllm_gaudi/ops/hpu_fp8.py)"
        )
    weights = node.weights_at(served)
    model = facts(served, entry, _config(wanted, entry, weights), overrides_in(wanted.extra_args))
    label = wanted.instance or wanted.model or model.name
    check_supported(wanted, asked, release, entry, model, draft, weights)
    # What lies on the node counts before what a request says of it.
    said_code = code_of(wanted.model_config) if wanted.model_config is not None else None
    code = weights.code if weights is not None else said_code
    check_code(wanted, entry, code, release, label, draft)
    if code is None and entry is not None and wanted.weights is None:
        check_architectures(
            entry.architectures,
            model.shape.model_type,
            release,
            label,
            draft,
            said_by=f"catalog/models/{entry.name}.yml",
            has_code=entry.trust_remote_code,
            runs_code=may_run_code(wanted, entry),
        )
    check_quantized(wanted, model, release)
    named = code.architectures if code is not None else entry.architectures if entry and not wanted.weights else ()
    check_media(wanted, named, release, label)
    check_mtp(wanted, named, model, release)
    if may_run_code(wanted, entry):
        check_foreign(_foreign(wanted, weights, node), label)
    chosen, node_cards = place(wanted, release, model, node, card_type, label, draft)
    check_card_type(chosen, cards, draft)
    card_type = cards.get(chosen[0].name or "")
    if scales and model.stored_fp8 and wanted.dtype == "fp8" and not asked & {"dtype", "quantization_config"}:
        # Measurements of the model's file are the fork's; the plugin needs none.
        draft.change(
            "dtype fp8: left out, the weights are FP8 as they are published and are served as they come; dtype fp8 in "
            "the request calibrates them with INC (QUANT_CONFIG)"
        )
        wanted = replace(wanted, dtype=None)
    measured = entry.measurements if entry is not None and wanted.weights is None else None
    measurements = f"{node.root}/{measured.directory}" if measured is not None else None
    dtype, quantization = data_type(wanted, release, model, card_type, measurements)
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
        bucket_file=node.text_at(wanted.bucketing_file),
    )
    check_validated(entry, resolved, card_type, label, draft)
    check_class_on_cards(named, release, card_type, label)
    check_quantization(resolved)
    check_head_size(resolved)
    check_rows(resolved, len(node_cards))
    check_missing(weights, served, label)
    check_hub(served, wanted, draft)
    check_named_models(weights, draft)
    check_fp8(resolved, entry, weights, card_type, label)
    check_block_size(resolved, draft)
    check_float16(resolved)
    check_cache_type(resolved)
    return Subject(resolved, label, served_name(wanted, entry), entry, weights, chosen, node_cards, card_type)


def _config(request: InstanceRequest, entry: ModelEntry | None, weights: Weights | None) -> Mapping[str, object] | None:
    """The config.json to plan with: the request's, or for a model without figures the one beside its weights."""
    if request.model_config is None and entry is not None and entry.architecture is None and weights is not None:
        return weights.config
    return request.model_config


def _foreign(request: InstanceRequest, weights: Weights | None, node: Node) -> ForeignCode:
    """The code of other repositories that the weights, those of a draft model, or overrides name."""
    own = weights.foreign if weights is not None else ForeignCode()
    overrides = [f"--hf-overrides: {named}" for named in foreign_references(overrides_in(request.extra_args))]
    draft = (request.speculative_config or {}).get("model")
    drafting = node.weights_at(draft) if isinstance(draft, str) and draft.startswith("/") else None
    beside = drafting.foreign if drafting is not None else ForeignCode()
    return ForeignCode(
        (*own.references, *(f"{draft}/{named}" for named in beside.references), *overrides),
        (*own.unreadable, *(f"{draft}/{name}" for name in beside.unreadable)),
        # A draft model names the model that it drafts for, and vLLM does not load it from there.
        own.models,
    )


def _parser(request: InstanceRequest, release: ReleaseEntry, entry: ModelEntry | None, model: ModelFacts) -> str | None:
    """The reasoning parser: as it was asked for, of the model's file, or the family's."""
    if request.reasoning_parser is not None:
        return request.reasoning_parser
    return entry.reasoning_parser if entry is not None else family_of(release).reasoning_parser(model)


def _wanted(
    request: object, release: ReleaseEntry, entry: ModelEntry | None, cards: Mapping[str, CardType], node: Node
) -> InstanceRequest:
    """The request over its model's defaults."""
    card_type, family = cards.get(card_name(node.topology)), family_of(release)
    whole = options_in_arguments(merged(request, release, entry, card_type), family.options_in_arguments)
    wanted = options_in_environment(InstanceRequest.from_mapping(whole), family)
    if wanted.modules == ALL:
        wanted = replace(wanted, modules=all_modules(node.topology) or None)
    return wanted
