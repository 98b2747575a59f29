"""Verdicts of every kind, for the report."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ansible.module_utils.gaudi.fabric import compute
from ansible.module_utils.gaudi.fabric.classes import judge
from ansible.module_utils.gaudi.fabric.locating import FaultyPart
from ansible.module_utils.gaudi.fabric.nics import HostNics
from ansible.module_utils.gaudi.fabric.output import RunOutput
from ansible.module_utils.gaudi.fabric.pairs import PairRun, as_json, rounds
from ansible.module_utils.gaudi.fabric.runs import DemoRun
from ansible.module_utils.gaudi.fabric.static import StaticFault
from ansible.module_utils.gaudi.fabric.verdict import VerdictSubject, new_verdict, overridden, record

from tests.unit.fabric.made import EIGHT, MIB, USUAL, fabric, failed, printed

MADE_OF = VerdictSubject(
    {str(module): f"AM{module:08}" for module in EIGHT},
    "1.22.1",
    "61.4.2",
    "sha256:0d1f2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f708192a3b4c5d6e7f8",
    "1.22.0",
    "2c94f9e41a3bb5e7a1e5a0c1f6b1c5fd4f0b1a2c",
    "f623d69",
)
QUADS = tuple(DemoRun(group, "all_reduce", 32 * MIB, 10000) for group in fabric("HL-338").groups)
ACROSS = DemoRun(EIGHT, "all_reduce", 32 * MIB, 10000, over_host_nics=True)


def verdict(node: str, *runs: tuple[DemoRun, RunOutput], card: str = "HL-225", **given: Any) -> dict[str, Any]:
    before = given.get("before")
    facts: dict[str, Any] = {
        "time": "2026-11-23T20:00:00+00:00",
        "made_of": MADE_OF,
        "faults": (),
        "nics": None,
        "located": (),
        "results": judge(runs, fabric(card), (), record(before, MADE_OF)),
        **given,
    }
    return new_verdict(node=node, **facts)


def quads(*figures: float) -> list[tuple[DemoRun, RunOutput]]:
    """The two groups of four, with these GB/s."""
    return [(run, printed(run, nw)) for run, nw in zip(QUADS, figures, strict=True)]


def accepted() -> dict[str, Any]:
    """A node with a history."""
    document = None
    for day, nw in enumerate((257.1, 258.0, 201.4, 256.3, 258.2), 19):
        document = verdict(
            "gaudi-01", (USUAL, printed(USUAL, nw)), before=document, time=f"2026-11-{day}T20:00:00+00:00"
        )
    assert document is not None
    return document


def everything() -> list[dict[str, Any]]:
    """A node of each kind: accepted, a slow card, a bad link in one of two groups, seven of eight, nothing measured."""
    slow = FaultyPart(
        "card", (5,), "Module 5 is at fault: sets of cards with it are slow or fail, sets without it are not."
    )
    link = FaultyPart("link", (5, 6), "The link between modules 5 and 6 is at fault: each is good with other cards.")
    nics = HostNics(
        "1.22.0",
        "verbs",
        "/usr/lib/habanalabs/libhccl_ofi_wrapper.so",
        False,
        (
            StaticFault(
                "no-dmabuf",
                "Gaudi Direct cannot be used. Traffic goes through the host's memory, which is slower.",
                (),
                False,
            ),
        ),
    )
    seven = replace(MADE_OF, serials={key: value for key, value in MADE_OF.serials.items() if key != "2"})
    gaudi3 = DemoRun(EIGHT, "all_reduce", 256 * MIB, 1000)
    gather = DemoRun(EIGHT, "all_gather", 16 * MIB, 1000)
    groups = (*quads(201.3, 97.8), (ACROSS, printed(ACROSS, 41.2)))
    burnt = {
        "passed": True,
        "tests": [["memory", "PASSED"]],
        "sentence": "hl_qual passed: of 1 results none failed.",
    }
    return [
        accepted(),
        overridden(verdict("gaudi-02", (USUAL, printed(USUAL, 131.0)), located=(slow,)), "spare part comes on Friday"),
        verdict("gaudi-03", *groups, card="HL-338", located=(link,), nics=nics, burn_in=burnt),
        verdict(
            "gaudi-04",
            faults=(StaticFault("card-count", "7 of 8 cards are there (modules 0, 1, 3-7)."),),
            made_of=seven,
        ),
        verdict("gaudi-05", not_measured="The image vllm-gaudi:1.22.0 has no hccl_demo."),
        verdict("gaudi-06", (gaudi3, failed()), (gather, printed(gather, 505.0)), card="HL-325L"),
        verdict("gaudi-07", (USUAL, printed(USUAL, 258.2)), compute_check=numbers()),
    ]


def numbers() -> dict[str, Any]:
    """A compute check that every outcome is in: module 3 computes wrongly, and module 4 differs by more than usual."""
    found = {
        "module": 3,
        "check": "gather",
        "exact": True,
        "expected": "12",
        "got": "-7",
        "at": 9,
        "wrong": 5,
        "of": 64,
    }
    wrong = {**found, "sentence": "rows gathered from a large table: value 9 is -7 and should be 12."}
    product = {**found, "module": 4, "check": "matmul", "exact": False, "sentence": "a long matrix product: differs."}
    said = {3: ("failed", [wrong]), 4: ("differs", [product]), 5: ("unknown", [])}
    rows = [
        {"modules": [module], "outcome": outcome, "findings": findings}
        for module in EIGHT
        for outcome, findings in [said.get(module, ("passed", []))]
    ]
    rows.append({"modules": list(EIGHT), "outcome": "skipped", "findings": []})
    about = {"time": "2026-11-23T20:00:00+00:00", "boot": "b", "form": "full"}
    sentences = {"failed": "Module 3 computes wrong numbers.", "unknown": "Module 5 gave no answer."}
    made = [{**about, **row, "sentence": sentences.get(str(row["outcome"]), "")} for row in rows]
    return compute.document(made, 4096, "")


def pairs() -> dict[str, Any]:
    """Four nodes of which two do not reach each other well, and one that takes no part."""
    nodes = [f"gaudi-{number:02}" for number in range(1, 5)]
    met = [
        PairRun(
            number,
            pair,
            None if set(pair) == {"gaudi-02", "gaudi-03"} else 61.5,
            "The run did not end." * (set(pair) == {"gaudi-02", "gaudi-03"}),
        )
        for number, made in enumerate(rounds(nodes), 1)
        for pair in made
    ]
    return {**as_json(nodes, met), "left_out": {"gaudi-05": "Module 3 is in use."}}
