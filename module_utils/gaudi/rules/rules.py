"""The rules of a serving plan: small named functions, each with where it comes from.

A rule computes; :class:`Draft` records what it was asked, so that a plan's explanation can never tell another story
than its values. A source that begins with ``script:`` is a function of the start script; :class:`Origin` makes it the
script and commit (HabanaAI/vllm-fork) of the release that is planned for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..base.checks import Refusal
from .buckets import ceil_div, ceil_to


@dataclass(frozen=True)
class Origin:
    """Where the rules of one release are written down: its fork's commit, and the start script in it if it has one."""

    fork: str
    script: str | None = None

    def of(self, source: str) -> str:
        """A rule's source, for this release."""
        if not source.startswith("script:"):
            return source
        if self.script is None:
            return "gaudi-serving, as the start scripts of later releases"
        function = source[len("script:") :]
        # Only the script of 1.21 and 1.22 is made of functions; the other is read from top to bottom.
        if not function or (function.startswith("set_") and not self.script.endswith("utils.sh")):
            return f"{self.fork} {self.script}"
        return f"{self.fork} {self.script} {function}"


@dataclass(frozen=True)
class Value:
    """A result together with the rule that made it and the numbers that went in."""

    result: Any
    rule: Rule
    inputs: Mapping[str, object]


@dataclass(frozen=True)
class Rule:
    """A named computation. Called like the function it wraps, it gives a :class:`Value`."""

    id: str
    source: str
    compute: Callable[..., Any]

    def __call__(self, **inputs: object) -> Value:
        """Compute, and remember from what."""
        return Value(self.compute(**inputs), self, inputs)


def rule(name: str, source: str) -> Callable[[Callable[..., Any]], Rule]:
    """Make a function a named rule."""

    def wrap(compute: Callable[..., Any]) -> Rule:
        return Rule(name, source, compute)

    return wrap


def borrowed(value: Value, source: str) -> Value:
    """A value whose rule this release has no script for: ``source`` says whose rule it is."""
    return replace(value, rule=replace(value.rule, source=source))


def written(value: object) -> str:
    """A value as it goes into a variable or an argument."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


@dataclass
class Draft:
    """A plan in the making: every value in it comes with its rule."""

    origin: Origin
    environment: dict[str, str] = field(default_factory=dict)
    # Each option with its values, as they follow it.
    arguments: list[tuple[str, ...]] = field(default_factory=list)
    explain: list[dict[str, object]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def note(self, value: str, result: object, name: str, source: str, inputs: Mapping[str, object]) -> None:
        """Record a decision, replacing an earlier one about the same value."""
        self.explain[:] = [entry for entry in self.explain if entry["value"] != value]
        # Plain floats: a number that remembers its text is nothing a JSON encoder should have to know.
        plain = {key: float(entry) if isinstance(entry, float) else entry for key, entry in inputs.items()}
        source = self.origin.of(source)
        self.explain.append({"value": value, "result": result, "rule": name, "source": source, "inputs": plain})

    def variable(self, name: str, value: Value) -> None:
        """Set an environment variable; a result of None leaves it unset."""
        if value.result is not None:
            self.environment[name] = written(value.result)
            self.note(f"environment.{name}", written(value.result), value.rule.id, value.rule.source, value.inputs)

    def option(self, name: str, value: Value) -> None:
        """Add an argument: None and False leave it out, True is a flag without a value, a list is several values."""
        if value.result is None or value.result is False:
            return
        several = value.result if isinstance(value.result, list) else [value.result]
        words = [] if value.result is True else [written(word) for word in several]
        self.arguments.append((name, *words))
        self.note(f"arguments.{name}", " ".join(words) or None, value.rule.id, value.rule.source, value.inputs)

    def argument(self, name: str) -> str | None:
        """What an argument says first; None where it is not passed or takes no value."""
        found = (values for option, *values in self.arguments if option.replace("_", "-") == name)
        return next(iter(next(found, [])), None)

    def warn(self, sentence: str) -> None:
        """Say something an operator should read before starting."""
        if sentence not in self.warnings:
            self.warnings.append(sentence)


# ---- plain values


def given(name: str, source: str) -> Rule:
    """The rule of a value that is taken as it stands: from the request, the catalogue or the start script."""
    return Rule(name, source, _same)


def _same(value: object) -> object:
    return value


REQUESTED = given("requested", "the request")


@rule("served-names", "vLLM answers to every name and shows the first; the vendor's manuals ask by the path")
def served_names(name: str, weights: str) -> list[str]:
    """The name clients ask for, and the path as the server sees it, each once."""
    return [name] if name == weights else [name, weights]


# ---- lengths and batch sizes


@rule("model-len-from-ranges", "script:set_length")
def model_len_from_ranges(input_max: int, output_max: int, block_size: int) -> int:
    """Longest input and longest output together, to whole blocks."""
    return ceil_to(input_max + output_max, block_size)


@rule("model-len-to-blocks", "script:set_length")
def model_len_to_blocks(max_model_len: int, block_size: int) -> int:
    """A length that was asked for, to whole blocks."""
    return ceil_to(max_model_len, block_size)


@rule("model-len-of-model", "gaudi-serving: above the model's own limit the server does not start")
def model_len_of_model(whole_blocks: int, positions: int) -> int:
    """Rounding alone does not go beyond what the model was made for."""
    return min(whole_blocks, positions)


@rule("batched-tokens-from-length", "script:set_length")
def batched_tokens_from_length(max_model_len: int, preferred: int, block_size: int) -> int:
    """One longest request, but no less than the preferred budget."""
    return ceil_to(max(max_model_len, preferred), block_size)


@rule("batched-tokens-equal-length", "script:max_num_batched_tokens")
def batched_tokens_equal_length(max_model_len: int) -> int:
    """One longest request at a time."""
    return max_model_len


@rule("prefill-seqs-auto", "script:set_length")
def prefill_seqs_auto(preferred: int, input_min: int, block_size: int, max_num_seqs: int) -> int:
    """As many shortest inputs as the preferred token budget holds, at least one."""
    return min(max(1, preferred // ceil_to(input_min, block_size)), max_num_seqs)


@rule("prefill-seqs-within-seqs", "script:set_length")
def prefill_seqs_within_seqs(max_num_prefill_seqs: int, max_num_seqs: int) -> int:
    """A prefill batch cannot be larger than the batch."""
    return min(max_num_prefill_seqs, max_num_seqs)


# ---- buckets, release 1.21


@rule("prompt-bs-max-1.21", "script:set_bucketing")
def prompt_bs_max_121(max_num_batched_tokens: int, input_min: int, max_num_seqs: int) -> int:
    """As many shortest inputs as one batch holds."""
    return min(max_num_batched_tokens // input_min, max_num_seqs)


@rule("prompt-seq-min", "script:set_bucketing")
def prompt_seq_min(input_min: int, block_size: int) -> int:
    """Shortest input, to whole blocks."""
    return ceil_to(input_min, block_size)


@rule("prompt-seq-max-1.21", "script:set_bucketing")
def prompt_seq_max_121(input_max: int, block_size: int) -> int:
    """Longest input, to whole blocks, and one block more."""
    return ceil_to(input_max, block_size) + block_size


@rule("decode-bs-step", "script:set_bucketing")
def decode_bs_step(max_num_seqs: int) -> int:
    """A sixteenth of the batch, at most 16."""
    return min(ceil_div(max_num_seqs, 16), 16)


@rule("decode-bs-max", "script:set_bucketing")
def decode_bs_max(max_num_seqs: int, step: int) -> int:
    """The batch, to whole steps."""
    return ceil_to(max_num_seqs, step)


@rule("decode-block-min-1.21", "script:set_bucketing")
def decode_block_min_121(input_min: int, block_size: int) -> int:
    """Blocks of the shortest input, to a multiple of the step."""
    return ceil_to(ceil_div(input_min, block_size), block_size)


@rule("decode-block-max-1.21", "script:set_bucketing")
def decode_block_max_121(input_max: int, output_max: int, decode_bs_max: int, block_size: int) -> int:
    """Blocks of the longest request and one more, for the whole batch."""
    return ceil_to((ceil_div(input_max + output_max, block_size) + 1) * decode_bs_max, block_size)


@rule("partial-warmup", "script:set_partial_warmup")
def partial_warmup_value(value: int) -> int:
    """What the hot requests need, over anything else that was set."""
    return value


@rule("partial-warmup-seq", "script:set_partial_warmup; not below the shortest bucket")
def partial_warmup_seq(max_seq_len: int, prompt_seq_min: int) -> int:
    """The hot length as it was given; inside the block of the shortest input it is that whole block."""
    return max(max_seq_len, prompt_seq_min)


@rule("partial-warmup-blocks", "script:set_partial_warmup; not below the fewest blocks")
def partial_warmup_blocks(
    max_seq_len: int, output_max: int, max_num_seqs: int, block_size: int, decode_block_min: int
) -> int:
    """Blocks of the hot requests; the vendor rounds the division down before it rounds up."""
    return max(ceil_to((max_seq_len + output_max) * max_num_seqs // block_size, block_size), decode_block_min)


# ---- buckets, release 1.22 with ranges


@rule("prompt-bs-max", "script:set_bucketing")
def prompt_bs_max(max_num_prefill_seqs: int) -> int:
    """The prefill batch."""
    return max_num_prefill_seqs


@rule("prompt-seq-max", "script:set_bucketing")
def prompt_seq_max(input_max: int, block_size: int) -> int:
    """Longest input, to whole blocks."""
    return ceil_to(input_max, block_size)


@rule("decode-block-min", "script:set_bucketing")
def decode_block_min(input_min: int, block_size: int) -> int:
    """Blocks of the shortest input, at least one step."""
    return max(ceil_div(input_min, block_size), block_size)


@rule("decode-block-max", "script:set_bucketing")
def decode_block_max(input_max: int, output_max: int, decode_bs_max: int, block_size: int) -> int:
    """Blocks of the longest request, for the whole batch."""
    return ceil_to(ceil_div(input_max + output_max, block_size) * decode_bs_max, block_size)


# ---- buckets, release 1.22 with a length


@rule("prompt-seq-max-length", "script:set_bucketing")
def prompt_seq_max_length(max_model_len: int) -> int:
    """Any input the model length allows."""
    return max_model_len


@rule("decode-bs-max-length", "script:set_bucketing")
def decode_bs_max_length(max_num_seqs: int, step: int) -> int:
    """The batch, to whole steps."""
    return ceil_to(max_num_seqs, step)


@rule("decode-block-max-length", "script:set_bucketing")
def decode_block_max_length(max_model_len: int, decode_bs_max: int, block_size: int) -> int:
    """Blocks of the longest request, for the whole batch."""
    return ceil_to(ceil_div(max_model_len, block_size) * decode_bs_max, block_size)


@rule("one-block", "script:set_bucketing")
def one_block(block_size: int) -> int:
    """Minimum and step of lengths and blocks."""
    return block_size


@rule("padding-limit", "script:set_bucketing")
def padding_limit(limit: float) -> float:
    """One limit for all four dimensions."""
    return limit


# ---- buckets, DeepSeek


@rule("prompt-bs-capped", "script:bucketing")
def prompt_bs_capped(max_num_seqs: int, most: int) -> int:
    """Step and maximum of the prompt batch where the release has no prefill option."""
    return min(max_num_seqs, most)


@rule("decode-bs-step-by-card", "script:check platform")
def decode_bs_step_by_card(max_num_seqs: int, card_step: int) -> int:
    """8 on HL-225, 2 on HL-288: the PCIe cards talk more slowly, so finer steps pay."""
    return min(max_num_seqs, card_step)


@rule("decode-block-max-deepseek", "script:bucketing")
def decode_block_max_deepseek(max_num_seqs: int, max_model_len: int, block_size: int) -> int:
    """Blocks of a full batch of longest requests, not rounded."""
    return max(max_num_seqs * max_model_len // block_size, 128)


@rule("memory-by-length", "script:memory footprint")
def memory_by_length(max_model_len: int, threshold: int, up_to: float, above: float) -> float:
    """Long contexts leave more room outside the KV cache."""
    return up_to if max_model_len <= threshold else above


# ---- models


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


@rule("zero-padding-length", "script:set_perf_tuning")
def zero_padding_length(requested: bool | None) -> bool:
    """On unless switched off."""
    return True if requested is None else requested


@rule("recipe-cache", "script:set_perf_tuning")
def recipe_cache(directory: str, size_mib: int) -> str:
    """Directory, keep (do not delete at start), size in MiB."""
    return f"{directory},false,{size_mib}"


@rule("fp32-softmax-off", "script:set_perf_tuning")
def fp32_softmax_121(requested: bool | None, kind: str | None) -> bool | None:
    """The extension turns it on for qwen2; these are exact enough without."""
    if requested is not None:
        return requested
    return False if kind in _EXACT_WITHOUT_FP32 else None


_EXACT_WITHOUT_FP32 = (
    "qwen2-14b",
    "qwen2-32b",
    "llama-8b",
    "llama-70b",
    "qwen3-8b",
    "qwen3-14b",
    "qwen3-32b",
    "qwen3-30b-a3b",
    "qwen3-235b-a22b",
)


@rule("fp32-softmax-on", "script:set_perf_tuning")
def fp32_softmax_122(requested: bool | None, kind: str | None) -> bool | None:
    """Off by default; the 7B models of the Qwen2 family need it."""
    if requested is not None:
        return requested
    return True if kind == "qwen2-7b" else None


@rule("kv-cache-dtype-1.21", "script:set_dtype")
def kv_cache_dtype_121(requested: str | None, kind: str | None) -> str:
    """FP8 keys and values, except for models whose attention stays in bfloat16."""
    if requested is not None:
        return requested
    in_bfloat16 = kind in ("llama-8b", "qwen2-7b") or (
        (kind or "").startswith("qwen3") and kind not in ("qwen3-32b", "qwen3-30b-a3b")
    )
    return "auto" if in_bfloat16 else "fp8_inc"


@rule("weights-load-device", "script:set_dtype")
def weights_load_device_121(kind: str | None) -> str | None:
    """The largest model is quantised on the host, it does not fit beside its FP8 copy."""
    return "cpu" if kind == "qwen3-235b-a22b" else None


@rule("reasoning-parser", "the model's file, or its type; only for models that think")
def reasoning_parser(parser: str | bool) -> str | bool:
    """The DeepSeek script names deepseek_r1 for every model; an answer of another model would come out empty."""
    return parser


@rule("hpu-quantization", "script:set_dtype")
def hpu_quantization(dtype: str) -> str | None:
    """AWQ and GPTQ have kernels of their own on these cards."""
    return f"{dtype}_hpu" if dtype in ("awq", "gptq") else None


# ---- bounds


def spoken_length(asked: int | None, length: int | None) -> str:
    """A model length for a sentence: as it was asked for, and what became of it."""
    return str(length) if asked in (None, length) else f"{asked} ({length} in whole blocks)"


def check_ranges(
    max_model_len: int,
    asked: int,
    input_range: tuple[int, int],
    output_range: tuple[int, int],
    given: bool,
    draft: Draft,
) -> None:
    """A model length must hold the longest input and output; a tight fit leaves no room for a chat template."""
    need, spoken = input_range[1] + output_range[1], spoken_length(asked, max_model_len)
    if max_model_len < need and given:
        raise Refusal(
            f"max_model_len is {spoken}, but input_range and output_range together reach "
            f"{input_range[1]} + {output_range[1]} = {need} tokens. Raise max_model_len or lower the ranges."
        )
    if max_model_len < need:
        draft.warn(
            f"max_model_len {spoken} is below what the release's default ranges reach ({need} tokens): more is "
            f"warmed up than can be used. Set input_range and output_range to what the clients send."
        )
    elif max_model_len == need:
        draft.warn(
            f"max_model_len {max_model_len} leaves nothing beyond the longest input and output "
            f"({input_range[1]} + {output_range[1]}): a chat template's own tokens do not fit. "
            f"Raise it by a block or lower the ranges."
        )
