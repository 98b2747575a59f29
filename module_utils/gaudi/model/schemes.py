"""What quantised layers are made of: bits, type of number and granularity, from config.json.

Source: CompressedTensorsConfig of vllm/model_executor/layers/quantization/compressed_tensors (_get_scheme_from_parts),
which takes the format of a group before that of the whole, and leaves the activations of formats alone that have none
(is_activation_quantization_format). AWQ and GPTQ name their bits (awq_hpu.py and gptq_hpu.py of vllm-hpu-extension).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..base.checks import positive

# Formats whose activations are quantised too.
WITH_ACTIVATIONS = ("naive-quantized", "int-quantized", "float-quantized", "nvfp4-pack-quantized")
# Sizes of groups of one model that are compared.
_MOST_GROUPS = 8
# Bits of an activation that is not quantised.
WHOLE = 16


@dataclass(frozen=True)
class QuantizationScheme:
    """The bits of a weight and of an activation, the type of number, and which weights share a scale."""

    weight_bits: int
    activation_bits: int
    kind: str
    strategy: str

    @property
    def name(self) -> str:
        """Its name in release files, such as w8a8-int-channel."""
        return f"w{self.weight_bits}a{self.activation_bits}-{self.kind}-{self.strategy}"

    @property
    def words(self) -> str:
        """Its description for people."""
        kind = {"int": "whole numbers", "float": "floating-point numbers"}.get(self.kind, self.kind)
        activations = f"of {self.activation_bits} bits" if self.activation_bits != WHOLE else "that are not quantised"
        return (
            f"weights of {self.weight_bits} bits ({kind}, a scale for each {self.strategy}) and activations "
            f"{activations}"
        )


def schemes_of(config: Mapping[str, object], method: str | None) -> tuple[QuantizationScheme, ...]:
    """Return the schemes of compressed-tensors, AWQ or GPTQ weights, each once; none that is unclear."""
    found = config.get("quantization_config") or config.get("compression_config")
    if not isinstance(found, Mapping):
        return ()
    if method in ("awq", "gptq"):
        bits = next((found[key] for key in ("bits", "w_bit") if key in found), None)
        return (QuantizationScheme(bits, WHOLE, "int", "group"),) if isinstance(bits, int) and _bits(bits) else ()
    if method != "compressed-tensors":
        return ()
    groups = found.get("config_groups")
    values = groups.values() if isinstance(groups, Mapping) else ()
    schemes = (_scheme(group, found.get("format")) for group in values if isinstance(group, Mapping))
    return tuple(dict.fromkeys(scheme for scheme in schemes if scheme is not None))


def group_of(config: Mapping[str, object], method: str | None) -> int | None:
    """Return how many weights of a row have one scale, where cards can cut through them; None for other weights.

    Rows are cut by whole groups only: create_weights of AWQHPULinearMethod, GPTQHPULinearMethod and
    CompressedTensorsWNA16, and of Fp8LinearMethod for blocks (weight_block_size).
    """
    found = config.get("quantization_config") or config.get("compression_config")
    if not isinstance(found, Mapping):
        return None
    if method in ("awq", "gptq"):
        sizes = [found.get("group_size", found.get("q_group_size"))]
    elif method == "fp8":
        blocks = found.get("weight_block_size")
        sizes = list(blocks) if isinstance(blocks, list) else []
    elif method == "compressed-tensors":
        groups = found.get("config_groups")
        weights = [group.get("weights") for group in groups.values()] if isinstance(groups, Mapping) else []
        sizes = [each.get("group_size") for each in weights if isinstance(each, Mapping)]
    else:
        sizes = []
    whole = dict.fromkeys(size for size in map(positive, sizes) if size is not None)
    return math.lcm(*list(whole)[:_MOST_GROUPS]) if whole else None


def _scheme(group: Mapping[str, Any], whole: object) -> QuantizationScheme | None:
    weights, activations = group.get("weights"), group.get("input_activations")
    if not isinstance(weights, Mapping):
        return None
    bits, kind, strategy = weights.get("num_bits", 8), weights.get("type", "int"), weights.get("strategy")
    if strategy is None:
        # QuantizationArgs of the package compressed-tensors.
        strategy = "group" if weights.get("group_size") else "tensor"
    if not _bits(bits) or kind not in ("int", "float") or not isinstance(strategy, str) or len(strategy) > 32:
        return None
    form = group.get("format") or whole
    used = isinstance(activations, Mapping) and form in WITH_ACTIVATIONS
    activation_bits = activations.get("num_bits", 8) if used and isinstance(activations, Mapping) else WHOLE
    return QuantizationScheme(bits, activation_bits, kind, strategy) if _bits(activation_bits) else None


def _bits(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 64
