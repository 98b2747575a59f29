"""Static quantisation configurations against the vendor's files."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.calibration import quant_config

DUMP = "./scripts/nc_workspace_measure_kvcache/inc_measure_output"
# scripts/quant_configs of vllm-fork 687dd5bbd, as they were read there.
VENDOR: dict[str, dict[str, Any]] = {
    "per_channel_fp8_kv": {
        "mode": "QUANTIZE",
        "observer": "maxabs",
        "scale_method": "ACT_MAXABS_HW_WEIGHTS_PCS_MAXABS_POW2",
        "scale_format": "const",
        "allowlist": {"types": [], "names": []},
        "blocklist": {"types": [], "names": ["lm_head", "mlp\\.gate\\b"]},
        "dump_stats_path": DUMP,
    },
    "per_channel_bf16_kv": {
        "mode": "QUANTIZE",
        "observer": "maxabs",
        "scale_method": "ACT_MAXABS_HW_WEIGHTS_PCS_MAXABS_POW2",
        "scale_format": "const",
        "allowlist": {"types": [], "names": []},
        "blocklist": {
            "types": [],
            "names": [
                "lm_head", "mlp\\.gate\\b", "latent_cache_k_nodeq", "latent_cache_v_nodeq", "latent_cache_v",
                "latent_cache_k", "kv_b_proj", "matmul_qk", "matmul_av", "batch2block_matmul", "block2batch_matmul",
            ],
        },
        "dump_stats_path": DUMP,
    },
    "per_tensor_fp8_kv": {
        "mode": "QUANTIZE",
        "observer": "maxabs",
        "scale_method": "maxabs_hw",
        "scale_format": "scalar",
        "allowlist": {"types": [], "names": []},
        "blocklist": {
            "types": [],
            "names": [
                "lm_head", "mlp\\.gate\\b", "latent_cache_k_nodeq", "latent_cache_v_nodeq", "latent_cache_v",
                "matmul_qk", "matmul_av", "block2batch_matmul",
            ],
        },
        "dump_stats_path": DUMP,
    },
}  # fmt: skip


@pytest.mark.parametrize("scheme", sorted(quant_config.SCHEMES))
def test_schemes_are_the_vendors_files(scheme: str) -> None:
    assert quant_config.quantisation(scheme, DUMP) == VENDOR[scheme]


def test_measuring_is_the_vendors_file_with_the_name_the_library_has_today() -> None:
    config = quant_config.measurement(DUMP)
    assert config == {
        "method": "HOOKS",
        "mode": "MEASURE",
        "observer": "maxabs",
        # "whitelist" in the vendor's file, "allowlist" in all its other ones.
        "allowlist": {"types": [], "names": []},
        "blocklist": {"types": [], "names": ["lm_head", "mlp\\.gate\\b"]},
        "quantize_weight": False,
        "dump_stats_path": DUMP,
    }


def test_a_bfloat16_cache_goes_with_what_reads_it() -> None:
    for name, scheme in quant_config.SCHEMES.items():
        assert (scheme.kv_cache_dtype == "auto") == (name == "per_channel_bf16_kv")
        assert (set(quant_config.KV_CACHE) <= set(scheme.bfloat16)) == (scheme.kv_cache_dtype == "auto")


def test_it_is_rendered_as_json_that_reads_back() -> None:
    config = quant_config.quantisation("per_channel_fp8_kv", DUMP)
    text = quant_config.rendered(config)
    assert json.loads(text) == config
    assert text.endswith("}\n")
    # One backslash in the text is two in JSON.
    assert '"mlp\\\\.gate\\\\b"' in text


def test_an_unknown_scheme_is_refused_with_the_known_ones() -> None:
    with pytest.raises(Refusal, match=r"no quantisation scheme 'x'\. Known: per_channel_fp8_kv, per_channel_bf16_kv"):
        quant_config.quantisation("x", DUMP)
