"""What happens to each tensor of a block-quantised checkpoint."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gaudi.base.refusal import Refusal

from ..safetensors import DTYPE_BITS, FP8, ShardTensor

SCALE_DTYPES = ("F32", "BF16")
SCALE_SUFFIXES = ("_scale_inv", "_scale")
INPUT_SCALES = ("input_scale_inv", "input_scale")


@dataclass(frozen=True)
class TensorStep:
    """What becomes of one tensor: 'copy', 'weight' (the table), 'scale', or 'bf16' (vendor-compatible)."""

    tensor: ShardTensor
    action: str

    @property
    def result(self) -> tuple[str, int]:
        """Dtype and bytes of the result."""
        if self.action == "scale":
            return "F32", self.tensor.size * 32 // DTYPE_BITS[self.tensor.dtype]
        if self.action == "bf16":
            return FP8, self.tensor.size // 2
        return self.tensor.dtype, self.tensor.size


def weight_scales(name: str) -> list[str]:
    """Names under which the scale of an FP8 weight may stand."""
    return [name + suffix for suffix in SCALE_SUFFIXES]


def input_scales(name: str) -> list[str]:
    """Names of scales of the activations that meet this weight."""
    if name.endswith(".weight"):
        return [name[: -len("weight")] + leaf for leaf in INPUT_SCALES]
    return [f"{name}_{leaf}" for leaf in INPUT_SCALES]


def can_scale(scale: Sequence[int], weight: Sequence[int]) -> bool:
    """Whether a scale of this shape can belong to a weight: one value, or one for each block, row or column."""
    if math.prod(scale) == 1:
        return True
    if len(scale) == 1:
        return scale[0] in weight
    blocks = zip(scale, weight)
    return len(scale) == len(weight) and all(min(values, 1) <= count <= values for count, values in blocks)


def decide(tensors: list[ShardTensor], vendor_compatible: bool) -> dict[str, str]:
    """Action by tensor name for all tensors of a checkpoint, selected by dtype and partner, not by name.

    Raises Refusal with the tensor's name for an FP8 tensor without a scale, and a scale of another type or shape.
    """
    by_name = {tensor.name: tensor for tensor in tensors}
    actions: dict[str, str] = {}
    for tensor in tensors:
        if tensor.dtype == FP8:
            actions[tensor.name] = "weight"
            actions.update((scale.name, "scale") for scale in scales_of(tensor, by_name))
    if not actions:
        raise Refusal(
            "nothing_to_convert",
            "there is no FP8 tensor (float8_e4m3fn) in this checkpoint, so there is nothing to convert",
        )
    if vendor_compatible:
        for tensor in tensors:
            if tensor.dtype == "BF16" and tensor.name.endswith("proj.weight"):
                actions[tensor.name] = "bf16"
    return actions


def scales_of(weight: ShardTensor, by_name: Mapping[str, ShardTensor]) -> list[ShardTensor]:
    """All scales of an FP8 weight, also those of its activations; Refusal when it has none or one does not fit."""
    own = [by_name[name] for name in weight_scales(weight.name) if name in by_name]
    if not own:
        raise Refusal(
            "scale_missing",
            f"the FP8 tensor {weight.name!r} has no scale ({' or '.join(weight_scales(weight.name))}); "
            "without one its values would change their meaning",
        )
    for scale in own:
        if not can_scale(scale.shape, weight.shape):
            raise Refusal(
                "scale_shape",
                f"the scale {scale.name!r} has the shape {list(scale.shape)}, which does not divide its weight's "
                f"{list(weight.shape)} into blocks, rows or columns",
            )
    scales = own + [by_name[name] for name in input_scales(weight.name) if name in by_name]
    for scale in scales:
        if scale.dtype not in SCALE_DTYPES:
            raise Refusal(
                "scale_dtype",
                f"the scale {scale.name!r} has the dtype {scale.dtype}; {' or '.join(SCALE_DTYPES)} is needed",
            )
    return scales
