"""What hccl_demo prints: every recorded format, every way to fail, and text that nobody printed on purpose."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from ansible.module_utils.gaudi.fabric.output import NOT_OF_CARDS, Figure, RunOutput, inconsistency, parse_output
from hypothesis import given
from hypothesis import strategies as st

RECORDED = Path(__file__).parent / "recorded"
SAMPLES = {path.name: path.read_text(encoding="utf-8") for path in sorted(RECORDED.glob("*.txt"))}
MIB = 1 << 20
GOOD = SAMPLES["reconstructed_all_reduce.txt"]
# A line of run_hccl_demo.py, cut where its variables go on.
COMMAND = "HCCL_DEMO_TEST=all_reduce ID={0} HCCL_RANK={0} HCCL_NRANKS=8 HCCL_RANKS_PER_NODE=8 /opt/hccl_demo/hccl_demo"


@pytest.mark.parametrize(
    ("name", "ranks", "figures"),
    [
        ("all_reduce_1.17.txt", 8, [Figure("all_reduce", 32 * MIB, 1000, 258.209121, 147.548069)]),
        ("reconstructed_all_reduce.txt", 8, [Figure("all_reduce", 32 * MIB, 1000, 258.209121, 147.548069)]),
        ("reconstructed_latency.txt", 8, [Figure("all_reduce", 32 * MIB, 1000, host_ms=0.2274, device_ms=0.2153)]),
        ("all_reduce_1g_pure_mode.txt", 8, [Figure("all_reduce", 1024 * MIB, 1000, 258.200959, 147.543405)]),
        ("all_reduce_vllm_fork.txt", 8, [Figure("all_reduce", 32 * MIB, 1000, 258.259144, 147.576654)]),
        ("all_reduce_two_nodes.txt", 16, [Figure("all_reduce", 32 * MIB, 1000, 205.899352, 109.812988)]),
        ("all_reduce_2022.txt", 4, [Figure("all_reduce", 512 * MIB, 1000, nw_gb_s=69.214565)]),
        (
            "reconstructed_sizes.txt",
            8,
            [
                Figure("all_reduce", MIB, 1000, 45.64525, 26.083, 0.0402),
                Figure("all_reduce", 32 * MIB, 1000, 258.209121, 147.548069, 0.2274),
            ],
        ),
    ],
)
def test_every_recorded_format_is_read(name: str, ranks: int, figures: list[Figure]) -> None:
    output = parse_output(SAMPLES[name], ranks=ranks, status=0)
    assert output.failure is None
    assert list(output.figures) == figures


def test_colours_and_what_stands_around_do_not_matter() -> None:
    text = f"Welcome\x1b[0m\n[1,0]<stdout>: noise\n\x1b[32m{GOOD}\x1b[0mrank=3 size=8 <float> which is fine.\n"
    assert parse_output(text, ranks=8, status=0) == parse_output(GOOD, ranks=8, status=0)


@pytest.mark.parametrize("name", ["all_reduce_1.17.txt", "all_reduce_vllm_fork.txt", "reconstructed_sizes.txt"])
def test_figures_behind_a_log_s_words_and_with_decimal_commas_are_the_same(name: str) -> None:
    expected = parse_output(SAMPLES[name], ranks=8, status=0)
    text = re.sub(r"(?<=[0-9])\.(?=[0-9])", ",", SAMPLES[name])
    for before in ("", "[1,0]<stdout>:", "2026-09-10 12:00:00 "):
        behind = "".join(f"{before}{line}\n" for line in text.splitlines())
        assert parse_output(behind, ranks=8, status=0) == expected


def test_the_collectives_are_known_by_the_names_that_are_printed() -> None:
    for printed, name, factor in (
        ("AlltoAll", "all2all", 7 / 8),
        ("ReduceScatter", "reduce_scatter", 7 / 8),
        ("AllGather", "all_gather", 7.0),
        ("Broadcast", "broadcast", 1.0),
        ("Reduce", "reduce", 1.0),
    ):
        text = GOOD.replace("AllReduce", printed).replace("258.209121", f"{147.548069 * factor:.6f}")
        output = parse_output(text, ranks=8, status=0)
        assert (output.failure, output.figures[0].collective) == (None, name)


def test_figures_of_another_number_of_ranks_are_not_believed() -> None:
    failure = parse_output(GOOD, ranks=4, status=0).failure
    assert failure is not None
    assert failure.id == "hccl-inconsistent"
    assert "221.3" in failure.sentence


@pytest.mark.parametrize(
    ("text", "status", "id_", "words"),
    [
        (
            f"{GOOD}rank=5 size=32 <float> Input Buffer [5 ...] Output Buffer [1 ...] which is bad.\n",
            255,
            "hccl-wrong-result",
            "",
        ),
        (
            f"{GOOD}HCCL demo error: Collective operation has failed on correctness.\n",
            255,
            "hccl-wrong-result",
            "wrong sums",
        ),
        ("Affinity: Issue while trying to run hl-smi, aborting...\n", 1, "hccl-affinity", "trying to run hl-smi"),
        (
            "Affinity: Numa mapping isn't set properly, you are most likely running on an unsupported VM, aborting...",
            1,
            "hccl-affinity",
            "virtual machine",
        ),
        (
            "HCCL demo error: In function initDevice(): synDeviceAcquire(&resources.deviceHandle, nullptr) failed with "
            "synapse error: 20\n",
            255,
            "card-busy",
            "another process",
        ),
        ("RuntimeError: synStatus=20 [Device already acquired] Device acquire failed.\n", 1, "card-busy", "acquired"),
        ("[HCL][error] Source: QPC, error (syndrome 0x83)\n", 255, "hccl-queue-pair", "gaudinet.json"),
        (
            "Gaudi-direct not supported due to missing symbols in kernel version 5.4\n",
            1,
            "hccl-gaudi-direct",
            "ib_uverbs",
        ),
        (
            "Gaudi-direct not supported due to libfabric version 1.17\n",
            1,
            "hccl-gaudi-direct",
            "libfabric version 1.17",
        ),
        ("Could not find any matching provider. Gaudi-direct was set to: 1\n", 1, "hccl-no-provider", "fi_info"),
        (
            "hcl_device_control_factory.cpp:84(initDevice): The condition [ g_ibv.init(deviceConfig) == hcclSuccess ] "
            "failed. ibv initialization failed\n"
            "HCCL demo error: In function initDevice(): synDeviceAcquire(&resources.deviceHandle, nullptr) failed with "
            "synapse error: 26\n",
            1,
            "no-verbs",
            "habanalabs_ib",
        ),
        ("Error loading OFI wrapper.\n", 1, "hccl-no-wrapper", "went on without"),
        ("hcl_ibverbs_t::init failed to find matching Habana IB device (hlib_6)\n", 1, "no-verbs", "hlib_6"),
        ("ssh: Could not resolve hostname gaudi-02: Name or service not known\n", 255, "hccl-no-host", "gaudi-02"),
        (
            "HCCL demo error: [validate_size] Requested size: 4B was less than supported minimum size: 32B\n",
            1,
            "hccl-arguments",
            "32B",
        ),
        (
            "python3: can't open file '/opt/hccl_demo/run_hccl_demo.py': [Errno 2]\n",
            2,
            "hccl-demo-not-built",
            "same base",
        ),
        (
            "HCCL demo error: [make_demo] The following make command has failed: bash build_demo.sh\n",
            1,
            "hccl-demo-not-built",
            "",
        ),
        (
            "HCCL demo error: In function initDevice(): hcclCommInitRank(&resources.comm, 8) failed: internal error\n",
            255,
            "hccl-collective-failed",
            "hcclCommInitRank",
        ),
        (
            "HCCL demo error: In function f(): synStreamCreateGeneric(a) failed with synapse error: 26\n",
            255,
            "hccl-synapse-error",
            "error: 26",
        ),
        (
            f"HCCL demo error: [run_test] {COMMAND.format(3)} ended with exit code 11, will try kill worker pool\n",
            1,
            "hccl-rank-ended",
            "Rank 3 was ended by signal 11",
        ),
        (
            f"[run_test] {COMMAND.format(6)} ended with exit code 65280, will\n",
            1,
            "hccl-rank-ended",
            "Rank 6 ended with status 255",
        ),
        ("HCCL demo error: something new\n", 255, "hccl-demo-error", "something new"),
        ("\nExiting HCCL demo with code: 1\n", 0, "hccl-ended", "status 1"),
        ("", 137, "hccl-killed", "docker kill"),
        ("", 0, "hccl-no-figure", "no bandwidth"),
        ("\x00\x7f[BENCHMARK] NW Bandwidth : lots GB/s\n", 0, "hccl-no-figure", "no bandwidth"),
        (GOOD.replace("258.209121", "0.000000").replace("147.548069", "0.000000"), 0, "hccl-no-figure", "zero"),
        ("Running HCCL Demo\n", None, "hccl-hangs", "stopped after 600 s"),
    ],
)
def test_every_way_to_fail_has_a_sentence(text: str, status: int | None, id_: str, words: str) -> None:
    failure = parse_output(text, ranks=8, status=status, limit=600).failure
    assert failure is not None
    assert failure.id == id_
    assert words in failure.sentence
    assert failure.sentence.endswith(".")
    assert failure.sentence.isprintable()


def test_a_run_that_the_kernel_ended_says_so_and_nothing_of_the_cards() -> None:
    failure = parse_output("", ranks=8, status=137, no_memory=True).failure
    assert failure is not None
    assert failure.id == "hccl-no-memory"
    assert failure.id in NOT_OF_CARDS


def test_the_node_without_rank_0_prints_nothing_where_all_is_well() -> None:
    assert parse_output("", ranks=16, status=0, silent=True) == RunOutput((), None)
    failed = parse_output("which is bad.", ranks=16, status=1, silent=True).failure
    assert failed is not None
    assert failed.id == "hccl-wrong-result"
    assert parse_output("", ranks=16, status=None, silent=True).failure is not None


def test_what_was_repaired_on_the_way_does_not_fail_a_run_but_falling_back_from_host_nics_does() -> None:
    busy = f"synDeviceAcquireByModuleId(x) failed: Device already acquired\n{GOOD}"
    assert parse_output(busy, ranks=8, status=0).failure is None
    fallback = f"Error loading OFI wrapper.\n{GOOD}"
    assert parse_output(fallback, ranks=8, status=0).failure is None
    failure = parse_output(fallback, ranks=8, status=0, host_nics=True).failure
    assert failure is not None
    assert failure.id == "hccl-no-wrapper"
    assert parse_output(busy, ranks=8, status=0, host_nics=True).failure is None


def test_the_rank_that_computed_wrong_sums_is_named_where_it_is_one() -> None:
    bad = "rank={} size=8 <float> Input Buffer [1 ] Output Buffer [2 ] which is bad.\n"
    one = parse_output(bad.format(5), ranks=8, status=255).failure
    two = parse_output(bad.format(5) + bad.format(6), ranks=8, status=255).failure
    assert (one and one.rank, two and two.rank) == (5, None)


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ("HCCL demo error: Collective operation has failed on correctness.\n", 255),
        ("rank=5 size=8 <float> Input Buffer [1 ] Output Buffer [2 ] which is bad.\n", 0),
    ],
)
def test_a_bandwidth_of_a_run_with_wrong_sums_is_kept_and_does_not_count(said: str, status: int) -> None:
    output = parse_output(f"{GOOD}{said}", ranks=8, status=status)
    assert output.figures[0].nw_gb_s == 258.209121
    assert output.failure is not None
    assert output.as_dict()["failure"]["id"] == "hccl-wrong-result"


@given(st.integers(2, 64), st.floats(0.01, 1000))
def test_the_factor_of_all_reduce_is_the_one_that_is_checked(ranks: int, algo: float) -> None:
    nw = algo * 2 * (ranks - 1) / ranks
    assert inconsistency(Figure("all_reduce", 1, 1, nw, algo), ranks) is None
    assert inconsistency(Figure("all_reduce", 1, 1, nw * 1.02 + 1, algo), ranks) is not None


@given(st.sampled_from(sorted(SAMPLES)), st.randoms(use_true_random=False), st.integers(0, 30))
def test_mutated_output_never_raises_and_never_invents_a_figure(name: str, dice: random.Random, times: int) -> None:
    text = list(SAMPLES[name])
    for _ in range(times):
        place = dice.randrange(len(text))
        change = dice.choice(("drop", "swap", "cut"))
        if change == "drop":
            text[place] = ""
        elif change == "swap":
            text[place] = chr(dice.choice((0, 10, 27, 32, 45, 48, 57, 0x2028, 0x1F600)))
        elif len(text) > 40:
            del text[place : place + dice.randrange(30)]
    output = parse_output("".join(text), ranks=8, status=0)
    for figure in output.figures:
        assert figure.nw_gb_s is None or 0 <= figure.nw_gb_s < 1e15
    assert output.failure is not None or output.figures
    if output.failure is not None:
        assert output.failure.sentence.isprintable()


@given(st.text(max_size=2000), st.one_of(st.none(), st.integers(0, 255)))
def test_any_text_is_figures_or_a_failure(text: str, status: int | None) -> None:
    output = parse_output(text, ranks=8, status=status)
    assert output.failure is not None or output.figures
    assert output.failure is None or output.failure.sentence.isprintable()
