"""What differs between the versions of the vllm-gaudi plugin where buckets are made.

Read in vllm_gaudi/extension/bucketing and features.py of the tags v0.17.1 (dafb170c), v0.21.0 (fbf22752) and v0.26.0
(b059f9c9); no Gaudi was used.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..base.refusal import Refusal

EXPONENTIAL, LINEAR, PADDING_AWARE = "exponential", "linear", "padding-aware"
FILE, UNIFIED, OFF = "file", "unified", "off"

# What VLLM_BUCKETING_STRATEGY calls them.
STRATEGY_NAMES = {"exp": EXPONENTIAL, "lin": LINEAR, "pad": PADDING_AWARE}


@dataclass(frozen=True)
class PluginVersion:
    """The rules of one version of the plugin, as far as they differ from another's.

    strategies: those that it has beside bucket files.
    strategy_is_named: VLLM_BUCKETING_STRATEGY names one; before, VLLM_EXPONENTIAL_BUCKETING chooses between two.
    unified: it has unified attention, whose shapes are of another kind.
    decode_blocks_from_pool: exponential decode blocks reach three times the KV blocks (the KV blocks with contiguous
        paged attention); later, what all sequences of the longest length would take.
    denser_beyond_pool: there are more of them where that is more than three times the KV blocks.
    prompt_fits_whole: context and query of a prompt bucket together stay within max_model_len; later, each alone.
    linear_within_pool: linear decode blocks end at the KV blocks always; later, with contiguous paged attention only.
    every_chunk_rounds: queries of a Mamba model are rounded up to its chunks, and decode blocks down to the model's
        length, whether or not its configuration names the chunks; later, queries only, and only if it does.
    """

    name: str
    strategies: tuple[str, ...]
    strategy_is_named: bool = False
    unified: bool = False
    decode_blocks_from_pool: bool = False
    denser_beyond_pool: bool = False
    prompt_fits_whole: bool = False
    linear_within_pool: bool = False
    every_chunk_rounds: bool = False


_LATER = (EXPONENTIAL, LINEAR, PADDING_AWARE)

VERSIONS = {
    version.name: version
    for version in (
        PluginVersion(
            "0.17.1",
            (EXPONENTIAL, LINEAR),
            unified=True,
            decode_blocks_from_pool=True,
            prompt_fits_whole=True,
            linear_within_pool=True,
            every_chunk_rounds=True,
        ),
        PluginVersion("0.21.0", _LATER, strategy_is_named=True),
        PluginVersion("0.26.0", _LATER, strategy_is_named=True, denser_beyond_pool=True),
    )
}


def version_of(plugin: str) -> PluginVersion:
    """The rules of plugin ``plugin``, such as "0.21.0".

    Raises Refusal where nobody has read that version's bucketing.
    """
    if plugin not in VERSIONS:
        raise Refusal(
            "bucket_rules_unknown",
            f"The bucket rules of vllm-gaudi {plugin[:40]!r} are not known here, only those of "
            f"{', '.join(VERSIONS)}. Use a release with one of these, or add its rules to plugin_buckets/versions.py.",
        )
    return VERSIONS[plugin]
