"""Embedding and rerank models that share one card: one server, one length, every model's weights."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.pages.test_page import plans, topology

NODE = topology("hl-225-two-sockets")


def planned(request: dict[str, Any], release: str = "1.22") -> dict[str, Any]:
    (plan,) = plans(release, [{"instance": "rag", "model": "bge-m3", **request}], NODE)
    return plan


@pytest.mark.parametrize("release", ["1.22", "1.22-2025.11"])
def test_one_server_serves_all_of_them(release: str) -> None:
    plan = planned({"share_card_with": ["bge-reranker-v2-m3", "gte-modernbert-base"]}, release)
    arguments = plan["arguments"]
    paths = ["/data/models/bge-m3", "/data/models/bge-reranker-v2-m3", "/data/models/gte-modernbert-base"]
    assert arguments[:3] == ["python3", "-m", "vllm.entrypoints.openai.mm_api_server"]
    start = arguments.index("--models")
    assert arguments[start + 1 : start + 4] == paths
    assert arguments[start + 4].startswith("--")
    assert not {"--model", "--served-model-name", "--task"} & set(arguments)
    assert [mount["source"] for mount in plan["container"]["mounts"] if mount["read_only"]] == paths
    assert [mount["target"] for mount in plan["container"]["mounts"] if mount["read_only"]] == paths
    # The server knows its models by their paths.
    assert plan["served_model_name"] == paths[0]
    assert plan["requires"]["weights_bytes"] == 2271019008 + 2271023108 + 298028544
    assert plan["requires"]["weights_beside"] == paths[1:]
    assert any("/v1/update_models" in warning for warning in plan["warnings"])
    values = [entry["value"] for entry in plan["explain"]]
    assert len(values) == len(set(values))
    assert "arguments.--model" not in values


def test_the_shortest_model_sets_the_length() -> None:
    plan = planned({"share_card_with": ["bge-large-zh-v1.5"]})
    assert plan["arguments"][plan["arguments"].index("--max-model-len") + 1] == "512"
    assert plan["environment"]["VLLM_PROMPT_SEQ_BUCKET_MAX"] == "512"
    assert max(plan["buckets"]["prompt_seq"]) == 512
    shorter = planned({"share_card_with": ["bge-reranker-v2-m3"], "max_model_len": "1024"})
    assert shorter["arguments"][shorter["arguments"].index("--max-model-len") + 1] == "1024"


@pytest.mark.parametrize(
    ("request_", "release", "words"),
    [
        ({"share_card_with": ["qwen3-8b"]}, "1.22", "qwen3-8b writes text"),
        ({"share_card_with": ["bge-m3"]}, "1.22", "names a model twice"),
        ({"share_card_with": ["bge-large-zh-v1.5"], "max_model_len": 4096}, "1.22", "takes 512"),
        ({"share_card_with": ["bge-reranker-v2-m3"], "gpu_memory_utilization": 0.6}, "1.22", "Lower it to 0.50"),
        ({"share_card_with": ["bge-reranker-v2-m3"], "served_model_name": "x"}, "1.22", "Leave served_model_name out"),
        ({"share_card_with": ["../x"]}, "1.22", "names of files in catalog/models"),
        ({"share_card_with": "bge-m3"}, "1.22", "a list of models"),
        ({"share_card_with": ["bge-reranker-v2-m3"], "extra_environment": 5}, "1.22", "extra_environment"),
    ],
)
def test_what_cannot_share_is_refused(request_: dict[str, Any], release: str, words: str) -> None:
    assert words in planned(request_, release)["refused"]


def test_a_release_without_such_a_server_says_so() -> None:
    assert "no server for several models" in planned({"share_card_with": ["gte-modernbert-base"]}, "1.21")["refused"]
