"""Plan a list of requests for one node: what an earlier instance got is taken for the later ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..base.refusal import Refusal
from ..cards.placement import Reservations
from ..catalogue.entries import CardType, ModelEntry, ReleaseEntry
from ..families.registry import family_of
from ..image.recipe import ImageSettings
from ..model.headers import Weights
from ..request.node import Node
from ..request.options import InstanceRequest, check_options, name_of
from ..serving.last_start import LastStart
from .chosen_cards import all_modules
from .elsewhere import (
    asks_for_another,
    best,
    of_same_model,
    serving,
    with_named_warnings,
    with_releases,
    with_weights,
)
from .planner import plan
from .remedies import PlanningInputs, with_remedy
from .shared_card import common, share


@dataclass(frozen=True)
class Catalogue:
    """The catalogue files a call needs, read and checked."""

    release: ReleaseEntry
    models: Mapping[str, ModelEntry]
    cards: Mapping[str, CardType]
    # Other releases, which a refusal that advises to use one may name.
    others: Sequence[ReleaseEntry] = ()

    @classmethod
    def from_mappings(
        cls, release: object, models: Mapping[str, object], cards: object, others: Sequence[object] = ()
    ) -> Catalogue:
        """Read the contents of catalogue files; raises Refusal with file and key."""
        read = ReleaseEntry.from_mapping(release)
        family_of(read)
        return cls(
            read,
            {name: ModelEntry.from_mapping(entry) for name, entry in models.items()},
            CardType.table(cards),
            [ReleaseEntry.from_mapping(each) for each in others],
        )


def plan_all(
    requests: Sequence[Mapping[str, object]],
    catalogue: Catalogue,
    topology: Mapping[str, Any],
    *,
    weights_root: str,
    image_registry: str | None = None,
    image: Mapping[str, object] | None = None,
    host_nics: bool = False,
    reservations: Mapping[str, Mapping[str, Any]] | None = None,
    last_starts: Mapping[str, LastStart] | None = None,
    read_weights: Callable[[str], Weights | None] | None = None,
    read_file: Callable[[str], str | None] | None = None,
) -> list[dict[str, Any]]:
    """One plan document a request, in order, or ``{"instance": ..., "refused": sentence, "refused_id": id}``.

    ``image`` is what the site says of its images, ``host_nics`` whether those of the node were verified;
    ``reservations`` and ``last_starts`` are those of the node by instance; ``read_weights`` looks at a path of the
    node, and ``read_file`` reads a text there, None where the node is not there.
    """
    held = Reservations.from_document({"reservations": dict(reservations or {})})
    named = _named_modules(requests, topology)
    planned: dict[int, str] = {}
    ports: dict[int, str] = {}
    instances: set[str] = set()
    plans: list[dict[str, Any]] = []
    for request in requests:
        name = request.get("instance") if isinstance(request, Mapping) else None
        instance = name if isinstance(name, str) and len(name) <= 64 else None
        try:
            if instance is not None and instance in instances:
                raise Refusal(
                    "instance_twice",
                    f"Two requests are for the instance {instance}. Give every instance a name of its own.",
                )
            node = Node(
                topology=topology,
                reservations=held,
                planned=dict(planned),
                ports=dict(ports),
                named=named,
                weights_root=weights_root,
                image_registry=image_registry,
                host_nics=host_nics,
                last_starts=last_starts or {},
                image=ImageSettings.from_mapping(image or {}),
                read_weights=read_weights,
                read_file=read_file,
            )
            model = request.get("model") if isinstance(request, Mapping) else None
            entry = catalogue.models.get(model) if isinstance(model, str) else None
            made = _made(request, entry, catalogue, node)
        except Refusal as refusal:
            plans.append({"instance": instance, **_named(request, refusal).as_keys()})
            continue
        plans.append(made)
        # A request without an instance is a question ("what would this take?"): a hundred of them fit on any node.
        if instance is not None:
            instances.add(instance)
            planned.update({module["module_id"]: instance for module in made["modules"]})
            ports[made["listen"]["port"]] = instance
    return plans


def _named_modules(requests: Sequence[object], topology: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The cards that requests name by ``modules``, by instance; whatever is wrong with one is said when it is planned.

    Judged by the result of the call, two instances may swap their cards.
    """
    named: dict[str, tuple[int, ...]] = {}
    for request in requests:
        given = request if isinstance(request, Mapping) else {}
        try:
            partial_request = InstanceRequest.from_mapping({key: given.get(key) for key in ("instance", "modules")})
        except Refusal:
            continue
        if partial_request.instance is not None and partial_request.modules is not None:
            named.setdefault(partial_request.instance, partial_request.modules or all_modules(topology))
    return named


def _named(request: object, refusal: Refusal) -> Refusal:
    """A refusal with what it is about: of many requests, a sentence alone could be any's."""
    name = name_of(request)
    if name is None or re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", str(refusal)):
        return refusal
    return refusal.about(name)


def _made(
    request: Mapping[str, object],
    entry: ModelEntry | None,
    catalogue: Catalogue,
    node: Node,
) -> dict[str, Any]:
    """The plan of one request; a refusal or warning that advises another release names those that plan it."""
    others, cards = catalogue.others, catalogue.cards
    try:
        made = _planned(request, entry, catalogue, node)
    except Refusal as refused:
        refusal = with_remedy(refused, request, PlanningInputs(catalogue.release, entry, cards, node))
        if entry is not None:
            like = of_same_model(entry, catalogue.models.values())
            sentence = with_weights(str(refusal), request, catalogue.release, like, cards, node)
            refusal = Refusal(refusal.id, sentence)
        if not others or not asks_for_another(str(refusal)):
            raise refusal from refused
        raise with_releases(refusal, best(serving(request, others, entry, cards, node))) from refused
    if not others:
        return made
    return with_named_warnings(made, catalogue.release.name, lambda: serving(request, others, entry, cards, node))


def _planned(
    request: Mapping[str, object],
    entry: ModelEntry | None,
    catalogue: Catalogue,
    node: Node,
) -> dict[str, Any]:
    """The plan of one request, for one model or for several on one card."""
    if not check_options(request).get("share_card_with"):
        return plan(request, catalogue.release, entry, catalogue.cards, node)
    wanted = InstanceRequest.from_mapping(
        {key: value for key, value in request.items() if key in ("instance", "model", "share_card_with")}
    ).share_card_with
    missing = [name for name in wanted if name not in catalogue.models]
    if missing:
        raise Refusal(
            "not_in_catalogue", f"share_card_with names {', '.join(missing)}, which has no file in catalog/models."
        )
    others = [catalogue.models[name] for name in wanted]
    adjusted = common(request, entry, others, catalogue.release)
    made = plan(adjusted, catalogue.release, entry, catalogue.cards, node)
    return share(made, others, catalogue.release)
