"""The picture of a node."""

from __future__ import annotations

from ansible.module_utils.gaudi.cards.document import build_topology
from ansible.module_utils.gaudi.cards.given import topology_from_case
from ansible.module_utils.gaudi.cards.text import WIDTH, describe_node

from tests.unit.cards.nodes import answers, holder, ok, recorded, sources
from tests.unit.cards.test_given import CASE

PICTURE = """\
8 x HL-225 (96 GiB), driver 1.22.1-97ec1a4, hl-smi 1.22.1, eth0 10.20.0.11/24

+- NUMA node 0, CPUs 0-39, 80-119 ---------------------------------------------------------+
| module  accel  address       serial      used GiB  temp  links  who has it               |
|      0      3  0000:4d:00.0  AM50016133       0.8  27 C  21/21  for qwq-32b              |
|      1      2  0000:34:00.0  AM50016132       0.8  27 C  21/21  for qwq-32b              |
|      2      7  0000:b4:00.0  AM50016137       0.8  27 C  21/21  free                     |
|      3      0  0000:33:00.0  AM50016130       0.8  27 C  21/21  for                      |
|                                                                 qwq-32b-long-context;    |
|                                                                 ray.service, pid 4242    |
+------------------------------------------------------------------------------------------+

+- NUMA node 1, CPUs 40-79, 120-159 -------------------------------------------------------+
| module  accel  address       serial      used GiB  temp  links  who has it               |
|      4      5  0000:9b:00.0  AM50016135       0.8  27 C  21/21  vllm-qwen3-8b, 2         |
|                                                                 processes                |
|      5      4  0000:4e:00.0  AM50016134       0.8  27 C  20/21  free                     |
|      6      6  0000:b3:00.0  AM50016136       0.8  27 C  21/21  free                     |
|      7      1  0000:9a:00.0  AM50016131       0.8  27 C  21/21  free                     |
+------------------------------------------------------------------------------------------+

warning: Module 5 (accel4, 0000:4e:00.0) has 20 of 21 internal links up; down: port 9. A
  model on more than one card needs all of them. Nothing over several cards is measured or
  started with it. Look at dmesg | grep habanalabs; if it stays, have the card and its
  neighbours on the board checked."""

GIVEN = """\
3 x HL-225, eth0 10.20.0.11/24

+- NUMA node 0, CPUs 0-39, 80-119 ---------------------------------------------------------+
| module  accel  who has it                                                                |
|      0      2  free                                                                      |
|      1      1  in use                                                                    |
+------------------------------------------------------------------------------------------+

+- NUMA node 1, CPUs 40-79, 120-159 -------------------------------------------------------+
| module  accel  who has it                                                                |
|      5      0  free                                                                      |
+------------------------------------------------------------------------------------------+"""


def test_a_node() -> None:
    docker = f"0::/docker/{'ab' * 32}"
    down = answers(**{"-n link -i 0000:4e:00.0": ok(recorded("reconstructed/hl-smi_-n_link_one_down.txt"))})
    topology = build_topology(
        sources(
            down,
            holders=[
                holder(0, cgroup="0::/system.slice/ray.service"),
                holder(5, 10, cgroup=docker),
                holder(5, 11, cgroup=docker),
            ],
            container_names={"abababababab": "vllm-qwen3-8b"},
        )
    )
    assert describe_node(topology, {0: "qwq-32b", 1: "qwq-32b", 3: "qwq-32b-long-context", 4: "qwen3-8b"}) == PICTURE


def test_a_given_topology_shows_only_what_is_known() -> None:
    assert describe_node(topology_from_case(CASE)) == GIVEN


def test_a_node_without_cards() -> None:
    text = describe_node(build_topology(sources({}, pci=(), accel=(), lspci=None)))
    assert text.startswith("no card, eth0 10.20.0.11/24\n\nerror: This node has no Gaudi card")


def test_long_cpu_lists_stay_inside_the_box() -> None:
    interleaved = {
        **CASE,
        "hl_smi_topo": CASE["hl_smi_topo"].replace("0-39, 80-119", ", ".join(map(str, range(0, 160, 2)))),
    }
    lines = describe_node(topology_from_case(interleaved)).split("\n")
    assert {len(line) for line in lines if line.startswith(("|", "+"))} == {WIDTH}


def test_a_card_that_cannot_serve_says_so() -> None:
    topology = build_topology(sources())
    topology["cards"][2]["state"] = "in reset"
    topology["cards"][2]["temperature_c"] = None
    (line,) = [line for line in describe_node(topology).split("\n") if "b4:00.0" in line]
    assert line.startswith("|      2      7  0000:b4:00.0  AM50016137       0.8     ?  21/21  in reset ")
