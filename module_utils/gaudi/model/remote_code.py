"""Code beside the weights: what config.json asks for, and whether the release's server works without it.

Source: get_config of vllm/transformers_utils/config.py and the registry of vllm/model_executor/models in the fork of
each release; AutoConfig.from_pretrained of transformers, which prefers a class of its own to code that it may not run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..base.checks import shown
from ..base.refusal import Refusal
from ..catalogue.entries import ModelEntry, ReleaseEntry
from ..request.options import Request
from ..rules.draft import Draft

# Largest config.json that is read, in bytes.
CONFIG_LIMIT = 1 << 20


@dataclass(frozen=True)
class Code:
    """The code in a config.json: files it would run (none without ``auto_map``), model type and architectures."""

    files: tuple[str, ...]
    model_type: str | None
    architectures: tuple[str, ...]


def code_of(config: Mapping[str, object]) -> Code:
    """Return the code that a config.json asks for.

    An entry of auto_map is ``file.Class``, or ``repository--file.Class`` for code of another repository.
    """
    named = config.get("auto_map")
    places = [place for place in named.values() if isinstance(place, str)] if isinstance(named, Mapping) else []
    model_type, architectures = config.get("model_type"), config.get("architectures")
    return Code(
        files=tuple(sorted({f"{place.rpartition('.')[0] or place}.py" for place in places})),
        model_type=model_type if isinstance(model_type, str) else None,
        architectures=tuple(name for name in architectures if isinstance(name, str))
        if isinstance(architectures, (list, tuple))
        else (),
    )


def config_in(content: bytes) -> Mapping[str, object]:
    """A config.json from the file's content. Raises Refusal for one that is none."""
    try:
        config = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise Refusal(
            "config_unreadable", f"config.json cannot be read ({type(error).__name__}). Fetch it again."
        ) from error
    if not isinstance(config, dict):
        raise Refusal("config_unreadable", "config.json cannot be read (it is no mapping). Fetch it again.")
    return config


def lacking(code: Code, release: ReleaseEntry) -> str | None:
    """Return what the release's server has no class of its own for; None if it has all classes."""
    missing = []
    if code.model_type not in release.model_types:
        missing.append(f"model_type {shown(code.model_type)}")
    if not release.architectures.intersection(code.architectures):
        missing.append(f"the architecture {_some(code.architectures) or '(none is named)'}")
    return " and ".join(missing) or None


def _some(names: Sequence[str]) -> str:
    """Names for a sentence, three at most."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(shown(name) for name in names[:3]) + more


def check_code(
    request: Request, entry: ModelEntry | None, code: Code | None, release: ReleaseEntry, label: str, draft: Draft
) -> None:
    """Check that weights whose code the server needs have permission to run it.

    Raises Refusal, with the option's name, if the permission is missing or denied. Weights of an unknown class without
    code give a warning.
    """
    if code is not None and not code.files:
        if code.architectures and not release.architectures.intersection(code.architectures):
            draft.warn(
                f"config.json of the weights names the architecture {_some(code.architectures)}, which release "
                f"{release.name} has no class of its own for, and no code (auto_map): the server may not start. Use a "
                f"release that knows the model."
            )
        return
    missing = lacking(code, release) if code is not None else None
    if code is None or missing is None:
        return
    seen = (
        f"config.json of the weights has auto_map ({_some(code.files)}), and release {release.name} "
        f"has no class of its own for {missing}"
    )
    if request.trust_remote_code is False:
        raise Refusal(
            "remote_code_forbidden",
            f"{label}: {seen}, but trust_remote_code is false: the server would not start. Read the code, which runs "
            f"with the server's rights, then set trust_remote_code to true; or serve other weights, or use a release "
            f"that knows the model.",
        )
    if request.trust_remote_code is None and not (entry is not None and entry.trust_remote_code):
        raise Refusal(
            "remote_code_undecided",
            f"{label}: {seen}. The server starts only with that code, which runs with its rights. Read it, then set "
            f"trust_remote_code to true; or serve other weights, or use a release that knows the model.",
        )
