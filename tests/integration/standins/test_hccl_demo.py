"""hccl_demo's stand-in prints the real lines, with the bandwidth and the faults of the described node."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.gaudi.fabric.output import parse_output

from simulator.settings import SIMULATOR
from simulator.standins import description
from tests.unit.ports import free_port

PROGRAM = SIMULATOR / "repositories" / "hccl_demo" / "run_hccl_demo.py"
BANDWIDTH = re.compile(r"^\[BENCHMARK\]     (NW|Algo) Bandwidth\s*: ([0-9]+\.[0-9]{6}) GB/s$", re.MULTILINE)


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    """Run the program over a node and the cards of these modules, which it is to see."""

    def run(
        node: dict[str, Any], modules: list[int], *options: str, comm: str = "127.0.0.1:5555", seconds: float = 300
    ) -> subprocess.CompletedProcess[str]:
        started = begin(node, modules, *options, comm=comm)
        try:
            out, err = started.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            started.kill()
            started.communicate()
            raise
        return subprocess.CompletedProcess(started.args, started.returncode, out, err)

    begin = begins(tmp_path)
    yield run


def begins(tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """What starts the program over a node and the cards of these modules, which it is to see."""

    def begin(
        node: dict[str, Any], modules: list[int], *options: str, comm: str = "127.0.0.1:5555"
    ) -> subprocess.Popen[str]:
        place = tmp_path / "dev"
        place.mkdir(exist_ok=True)
        for card in node["cards"]:
            if card["module_id"] in modules:
                (place / f"accel{card['index']}").touch()
        document = tmp_path / "node.json"
        document.write_text(description.render(node), encoding="utf-8")
        count = str(len(modules))
        code = (
            "import importlib.util, pathlib, sys\n"
            f"spec = importlib.util.spec_from_file_location('run_hccl_demo', {str(PROGRAM)!r})\n"
            "demo = importlib.util.module_from_spec(spec)\nsys.modules['run_hccl_demo'] = demo\n"
            "spec.loader.exec_module(demo)\n"
            f"demo.NODE_DOCUMENT = pathlib.Path({str(document)!r})\n"
            f"demo.acquire.__defaults__ = (pathlib.Path({str(place)!r}),)\ndemo.main()\n"
        )
        return subprocess.Popen(
            [sys.executable, "-c", code, "--nranks", count, "--ranks_per_node", count, "--node_id", "0", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "HCCL_COMM_ID": comm},
        )

    return begin


def bandwidths(output: str) -> dict[str, float]:
    return {name: float(value) for name, value in BANDWIDTH.findall(output)}


ALL = list(range(8))
ALL_REDUCE = ("--test", "all_reduce", "--size", "32m", "--loop", "1000")


def test_all_cards_reach_what_is_published_for_them(demo: Any, node: dict[str, Any], recorded: Any) -> None:
    done = demo(node, ALL, *ALL_REDUCE)
    assert done.returncode == 0
    assert bandwidths(done.stdout) == {"NW": 258.209121, "Algo": 147.548069}
    # The lines of the newest release that was looked at, to the byte.
    assert recorded("hccl_demo_allreduce_bw__main_2025-10__reconstructed.txt") in done.stdout
    assert done.stdout.count("which is fine.") == 8


def test_latency_is_printed_where_it_is_asked_for(demo: Any, node: dict[str, Any]) -> None:
    done = demo(node, ALL, *ALL_REDUCE, "--measure", "latency")
    assert re.search(r"^\[BENCHMARK\]     Host Latency   : 0\.22[0-9]{4} ms$", done.stdout, re.MULTILINE)
    assert bandwidths(done.stdout) == {}


def test_a_card_uses_its_links_to_the_cards_that_take_part(demo: Any, node: dict[str, Any]) -> None:
    assert bandwidths(demo(node, [2, 3, 6, 7], *ALL_REDUCE).stdout)["NW"] == pytest.approx(258.209121 * 3 / 7)


@pytest.mark.parametrize(
    ("fabric", "modules", "share"),
    [
        ({"slow": [{"module": 5, "share": 0.5}]}, ALL, 0.5),
        ({"slow": [{"module": 5, "share": 0.5}]}, [0, 1, 2, 3, 4, 6, 7], 6 / 7),
        ({"slow_links": [{"modules": [1, 6], "share": 0.2}]}, ALL, 0.2),
        ({"slow_links": [{"modules": [1, 6], "share": 0.2}]}, [0, 1, 2, 3, 4, 5, 7], 6 / 7),
    ],
)
def test_what_is_slow_holds_up_the_runs_it_is_in(
    demo: Any, described: Any, fabric: dict[str, Any], modules: list[int], share: float
) -> None:
    done = demo(described(fabric=fabric), modules, *ALL_REDUCE)
    assert bandwidths(done.stdout)["NW"] == pytest.approx(258.209121 * share, abs=1e-5)


def test_a_link_that_is_down_costs_its_share(demo: Any, described: Any) -> None:
    node = described(links_down=[{"module": 5, "ports": [9]}])
    assert bandwidths(demo(node, ALL, *ALL_REDUCE).stdout)["NW"] == pytest.approx(258.209121 * 20 / 21, abs=1e-5)


@pytest.mark.parametrize(
    ("fabric", "said"),
    [
        ({"crash": [3]}, "HCCL demo error: In function collectiveTestDriver(): synStreamSynchronize"),
        ({"wrong": [3]}, "HCCL demo error: Collective operation has failed on correctness."),
    ],
)
def test_a_failure_is_worded_as_hccl_demo_does(demo: Any, described: Any, fabric: dict[str, Any], said: str) -> None:
    done = demo(described(fabric=fabric), ALL, *ALL_REDUCE)
    assert done.returncode == 1
    assert said in done.stdout
    assert done.stdout.endswith("\nExiting HCCL demo with code: 1\n")


def test_garbage_is_no_bandwidth_and_ends_well(demo: Any, described: Any) -> None:
    done = demo(described(fabric={"garbage": True}), ALL, *ALL_REDUCE)
    assert done.returncode == 0
    assert "[BENCHMARK]" in done.stdout
    assert bandwidths(done.stdout) == {}


def test_a_rank_that_hangs_prints_no_result_and_does_not_end(demo: Any, described: Any) -> None:
    with pytest.raises(subprocess.TimeoutExpired) as hung:
        demo(described(fabric={"hang": [3]}), ALL, *ALL_REDUCE, seconds=3)
    assert b"BENCHMARK" not in (hung.value.stdout or b"")


def test_two_groups_of_four_are_joined_by_host_nics_or_on_hl_288e_by_the_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = importlib.util.spec_from_file_location("run_hccl_demo", PROGRAM)
    assert program is not None
    assert program.loader is not None
    demo = importlib.util.module_from_spec(program)
    sys.modules["run_hccl_demo"] = demo
    program.loader.exec_module(demo)
    quads = description.load("gaudi3-pcie8")
    with pytest.raises(demo.Failed, match="hcclCommInitRank"):
        demo.Run(quads, quads["cards"], "all_reduce", 1 << 25, 1000, "bw").network()
    node = description.load("gaudi2e-pcie8")
    cards = node["cards"]
    assert demo.Run(node, cards, "all_reduce", 1 << 25, 1000, "bw").network() == 18.0
    for name in ("HCCL_OVER_OFI", "HCCL_GAUDI_DIRECT"):
        # Who asks for host NICs by name does not get the host instead.
        with monkeypatch.context() as asks, pytest.raises(demo.Failed, match="hcclCommInitRank"):
            asks.setenv(name, "1")
            demo.Run(node, cards, "all_reduce", 1 << 25, 1000, "bw").network()
    node["fabric"]["host_nics"] = {"provider": "verbs", "bandwidth": 40.0, "gaudi_direct": True}
    assert demo.Run(node, cards, "all_reduce", 1 << 25, 1000, "bw").network() == 40.0
    four = [card for card in cards if card["module_id"] < 4]
    assert demo.Run(node, four, "all_reduce", 1 << 25, 1000, "bw").network() == 213.75


@pytest.mark.parametrize(("direct", "asked", "ends"), [(False, "1", 1), (False, "", 0), (True, "1", 0)])
def test_gaudi_direct_that_is_not_there_fails_who_asks_for_it_by_name(
    direct: bool, asked: str, ends: int, demo: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = yaml.safe_load((description.DESCRIPTIONS / "gaudi2e-pcie8.yml").read_text(encoding="utf-8"))
    said = {**base, "fabric": {"host_nics": {"bandwidth": 40.0, "gaudi_direct": direct}}}
    node = description.expand(said, "test")
    monkeypatch.setenv("HCCL_GAUDI_DIRECT", asked)
    done = demo(node, ALL, *ALL_REDUCE)
    assert done.returncode == ends
    assert ("Gaudi-direct not supported due to missing symbols in kernel version" in done.stdout) is bool(ends)
    failure = parse_output(done.stdout, ranks=8, status=done.returncode).failure
    assert (failure.id if failure else None) == ("hccl-gaudi-direct" if ends else None)
    assert bandwidths(done.stdout).get("NW") == (None if ends else 40.0)
    assert demo(node, [0, 1, 2, 3], *ALL_REDUCE).returncode == 0, "cards of one group use no host NICs"


def test_a_card_that_somebody_holds_is_not_given(demo: Any, node: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    with (tmp_path / "dev" / "accel0").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = demo(node, ALL, *ALL_REDUCE)
    assert done.returncode == 1
    assert "failed with synapse error: 20" in done.stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--test", "all_of_it"), "Chosen test: all_of_it is not part of the tests list"),
        (("--test", "all_reduce", "--loop", "0"), "Argument loop was set to: 0, it must be positive"),
        (("--test", "all2all", "--size", "16"), "Requested size: 16B was less than supported minimum size: 32B"),
    ],
)
def test_what_hccl_demo_does_not_take_is_refused(demo: Any, node: dict[str, Any], options: Any, said: str) -> None:
    done = demo(node, ALL, *options)
    assert done.returncode == 1
    assert said in done.stdout


def test_without_an_address_to_meet_at_nothing_runs(demo: Any, node: dict[str, Any]) -> None:
    assert demo(node, ALL, *ALL_REDUCE, comm="nowhere").returncode == 1


def over_two(tmp_path: Path, one: dict[str, Any], other: dict[str, Any], seconds: float = 300) -> list[tuple[int, str]]:
    """Status and output of both halves of a run over two nodes."""
    comm = f"127.0.0.1:{free_port()}"
    options = (*ALL_REDUCE, "--nranks", "16")
    halves = []
    for place, node in enumerate((one, other)):
        folder = tmp_path / str(place)
        folder.mkdir()
        halves.append(begins(folder)(node, ALL, *options, "--node_id", str(place), comm=comm))
    try:
        return [(half.wait(seconds), half.communicate()[0]) for half in halves]
    finally:
        for half in halves:
            half.kill()
            half.communicate()


def test_two_nodes_meet_and_the_first_one_prints(tmp_path: Path, node: dict[str, Any]) -> None:
    (status, said), (other_status, other_said) = over_two(tmp_path, node, node)
    assert (status, other_status) == (0, 0)
    # NW over Algo Bandwidth is 2 x 15 / 16 for all 16 ranks.
    assert bandwidths(said) == {"NW": 129.10456, "Algo": 68.855766}
    assert bandwidths(other_said) == {}
    assert said.count("which is fine.") == other_said.count("which is fine.") == 8


def test_the_slower_node_and_a_bad_way_hold_both_up(tmp_path: Path, node: dict[str, Any]) -> None:
    slow = {**node, "fabric": {**node["fabric"], "slow": {"3": 0.5}}}
    (tmp_path / "slow").mkdir()
    assert bandwidths(over_two(tmp_path / "slow", node, slow)[0][1])["NW"] == 64.55228
    way = {**node, "fabric": {**node["fabric"], "ways": [{"node": socket.gethostname(), "share": 0.25}]}}
    (tmp_path / "way").mkdir()
    assert bandwidths(over_two(tmp_path / "way", way, node)[0][1])["NW"] == 32.27614


def test_a_node_that_crashes_takes_the_other_one_with_it(tmp_path: Path, node: dict[str, Any]) -> None:
    broken = {**node, "fabric": {**node["fabric"], "crash": [3]}}
    (status, said), (other_status, other_said) = over_two(tmp_path, node, broken)
    assert (status, other_status) == (1, 1)
    assert "hcclInternalError" in said
    assert "(rank 3)" in other_said


def test_gaudi_direct_that_one_node_does_not_have_ends_both(
    tmp_path: Path, node: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HCCL_GAUDI_DIRECT", "1")
    without = {**node, "fabric": {**node["fabric"], "host_nics": {"bandwidth": 40.0, "gaudi_direct": False}}}
    (status, said), (other_status, other_said) = over_two(tmp_path, node, without)
    assert (status, other_status) == (1, 1)
    assert "hcclInternalError" in said
    assert "Gaudi-direct not supported" in other_said
    assert "Gaudi-direct" not in said


def test_a_node_that_hangs_holds_the_other_one(tmp_path: Path, node: dict[str, Any]) -> None:
    hung = {**node, "fabric": {**node["fabric"], "hang": [3]}}
    with pytest.raises(subprocess.TimeoutExpired):
        over_two(tmp_path, node, hung, seconds=3)
