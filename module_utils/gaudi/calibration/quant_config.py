"""The INC configurations of static FP8, as data: what is measured, and how measurements become scales.

Sources: scripts/quant_configs of vllm-fork deepseek_r1 (687dd5bbd and 016b6bd20 hold the same files). The vendor's
calibrate_model.sh writes its own; they are not repeated here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..base.refusal import Refusal

# Layers that are never quantised: the head, and the router of a mixture of experts. The pattern must end after "gate",
# or it would match the experts.
ALWAYS_BFLOAT16 = ("lm_head", r"mlp\.gate\b")
# Layers that read or write the KV cache, and the product computed from it.
KV_CACHE = (
    "latent_cache_k_nodeq",
    "latent_cache_v_nodeq",
    "latent_cache_v",
    "latent_cache_k",
    "kv_b_proj",
    "matmul_qk",
    "matmul_av",
    "batch2block_matmul",
    "block2batch_matmul",
)


@dataclass(frozen=True)
class ScaleScheme:
    """A rule that turns measurements into scales. ``file`` is the vendor's name for it."""

    file: str
    scale_method: str
    scale_format: str
    kv_cache_dtype: str
    bfloat16: tuple[str, ...]


# Activations get power-of-two scales that the hardware supports, weights one power of two for each output channel.
PER_CHANNEL = "ACT_MAXABS_HW_WEIGHTS_PCS_MAXABS_POW2"
SCHEMES: Mapping[str, ScaleScheme] = {
    "per_channel_fp8_kv": ScaleScheme(
        "inc_quant_per_channel_with_fp8kv_config.json", PER_CHANNEL, "const", "fp8_inc", ALWAYS_BFLOAT16
    ),
    # The scheme of the vendor's two-node deployment.
    "per_channel_bf16_kv": ScaleScheme(
        "inc_quant_per_channel_bf16kv.json", PER_CHANNEL, "const", "auto", ALWAYS_BFLOAT16 + KV_CACHE
    ),
    "per_tensor_fp8_kv": ScaleScheme(
        "inc_quant_with_fp8kv_config.json",
        "maxabs_hw",
        "scalar",
        "fp8_inc",
        (
            *ALWAYS_BFLOAT16,
            "latent_cache_k_nodeq",
            "latent_cache_v_nodeq",
            "latent_cache_v",
            "matmul_qk",
            "matmul_av",
            "block2batch_matmul",
        ),
    ),
}


def measurement(dump_stats_path: str) -> dict[str, Any]:
    """Return the configuration of a measuring run (inc_measure_with_fp8kv_config.json).

    dump_stats_path is the prefix of the files that the run writes, as a path in the container.
    """
    return {
        "method": "HOOKS",
        "mode": "MEASURE",
        "observer": "maxabs",
        "allowlist": {"types": [], "names": []},
        "blocklist": {"types": [], "names": list(ALWAYS_BFLOAT16)},
        "quantize_weight": False,
        "dump_stats_path": dump_stats_path,
    }


def quantisation(scheme: str, dump_stats_path: str) -> dict[str, Any]:
    """Return the configuration of a server with quantised weights. Raises Refusal for an unknown scheme."""
    if scheme not in SCHEMES:
        raise Refusal("unknown_choice", f"There is no quantisation scheme {scheme!r}. Known: {', '.join(SCHEMES)}.")
    found = SCHEMES[scheme]
    return {
        "mode": "QUANTIZE",
        "observer": "maxabs",
        "scale_method": found.scale_method,
        "scale_format": found.scale_format,
        "allowlist": {"types": [], "names": []},
        "blocklist": {"types": [], "names": list(found.bfloat16)},
        "dump_stats_path": dump_stats_path,
    }


def rendered(config: Mapping[str, Any]) -> str:
    """Return the configuration as the file's text."""
    return json.dumps(config, indent=4) + "\n"
