"""Places in memory become options of docker run."""

from __future__ import annotations

import pytest
from ansible.module_utils.gaudi.serving.plan import tmpfs


@pytest.mark.parametrize(
    ("entry", "option"),
    [
        (
            {"path": "/var/log/habana_logs", "size_mib": 1024, "mode": "0700"},
            "/var/log/habana_logs:rw,exec,nosuid,nodev,size=1024m,mode=0700",
        ),
        # As plans of running instances have it that were written before sizes were named.
        ("/scratch", "/scratch:rw,exec,nosuid,nodev"),
        ("/scratch:size=1m", "/scratch:size=1m"),
    ],
)
def test_a_place_of_either_shape(entry: str | dict[str, object], option: str) -> None:
    assert tmpfs(entry) == option
