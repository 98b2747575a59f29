"""What hccl_demo is asked: which cards together, its command line, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.catalogue.fabric import FACTORS, HOST, HOST_NICS_VARIABLES, size_bytes, size_text
from ansible.module_utils.gaudi.fabric.runs import DemoRun, command, limit_seconds, requested_tests, runs_for, seconds
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.fabric.made import EIGHT, MIB, TYPES, USUAL, fabric


@pytest.mark.parametrize("name", ["HL-225", "HL-325L"])
def test_eight_cards_of_an_oam_board_are_one_group(name: str) -> None:
    runs = runs_for(fabric(name), EIGHT, requested_tests(None, fabric(name)), host_nics=False)
    assert [(run.modules, run.over_host_nics) for run in runs] == [(EIGHT, False)]
    assert runs_for(fabric(name), EIGHT, requested_tests(None, fabric(name)), host_nics=True) == runs


@pytest.mark.parametrize(("name", "over_host"), [("HL-288", True), ("HL-288E", True), ("HL-338", False)])
def test_pcie_cards_are_two_groups_and_all_eight_over_what_joins_them(name: str, over_host: bool) -> None:
    tests = requested_tests(None, fabric(name))
    alone = runs_for(fabric(name), EIGHT, tests, host_nics=False)
    assert [run.modules for run in alone[:2]] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert [(run.modules, run.over_host, run.over_host_nics) for run in alone[2:]] == [(EIGHT, True, False)] * over_host
    together = runs_for(fabric(name), EIGHT, tests, host_nics=True)
    assert [(run.modules, run.over_host_nics) for run in together[2:]] == [(EIGHT, True)]
    assert not any(run.over_host for run in together)


def test_where_the_host_joins_groups_a_figure_is_published_for_all_cards() -> None:
    for card in TYPES.values():
        figure = card.fabric.over_host() if card.fabric else None
        joined = card.fabric is not None and card.fabric.between_groups == HOST
        assert (figure is not None) == joined == (card.name in ("HL-288", "HL-288E"))
        assert figure is None or (figure.nw_gb_s, figure.ranks) == (18, 8)


@given(st.sampled_from(sorted(TYPES)), st.sets(st.integers(0, 15)))
def test_each_card_is_in_one_group(name: str, modules: set[int]) -> None:
    known = TYPES[name].fabric
    groups = known.grouped(modules) if known else (tuple(sorted(modules)),)
    assert sorted(module for group in groups for module in group) == sorted(modules)
    for group in groups:
        assert (
            known is None
            or len(known.groups) == 1
            or len(group) == 1
            or any(set(group) <= set(g) for g in known.groups)
        )


def test_external_ports_are_as_many_as_the_card_has_and_no_internal_ones() -> None:
    for card in TYPES.values():
        for ports in card.fabric.external_ports.values() if card.fabric else ():
            assert len(ports) == card.external_ports
            assert len(ports) + (card.internal_ports or 0) <= 24


def test_published_figures_agree_with_themselves_and_with_the_theory() -> None:
    for card in TYPES.values():
        samples = card.fabric.samples if card.fabric else ()
        for each in (*samples, *card.fabric.pass_limits) if card.fabric else ():
            ratio = each.nw_gb_s / each.algo_gb_s / FACTORS[each.collective](each.ranks)
            # Limits were rounded to whole GB/s by whoever published them.
            assert ratio == pytest.approx(1, rel=1e-5 if each in samples else 0.02)
            ports = card.internal_ports or 0
            assert each.nw_gb_s <= ports * {"gaudi2": 12.5, "gaudi3": 25.0}[card.generation]


def test_what_is_missing_is_not_asked_to_take_part() -> None:
    seven = tuple(module for module in EIGHT if module != 5)
    tests = requested_tests(None, fabric("HL-338"))
    assert [run.modules for run in runs_for(fabric("HL-338"), seven, tests, host_nics=False)] == [
        (0, 1, 2, 3),
        (4, 6, 7),
    ]
    assert runs_for(fabric("HL-338"), (3, 4), tests, host_nics=False) == ()


def test_wishes_take_the_card_types_sizes_where_they_say_none() -> None:
    both = requested_tests(["all_gather", {"collective": "all_reduce", "size": "64m"}], fabric("HL-325L"))
    assert [(test.collective, test.size, test.loop) for test in both] == [
        ("all_gather", 16 * MIB, 1000),
        ("all_reduce", 64 * MIB, 1000),
    ]
    assert requested_tests([{"collective": "all2all"}], fabric("HL-225"))[0].size == 32 * MIB


@pytest.mark.parametrize(
    ("requested", "id_"),
    [
        ("send_recv", "unknown_choice"),
        ({"collective": "all_reduce", "size": "lots"}, "wrong_form"),
        ({"collective": "all_reduce", "size": "-1m"}, "wrong_form"),
        ({"collective": "all_reduce", "size": "5g"}, "size_too_large"),
        ({"collective": "all_reduce", "loop": 0}, "out_of_range"),
        ({"collective": "all_reduce", "loop": "many"}, "not_a_whole_number"),
        ({"collective": "all_reduce", "loops": 3}, "fabric_test_unknown_key"),
        (3, "unknown_choice"),
    ],
)
def test_what_hccl_demo_does_not_take_is_refused(requested: object, id_: str) -> None:
    with pytest.raises(Refusal) as refused:
        requested_tests([requested], fabric("HL-225"))
    assert refused.value.id == id_


def test_more_ranks_than_cards_and_too_little_data_are_refused() -> None:
    tests = requested_tests([{"collective": "all2all", "size": 16}], fabric("HL-225"))
    with pytest.raises(Refusal, match="needs 32 bytes at least, not 16"):
        runs_for(fabric("HL-225"), EIGHT, tests, host_nics=False)
    for ranks in (1, 9):
        with pytest.raises(Refusal, match="8 cards are joined"):
            runs_for(fabric("HL-225"), EIGHT, tests, host_nics=False, ranks=ranks)
    assert runs_for(fabric("HL-225"), EIGHT, tests, host_nics=False, ranks=4)[0].modules == (0, 1, 2, 3)


def test_the_command_line_is_that_of_the_manuals() -> None:
    made = command(USUAL, port=5555)
    line = " ".join(made["argv"])
    assert "run_hccl_demo.py --test all_reduce --nranks 8 --ranks_per_node 8 --node_id 0" in line
    assert "--size 32m --loop 10000" in line
    assert made["environment"] == {"HCCL_COMM_ID": "127.0.0.1:5555", "HABANA_VISIBLE_MODULES": "0,1,2,3,4,5,6,7"}


def test_two_nodes_share_the_ranks_and_gaudi_direct_is_asked_for_by_name() -> None:
    over = replace(USUAL, over_host_nics=True)
    made = command(over, port=5555, address="10.0.0.1", node=1, nodes=2, direct=True)
    line = " ".join(made["argv"])
    assert "--nranks 16 --ranks_per_node 8 --node_id 1" in line
    assert made["environment"] == {
        "HCCL_COMM_ID": "10.0.0.1:5555",
        "HABANA_VISIBLE_MODULES": "0,1,2,3,4,5,6,7",
        "HCCL_GAUDI_DIRECT": "1",
        **HOST_NICS_VARIABLES,
    }
    slower = command(over, port=5555)["environment"]
    assert slower["HCCL_OVER_OFI"] == slower["FI_EFA_USE_DEVICE_RDMA"] == "1"
    assert "HCCL_GAUDI_DIRECT" not in slower


def test_a_run_is_told_beforehand_how_long_it_takes() -> None:
    # 10000 x 32 MiB at 147.5 GB/s are 2.3 s beside the start.
    assert seconds(USUAL, fabric("HL-225")) == 62
    unpublished = DemoRun((0, 1, 2, 3), "all_reduce", 32 * MIB, 10000)
    assert seconds(unpublished, fabric("HL-338")) > seconds(USUAL, fabric("HL-225"))
    assert limit_seconds(USUAL, fabric("HL-225")) == 620


@given(st.integers(1, 4 << 30))
def test_a_size_survives_being_written_and_read(size: int) -> None:
    assert size_bytes(size_text(size), "size") == size
