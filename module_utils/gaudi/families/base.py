"""What a family of releases is: one value for everything in which families differ.

A family is the releases whose plans follow the same rules; the key ``rules`` of their files names it. Each family has a
file of its own beside this one, with its formulas in it, and ``registry.py`` lists them. Nothing outside this folder
asks which family a release is of: what the planner needs to know is a field here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..catalogue.build import Pin
from ..catalogue.entries import ReleaseEntry
from ..model.facts import ModelFacts
from ..request.resolved import ResolvedRequest
from ..rules.buckets import doublings
from ..rules.draft import Draft, Origin


def length_in_words(asked: int | None, length: int | None) -> str:
    """A model length for a sentence: as it was asked for, and what became of it."""
    return str(length) if asked in (None, length) else f"{asked} ({length} in whole blocks)"


@dataclass(frozen=True)
class Lengths:
    """What limits, buckets and memory need to know of a finished draft. Tokens; None where the server decides."""

    max_model_len: int | None
    max_num_batched_tokens: int | None
    max_num_seqs: int
    # As it is passed to the server; None where it is not: the server then takes max_num_seqs.
    max_num_prefill_seqs: int | None = None
    # The model length as it was asked for, where the release rounds it.
    asked_model_len: int | None = None

    @property
    def shown(self) -> str:
        """The model length for a sentence."""
        return length_in_words(self.asked_model_len, self.max_model_len)


def _nothing(draft: Draft, resolved: ResolvedRequest) -> None:
    """Leave the draft as it is."""


def _no_parser(model: ModelFacts) -> str | None:
    """No parser: the script names none."""
    return None


def _no_variables(lengths: Lengths, block_size: int) -> Mapping[str, str]:
    """No variables: the script sets all of them."""
    return {}


def _all_lengths(sizes: list[int], environment: Mapping[str, str]) -> list[int]:
    """Every length stays."""
    return sizes


def _blocks_of_the_cache(blocks: int, whole_batch: int, block_size: int) -> tuple[int, int]:
    """As many blocks as the KV cache has; a bucket each time they double."""
    return blocks, doublings(blocks)


@dataclass(frozen=True)
class Family:
    """A family of releases. ``fill`` is its start script: it fills the draft and says the lengths it came to."""

    # As release files name it.
    name: str
    fill: Callable[[Draft, ResolvedRequest], Lengths]
    # What wins over the caller's own variables; called when these stand in the draft.
    fill_last: Callable[[Draft, ResolvedRequest], None] = _nothing

    # ---- the request
    # Options that its server has no counterpart for: asked for, they would be without effect.
    without_effect: tuple[str, ...] = ()
    # Why, where more can be said than that.
    reasons: Mapping[str, str] = field(default_factory=dict)
    # Options of the plugin (PLUGIN_OPTIONS) that its server has.
    takes: tuple[str, ...] = ()
    # Whether its script plans by ranges or by a length. A length that is asked for then replaces the default ranges,
    # and ranges replace a default length.
    plans_by_length: bool = False
    # Variables of the caller that are read as the options they stand for.
    options_in_environment: Mapping[str, str] = field(default_factory=dict)
    # Further arguments that are read as the options they stand for, beside those of every release.
    options_in_arguments: Mapping[str, str] = field(default_factory=dict)

    # ---- the server
    # The repository that it is, as release files pin it.
    repository: str = "vllm_fork"
    # What is said of a rule that stands in no start script of a release.
    without_script: str = "gaudi-serving, as the start scripts of later releases"
    # The file in that repository that names the models its maintainers validated.
    validated_models: str | None = None
    # Whether cards beyond the key-value heads get copies of them, where their number is a multiple of the heads'.
    copies_heads: bool = False
    # The words that mean true in its switches, in lower case.
    true_words: tuple[str, ...] = ("true",)
    # The reasoning parser its script names for a model that has no file in the catalogue.
    reasoning_parser: Callable[[ModelFacts], str | None] = _no_parser
    # Whether its script binds the server to cores; if not, the rule is ours.
    script_binds_cpus: bool = False
    # The code that divides the card's memory.
    memory_code: str = "vllm/worker/hpu_worker.py determine_num_available_blocks"
    # Whether prompts are prefilled in chunks where nobody says otherwise, so that a batch may be below a request.
    chunks_prefill: bool = False
    # Whether weights in FP8 are scaled for the card while they load, so that nobody converts them for Gaudi2.
    scales_while_loading: bool = False
    # Whether layers of several kinds share the KV cache, and one block of it is kept empty.
    layers_share_cache: bool = False
    # Whether it serves the FP8 of published weights as it is stored: a byte a weight, and converted for Gaudi2 first.
    serves_stored_fp8: bool = False

    # ---- buckets
    # What makes the ``buckets`` part of a plan, without its counts, from the draft, the request, the lengths and the
    # plan's memory; None where the fields below make it.
    buckets: Callable[[Draft, ResolvedRequest, Lengths, Mapping[str, object] | None], dict[str, object]] | None = None
    # What makes the lists of that part once more, for as many KV blocks as the instance's last start logged (None: not
    # known).
    buckets_of_start: (
        Callable[
            [Draft, ResolvedRequest, Lengths, Mapping[str, object] | None, Mapping[str, object], int | None],
            Mapping[str, object],
        ]
        | None
    ) = None
    # Bucket variables that its server takes by default, where the script sets none.
    bucket_defaults: Callable[[Lengths, int], Mapping[str, str]] = _no_variables
    # Where its bucketing is written down, below vllm_hpu_extension; {strategy} is linear or exponential.
    bucket_code: str = "bucketing/{strategy}.py"
    # The prompt lengths that it warms up, of those that its bucketing makes.
    prompt_lengths: Callable[[list[int], Mapping[str, str]], list[int]] = _all_lengths
    # The exponential strategy: the grid of batch sizes, the length in tokens from which lengths are spaced in the other
    # way (None: never), and the blocks it goes up to with the number of their buckets, from the blocks of the KV cache,
    # those of a whole batch of longest requests, and the block size.
    exponential_batch_step: int = 2
    long_context_from: int | None = 8192
    exponential_blocks: Callable[[int, int, int], tuple[int, int]] = _blocks_of_the_cache

    def pin(self, release: ReleaseEntry) -> Pin:
        """The commit of its server in a release."""
        return release.pins[self.repository]

    def code(self, release: ReleaseEntry) -> str:
        """The code that a release's rules were read in, for explanations."""
        return f"{self.repository.replace('_', '-')} {self.pin(release).commit[:9]}"

    def origin(self, release: ReleaseEntry) -> Origin:
        """Where a release's rules are written down."""
        return Origin(self.code(release), release.constants.get("start_script"), self.without_script)

    def bucket_source(self, release: ReleaseEntry, strategy: str) -> str:
        """The code that makes a release's buckets; 1.18 has no extension, its documentation says the same."""
        pin = release.pins.get("vllm_hpu_extension")
        if pin is None:
            return "vLLM documentation, Intel Gaudi, release 1.18.0, bucketing"
        return f"vllm-hpu-extension {pin.commit[:9]} vllm_hpu_extension/{self.bucket_code.format(strategy=strategy)}"

    def is_on(self, text: str | None) -> bool:
        """How its server reads a switch."""
        return (text or "").lower() in self.true_words
