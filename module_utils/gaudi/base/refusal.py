"""A refusal: why a request cannot be granted, with an id for programs and a sentence for people."""

from __future__ import annotations

from collections.abc import Mapping

from .printable import printable_lines


class Refusal(ValueError):
    """A request that cannot be granted.

    id: lower-case words joined by underscores; it stays the same in every release of this project, and programs compare
    it. sentence: what was seen, the limit, what to do. No program may depend on its wording.
    """

    def __init__(self, id: str, sentence: str) -> None:
        # The sentence may quote text from outside.
        super().__init__(id, printable_lines(sentence))
        self.id = id

    def __str__(self) -> str:
        """Return the sentence alone; people need no id."""
        return str(self.args[1])

    def about(self, what: str) -> Refusal:
        """Return the same refusal with its subject at the beginning of the sentence."""
        return Refusal(self.id, f"{what}: {self}")

    def as_keys(self) -> dict[str, str]:
        """Return the keys that a document stores for it: the sentence and its id."""
        return {"refused": str(self), "refused_id": self.id}

    @classmethod
    def from_keys(cls, document: Mapping[str, object]) -> Refusal:
        """Read the refusal that a document holds."""
        return cls(str(document["refused_id"]), str(document["refused"]))
