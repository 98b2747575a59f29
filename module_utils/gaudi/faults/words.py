"""Look up a fault, and fill in its sentence."""

from __future__ import annotations

from .entry import Known
from .known import FAULTS

_BY_ID = {fault.id: fault for fault in FAULTS}


def fault(identifier: str) -> Known:
    """Return the entry of a fault."""
    return _BY_ID[identifier]


def say(identifier: str, case: str = "", /, **facts: object) -> str:
    """Return what is wrong and what to do, in a sentence or more; ``case`` selects one of the remedies."""
    said = (fault(identifier).sentence.format(**facts), remedy(identifier, case, **facts))
    return " ".join(part for part in said if part)


def remedy(identifier: str, case: str = "", /, **facts: object) -> str:
    """Return what to do about a fault."""
    found = fault(identifier)
    return (found.remedies[case] if case else found.remedy).format(**facts)
