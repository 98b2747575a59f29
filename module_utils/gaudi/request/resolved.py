"""What a family of releases decides from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..base.refusal import Refusal
from ..catalogue.entries import ReleaseEntry
from ..model.facts import ModelFacts
from ..rules.draft import REQUESTED, Rule, Value, given
from .options import InstanceRequest

Pair = tuple[int, int]


@dataclass(frozen=True)
class ResolvedRequest:
    """Everything a family decides from. ``dtype`` is settled, ``parser`` only there for models that think."""

    request: InstanceRequest
    # Options that stand in the request itself; others come from the model's catalogue file or the release.
    asked: frozenset[str]
    release: ReleaseEntry
    model: ModelFacts
    catalogue_name: str | None
    weights: str
    dtype: str
    quantization_config: str | None
    parser: str | None
    card_name: str
    cards: int
    profile_name: str
    # The text of bucketing_file; None where there is none, or nobody to read it.
    bucket_file: str | None = None

    def constant(self, key: str) -> Any:
        """A number of the release file; a missing one is refused with file and key."""
        if key not in self.release.constants:
            raise Refusal(
                "missing_key", f"catalog/releases/{self.release.name}.yml: constants lacks the key {key}. Add it."
            )
        return self.release.constants[key]

    def source(self, option: str) -> Rule:
        """Where an option that has a value was said."""
        if option in self.asked or self.catalogue_name is None:
            return REQUESTED
        return given("model-default", f"catalog/models/{self.catalogue_name}.yml")

    def said(self, option: str) -> Value:
        """An option as the request or its model says it; None where neither does."""
        return self.source(option)(value=getattr(self.request, option))

    def pick(self, option: str) -> Value:
        """An option as it was said, else the release's constant of that name."""
        if getattr(self.request, option) is not None:
            return self.said(option)
        return given("release-constant", f"catalog/releases/{self.release.name}.yml")(value=self.constant(option))

    def script(self, value: object) -> Value:
        """What the release's start script sets whatever is asked for."""
        return given("start-script", "script:")(value=value)

    @property
    def block_size_of_type(self) -> int | None:
        """Tokens of a block that the server sets for this type of model by itself; None where it sets none."""
        cached = self.request.enable_prefix_caching and not self.request.contiguous_pa
        tables = ("block_size_by_type_with_prefix_caching", "block_size_by_type")
        for table in tables if cached else tables[1:]:
            found = self.release.constants.get(table, {}).get(self.model.shape.model_type)
            if found is not None:
                return int(found)
        return None

    @property
    def block_size(self) -> int:
        """Tokens of one KV cache block: as they were asked for, those of the model's type, or the release's."""
        if self.request.block_size is None and self.block_size_of_type is not None:
            return self.block_size_of_type
        return int(self.pick("block_size").result)

    @property
    def ranged(self) -> bool:
        """Whether lengths were said as ranges."""
        return self.request.input_range is not None or self.request.output_range is not None

    @property
    def ranges(self) -> tuple[Pair, Pair]:
        """Input and output range in tokens, the release's where none was said."""
        shortest_in, longest_in = self.pick("input_range").result
        shortest_out, longest_out = self.pick("output_range").result
        return (shortest_in, longest_in), (shortest_out, longest_out)
