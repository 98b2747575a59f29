"""The families of releases: which rules plan for which, and which options each has no use for."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..request.resolved import Lengths, Wish
from ..rules.rules import Draft
from .deepseek import plan_deepseek
from .defaults import plan_defaults
from .r121 import plan_121
from .r122 import plan_122

# By the key ``rules`` of a release file. A family fills the draft and says the lengths it came to.
FAMILIES: Mapping[str, Callable[[Draft, Wish], Lengths]] = {
    "vllm-defaults": plan_defaults,
    "1.21": plan_121,
    "1.22": plan_122,
    "deepseek-r1": plan_deepseek,
}

# Options of a request that a family's server has no counterpart for: asked for, they would be without effect.
WITHOUT_EFFECT: Mapping[str, tuple[str, ...]] = {
    "vllm-defaults": (
        "input_range",
        "output_range",
        "max_num_prefill_seqs",
        "padding_limit",
        "scheduler_steps",
        "partial_warmup",
        "zero_padding",
        "fp32_softmax",
        "exponential_bucketing",
    ),
    "1.21": ("padding_limit",),
    "1.22": ("partial_warmup",),
    "deepseek-r1": (
        "input_range",
        "output_range",
        "max_seq_len_to_capture",
        "scheduler_steps",
        "partial_warmup",
        "exponential_bucketing",
    ),
}
