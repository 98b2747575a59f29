"""The stand-in's buckets are those that the plugin's own code made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gaudi_simulated import plugin_buckets
from gaudi_simulated.warmup import BucketError

FOLDER = Path(__file__).resolve().parents[2] / "golden" / "plugin_buckets"
DOCUMENT, MORE = (json.loads((FOLDER / name).read_text(encoding="utf-8")) for name in ("cases.json", "more_cases.json"))
# What the stand-in has not.
LEFT_OUT = ("UNIFIED", "MERGED", "SLICE")
CASES = [
    pytest.param(case, version, id=f"{case['name']}-{version}")
    for case in [*DOCUMENT["cases"], *MORE["cases"]]
    if not (case["config"]["num_speculative_tokens"] or case["config"]["mamba_chunk_size"])
    and not any(word in name for name in case["env"] for word in LEFT_OUT)
    for version in ("0.17.1", "0.21.0", "0.26.0")
]


@pytest.mark.parametrize(("case", "version"), CASES)
def test_a_case(case: dict[str, Any], version: str, tmp_path: Path) -> None:
    for name, key in (("%FILE%", "bucketing_file"), ("%BADFILE%", "bad_bucketing_file")):
        (tmp_path / name).write_text(DOCUMENT[key], encoding="utf-8")
    environment = {
        name: str(tmp_path / value) if value.endswith("FILE%") else value for name, value in case["env"].items()
    }
    config, result = case["config"], case["results"][f"v{version}"]
    result = case["results"][result.get("same_as", result.get("same_buckets_as", f"v{version}"))]
    names = ("max_num_seqs", "max_model_len", "max_num_batched_tokens", "block_size", "num_hpu_blocks")
    engine = plugin_buckets.Engine(version, *(config[name] for name in names))
    if "error" in result:
        with pytest.raises(BucketError) as ended:
            plugin_buckets.shapes(engine, environment)
        assert str(ended.value)[:40] == result["error"][:40]
        return
    work = plugin_buckets.shapes(engine, environment)
    assert [list(shape) for shape in work.prompt] == result["prompt_buckets"]
    assert [list(shape) for shape in work.decode] == result["decode_buckets"]


def test_most_cases_are_there() -> None:
    assert len(CASES) == 138
