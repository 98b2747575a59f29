"""What a node must have for the images that its plans run in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..image.parts import PILLOW_SIMD, lacks_avx2
from .checks import Problem


def check_processor(plans: Sequence[Mapping[str, Any]], cpuinfo: str) -> list[Problem]:
    """Refuse images that this node's processors cannot run; ``cpuinfo`` is the text of /proc/cpuinfo."""
    wanting = [plan["instance"] for plan in plans if PILLOW_SIMD in plan["requires"].get("image", ())]
    if not wanting or not lacks_avx2(cpuinfo):
        return []
    return [
        Problem(
            "processor",
            f"{', '.join(wanting)}: the image has Pillow-SIMD, which is built for AVX2, which this node's processors "
            "lack. Serve models that take pictures on another node, or name an image with plain Pillow in "
            "serving_image_ref.",
        )
    ]
