"""What happens to each tensor of a bfloat16 checkpoint."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from typing import Any

from gaudi.base.refusal import Refusal

from ..safetensors import ShardTensor

# Parts of a name that stand for towers in front of the language model. The vendor's script knows "visual" only.
TOWERS = frozenset(
    {"visual", "vision_tower", "vision_model", "vision_encoder", "audio_tower", "audio_encoder", "audio_model",
     "multi_modal_projector", "mm_projector", "talker", "token2wav", "code2wav"}
)  # fmt: skip
SCALE = "_scale"

# The fork loads these as one layer each and refuses a mixture (is_layer_skipped in quant_utils.py).
FUSED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))

# Names of the hub -> names of the server (hf_to_vllm_mapper of qwen3_vl.py, fork 17a7946f).
SERVER_NAMES = (
    ("model.visual.", "visual."),
    ("model.language_model.", "language_model.model."),
    ("lm_head", "language_model.lm_head"),
)
LARGEST_ROW = 32 * 1024 * 1024  # bytes


def module_of(name: str) -> str:
    """Name of the layer a weight belongs to; fused experts are named like a layer themselves."""
    return name[: -len(".weight")] if name.endswith(".weight") else name


def is_tower(name: str) -> bool:
    """Whether a tensor is part of a vision or audio tower."""
    return not TOWERS.isdisjoint(name.split("."))


def is_projection(tensor: ShardTensor) -> bool:
    """Whether a tensor is the weight of a projection of the language model: a matrix, or fused experts."""
    leaf = module_of(tensor.name).rsplit(".", 1)[-1]
    dimensions = 2 if tensor.name.endswith(".weight") else 3
    return leaf.endswith("proj") and len(tensor.shape) == dimensions and not is_tower(tensor.name)


def kept(name: str, keep: tuple[str, ...]) -> bool:
    """Whether --keep names the layer: its whole name, a pattern, or the last part."""
    module = module_of(name)
    return any(fnmatch.fnmatchcase(module, p) or module.rsplit(".", 1)[-1] == p for p in keep)


def decide(tensors: list[ShardTensor], keep: tuple[str, ...]) -> dict[str, str]:
    """Action by tensor name: 'rows' for matrices, 'columns' for fused experts; what is absent is copied.

    Raises Refusal with a tensor's name for what cannot be converted.
    """
    names = {tensor.name for tensor in tensors}
    actions: dict[str, str] = {}
    for tensor in tensors:
        if tensor.dtype.startswith("F8_"):
            raise Refusal(
                "fp8_already",
                f"the tensor {tensor.name!r} is FP8 ({tensor.dtype}) already; this program starts from bfloat16. "
                "Block-quantised FP8 is converted by fp8_convert.py",
            )
        if not is_projection(tensor):
            continue
        if kept(tensor.name, keep):
            _refuse_kept_experts(tensor)
        else:
            _refuse_unfit(tensor, names)
            actions[tensor.name] = "rows" if len(tensor.shape) == 2 else "columns"
    if not actions:
        raise Refusal(
            "nothing_to_convert",
            "there is no bfloat16 '*proj' layer of a language model in this checkpoint, so there is nothing to convert",
        )
    _refuse_mixtures(names, actions)
    return actions


def _refuse_kept_experts(tensor: ShardTensor) -> None:
    if len(tensor.shape) == 3:
        raise Refusal(
            "experts_kept", f"the fused experts {tensor.name!r} cannot be kept: the server reads all experts as FP8"
        )


def _refuse_unfit(tensor: ShardTensor, names: set[str]) -> None:
    if tensor.dtype != "BF16":
        raise Refusal("tensor_dtype", f"the tensor {tensor.name!r} has the dtype {tensor.dtype}; BF16 is needed")
    if 0 in tensor.shape:
        raise Refusal("tensor_empty", f"the tensor {tensor.name!r} of shape {list(tensor.shape)} holds nothing")
    if tensor.name + SCALE in names:
        raise Refusal("scale_present", f"the tensor {tensor.name!r} has a scale already ({tensor.name + SCALE!r})")
    if 2 * tensor.shape[-1] > LARGEST_ROW:
        raise Refusal(
            "row_too_long", f"a row of {tensor.name!r} has {2 * tensor.shape[-1]} bytes, more than this program holds"
        )


def _refuse_mixtures(names: set[str], actions: Mapping[str, str]) -> None:
    for name in sorted(actions):
        base, _, leaf = module_of(name).rpartition(".")
        for parts in FUSED:
            for part in parts if leaf in parts else ():
                other = f"{base}.{part}.weight"
                if other in names and other not in actions:
                    raise Refusal(
                        "kept_in_part", f"{other!r} is kept but {name!r} is not: the server loads both as one layer"
                    )


def ignored_layers(tensors: list[ShardTensor], actions: Mapping[str, str]) -> list[str]:
    """Layers the server must not read as FP8, under the hub's and under the server's names.

    Both, because the pinned fork asks for the attention of the vision tower as model.visual...qkv and for its other
    layers as visual... (qwen2_5_vl.py and qwen3_vl.py at 17a7946f).
    """
    found: set[str] = set()
    for tensor in tensors:
        if tensor.name.endswith(".weight") and len(tensor.shape) == 2 and tensor.name not in actions:
            module = module_of(tensor.name)
            found.add(module)
            for hub, server in SERVER_NAMES:
                if module.startswith(hub):
                    found.add(server + module[len(hub) :])
    return sorted(found)


def quantization_config(ignored: list[str]) -> dict[str, Any]:
    """What the fork reads (Fp8Config.from_config, 17a7946f): ``channel`` under quant_scheme, nothing else, makes
    it expect a scale for each channel."""
    return {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "activation_scheme": "dynamic",
        "quant_scheme": "channel",
        "ignored_layers": ignored,
    }
