"""A release whose server finishes requests when it is told to stop."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.module_utils.gaudi.planning.many import Catalogue, plan_all
from ansible.module_utils.gaudi.serving.plan import Plan

from plugin_utils.catalogue_files import findings
from tests.golden.serving_cases import vendor

RELEASE = vendor.content("releases", "1.22")
OPTION = "--shutdown-timeout"
STAND_IN = {
    **RELEASE,
    "arguments": {**RELEASE["arguments"], "parser": [*RELEASE["arguments"]["parser"], OPTION]},
    "constants": {**RELEASE["constants"], "shutdown_timeout": 40},
}


@pytest.mark.parametrize(
    ("release", "extra", "seconds"),
    [
        (RELEASE, [], 0),
        (vendor.content("releases", "1.24.1"), [], 30),
        (STAND_IN, [], 40),
        # What somebody asks for counts.
        (STAND_IN, [OPTION, "5"], 5),
        # The number alone is no argument.
        ({**STAND_IN, "arguments": RELEASE["arguments"]}, [], 0),
    ],
)
def test_the_server_is_told_where_it_knows(release: dict[str, Any], extra: list[str], seconds: int) -> None:
    found = Catalogue.from_mappings(release, {}, vendor.content("", "cards"))
    request = {"instance": "x", "weights": "/data/models/X", "max_model_len": 1024, "extra_args": extra}
    (plan,) = plan_all([request], found, vendor.topology("oam8"), weights_root="/data/models")
    assert plan["arguments"].count(OPTION) == (1 if seconds else 0)
    assert Plan.from_document(plan).shutdown_timeout == seconds


def test_the_number_is_data_of_a_release() -> None:
    assert findings("release", STAND_IN) == []
    assert findings("release", {**STAND_IN, "constants": {**STAND_IN["constants"], "shutdown_timeout": 0}})
