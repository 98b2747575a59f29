"""The label of a container: everything that determines it changes it, and a label of 0.1 is still known."""

from __future__ import annotations

import hashlib

import pytest
from ansible.module_utils.gaudi.serving.made_of import MadeOf

OPEN = MadeOf(b"plan", b"environment", None)
GUARDED = MadeOf(b"plan", b"environment", b"guard")


@pytest.mark.parametrize(
    "other",
    [
        GUARDED,
        MadeOf(b"other", b"environment", None),
        MadeOf(b"plan", b"other", None),
        # What moves from one part to the next is another whole.
        MadeOf(b"planen", b"vironment", None),
    ],
)
def test_every_part_counts(other: MadeOf) -> None:
    assert other.digest != OPEN.digest
    assert not OPEN.is_on(other.digest)


def test_another_guard_is_another_container() -> None:
    assert not MadeOf(b"plan", b"environment", b"other").is_on(GUARDED.digest)
    assert GUARDED.is_on(GUARDED.digest)


@pytest.mark.parametrize(("made_of", "guarded"), [(OPEN, b"open"), (GUARDED, b"guarded")])
def test_a_label_of_0_1_counts_as_current(made_of: MadeOf, guarded: bytes) -> None:
    label = hashlib.sha256(b"\0".join([b"plan", b"environment", guarded])).hexdigest()
    assert made_of.is_on(label)


def test_no_label_is_none_of_ours() -> None:
    assert not OPEN.is_on(None)
