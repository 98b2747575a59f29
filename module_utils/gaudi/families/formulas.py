"""Formulas that several families share: small named rules, each with its source."""

from __future__ import annotations

from ..base.refusal import Refusal
from ..rules.buckets import ceil_div, ceil_to
from ..rules.draft import Draft, rule
from .base import length_in_words


@rule("prefill-seqs-auto", "script:set_length")
def prefill_seqs_auto(preferred: int, input_min: int, block_size: int, max_num_seqs: int) -> int:
    """As many shortest inputs as the preferred token budget holds, at least one."""
    return min(max(1, preferred // ceil_to(input_min, block_size)), max_num_seqs)


@rule("prefill-seqs-within-seqs", "script:set_length")
def prefill_seqs_within_seqs(max_num_prefill_seqs: int, max_num_seqs: int) -> int:
    """A prefill batch cannot be larger than the batch."""
    return min(max_num_prefill_seqs, max_num_seqs)


@rule("prompt-seq-min", "script:set_bucketing")
def prompt_seq_min(input_min: int, block_size: int) -> int:
    """Shortest input, to whole blocks."""
    return ceil_to(input_min, block_size)


@rule("decode-bs-step", "script:set_bucketing")
def decode_bs_step(max_num_seqs: int) -> int:
    """A sixteenth of the batch, at most 16."""
    return min(ceil_div(max_num_seqs, 16), 16)


@rule("decode-bs-max", "script:set_bucketing")
def decode_bs_max(max_num_seqs: int, step: int) -> int:
    """The batch, to whole steps."""
    return ceil_to(max_num_seqs, step)


@rule("prompt-bs-max", "script:set_bucketing")
def prompt_bs_max(max_num_prefill_seqs: int) -> int:
    """The prefill batch."""
    return max_num_prefill_seqs


@rule("one-block", "script:set_bucketing")
def one_block(block_size: int) -> int:
    """Minimum and step of lengths and blocks."""
    return block_size


@rule("padding-limit", "script:set_bucketing")
def padding_limit(limit: float) -> float:
    """One limit for all four dimensions."""
    return limit


@rule("expert-parallel", "script:set_perf_tuning; num_experts of config.json")
def expert_parallel(num_experts: int | None, llama4_scout: bool) -> bool:
    """On for mixtures of experts; on as in the script where nothing is known (vLLM drops it for a dense model)."""
    return not llama4_scout and (num_experts is None or num_experts > 1)


@rule("expert-parallel-size", "script:set_common_env")
def expert_parallel_size(tensor_parallel_size: int) -> int:
    """One share of the experts a card."""
    return tensor_parallel_size


@rule("quantization-config", "script:set_dtype")
def quantization_config(file: str) -> str:
    """The INC configuration; its presence is what makes the server quantise."""
    return file


@rule("profile-file", "script:set_perf_tuning, without the time: a plan has no clock")
def profile_file(name: str, lengths: str, max_num_seqs: int, cards: int, steps: int | None = None) -> str:
    """The trace's name says what was traced."""
    ending = "" if steps is None else f"_steps{steps}"
    return f"{name}_{lengths}_bs{max_num_seqs}_tp{cards}{ending}_profile.json"


@rule("executor", "script:set_perf_tuning")
def executor(tensor_parallel_size: int) -> str:
    """Processes of one node. The script names ray above 8 cards, but nothing starts a ray cluster."""
    return "mp"


@rule("lazy-collectives", "script:set_common_env")
def lazy_collectives(tensor_parallel_size: int) -> bool | None:
    """Needed for tensor parallel inference with HPU graphs."""
    return True if tensor_parallel_size > 1 else None


@rule("zero-padding", "script:set_perf_tuning")
def zero_padding(requested: bool | None, input_min: int, input_max: int) -> bool:
    """Off when all inputs have one length: nothing is padded then."""
    return input_min != input_max if requested is None else requested


@rule("recipe-cache", "script:set_perf_tuning")
def recipe_cache(directory: str, size_mib: int) -> str:
    """Directory, keep (do not delete at start), size in MiB."""
    return f"{directory},false,{size_mib}"


@rule("hpu-quantization", "script:set_dtype")
def hpu_quantization(dtype: str) -> str | None:
    """AWQ and GPTQ use kernels made for these cards."""
    return f"{dtype}_hpu" if dtype in ("awq", "gptq") else None


def check_ranges(
    max_model_len: int,
    asked: int,
    input_range: tuple[int, int],
    output_range: tuple[int, int],
    given: bool,
    draft: Draft,
) -> None:
    """Check that the model length holds the longest input and output; warn if no room is left for a chat template.

    ``given``: the request has the ranges. A length that follows from the default ones is warned of where no bucket
    holds its inputs.
    """
    need, said = input_range[1] + output_range[1], length_in_words(asked, max_model_len)
    if max_model_len < need and given:
        raise Refusal(
            "max_model_len_below_ranges",
            f"max_model_len is {said}, but input_range and output_range together reach "
            f"{input_range[1]} + {output_range[1]} = {need} tokens. Raise max_model_len or lower the ranges.",
        )
    if max_model_len < need:
        draft.warn(
            f"max_model_len {said} is below what the release's default ranges reach ({need} tokens): more is "
            f"warmed up than can be used. Set input_range and output_range to what the clients send."
        )
    elif max_model_len == need and given:
        draft.warn(
            f"max_model_len {max_model_len} leaves nothing beyond the longest input and output "
            f"({input_range[1]} + {output_range[1]}): a chat template's own tokens do not fit. "
            f"Raise it by a block or lower the ranges."
        )
