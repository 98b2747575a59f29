"""Look up a fault, and fill in its sentence."""

from __future__ import annotations

import re

from ..base import refusal
from .entry import KnownFault
from .known import FAULTS

_BY_ID = {fault.id: fault for fault in FAULTS}


def with_id(sentence: str, identifier: str) -> str:
    """Return a sentence with the id of its entry in docs/faults.md, unless it has it or there is none."""
    return refusal.with_id(sentence, identifier if identifier in _BY_ID else "")


def fault(identifier: str) -> KnownFault:
    """Return the entry of a fault."""
    return _BY_ID[identifier]


def say(identifier: str, case: str = "", /, **facts: object) -> str:
    """Return what is wrong and what to do, in a sentence or more; ``case`` selects one of the remedies."""
    return fault(identifier).say(case, **facts)


def fill(known: KnownFault, case: str = "", /, **facts: object) -> tuple[str, str]:
    """Return the sentence and the remedy of a fault, filled in."""
    return known.filled(case, **facts)


def groups(found: re.Match[str]) -> str:
    """Return what the groups of a fault's signs match, which its sentence may name as ``it``."""
    return ": ".join(group.strip().rstrip(".") for group in found.groups() if group)


def remedy(identifier: str, case: str = "", /, **facts: object) -> str:
    """Return what to do about a fault."""
    found = fault(identifier)
    return (found.remedies[case] if case else found.remedy).format(**facts)
