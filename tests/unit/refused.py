"""What a test expects of a refusal: its id, and values that its sentence names. Sentences are in docs/refusals.md."""

from __future__ import annotations

import pytest
from ansible.module_utils.gaudi.base.refusal import Refusal


def refused(id_: str, *named: object) -> pytest.RaisesExc[Refusal]:
    """Expect a refusal with this id, whose sentence contains each of these values."""
    return pytest.raises(
        Refusal, check=lambda error: error.id == id_ and all(str(value) in str(error) for value in named)
    )
