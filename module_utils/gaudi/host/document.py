"""The document of host tuning on a node: whether the kernel may serve, refreshed for the kernel that runs now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..base import documents
from .cmdline import NeededArgument, holds
from .state import lacks_in_effect, reboot_reasons, serving_refusal

SCHEMA = 2
_NEEDED = {"argument": str, "purpose": str, "because": str, "kernels": [str], "shown?": bool}
_FORM = {"kernel_arguments": [{**_NEEDED, "waits": bool, "cause": str}], "leaving": [_NEEDED]}


def parse(text: str) -> dict[str, Any]:
    """Parse the document. Raises ValueError with the defect if the role did not write it."""
    return documents.parse(text, _FORM, SCHEMA)


def damaged(path: str, why: str) -> str:
    """Say that the document cannot be read, and what to do."""
    return (
        f"Whether this kernel may serve is not known: {path} cannot be read ({why}). "
        "Run playbooks/tune_host.yml, which writes it again."
    )


def refresh(document: Mapping[str, Any], kernel: str, running: Sequence[str], translated: str = "") -> dict[str, Any]:
    """Return the document for the kernel that runs now. ``running``: the words of /proc/cmdline.

    An argument in effect no longer waits for a reboot. If a later boot lacks it, one more reboot does not help.
    ``translated``: the cards whose addresses an IOMMU translates (iommu.shown).
    """
    arguments = [
        {**entry, "waits": entry["waits"] and lacks_in_effect(_needed(entry), running, translated)}
        for entry in document["kernel_arguments"]
    ]
    waiting = [_needed(entry) for entry in arguments if entry["waits"]]
    leaving = [_needed(entry) for entry in document["leaving"] if holds(entry["argument"], running)]
    return {
        **document,
        "kernel_arguments": arguments,
        "serving_refused": serving_refusal(
            [_needed(entry) for entry in arguments],
            kernel,
            running,
            waiting,
            {entry["argument"]: entry["cause"] for entry in arguments},
            translated,
        ),
        "reboot_needed": reboot_reasons([*waiting, *leaving]),
    }


def _needed(entry: Mapping[str, Any]) -> NeededArgument:
    shown = entry.get("shown", False)
    return NeededArgument(entry["argument"], entry["purpose"], entry["because"], tuple(entry["kernels"]), shown)


def waits(document: Mapping[str, Any]) -> list[str]:
    """Return the document's reasons to reboot, and the refusal to serve, as sentences."""
    refused = document["serving_refused"]
    sentences = [f"Reboot needed, because of {reason}" for reason in document["reboot_needed"]]
    return [*sentences, f"Serving is refused. {refused}"] if refused else sentences
