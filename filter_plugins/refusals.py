"""Print refusals that documents hold."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))
from plugin_utils import brain

brain.on_path()

from ansible.module_utils.gaudi.base.refusal import with_id


def refusals(documents: Sequence[Mapping[str, object]]) -> list[str]:
    """Return the sentence of each refusal with its id, each once; a document that was not refused has none."""
    sentences = (
        with_id(str(each["refused"]), str(each.get("refused_id", ""))) for each in documents if "refused" in each
    )
    return list(dict.fromkeys(sentences))


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., list[str]]]:
        """Name the filters."""
        return {"refusals": refusals}
