"""Parts of an image beyond the server itself: which exist, which a plan needs, and which a release can have."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from ..base.checks import shown
from ..base.refusal import Refusal
from ..catalogue.build import ImageBuild

NUMACTL = "numactl"
AUDIO = "audio"
HOST_NICS = "host_nics"
PILLOW_SIMD = "pillow_simd"
BENCHMARK = "benchmark"
INC_CALIBRATION = "inc_calibration"

PARTS: Mapping[str, str] = {
    NUMACTL: "numactl, which binds the server to the processors of its cards",
    HOST_NICS: "libfabric and hccl_ofi_wrapper, for traffic between cards over host NICs",
    AUDIO: "the libraries that read sound",
    BENCHMARK: "what the release's own benchmark imports",
    INC_CALIBRATION: "the program of another branch of vllm-fork that measures FP8 weights (run_inc_calib.sh)",
    PILLOW_SIMD: "Pillow-SIMD in the place of Pillow, which prepares pictures with AVX2",
}
"""All parts with what they are, in the order in which they are built: what few images have comes last."""

# These parts only make a server faster, so an image without them still serves.
_OPTIONAL = (PILLOW_SIMD, BENCHMARK)


def ordered(parts: Iterable[str]) -> tuple[str, ...]:
    """Return parts in build order, each once. Raises Refusal for an unknown part."""
    wanted = set(parts)
    unknown = sorted(wanted - set(PARTS))
    if unknown:
        raise Refusal(
            "unknown_image_part",
            f"serving_image_parts has {shown(unknown[0])}, which is no part of an image. Known: {', '.join(PARTS)}.",
        )
    return tuple(part for part in PARTS if part in wanted)


def needed(
    binds: bool, media: Collection[str], host_nics: bool, build: ImageBuild | None = None, *, measured: bool = False
) -> tuple[str, ...]:
    """Return the parts that a plan needs.

    binds: the server is bound with numactl. media: the model's input kinds beside text (image, video, audio).
    host_nics: its cards use host NICs. build: the release's build; without it, every release counts as having
    Pillow-SIMD. measured: its FP8 weights are measured by a program that the release's own checkouts lack.
    """
    wanted = {
        NUMACTL: binds,
        HOST_NICS: host_nics,
        AUDIO: "audio" in media,
        INC_CALIBRATION: measured,
        PILLOW_SIMD: bool({"image", "video"} & set(media)) and (build is None or build.pillow_simd is not None),
    }
    return ordered(part for part, is_needed in wanted.items() if is_needed)


def check_offered(parts: Sequence[str], build: ImageBuild, release: str) -> None:
    """Refuse a part that the release cannot install."""
    lacking = {AUDIO: build.audio_extra, PILLOW_SIMD: build.pillow_simd, BENCHMARK: build.benchmark}
    for part in parts:
        if part in lacking and not lacking[part]:
            raise Refusal(
                "image_part_not_offered",
                f"An image of release {release} cannot have {part} ({PARTS[part]}): catalog/releases/{release}.yml "
                "does not say how to install it. Leave it out of serving_image_parts.",
            )


def missing(needs: Iterable[str], found: Collection[str], built: Collection[str] = ()) -> tuple[str, ...]:
    """Return the parts that a plan needs and the image lacks.

    built: parts that this project built into it; if one of these is missing, the image is not what its name says.
    """
    return tuple(part for part in needs if part not in found and (part in built or part not in _OPTIONAL))


def lacks_avx2(cpuinfo: str) -> bool:
    """Whether the processors lack AVX2, which Pillow-SIMD requires; False if no flags are listed.

    cpuinfo: the text of /proc/cpuinfo.
    """
    flags = re.search(r"^flags\s*:(.*)$", cpuinfo, re.MULTILINE)
    return flags is not None and "avx2" not in flags[1].split()
