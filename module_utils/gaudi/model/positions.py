"""The longest request of a model, by vLLM's own rule for config.json.

Source: ``_get_and_verify_max_len`` in vllm/config.py of the forks of all releases (14f489ea6 to 016b6bd20).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..base.checks import shown
from ..base.refusal import Refusal

# The smallest of the present keys counts; nearly all models have only max_position_embeddings.
KEYS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "model_max_length",
    "max_target_positions",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)
# Types of rope scaling whose factor is already part of the length.
SCALED_ALREADY = ("su", "longrope", "llama3")
# Models that count positions from pad_token_id + 1, and pad_token_id is 1: no token has the first two
# (create_position_ids of vllm/model_executor/models/roberta.py).
POSITIONS_FROM = {"roberta": 2, "xlm-roberta": 2, "camembert": 2}
# Server arguments that override keys of config.json, and the key that a whole value replaces.
ARGUMENTS = {"--rope-scaling": "rope_scaling", "--hf-overrides": None}


@dataclass(frozen=True)
class Positions:
    """``longest`` is in tokens, None if unknown; ``because`` names the keys that it comes from."""

    longest: int | None
    because: str = ""
    # Why the server would not start; then no length is given.
    broken: str = ""


def positions_of(config: Mapping[str, object]) -> Positions:
    """Return the limit from the part of config.json that describes the language model.

    Raises Refusal for an invalid length or scaling.
    """
    lengths = {key: _length(key, config[key]) for key in KEYS if config.get(key) is not None}
    key = min(lengths, key=lambda name: lengths[name]) if lengths else ""
    if "model_max_length" in lengths:
        key = "model_max_length"
    longest, because = lengths.get(key), key
    first = POSITIONS_FROM.get(str(config.get("model_type")))
    if first and longest is not None and key == "max_position_embeddings":
        longest, because = longest - first, f"{key} {longest}, of which the first {first} are not for tokens"
    scaling = config.get("rope_scaling")
    if scaling is None or "gemma3" in str(config.get("model_type")):
        return Positions(longest, because)
    return _scaled(scaling, longest, because)


def _scaled(scaling: object, longest: int | None, because: str) -> Positions:
    """Apply ``rope_scaling`` to the length beside it."""
    if not isinstance(scaling, Mapping):
        raise Refusal(
            "not_a_mapping",
            f"rope_scaling of config.json must be a mapping of rope_type and factor, not {shown(scaling)}.",
        )
    kind = scaling.get("rope_type") or scaling.get("type")
    if not isinstance(kind, str):
        return Positions(None, "", "rope_scaling has no rope_type, without which the server ends")
    if kind in SCALED_ALREADY:
        return Positions(longest, because)
    factor = scaling.get("factor", 1.0)
    if isinstance(factor, bool) or not isinstance(factor, (int, float)) or not 0 < factor <= 1 << 20:
        raise Refusal(
            "not_a_number", f"rope_scaling of config.json: factor must be a number above 0, not {shown(factor)}."
        )
    if kind == "yarn":
        original = scaling.get("original_max_position_embeddings")
        if original is None:
            missing = "rope_scaling is yarn and has no original_max_position_embeddings, without which the server ends"
            return Positions(None, "", missing)
        longest, because = _length("original_max_position_embeddings", original), "original_max_position_embeddings"
    if longest is None or factor == 1:
        return Positions(longest, because)
    return Positions(int(longest * factor), f"{because} {longest} times the factor {factor} of rope_scaling")


def _length(key: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1 << 40:
        raise Refusal("not_a_whole_number", f"{key} of config.json must be a whole number from 1, not {shown(value)}.")
    return value


def overrides_in(arguments: Sequence[str]) -> dict[str, object]:
    """Return the keys of config.json that server arguments override.

    Raises Refusal for a value that is not JSON, with which the server would end.
    """
    found: dict[str, object] = {}
    for place, word in enumerate(arguments):
        name, equals, value = word.partition("=")
        option = name.replace("_", "-")
        if option not in ARGUMENTS:
            continue
        if not equals:
            value = arguments[place + 1] if place + 1 < len(arguments) else ""
        try:
            content = json.loads(value)
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict):
            raise Refusal("not_a_json_object", f"extra_args: {option} takes a JSON object, not {shown(value)}.")
        key = ARGUMENTS[option]
        found.update({key: content} if key else content)
    return found
