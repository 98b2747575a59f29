"""The request over its model's defaults, and options that are written as variables or arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..base.checks import mapping
from ..catalogue.entries import CardType, ModelEntry, ReleaseEntry
from ..families.base import Family
from ..families.registry import family_of
from ..request.options import InstanceRequest, RecipeCache

RECIPE_ROOT = "/data/recipe_cache"


def merged(
    request: object, release: ReleaseEntry, entry: ModelEntry | None, card_type: CardType | None
) -> dict[str, object]:
    """The request over the model's defaults, later ones winning: model, model and release, model and card type.

    Options that belong together are replaced together: a length that is asked for drops the default ranges (where the
    release can plan by length) and the default token budget, ranges that are asked for drop a default length.
    Variables and further arguments add up. A default number of cards is for releases that leave the choice.
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
    if release.constants.get("tensor_parallel_size") is not None:
        dropped = {*dropped, "tensor_parallel_size"}
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


def options_in_environment(request: InstanceRequest, family: Family) -> InstanceRequest:
    """Variables of the caller that decide more than themselves become the options they stand for."""
    stands_for = {"QUANT_CONFIG": "quantization_config", **family.options_in_environment}
    environment = dict(request.extra_environment)
    changed: dict[str, Any] = {}
    for variable, option in stands_for.items():
        if variable in environment:
            changed[option] = getattr(InstanceRequest.from_mapping({option: environment.pop(variable)}), option)
    return replace(request, extra_environment=environment, **changed)


def with_recipe_cache(request: InstanceRequest, release: ReleaseEntry) -> InstanceRequest:
    """The recipe cache of the release, or one of the instance's own; switched off it stays off."""
    directory = release.constants.get("recipe_cache")
    if directory is None and request.instance is not None:
        directory = f"{RECIPE_ROOT}/{request.instance}"
    if request.recipe_cache is not None or directory is None:
        return request
    return replace(request, recipe_cache=RecipeCache(str(directory), keyed=request.instance is not None))
