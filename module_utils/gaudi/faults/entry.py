"""The form of an entry in the list of faults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# The parts of a node, in the order in which the doctor reports them.
PARTS = ("cards and links", "host", "kernel settings", "engine", "instances")
CARDS, HOST, KERNEL, ENGINE, INSTANCES = PARTS

# error: it must be repaired. warning: it may have to be. info: for information.
SEVERITIES = ("error", "warning", "info")
ERROR, WARNING, INFO = SEVERITIES


@dataclass(frozen=True)
class KnownFault:
    """One fault. Its texts have a ``{hole}`` for each value that the code that finds it fills in."""

    id: str
    part: str
    seen_by: str
    """The file whose code recognises it; empty where ``signs`` are all there is to recognise."""
    sentence: str
    """What is wrong."""
    remedy: str
    """What to do about it."""
    source: str
    """Who says so. Empty where it follows from what this project reads and writes itself."""
    severity: str = ERROR
    remedies: Mapping[str, str] = field(default_factory=dict)
    """Another remedy for a case, by a word for the case."""
    cases: bool = False
    """Whether the words for the cases are statements about facts: the first that is true selects the remedy."""
    limit: int = 0
    """The number that is compared with, where there is one."""
    signs: str = ""
    """A regular expression for a line of the server's log, or of docker's. The sentence follows the quoted line."""
    retry: bool = False
    """Whether a start that ended so is worth another try. A server that had been serving always is: what it served with
    was right, and what it said last may be the words of whoever asked it."""
    hints: str = ""
    """A regular expression for a line that has other causes too: it means this fault only where facts prove it."""
    when: str = ""
    """The statement about facts (a property of Facts) that proves this fault, and excludes it where it is untrue."""
    check: str = ""
    """How a person finds out whether it is this fault, where facts do not tell."""
    asked: str = ""
    """A word of the server's command without which the line means something else."""
    served: bool = False
    """Whether the line means this only of a server that had been serving."""
    consequence: bool = False
    """Whether the line only follows from another failure: it explains nothing where an exception does."""
    example: str = ""
    """Lines of a log that show it, recorded or put together: the test of ``signs``."""

    def filled(self, case: str = "", /, **facts: object) -> tuple[str, str]:
        """Return the sentence and the remedy, filled in; ``case`` selects one of the remedies."""
        return self.sentence.format(**facts), (self.remedies[case] if case else self.remedy).format(**facts)

    def say(self, case: str = "", /, **facts: object) -> str:
        """Return what is wrong and what to do, in a sentence or more."""
        return " ".join(part for part in self.filled(case, **facts) if part)
