"""The class of a model, and whether a release's server has one that works on these cards.

Source: ModelRegistry of vllm/model_executor/models/registry.py. A name that it does not have goes to the Transformers
backend, where the installed transformers has a class of that name that takes another attention; AutoConfig ends with a
model type that it does not know. Old releases have no such backend, and run no class beside the weights either
(load_model_cls of vllm/model_executor/models/__init__.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from ..base.checks import shown
from ..base.refusal import Refusal
from ..catalogue.entries import ReleaseEntry
from ..rules.draft import Draft

# Classes of the Transformers backend, by the start of their names.
BACKEND = "Transformers"


def some(names: Sequence[str]) -> str:
    """Names for a sentence, three at most."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(shown(name) for name in names[:3]) + more


def check_architectures(
    architectures: Sequence[str],
    model_type: str | None,
    release: ReleaseEntry,
    label: str,
    draft: Draft,
    *,
    said_by: str = "config.json of the weights",
    has_code: bool,
    runs_code: bool,
) -> None:
    """Check that the release's server has a class for a model; a class that nobody tried gives a warning.

    ``said_by``: the file that names the class. ``has_code``: a class lies beside the weights, which the server may run
    if ``runs_code``. Raises Refusal where the server would end.
    """
    if not architectures:
        return
    if release.architectures.intersection(architectures):
        # The class comes last: what cannot read config.json does not get there.
        if model_type is not None and model_type not in release.model_types and release.model_types and not has_code:
            draft.warn(
                f"{said_by} has the model_type {shown(model_type)}, which transformers of release {release.name} may "
                f"not know, and no code (auto_map): the server may not start. Use a release that knows the model."
            )
        return
    for kind, table in (
        ("ends with", release.refused_architectures),
        ("has no class of its own for", release.unverified_architectures),
    ):
        known = [name for name in architectures if name in table]
        if not known:
            continue
        seen = f"release {release.name} {kind} the architecture {shown(known[0])}: {table[known[0]]}"
        if table is release.refused_architectures and not runs_code:
            raise Refusal("unsupported_architecture", f"{label}: {seen}. Serve another model, or use another release.")
        draft.warn(f"{seen[0].upper()}{seen[1:]}.")
        return
    if not any(name.startswith(BACKEND) for name in release.architectures):
        raise Refusal(
            "unsupported_architecture",
            f"{label}: {said_by} names the architecture {some(architectures)}, which release {release.name} has no "
            f"class of its own for, and its vLLM has no Transformers backend: the server ends. Serve another model, or "
            f"use another release.",
        )
    if has_code:
        return
    seen = (
        f"names the architecture {some(architectures)}, which release {release.name} has no class of its own for, and "
        f"no code (auto_map)"
    )
    if model_type is not None and model_type not in release.model_types:
        raise Refusal(
            "unsupported_architecture",
            f"{label}: {said_by} {seen}; its transformers does not know the model_type "
            f"{shown(model_type)} either, with which the server ends. Serve another model, or use another release.",
        )
    draft.warn(f"{said_by} {seen}: the server may not start. Use a release that knows the model.")
