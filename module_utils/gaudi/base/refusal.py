"""Why a wish cannot be granted: an id for programs, a sentence for people."""

from __future__ import annotations


class Refusal(ValueError):
    """A wish that cannot be granted.

    id: lower-case words joined by underscores, the same in every release of this project; branches compare it.
    sentence: what was seen, the limit, what to do. Nothing may depend on its wording.
    """

    def __init__(self, id: str, sentence: str) -> None:
        super().__init__(id, sentence)
        self.id = id

    def __str__(self) -> str:
        """Return the sentence alone; people need no id."""
        return str(self.args[1])
