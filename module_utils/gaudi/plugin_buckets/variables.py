"""What the variables of a server say about its buckets, and which of them say nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..base.refusal import Refusal
from .versions import EXPONENTIAL, FILE, LINEAR, OFF, STRATEGY_NAMES, UNIFIED, PluginVersion

# Whatever else a switch says is off.
_ON = ("true", "t", "1", "yes", "y", "on")
_BUCKET = re.compile(
    r"VLLM_(PROMPT_(?:BS|QUERY|SEQ|CTX)|DECODE_(?:BS|BLOCK))_BUCKET_(MIN|STEP|MAX|PAD_MAX|PAD_PERCENT)"
)
# Read by one strategy, and not by versions before it.
_PADDING = ("PAD_MAX", "PAD_PERCENT")
# Bucketing of the fork had it; the plugin registers or ignores it, and nothing reads it.
_NEVER_READ = "VLLM_DECODE_BLOCK_BUCKET_LIMIT"
_CHOOSING = ("VLLM_BUCKETING_STRATEGY", "VLLM_EXPONENTIAL_BUCKETING")


@dataclass(frozen=True)
class Slices:
    """Long prompts computed in slices (PT_HPU_SDPA_QKV_SLICE_MODE_FWD): those above threshold fill whole slices."""

    threshold: int
    size: int


@dataclass(frozen=True)
class BucketSettings:
    """What was asked of bucketing.

    strategy: one of the names in ``versions``. prefill_seqs: sequences of a prompt batch, max_num_seqs where None.
    numbers: the VLLM_*_BUCKET_* variables, by the part of the name between, such as PROMPT_BS_MAX.
    without_effect: each variable that changes nothing about buckets, with the reason.
    """

    strategy: str
    contiguous_pa: bool = False
    merged_prefill: bool = False
    prefill_seqs: int | None = 1
    slices: Slices | None = None
    numbers: Mapping[str, int] = field(default_factory=dict)
    without_effect: Mapping[str, str] = field(default_factory=dict)

    def number(self, name: str, parameter: str) -> int | None:
        """A number of one dimension; PROMPT_SEQ is the old name of PROMPT_QUERY."""
        found = self.numbers.get(f"{name}_{parameter}")
        if found is None and name == "PROMPT_QUERY":
            return self.numbers.get(f"PROMPT_SEQ_{parameter}")
        return found


def is_number(name: str) -> bool:
    """Whether some version of the plugin takes a variable for a number of a bucket dimension; this one may not.

    >>> is_number("VLLM_DECODE_BS_BUCKET_PAD_MAX"), is_number("VLLM_DECODE_BS_BUCKET_MAXIMUM")
    (True, False)
    """
    return _BUCKET.fullmatch(name) is not None


def bucket_settings(version: PluginVersion, environment: Mapping[str, str], *, long: bool) -> BucketSettings:
    """Read the variables as ``version`` does; ``long`` says that max_model_len is at least LONG_MODEL_LEN.

    Raises Refusal for what the server would stop at when it settles its configuration.
    """

    def switch(name: str, otherwise: bool) -> bool:
        return environment[name].lower() in _ON if name in environment else otherwise

    unified = version.unified and switch("VLLM_UNIFIED_ATTN", False)
    # The plugin takes prefix caching for on whatever vLLM was told, unless this variable says otherwise.
    contiguous_pa = switch("VLLM_CONTIGUOUS_PA", unified or not switch("VLLM_PREFIX_CACHING", True))
    merged_prefill = switch("VLLM_MERGED_PREFILL", unified)
    if unified and not (contiguous_pa and merged_prefill):
        raise Refusal(
            "unified_needs_both",
            "VLLM_UNIFIED_ATTN needs contiguous paged attention and merged prefill: the server would stop. Leave out "
            "VLLM_CONTIGUOUS_PA and VLLM_MERGED_PREFILL.",
        )
    numbers = _numbers(version, environment)
    strategy = _strategy(version, environment, switch)
    if unified:
        strategy = UNIFIED
    if not switch("VLLM_ENABLE_BUCKETING", True):
        strategy = OFF
    return BucketSettings(
        strategy,
        contiguous_pa,
        merged_prefill,
        None if merged_prefill else _prefill_seqs(numbers),
        _slices(environment) if switch("PT_HPU_SDPA_QKV_SLICE_MODE_FWD", False) else None,
        numbers,
        _without_effect(version, environment, strategy, merged_prefill, long=long),
    )


def _strategy(version: PluginVersion, environment: Mapping[str, str], switch: Callable[[str, bool], bool]) -> str:
    """What makes the shapes, unified attention aside."""
    named = EXPONENTIAL
    if version.strategy_is_named:
        asked = environment.get("VLLM_BUCKETING_STRATEGY", "exp")
        if asked not in STRATEGY_NAMES:
            raise Refusal(
                "unknown_choice",
                f"VLLM_BUCKETING_STRATEGY is {asked[:40]!r}; plugin {version.name} knows {', '.join(STRATEGY_NAMES)} "
                f"and stops at anything else. Take one of these.",
            )
        named = STRATEGY_NAMES[asked]
    # Set at all, the older variable wins over the newer.
    if "VLLM_EXPONENTIAL_BUCKETING" in environment:
        named = EXPONENTIAL if switch("VLLM_EXPONENTIAL_BUCKETING", True) else LINEAR
    return FILE if environment.get("VLLM_BUCKETING_FROM_FILE") else named


def _whole(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise Refusal("not_a_whole_number", f"{name} must be a whole number, not {text[:40]!r}.") from None


def _numbers(version: PluginVersion, environment: Mapping[str, str]) -> dict[str, int]:
    """Every bucket variable that this version reads, used or not: it stops at any that is no number."""
    found = {}
    for name, text in environment.items():
        match = _BUCKET.fullmatch(name)
        if match and (version.strategy_is_named or match[2] not in _PADDING):
            found[f"{match[1]}_{match[2]}"] = _whole(name, text)
    return found


def _prefill_seqs(numbers: Mapping[str, int]) -> int:
    """Sequences of a prompt batch: this variable sets them for every strategy."""
    found = numbers.get("PROMPT_BS_MAX", 1)
    if found < 1:
        raise Refusal(
            "out_of_range", f"VLLM_PROMPT_BS_BUCKET_MAX is {found}; a prompt batch has at least 1 sequence. Raise it."
        )
    return found


def _slices(environment: Mapping[str, str]) -> Slices:
    names = {"VLLM_FUSEDSDPA_SLIDE_THLD": "8192", "PT_HPU_SDPA_BC_FACTOR": "1024"}
    threshold, size = (_whole(name, environment.get(name, otherwise)) for name, otherwise in names.items())
    if size < 1:
        raise Refusal("out_of_range", f"PT_HPU_SDPA_BC_FACTOR is {size}; a slice has at least 1 token. Raise it.")
    return Slices(threshold, size)


def _without_effect(
    version: PluginVersion, environment: Mapping[str, str], strategy: str, merged_prefill: bool, *, long: bool
) -> dict[str, str]:
    """Which variables change nothing about the buckets, each with the reason."""
    found: dict[str, str] = {}
    for name in sorted(environment):
        match = _BUCKET.fullmatch(name)
        if match:
            reason = _unread_number(version, environment, strategy, match[1], match[2], merged_prefill, long)
        else:
            reason = _unread_switch(version, environment, strategy, name)
        if reason is not None:
            found[name] = reason
    return found


def _unread_switch(version: PluginVersion, environment: Mapping[str, str], strategy: str, name: str) -> str | None:
    if name == _NEVER_READ:
        return f"plugin {version.name} does not read it"
    if name == "VLLM_BUCKETING_STRATEGY" and not version.strategy_is_named:
        # Its configuration has an entry of this name that knows other words, and its check ends the start.
        return (
            f"plugin {version.name} has no such choice, and its own start would end at the value; "
            f"VLLM_EXPONENTIAL_BUCKETING=false chooses the linear strategy"
        )
    if name.startswith("VLLM_UNIFIED_ATT") and not version.unified:
        return f"plugin {version.name} has no unified attention any more"
    if name in (*_CHOOSING, "VLLM_BUCKETING_FROM_FILE") and strategy in (OFF, UNIFIED):
        return _OVERRULED[strategy]
    if name in _CHOOSING and strategy == FILE:
        return _OVERRULED[FILE]
    if name == "VLLM_BUCKETING_STRATEGY" and "VLLM_EXPONENTIAL_BUCKETING" in environment:
        return "VLLM_EXPONENTIAL_BUCKETING is set, and wins over it"
    return None


_OVERRULED = {
    OFF: "bucketing is off (VLLM_ENABLE_BUCKETING)",
    UNIFIED: "unified attention makes shapes of its own",
    FILE: "the bucket file says all shapes",
    EXPONENTIAL: "the exponential strategy takes ranges of its own",
}


def _unread_number(
    version: PluginVersion,
    environment: Mapping[str, str],
    strategy: str,
    dimension: str,
    parameter: str,
    merged_prefill: bool,
    long: bool,
) -> str | None:
    """Why one number of a dimension changes nothing; None where it does."""
    key = f"{dimension}_{parameter}"
    if parameter in _PADDING and not version.strategy_is_named:
        return f"plugin {version.name} does not read it"
    if strategy in (OFF, UNIFIED):
        return _OVERRULED[strategy]
    if merged_prefill and (dimension == "PROMPT_BS" or key in ("PROMPT_QUERY_MAX", "PROMPT_SEQ_MAX")):
        return "merged prefill takes ranges of its own"
    if key == "PROMPT_BS_MAX":
        return None
    if strategy == FILE:
        return _OVERRULED[FILE]
    if strategy == EXPONENTIAL:
        one = environment.get("VLLM_PROMPT_QUERY_BUCKET_MIN", "").strip() == "1"
        used = (key == "PROMPT_QUERY_MIN" and one) or (key == "PROMPT_CTX_MAX" and long)
        return None if used else _OVERRULED[EXPONENTIAL]
    if strategy == LINEAR and parameter in _PADDING:
        return "the linear strategy knows no limits of padding"
    if dimension == "PROMPT_SEQ" and f"VLLM_PROMPT_QUERY_BUCKET_{parameter}" in environment:
        return f"VLLM_PROMPT_QUERY_BUCKET_{parameter} is set, and wins over its old name"
    return None
