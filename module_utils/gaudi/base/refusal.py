"""Why a wish cannot be granted: an id for programs, a sentence for people."""

from __future__ import annotations

from collections.abc import Mapping

from .printable import printable_lines


class Refusal(ValueError):
    """A wish that cannot be granted.

    id: lower-case words joined by underscores, the same in every release of this project; branches compare it.
    sentence: what was seen, the limit, what to do. Nothing may depend on its wording.
    """

    def __init__(self, id: str, sentence: str) -> None:
        # It may quote names and words from outside.
        super().__init__(id, printable_lines(sentence))
        self.id = id

    def __str__(self) -> str:
        """Return the sentence alone; people need no id."""
        return str(self.args[1])

    def about(self, what: str) -> Refusal:
        """Return the same refusal; its sentence begins with what it is about."""
        return Refusal(self.id, f"{what}: {self}")

    def as_keys(self) -> dict[str, str]:
        """Return what a document says of it: the sentence beside its id."""
        return {"refused": str(self), "refused_id": self.id}

    @classmethod
    def from_keys(cls, document: Mapping[str, object]) -> Refusal:
        """Read the refusal that a document holds."""
        return cls(str(document["refused_id"]), str(document["refused"]))
