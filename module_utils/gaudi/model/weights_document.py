"""Weights as a JSON document: written on the node that has them, read on the controller, which plans with them.

A node can report anything, so every value is checked here; of what is copied from a model's own files there is a most.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..base.checks import Reader, integer, text
from ..base.refusal import Refusal
from .headers import Weights
from .remote_code import CONFIG_LIMIT, ForeignCode, code_of, config_in

# The most missing files. The largest published models have some 300 shards.
MOST_FILES = 4096
# The most references to other repositories that are reported: one is enough to refuse a plan, and a sentence has three.
MOST_REFERENCES = 64
# Kinds of elements in one folder, and characters of a kind's name.
MOST_KINDS = 64
LONGEST_KIND = 64
# Bytes and elements of one model: a million of the largest published ones.
LARGEST = 1 << 60
# JSON escapes a character of two bytes with six.
LONGEST_CONFIG = 3 * CONFIG_LIMIT

_SWITCHES = ("converted", "fits_published", "pickled", "fetched")
_KEYS = ("there", "bytes", "parameters", "missing", *_SWITCHES, "config", "foreign")
_FOREIGN = ("references", "unreadable", "models")


def document_of(weights: Weights | None) -> dict[str, Any]:
    """Return the document of what is in a folder. Raises Refusal for more than any model has."""
    if weights is None:
        return {"there": False}
    if len(weights.missing) > MOST_FILES:
        raise Refusal(
            "too_many_files", f"{len(weights.missing)} files are missing, and no model has so many. Fetch it again."
        )
    return {
        "there": True,
        "bytes": weights.bytes,
        "parameters": dict(weights.parameters),
        "missing": list(weights.missing),
        **{key: getattr(weights, key) for key in _SWITCHES},
        "config": _config_text(weights.config),
        "foreign": {key: list(getattr(weights.foreign, key))[:MOST_REFERENCES] for key in _FOREIGN},
    }


def weights_in(document: object) -> Weights | None:
    """Return the weights of a document; None where there is no such folder. Raises Refusal for any other form."""
    values = Reader(document, "What the node reports of weights", _KEYS)
    if not values.switch("there"):
        return None
    counts = values.mapping("parameters")
    if len(counts) > MOST_KINDS:
        raise Refusal("too_many_entries", f"The node reports {len(counts)} kinds of elements; no model has so many.")
    kinds = [text(kind, "A kind of elements", longest=LONGEST_KIND) for kind in counts]
    config = _config(values.raw("config")) if values.has("config") else None
    return Weights(
        bytes=values.integer("bytes", 0, LARGEST) if values.has("bytes") else None,
        parameters={kind: integer(counts[kind], f"The number of {kind}", 0, LARGEST) for kind in kinds},
        missing=values.texts("missing", longest=MOST_FILES),
        **{key: values.switch(key) for key in _SWITCHES},
        config=config,
        code=code_of(config) if config is not None else None,
        foreign=_foreign(values.mapping("foreign", required=True)),
    )


def _config_text(config: Mapping[str, object] | None) -> str | None:
    """Return config.json as text: a text has one length, and a reader need not visit what is in it."""
    try:
        return None if config is None else json.dumps(config, separators=(",", ":"))
    except RecursionError as error:
        raise Refusal("config_unreadable", "config.json is nested too deeply. Fetch it again.") from error


def _config(content: object) -> Mapping[str, object]:
    if not isinstance(content, str) or len(content) > LONGEST_CONFIG:
        raise Refusal("config_unreadable", "The node reports no config.json that can be read. Fetch it again.")
    return config_in(content)


def _foreign(document: Mapping[str, object]) -> ForeignCode:
    values = Reader(document, "What the weights name of others", _FOREIGN)
    named: Sequence[tuple[str, ...]] = [values.texts(key, longest=MOST_REFERENCES) for key in _FOREIGN]
    return ForeignCode(*named)
