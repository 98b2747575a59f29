"""A refusal: why a request cannot be granted, with an id for programs and a sentence for people."""

from __future__ import annotations

from collections.abc import Mapping

from .printable import printable_lines


def with_id(sentence: str, identifier: str) -> str:
    """Return a sentence that ends with its id, unless it has it or there is none."""
    shown = f"[{identifier}]"
    return sentence if not identifier or shown in sentence else f"{sentence} {shown}"


# Characters of a cause, and of a remedy. They may quote a file or an answer, which may have megabytes.
LONGEST = 16_384


class Refusal(ValueError):
    """A request that cannot be granted.

    id: lower-case words joined by underscores, or by hyphens where docs/faults.md has it; it stays the same in every
    release of this project, and programs compare it. cause: what was seen, the limit. remedy: what to do; "" where the
    cause has it as well. No program may depend on their wording.
    """

    def __init__(self, id: str, cause: str, remedy: str = "") -> None:
        # They may quote text from outside.
        self.id, self.cause, self.remedy = id, *(printable_lines(_cut(part)) for part in (cause, remedy))
        super().__init__(id, str(self))

    def __str__(self) -> str:
        """Return cause and remedy alone."""
        return f"{self.cause} {self.remedy}" if self.remedy else self.cause

    @property
    def message_with_id(self) -> str:
        """Return cause and remedy with the id, by which a search finds the entry in docs/refusals.md."""
        return with_id(str(self), self.id)

    def about(self, what: str) -> Refusal:
        """Return the same refusal with its subject at the beginning of the sentence."""
        return Refusal(self.id, f"{what}: {self.cause}", self.remedy)

    def as_keys(self) -> dict[str, str]:
        """Return the keys that a document stores for it: the sentence and its id."""
        return {"refused": str(self), "refused_id": self.id}

    @classmethod
    def from_keys(cls, document: Mapping[str, object]) -> Refusal:
        """Read the refusal that a document holds."""
        return cls(str(document["refused_id"]), str(document["refused"]))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
