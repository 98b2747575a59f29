"""The interface of a family of releases: one dataclass with a field for every difference between families.

A family is the releases whose plans follow the same rules; the key ``rules`` of their files names it. Each family has a
module of its own beside this one, with its formulas, and ``registry.py`` lists them. Code outside this package never
asks which family a release belongs to; it reads a field here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..catalogue.build import Pin
from ..catalogue.entries import ReleaseEntry
from ..model.facts import ModelFacts
from ..request.resolved import ResolvedRequest
from ..rules.buckets import doublings
from ..rules.draft import Draft, RuleOrigin


def length_in_words(asked: int | None, length: int | None) -> str:
    """Return a model length for a sentence: as requested, and as rounded."""
    return str(length) if asked in (None, length) else f"{asked} ({length} in whole blocks)"


@dataclass(frozen=True)
class Lengths:
    """Lengths that limits, buckets and memory need from a finished draft, in tokens; None if the server decides."""

    max_model_len: int | None
    max_num_batched_tokens: int | None
    max_num_seqs: int
    # As passed to the server; None if it is not passed, and the server then uses max_num_seqs.
    max_num_prefill_seqs: int | None = None
    # The requested model length, if the release rounds it.
    asked_model_len: int | None = None

    @property
    def shown(self) -> str:
        """The model length for a sentence."""
        return length_in_words(self.asked_model_len, self.max_model_len)


def _nothing(draft: Draft, resolved: ResolvedRequest) -> None:
    """Default of fill_last: nothing is filled in last."""


def _no_parser(model: ModelFacts) -> str | None:
    """Default of reasoning_parser: the script names none."""
    return None


def _no_variables(resolved: ResolvedRequest, lengths: Lengths) -> Mapping[str, str]:
    """Default of bucket_defaults: the script sets all variables."""
    return {}


def _all_lengths(sizes: list[int], environment: Mapping[str, str]) -> list[int]:
    """Default of prompt_lengths: every length is warmed up."""
    return sizes


def _blocks_of_the_cache(blocks: int, whole_batch: int, block_size: int) -> tuple[int, int]:
    """Default of exponential_blocks: as many blocks as the KV cache has, and a bucket for each doubling."""
    return blocks, doublings(blocks)


@dataclass(frozen=True)
class Family:
    """A family of releases. ``fill`` does what its start script does: it fills the draft and returns the lengths."""

    # The value of ``rules`` in release files.
    name: str
    fill: Callable[[Draft, ResolvedRequest], Lengths]
    # Sets what takes precedence over the caller's own variables; called when those are in the draft.
    fill_last: Callable[[Draft, ResolvedRequest], None] = _nothing

    # ---- the request
    # Options that its server has no counterpart for; a request that sets one is refused, as it would have no effect.
    without_effect: tuple[str, ...] = ()
    # Reasons for that, for options that need a specific one.
    reasons: Mapping[str, str] = field(default_factory=dict)
    # Options of the plugin (PLUGIN_OPTIONS) that its server has.
    takes: tuple[str, ...] = ()
    # Whether its script plans either by ranges or by a length. Then a requested length replaces the default ranges, and
    # requested ranges replace a default length.
    plans_by_length: bool = False
    # The caller's variables that are read as options, with the option of each.
    options_in_environment: Mapping[str, str] = field(default_factory=dict)
    # Further arguments that are read as options, in addition to those of every release.
    options_in_arguments: Mapping[str, str] = field(default_factory=dict)

    # ---- the server
    # The repository of its server, by its name among the pins of release files.
    repository: str = "vllm_fork"
    # The source named for a rule that is in no start script of a release.
    without_script: str = "gaudi-serving, as the start scripts of later releases"
    # The file in that repository that lists the models its maintainers validated.
    validated_models: str | None = None
    # Words that its switches read as true, in lower case.
    true_words: tuple[str, ...] = ("true",)
    # The reasoning parser that its script sets for a model without a file in the catalogue.
    reasoning_parser: Callable[[ModelFacts], str | None] = _no_parser
    # Whether its script binds the server to cores; otherwise the rule is ours.
    script_binds_cpus: bool = False
    # The code that divides the card's memory.
    memory_code: str = "vllm/worker/hpu_worker.py determine_num_available_blocks"
    # The code that allows types of the KV cache.
    cache_code: str = "vllm/config.py; the server makes bytes of other types, and ends as it fills them"
    # Whether prompts are prefilled in chunks by default, so that a batch may be smaller than a request.
    chunks_prefill: bool = False
    # Whether FP8 weights are scaled for the card during loading, so that they need no conversion for Gaudi2.
    scales_while_loading: bool = False
    # Whether layers of several kinds share the KV cache, with one block of it kept empty.
    layers_share_cache: bool = False
    # Whether it serves published FP8 weights as stored: one byte a weight, converted first for Gaudi2.
    serves_stored_fp8: bool = False

    # ---- buckets
    # Makes the ``buckets`` part of a plan, without its counts, from the draft, the request, the lengths and the plan's
    # memory; None if the fields below define it.
    buckets: Callable[[Draft, ResolvedRequest, Lengths, Mapping[str, object] | None], dict[str, object]] | None = None
    # Makes the lists of that part again, for the KV blocks that the instance's last start logged (None: unknown).
    buckets_of_start: (
        Callable[
            [Draft, ResolvedRequest, Lengths, Mapping[str, object] | None, Mapping[str, object], int | None],
            Mapping[str, object],
        ]
        | None
    ) = None
    # Default values of its server for bucket variables that the script does not set.
    bucket_defaults: Callable[[ResolvedRequest, Lengths], Mapping[str, str]] = _no_variables
    # Whether decode shapes of more blocks than the KV cache has are left out.
    cache_ends_buckets: bool = False
    # The source file of its bucketing, below vllm_hpu_extension; {strategy} is linear or exponential.
    bucket_code: str = "bucketing/{strategy}.py"
    # Filters the prompt lengths of its bucketing to those that it warms up.
    prompt_lengths: Callable[[list[int], Mapping[str, str]], list[int]] = _all_lengths
    # Parameters of the exponential strategy: the grid of batch sizes, the length in tokens from which lengths are
    # spaced differently (None: never), and a function for the largest number of blocks and the number of their buckets.
    # Its arguments are the KV cache's blocks, those of a whole batch of longest requests, and the block size.
    exponential_batch_step: int = 2
    long_context_from: int | None = 8192
    exponential_blocks: Callable[[int, int, int], tuple[int, int]] = _blocks_of_the_cache

    def pin(self, release: ReleaseEntry) -> Pin:
        """Return the commit of its server in a release."""
        return release.pins[self.repository]

    def code(self, release: ReleaseEntry) -> str:
        """Return the repository and commit whose code defines a release's rules, for explanations."""
        return f"{self.repository.replace('_', '-')} {self.pin(release).commit[:9]}"

    def origin(self, release: ReleaseEntry) -> RuleOrigin:
        """Return where a release's rules are defined."""
        return RuleOrigin(self.code(release), release.constants.get("start_script"), self.without_script)

    def bucket_source(self, release: ReleaseEntry, strategy: str) -> str:
        """Return the code that makes a release's buckets; 1.18 has no extension."""
        pin = release.pins.get("vllm_hpu_extension")
        if pin is None:
            return f"{self.code(release)} vllm/worker/habana_model_runner.py"
        return f"vllm-hpu-extension {pin.commit[:9]} vllm_hpu_extension/{self.bucket_code.format(strategy=strategy)}"

    def is_on(self, text: str | None) -> bool:
        """Whether its server reads a switch's text as true."""
        return (text or "").lower() in self.true_words
