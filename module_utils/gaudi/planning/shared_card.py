"""Several small models on one card: one server for all of them, as the vendor starts embedding and rerank models.

The fork's multi-model server takes ``--models PATH PATH ...`` and serves each under its path. Everything else (length,
data type, share of the memory) is one value for all. A plan for the first model becomes the plan for all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..base.checks import integer, mapping
from ..base.refusal import Refusal
from ..catalogue.entries import POOLING_TASKS, ModelEntry, ReleaseEntry
from ..families.registry import family_of
from ..request.options import LONGEST
from .memory import GPU_MEMORY_UTILIZATION, WIDTHS_ASKED, growth, stored_as

FILES = "vllm/engine/mm_arg_utils.py, scripts/launch_multi_models.py"
SERVER = "vllm.entrypoints.openai.api_server"
# The server names models by their paths, and its models have different tasks: these options have no single value.
_OWN = {"--model", "--served-model-name", "--task"}
GIB = 1 << 30
MIB_PER_GIB = 1024


def common(
    request: Mapping[str, object], entry: ModelEntry | None, others: Sequence[ModelEntry], release: ReleaseEntry
) -> dict[str, object]:
    """The request with the one length all models take. Raises Refusal for what cannot share a card."""
    if "multi_model_server" not in release.constants:
        raise Refusal(
            "no_multi_model_server",
            f"share_card_with: release {release.name} has no server for several models. Use one that has (1.22), or "
            f"an instance for each model.",
        )
    if entry is None:
        raise Refusal(
            "sharing_without_model", "share_card_with goes with model, a name in catalog/models, not with weights."
        )
    models = [entry, *others]
    names = [model.name for model in models]
    if len(set(names)) < len(names):
        raise Refusal("model_twice", f"share_card_with names a model twice: {', '.join(names)}. Name each once.")
    for model in models:
        if model.task not in POOLING_TASKS:
            raise Refusal(
                "model_cannot_share",
                f"share_card_with: {model.name} writes text and takes a card's memory for itself. Only embedding and "
                f"rerank models share one.",
            )
    if request.get("served_model_name") is not None:
        raise Refusal(
            "served_name_fixed",
            "share_card_with: the server names its models by their paths. Leave served_model_name out.",
        )
    lengths = {model.name: model.defaults.get("max_model_len") for model in models}
    known = {name: length for name, length in lengths.items() if isinstance(length, int)}
    shortest = min(known, key=lambda name: known[name])
    said = request.get("max_model_len")
    asked = integer(said, "max_model_len", 1, LONGEST) if said is not None else known[shortest]
    if asked > known[shortest]:
        raise Refusal(
            "max_model_len_beyond_model",
            f"max_model_len is {asked}, but {shortest}, which shares the card, takes {known[shortest]}. Lower it, or "
            f"serve {shortest} on its own.",
        )
    given = mapping(request.get("extra_environment") or {}, "extra_environment")
    buckets = {"VLLM_PROMPT_SEQ_BUCKET_MAX": str(asked)}
    return {**request, "max_model_len": asked, "extra_environment": {**buckets, **given}}


def share(plan: Mapping[str, Any], others: Sequence[ModelEntry], release: ReleaseEntry) -> dict[str, Any]:
    """The plan for all models, from the plan for the first. Raises Refusal where they do not fit."""
    first = plan["requires"]["weights_path"]
    beside = [f"{first.rpartition('/')[0]}/{model.directory}" for model in others]
    paths = [first, *beside]
    arguments = _arguments(plan["arguments"], release.constants["multi_model_server"], paths)
    sizes = [plan["requires"]["weights_bytes"], *(model.weights_bytes for model in others)]
    weights_bytes = sum(size for size in sizes if size)
    unknown = next((model.name for model in others if model.weights_bytes is None), None)
    if plan["memory"] is None or unknown is not None:
        raise Refusal(
            "model_size_unknown",
            f"share_card_with: the size of {unknown or 'the first model'} is not known. "
            f"Leave weights out or serve it alone.",
        )
    share_of_one = float(_said(plan["arguments"], "--gpu-memory-utilization") or GPU_MEMORY_UTILIZATION)
    # Without --dtype a model is loaded as it is stored.
    width = WIDTHS_ASKED.get(_said(plan["arguments"], "--dtype") or "")
    loaded = [(model.weights_bytes or 0) * growth(width, stored_as(model, None)) / GIB for model in others]
    loaded_gib = plan["memory"]["weights_gib_per_card"] + sum(loaded)
    memory = _memory(plan["memory"], weights_bytes, loaded_gib, share_of_one, len(paths))
    mounts = [{"source": path, "target": path, "read_only": True} for path in beside]
    explained = {"arguments.--model", "arguments.--served-model-name", "arguments.--task", "memory"}
    notes = [
        _note(release, "arguments.--models", " ".join(paths), "one-server-for-several", {"models": len(paths)}),
        _note(release, "memory", memory, "memory-of-several", {"weights_bytes": weights_bytes, "models": len(paths)}),
    ]
    warning = (
        "The server of several models has POST /v1/update_models, which exchanges them for whoever asks. Keep it on "
        "127.0.0.1, or give the instance API keys, which guard every route."
    )
    return {
        **plan,
        "served_model_name": first,
        "arguments": arguments,
        "memory": memory,
        "container": {**plan["container"], "mounts": [*plan["container"]["mounts"], *mounts]},
        "requires": {**plan["requires"], "weights_bytes": weights_bytes, "weights_beside": beside},
        "explain": [entry for entry in plan["explain"] if entry["value"] not in explained] + notes,
        "warnings": [*plan["warnings"], warning],
    }


def _said(arguments: Sequence[str], option: str) -> str | None:
    """The word after an option; None where it is not passed."""
    return next((word for before, word in zip(arguments, arguments[1:]) if before == option), None)


def _note(
    release: ReleaseEntry, value: str, result: object, name: str, inputs: Mapping[str, object]
) -> dict[str, object]:
    source = f"{family_of(release).code(release)} {FILES}"
    return {"value": value, "result": result, "rule": name, "source": source, "inputs": inputs}


def _arguments(arguments: Sequence[str], server: str, paths: Sequence[str]) -> list[str]:
    """The command with the other server and all paths; the list of paths ends where the next option begins."""
    result: list[str] = []
    skip = False
    for word in arguments:
        # An option that is left out goes with all its values.
        if skip and not word.startswith("--"):
            continue
        skip = word in _OWN
        if skip:
            result += ["--models", *paths] if word == "--model" else []
            continue
        result.append(server if word == SERVER else word)
    return result


def _memory(
    alone: Mapping[str, Any], weights_bytes: int, loaded_gib: float, share_of_one: float, models: int
) -> dict[str, Any]:
    """What the models take of the card together. Each takes its share of what is free when it is loaded."""
    if share_of_one * models > 1:
        raise Refusal(
            "memory_shares_too_large",
            f"{models} models with gpu_memory_utilization {share_of_one} each want {share_of_one * models:.2f} of one "
            f"card. Lower it to {1 / models:.2f}, or let fewer models share.",
        )
    have = (alone["card_mib"] - alone["idle_mib"] - alone["reserve_mib"]) / MIB_PER_GIB
    free = have - loaded_gib
    if free <= 0:
        raise Refusal(
            "weights_too_large",
            f"The {models} models weigh {loaded_gib:.1f} GiB, but a card has {have:.1f} GiB. Let fewer share.",
        )
    return {
        "card_mib": alone["card_mib"],
        "idle_mib": alone["idle_mib"],
        "reserve_mib": alone["reserve_mib"],
        "weights_bytes": weights_bytes,
        "weights_gib_per_card": round(loaded_gib, 2),
        "free_gib": round(free, 2),
        "share_of_each_model": share_of_one,
        "fits": True,
    }
