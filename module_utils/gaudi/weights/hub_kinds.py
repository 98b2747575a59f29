"""The kinds of hub that weights come from; docs/design.md lists the places of a new one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..base.checks import shown
from ..base.refusal import Refusal


@dataclass(frozen=True)
class HubKind:
    """One kind of hub.

    title: its name for people. branch: the default branch of a repository. command: how to download a repository by
    hand, with the fields repository, revision (an argument or empty) and target. client: the class in
    gaudi_weights/hub_KIND.py that queries it.
    """

    title: str
    branch: str
    command: str
    client: str


KINDS = {
    "huggingface": HubKind(
        "Hugging Face", "main", "hf download {repository}{revision} --local-dir {target}", "HuggingFace"
    ),
    "modelscope": HubKind(
        "ModelScope", "master", "modelscope download {repository}{revision} --local_dir {target}", "ModelScopeHub"
    ),
    "git": HubKind("the git host", "main", "git clone {repository} {target}", "Git"),
}
# The kind of a source without a kind, of a repository that is named alone (-e repository=OWNER/NAME), and the only one
# with support for pins (model_pins_info).
DEFAULT = "huggingface"


def kind_sentences(kinds: Iterable[object]) -> list[str]:
    """Return why a site's sources cannot be used: one sentence for each unknown kind."""
    return [
        f"model_weights_sources names a source of kind {shown(kind)}, and can have {', '.join(KINDS)}. Correct it."
        for kind in kinds
        if kind not in KINDS
    ]


def origin_sentences(fetches: Iterable[Mapping[str, Any]], kinds: Collection[str]) -> list[str]:
    """Return why folders (directory, repositories by kind) cannot be fetched from these kinds, a sentence each."""
    return [
        f"{item['directory']} is published on {', '.join(item['repositories'])}, and model_weights_sources has no "
        "source of that kind. Add one, or name the model's repository on another kind in catalog/models."
        for item in fetches
        if kinds and not set(kinds) & set(item["repositories"])
    ]


def hub_kind(name: object) -> HubKind:
    """Return a kind by its name. Raises Refusal for an unknown name."""
    kind = KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise Refusal("unknown_kind", f"a source is of kind {name!r}, and can be {', '.join(KINDS)}")
    return kind
