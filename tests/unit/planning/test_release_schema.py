"""The schema of a release file knows every key the planner reads, and refuses all others by name."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import pytest

from plugin_utils.catalogue_files import findings
from tests.golden.serving_cases import vendor
from tests.unit.planning.test_server_shutdown import STAND_IN

from .test_releases import RELEASES

SCHEMA = json.loads((vendor.CATALOG / "schemas" / "release.schema.json").read_text(encoding="utf-8"))["properties"]
CONSTANTS = set(SCHEMA["constants"]["properties"])


def test_the_releases_are_right(subtests: pytest.Subtests) -> None:
    for release in RELEASES:
        with subtests.test(release=release):
            assert findings("release", vendor.content("releases", release)) == []


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("constants.max_num_seq", 5, ["max_num_seq", "Did you mean max_num_seqs"]),
        ("constants.port", "x", ["constants.port", "integer"]),
        ("constants.port", 70000, ["constants.port", "65535"]),
        ("constants.port", None, ["constants lacks the key port"]),
        ("constants.block_sizes", [0], ["constants.block_sizes[0]", "at least 1"]),
        ("constants.block_sizes", None, ["constants lacks the key block_sizes"]),
        ("constants.input_range", [4], ["constants.input_range", "at least 2"]),
        ("constants.network", "somehow", ["constants.network", "listen-outside"]),
        ("constants.graph_reserved_mem", 0.1, ["constants.graph_reserved_mem", "in quotes"]),
        ("constants.start_script", "a b; rm", ["constants.start_script"]),
        ("software.drivers", "1.22", ["drivers", "Did you mean driver"]),
        ("software.driver", "latest", ["software.driver", "latest"]),
        ("software.release", None, ["software lacks the key release"]),
        ("unsupported.lorra", "no.", ["lorra", "Did you mean lora"]),
        ("execution_modes.0 0", None, ["execution_modes lacks the key 0 0"]),
        ("execution_modes.2 0", "x", ["2 0"]),
    ],
)
def test_a_wrong_key_is_named_with_what_would_be_right(path: str, value: Any, words: list[str]) -> None:
    release = copy.deepcopy(vendor.content("releases", "1.22"))
    section, _, key = path.partition(".")
    if value is None:
        del release[section][key]
    else:
        release[section][key] = value
    (sentence,) = findings("release", release)
    for word in words:
        assert word in sentence, sentence


def test_no_number_is_kept_that_nobody_reads() -> None:
    code = " ".join(path.read_text(encoding="utf-8") for path in vendor.ROOT.glob("module_utils/gaudi/**/*.py"))
    assert {name for name in CONSTANTS if not re.search(rf"[\"']{name}[\"']", code)} == set()


def test_no_key_of_the_schema_is_without_a_release() -> None:
    used = {name for release in RELEASES for name in vendor.content("releases", release)["constants"]}
    assert used | set(STAND_IN["constants"]) == CONSTANTS
