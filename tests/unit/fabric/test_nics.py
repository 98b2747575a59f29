"""Host NICs and libfabric: what was read, judged; and what hl_qual says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.fabric import burn_in
from ansible.module_utils.gaudi.fabric.burn_in import parse_hl_qual
from ansible.module_utils.gaudi.fabric.nics import HostNicFacts, HostNics, goes_without, judge_nics
from ansible.module_utils.gaudi.fabric.output import RunOutput, parse_output

from tests.unit.fabric.made import USUAL, failed, printed

# The form that fi_info of libfabric 1.17 prints.
INFO = """provider: verbs
    fabric: IB-0xfe80000000000000
    domain: mlx5_0
    version: 122.0
    type: FI_EP_MSG
    protocol: FI_PROTO_RDMA_CM_IB_RC
provider: verbs;ofi_rxm
    fabric: IB-0xfe80000000000000
"""
LOADED = "/usr/lib/habanalabs/libhccl_ofi_wrapper.so\n"
NOT_LOADED = "Traceback:\nOSError: libfabric.so.1: cannot open shared object file: No such file or directory\n"
WHOLE = HostNicFacts("fi_info: 1.22.0\nlibfabric: 1.22.0\nlibfabric api: 1.22\n", INFO, 0, True, LOADED, 0)
WELL = printed(USUAL, 50.0)


def ids(nics: HostNics) -> list[str]:
    return [fault.id for fault in nics.faults]


def test_everything_there_and_gaudi_direct_proved() -> None:
    nics = judge_nics(WHOLE, "verbs", WELL)
    assert nics == HostNics("1.22.0", "verbs", "/usr/lib/habanalabs/libhccl_ofi_wrapper.so", True, ())
    assert nics.as_dict()["gaudi_direct"] is True


@pytest.mark.parametrize(
    ("seen", "id_", "words"),
    [
        (replace(WHOLE, version_text=None), "libfabric-missing", "part host_nics"),
        (replace(WHOLE, version_text="libfabric api: 1.22"), "libfabric-missing", "fi_info"),
        (replace(WHOLE, version_text="libfabric: 1.17.0"), "libfabric-old", "libfabric 1.17.0, HCL wants 1.20"),
        (replace(WHOLE, info_text="fi_getinfo: -61", info_status=61), "provider-missing", "no provider 'verbs'"),
        (replace(WHOLE, info_status=1), "provider-missing", "finds no provider"),
        (replace(WHOLE, info_text="provider: tcp\nprovider: tcp;ofi_rxm"), "provider-missing", "only tcp, tcp;ofi_rxm"),
        (
            replace(WHOLE, loader_text=NOT_LOADED, loader_status=1),
            "wrapper-missing",
            "OSError: libfabric.so.1: cannot open",
        ),
        (replace(WHOLE, loader_text="", loader_status=0), "wrapper-missing", "not say so"),
        (replace(WHOLE, loader_text=None, loader_status=None), "wrapper-missing", "not say so"),
    ],
)
def test_what_is_missing_ends_acceptance(seen: HostNicFacts, id_: str, words: str) -> None:
    nics = judge_nics(seen, "verbs", WELL)
    assert ids(nics) == [id_]
    assert nics.faults[0].fatal
    assert words in nics.faults[0].sentence


def test_an_image_may_print_line_breaks_alone() -> None:
    """Looking through these again and again would take ten minutes."""
    breaks = "\n" * 400_000
    assert ids(judge_nics(replace(WHOLE, info_text=breaks, loader_text=breaks), "verbs", WELL))


def test_the_least_libfabric_is_enough() -> None:
    assert ids(judge_nics(replace(WHOLE, version_text="libfabric: 1.20.0"), "verbs", WELL)) == []
    assert ids(judge_nics(replace(WHOLE, version_text="libfabric: 2.0"), "verbs", WELL)) == []


@pytest.mark.parametrize(
    ("direct", "dmabuf", "holds", "fault"),
    [
        (WELL, True, True, []),
        (
            parse_output("Gaudi-direct not supported due to libfabric version 1.17", ranks=8, status=1),
            True,
            False,
            ["hccl-gaudi-direct"],
        ),
        (None, False, False, ["no-dmabuf"]),
        (failed("hccl-hangs"), False, False, ["no-dmabuf"]),
        (failed("hccl-hangs"), True, None, ["hccl-hangs"]),
        (None, True, None, ["host-nics-not-used"]),
        (None, None, None, ["host-nics-not-used"]),
    ],
)
def test_which_way_traffic_goes_is_told(
    direct: RunOutput | None, dmabuf: bool | None, holds: bool | None, fault: list[str]
) -> None:
    nics = judge_nics(replace(WHOLE, dmabuf=dmabuf), "verbs", direct)
    assert (direct is not None and goes_without(direct)) is ("hccl-gaudi-direct" in ids(nics))
    assert (nics.gaudi_direct, ids(nics)) == (holds, fault)
    assert all(each.fatal is (each.id == "hccl-hangs") for each in nics.faults)


SUMMARY = """hl qual report
memory bandwidth 0000:19:00.0 : {0}
==== Test result summary ====
  Memory test : {0}
  PCI test    : PASSED
"""


NO_PLUGIN = (Path(__file__).parent / "recorded/hl_qual/memory_no_plugin_1.24.1.txt").read_text(encoding="utf-8")
# The same end, of tests that ran.
END = NO_PLUGIN[NO_PLUGIN.index("####") :]


@pytest.mark.parametrize("status", [0, 1])
@pytest.mark.parametrize(
    ("text", "what"),
    [
        (NO_PLUGIN, "No plugin was identified"),
        (NO_PLUGIN.replace("Runner - No plugin was identified\n", ""), "Failed to set plugin under test"),
        (NO_PLUGIN.splitlines()[0], "it printed its help"),
    ],
)
def test_hl_qual_without_a_test_is_no_verdict_on_a_card(text: str, what: str, status: int) -> None:
    found = parse_hl_qual(text, status)
    assert (found.passed, found.tests) == (None, ())
    assert what in found.sentence
    assert "no verdict on a card" in found.sentence


def test_hl_qual_names_the_cards_of_its_summary() -> None:
    both = END.replace(" FAILED\n", " FAILED\nhl_qual - device with busID: 0000:33:00.0 result: PASSED\n", 1)
    found = parse_hl_qual(both, 1)
    assert found.passed is False
    assert found.tests == (("card 0000:b3:00.0", "FAILED"), ("card 0000:33:00.0", "PASSED"))
    assert found.sentence == "hl_qual failed: card 0000:b3:00.0. Its log says why."
    assert parse_hl_qual(END.replace("FAILED", "PASSED"), 0).passed is True
    # An outcome that is no verdict is named, beside the help or without it.
    for text in (END, NO_PLUGIN.partition("Runner -")[0] + END):
        found = parse_hl_qual(text.replace("FAILED", "ABORTED"), 1)
        assert (found.passed, found.tests) == (None, ())
        assert "card 0000:b3:00.0: ABORTED" in found.sentence
    # The outcome of all cards counts, too.
    bare = END.replace("result: FAILED", "result: PASSED")
    assert (parse_hl_qual(bare, 0).passed, parse_hl_qual(bare, 0).sentence[:29]) == (
        False,
        "hl_qual failed: its report. I",
    )


@pytest.mark.parametrize(
    ("text", "status", "passed", "words"),
    [
        (SUMMARY.format("PASSED"), 0, True, "of 3 results none failed"),
        (SUMMARY.format("FAILED"), 1, False, "memory bandwidth 0000:19:00.0, Memory test"),
        (SUMMARY.format("FAILED"), 0, False, "failed"),
        (SUMMARY.format("PASSED"), 3, False, "status 3"),
        (SUMMARY.format("PASSED"), None, None, "did not end"),
        ("card 0 : PASSED\n", 0, None, "no summary"),
        ("", 0, None, "no summary"),
        ("x\x1b[31m : FAILED\n", 0, False, "x"),
    ],
)
def test_hl_qual_is_read_by_its_words(text: str, status: int | None, passed: bool | None, words: str) -> None:
    found = parse_hl_qual(text, status)
    assert found.passed is passed
    assert words in found.sentence
    assert found.sentence.isprintable()
    assert found.as_dict()["passed"] is passed


def test_a_burn_in_is_called_for_the_cards_that_their_links_join() -> None:
    (whole,) = burn_in.commands("gaudi3", "power", 1)
    assert whole == (
        "/opt/habanalabs/qual/gaudi3/bin/hl_qual",
        "-gaudi3",
        "-c",
        "all",
        "-rmod",
        "parallel",
        "-dis_mon",
        "-s",
    )
    assert [each[3] for each in burn_in.commands("gaudi2", "memory", 2)] == ["quad_0", "quad_1"]


def test_wished_tests_are_run_once_and_in_one_order() -> None:
    assert burn_in.requested_tests(["power", "memory", "power"]) == ("memory", "power")
    assert burn_in.requested_tests([]) == burn_in.requested_tests(None) == ()
    for wrong in (["everything"], "power", [1]):
        with pytest.raises(Refusal):
            burn_in.requested_tests(wrong)


def test_one_failed_test_is_enough_and_one_without_an_answer_leaves_it_open() -> None:
    good = parse_hl_qual("Test result summary\nMemory : PASSED\n", 0)
    bad = parse_hl_qual("Test result summary\nPCI : FAILED\n", 1)
    open_ = parse_hl_qual("", 0)
    assert burn_in.combined([("memory", good), ("pci", good)]).sentence == "hl_qual passed: memory, pci."
    failed = burn_in.combined([("memory", good), ("pci", bad), ("power", open_)])
    assert failed.passed is False
    assert failed.tests == (("memory: Memory", "PASSED"), ("pci: PCI", "FAILED"))
    assert failed.sentence.startswith("pci: hl_qual failed: PCI.")
    assert burn_in.combined([("memory", good), ("power", open_)]).passed is None
    assert burn_in.combined([]).passed is None
