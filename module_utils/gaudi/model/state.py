"""The state of layers without a KV cache: gated delta nets and Mamba.

Shapes and data types: MambaStateShapeCalculator and MambaStateDtypeCalculator of vllm/model_executor/layers/mamba
(mamba_utils.py, vLLM 0.26.0).
"""

from __future__ import annotations

from collections.abc import Mapping

from ..base.checks import positive
from ..catalogue.entries import State

# Bytes of an element: of the model's own type (bfloat16 on these cards), and of wider types in config.json.
WIDTH = 2
WIDTHS = {"float32": 4}
# Names of such layers in layer_types or layers_block_type of config.json.
KINDS = {"linear_attention": "gdn", "mamba": "mamba"}


def state_of(config: Mapping[str, object]) -> State | None:
    """Return the state from a language model's config.json; None for attention only, and for other kinds of layers."""
    kind, layers = state_layers(config)
    if kind is None or not layers:
        return None
    elements = _gdn(config) if kind == "gdn" else _mamba(config)
    if elements is None:
        return None
    conv, recurrent = elements
    width = WIDTHS.get(str(config.get("mamba_ssm_dtype")), WIDTH)
    return State(kind, layers, conv * WIDTH + recurrent * width)


def state_layers(config: Mapping[str, object]) -> tuple[str | None, int]:
    """Return the kind of these layers and their number."""
    for key in ("layer_types", "layers_block_type"):
        types = config.get(key)
        if isinstance(types, list):
            kind = next((KINDS[name] for name in types if isinstance(name, str) and name in KINDS), None)
            return kind, sum(isinstance(name, str) and KINDS.get(name) == kind for name in types) if kind else 0
    every, total = config.get("full_attention_interval"), config.get("num_hidden_layers")
    if isinstance(every, int) and isinstance(total, int) and every > 0:
        return "gdn", total - total // every
    return None, 0


def _numbers(config: Mapping[str, object], *keys: str) -> list[int] | None:
    numbers = [number for number in (positive(config.get(key)) for key in keys) if number is not None]
    return numbers if len(numbers) == len(keys) else None


def _gdn(config: Mapping[str, object]) -> tuple[int, int] | None:
    read = _numbers(
        config,
        "linear_num_key_heads",
        "linear_num_value_heads",
        "linear_key_head_dim",
        "linear_value_head_dim",
        "linear_conv_kernel_dim",
    )
    if read is None:
        return None
    keys, values, key_dim, value_dim, kernel = read
    return (2 * keys * key_dim + values * value_dim) * (kernel - 1), values * value_dim * key_dim


def _mamba(config: Mapping[str, object]) -> tuple[int, int] | None:
    read = _numbers(config, "mamba_n_heads", "mamba_d_head", "mamba_d_state", "mamba_n_groups", "mamba_d_conv")
    if read is None:
        return None
    heads, head_dim, size, groups, kernel = read
    return (heads * head_dim + 2 * groups * size) * (kernel - 1), heads * head_dim * size
