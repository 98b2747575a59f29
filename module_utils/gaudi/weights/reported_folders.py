"""The folders of weights of a node, as it reports them: the part ``weight_folders`` of its report, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..base import paths
from ..base.documents import misfit
from ..base.refusal import Refusal
from ..base.reported import UNREADABLE, document, instance_names

_FORM = {
    "folders": [
        {
            **dict.fromkeys(("directory", "status", "source", "repository", "revision", "fetched", "verified"), str),
            "bytes": int,
            "wrong": [str],
            "used_by": [str],
        }
    ],
    "damaged_plans": list,
    "storage": {"fstype": str, "source": str},
    "giving": bool,
    "rsync": bool,
}


def folders_in(part: Mapping[str, object]) -> dict[str, Any]:
    """Return the part without its damaged plans. Raises Refusal for another form."""
    found = document(part)
    wrong = misfit(found, _FORM)
    if wrong:
        raise Refusal("wrong_form", f"The node {UNREADABLE} of its weights: no {wrong}, or one of another type.")
    return {name: found[name] for name in _FORM if name != "damaged_plans"}


def unknown_users(part: Mapping[str, object]) -> list[str]:
    """Return a sentence for each damaged plan: what its instance uses is unknown."""
    return [
        f"{paths.INSTANCES}/{name}/plan.json is damaged: which folders {name} uses is not known."
        for name in instance_names(part.get("damaged_plans"))
    ]
