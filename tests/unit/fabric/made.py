"""Runs, outputs and card types that several tests use."""

from __future__ import annotations

from pathlib import Path

import yaml
from ansible.module_utils.gaudi.catalogue.entries import CardType
from ansible.module_utils.gaudi.catalogue.fabric import FACTORS, Fabric
from ansible.module_utils.gaudi.fabric.output import Figure, RunFailure, RunOutput
from ansible.module_utils.gaudi.fabric.runs import DemoRun

ROOT = Path(__file__).resolve().parents[3]
TYPES = CardType.table(yaml.safe_load((ROOT / "catalog" / "cards.yml").read_text(encoding="utf-8")))
MIB = 1 << 20
EIGHT = tuple(range(8))
# A collective over the eight cards of an HL-225, as the manuals measure it.
USUAL = DemoRun(EIGHT, "all_reduce", 32 * MIB, 10000)


def fabric(name: str) -> Fabric:
    """The links of a card type."""
    found = TYPES[name].fabric
    assert found is not None
    return found


def printed(run: DemoRun, nw: float) -> RunOutput:
    """What a run that ended well printed."""
    return RunOutput((Figure(run.collective, run.size, run.loop, nw, nw / FACTORS[run.collective](run.ranks)),), None)


def failed(id_: str = "hccl-hangs", sentence: str = "The run did not end.") -> RunOutput:
    """What a run that failed left behind."""
    return RunOutput((), RunFailure(id_, sentence))


def most_runs(cards: int) -> dict[str, int]:
    """Return the most further runs for groups of 4, 8, 16 ... cards: one bad card, one bad link, anything else."""
    levels = cards.bit_length() - 1
    link = 2 + 4 * (levels - 1)
    return {"card": 2 * levels, "link": link, "anything": max(2 * levels, link) + cards * (cards - 1) // 2}
