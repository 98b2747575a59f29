"""Which cards and which cores: properties on drawn nodes, and the sentences of refusals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from ansible.module_utils.gaudi.base.cpulist import parse_ranges
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.cards.document import new_card, new_topology
from ansible.module_utils.gaudi.cards.placement import physical_ranges
from ansible.module_utils.gaudi.catalogue.entries import CardType
from ansible.module_utils.gaudi.planning.many import plan_all
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.golden.serving_cases import vendor


def node(layout: list[tuple[list[int], str]], busy: dict[int, dict[str, Any]] | None = None) -> dict[str, Any]:
    """A topology of nodes, each with its module ids and CPU list."""
    cards: list[dict[str, Any]] = []
    for number, (modules, cpus) in enumerate(layout):
        for module_id in modules:
            card = new_card(len(cards), module_id)
            user = (busy or {}).get(module_id)
            card.update(
                name="HL-225",
                serial=f"AN{module_id:08}",
                numa_node=number,
                cpus=cpus,
                users=[{"pid": 4242, "name": "python3", "unit": None, "container": None, "container_name": None} | user]
                if user is not None
                else [],
            )
            cards.append(card)
    topology: dict[str, Any] = new_topology(cards, addresses=[["lo", "127.0.0.1/8"], ["eth0", "10.20.0.11/24"]])
    return topology


def plan(topology: dict[str, Any], reservations: Any = None, **options: Any) -> dict[str, Any]:
    request = {"weights": "/models/QwQ-32B", **options}
    answers: list[dict[str, Any]] = plan_all(
        [request], vendor.catalogue("1.22"), topology, weights_root="/data/models", reservations=reservations
    )
    return answers[0]


def modules(answer: dict[str, Any]) -> list[int]:
    return [module["module_id"] for module in answer["modules"]]


def cores(answer: dict[str, Any]) -> list[int]:
    return numbers(answer["cpu_binding"][2])


def numbers(cpus: str) -> list[int]:
    return [cpu for first, last in parse_ranges(cpus) for cpu in range(first, last + 1)]


@st.composite
def layouts(draw: st.DrawFn) -> list[tuple[list[int], str]]:
    """Nodes with drawn module ids (gaps and interleaving included) and CPU lists of one to three ranges."""
    count = draw(st.integers(1, 4))
    ids = draw(st.lists(st.integers(0, 31), min_size=count, max_size=16, unique=True))
    shares = [ids[number::count] for number in range(count)]
    layout, cpu = [], 0
    for share in shares:
        parts = []
        for _ in range(draw(st.integers(1, 3))):
            width = draw(st.integers(1, 64))
            parts.append(f"{cpu}-{cpu + width - 1}")
            cpu += width + draw(st.integers(1, 5))
        layout.append((share, draw(st.sampled_from([",", ", "])).join(parts)))
    return layout


@settings(max_examples=120, deadline=None)
@given(layouts(), st.data())
def test_cards_and_cores_on_any_layout(layout: list[tuple[list[int], str]], data: st.DataObject) -> None:
    topology = node(layout)
    everything = sorted(module_id for share, _ in layout for module_id in share)
    count = data.draw(st.integers(1, len(everything)))
    answer = plan(topology, tensor_parallel_size=count)
    chosen = modules(answer)
    assert len(chosen) == len(set(chosen)) == count
    assert chosen == sorted(chosen)
    homes = {module_id: number for number, (share, _) in enumerate(layout) for module_id in share}
    largest = max(len(share) for share, _ in layout)
    if count <= largest:
        assert len({homes[module_id] for module_id in chosen}) == 1
        assert chosen == sorted(layout[homes[chosen[0]]][0])[:count]
    near = {cpu for module_id in chosen for cpu in numbers(layout[homes[module_id]][1])}
    assert set(cores(answer)) <= near
    for module_id in chosen:
        assert set(cores(answer)) & set(numbers(layout[homes[module_id]][1]))


@settings(max_examples=80, deadline=None)
@given(layouts())
def test_every_card_has_cores_of_its_own(layout: list[tuple[list[int], str]]) -> None:
    topology = node(layout)
    taken: dict[int, set[int]] = {}
    for share, cpus in layout:
        enough = all(last - first + 1 >= len(share) for first, last in physical_ranges(cpus))
        for module_id in share:
            answer = plan(topology, modules=[module_id])
            own = set(cores(answer))
            assert own
            if enough:
                assert not any(own & others for others in taken.values()), (module_id, taken)
            taken[module_id] = own


@settings(max_examples=100, deadline=None)
@given(st.permutations(range(8)), st.integers(1, 8))
def test_modules_given_by_hand_are_obeyed(order: list[int], count: int) -> None:
    wanted = order[:count]
    answer = plan(node([([0, 1, 2, 3], "0-39,80-119"), ([4, 5, 6, 7], "40-79,120-159")]), modules=wanted)
    assert modules(answer) == wanted
    name = "HLS_MODULE_ID" if count == 1 else "HABANA_VISIBLE_MODULES"
    assert answer["environment"][name] == ",".join(str(module_id) for module_id in wanted)
    assert len({"HLS_MODULE_ID", "HABANA_VISIBLE_MODULES"} & set(answer["environment"])) == 1


TWO = [([0, 1, 2, 3], "0-39,80-119"), ([4, 5, 6, 7], "40-79,120-159")]


def test_the_emptier_node_is_preferred() -> None:
    assert modules(plan(node(TWO), tensor_parallel_size=2)) == [0, 1]
    assert modules(plan(node(TWO, {0: {}}), tensor_parallel_size=2)) == [4, 5]
    assert modules(plan(node(TWO, {0: {}, 4: {}, 5: {}}), tensor_parallel_size=2)) == [1, 2]
    assert modules(plan(node(TWO, {0: {}, 1: {}, 4: {}}), tensor_parallel_size=4)) == [2, 5, 6, 7]


def test_a_refusal_says_who_has_what() -> None:
    busy = {**{card: {"unit": "vllm-qwen3-8b.service"} for card in range(5)}, 6: {}, 7: {}}
    sentence = plan(node(TWO, busy), instance="qwq-32b", tensor_parallel_size=2)["refused"]
    assert sentence.startswith("qwq-32b asks for 2 cards, but only module 5 is free")
    assert "0, 1, 2, 3, 4: used by vllm-qwen3-8b.service" in sentence
    assert "6, 7: used by pid 4242 python3" in sentence
    assert "tensor_parallel_size" in sentence


def reservation(**cards: list[tuple[int, str]]) -> dict[str, Any]:
    return {
        name.replace("_", "-"): {
            "cards": [{"module_id": module_id, "serial": serial} for module_id, serial in entries],
            "since": "2026-01-01T00:00:00Z",
        }
        for name, entries in cards.items()
    }


def test_reserved_cards_are_taken_for_others_and_kept_for_the_holder() -> None:
    held = reservation(other=[(0, "AN00000000"), (1, "AN00000001")], mine=[(6, "AN00000006"), (7, "AN00000007")])
    assert modules(plan(node(TWO), held, instance="new", tensor_parallel_size=2)) == [2, 3]
    assert modules(plan(node(TWO), held, instance="mine", tensor_parallel_size=2)) == [6, 7]
    sentence = plan(node(TWO), held, instance="new", modules=[1])["refused"]
    assert "module 1" in sentence
    assert "reserved by other" in sentence
    running = {6: {"unit": "vllm-mine.service"}, 7: {"container_name": "vllm-mine"}}
    assert modules(plan(node(TWO, running), held, instance="mine", tensor_parallel_size=2)) == [6, 7]


def test_an_instance_that_loses_its_cards_says_so() -> None:
    held = reservation(mine=[(6, "AN00000006"), (7, "AN00000007")])
    answer = plan(node(TWO, {6: {}}), held, instance="mine", tensor_parallel_size=2)
    assert modules(answer) == [0, 1]
    assert any("6: used by pid 4242" in sentence and "0,1" in sentence for sentence in answer["warnings"])
    assert not any("holds modules" in sentence for sentence in plan(node(TWO), held, instance="mine")["warnings"])


def test_an_exchanged_card_is_noticed() -> None:
    sentence = plan(node(TWO), reservation(mine=[(6, "AN99999999")]), instance="mine")["refused"]
    assert "AN99999999" in sentence
    assert "AN00000006" in sentence


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"modules": [0, 0], "tensor_parallel_size": 2}, ["modules", "module 0 twice"]),
        ({"modules": [0, 9], "tensor_parallel_size": 2}, ["module 9", "0, 1, 2, 3, 4, 5, 6, 7"]),
        ({"modules": [0, 1], "tensor_parallel_size": 4}, ["modules names 2", "tensor_parallel_size is 4"]),
        ({"modules": []}, ["modules", "empty"]),
        ({"extra_environment": {"HABANA_VISIBLE_DEVICES": "0"}}, ["HABANA_VISIBLE_DEVICES", "modules"]),
        ({"extra_environment": {"HABANA_VISIBLE_MODULES": "4,9"}}, ["HABANA_VISIBLE_MODULES", "module 9"]),
        ({"extra_environment": {"HABANA_VISIBLE_MODULES": "4"}, "tensor_parallel_size": 2}, ["2 cards", "module 4"]),
    ],
)
def test_wishes_that_contradict_themselves_are_refused(options: dict[str, Any], words: list[str]) -> None:
    sentence = plan(node(TWO), **options)["refused"]
    for word in words:
        assert word in sentence, sentence


def test_the_callers_variable_narrows_the_choice() -> None:
    answer = plan(node(TWO), tensor_parallel_size=2, extra_environment={"HABANA_VISIBLE_MODULES": "2,5,6"})
    assert modules(answer) == [5, 6]


def test_modules_given_by_hand_count_more_than_a_variable() -> None:
    answer = plan(node(TWO), modules=[0], extra_environment={"HABANA_VISIBLE_MODULES": "4,5"})
    assert answer["environment"]["HLS_MODULE_ID"] == "0"
    assert "HABANA_VISIBLE_MODULES" not in answer["environment"]
    assert any("4,5" in sentence and "modules" in sentence for sentence in answer["warnings"])


def test_cards_of_two_types_are_not_mixed() -> None:
    topology = node(TWO)
    topology["cards"][0]["name"] = "HL-325L"
    assert "HL-325L" in plan(topology, modules=[0, 1])["refused"]


def test_a_card_that_does_not_work_is_not_used() -> None:
    topology = node(TWO)
    topology["cards"][0]["state"] = "in reset"
    topology["cards"][4]["state"] = "operational"
    assert modules(plan(topology, tensor_parallel_size=1)) == [4]
    assert "in reset" in plan(topology, modules=[0])["refused"]


def test_nothing_known_of_the_cpus_is_a_warning() -> None:
    answer = plan(node([([0, 1], "")]), tensor_parallel_size=2)
    assert answer["cpu_binding"] == []
    assert any("CPU" in sentence for sentence in answer["warnings"])


def test_a_node_without_cards() -> None:
    assert "hl-smi" in plan(node([]))["refused"]


@pytest.mark.parametrize(
    ("cpus", "ranges"),
    [
        ("0-31", [(0, 31)]),
        ("0-39, 80-119", [(0, 39)]),
        ("0-27,56-83", [(0, 27)]),
        # SNC: two islands and their siblings.
        ("0-9,20-29,40-49,60-69", [(0, 9), (20, 29)]),
        # Three ranges are no cores and siblings: all count.
        ("0-9,20-29,40-59", [(0, 9), (20, 29), (40, 59)]),
    ],
)
def test_which_ranges_are_cores(cpus: str, ranges: list[tuple[int, int]]) -> None:
    assert physical_ranges(cpus) == ranges


def test_thirty_cores_for_four_cards_leave_two_idle() -> None:
    answer = plan(node([([0, 1, 2, 3], "0-29,60-89")]), tensor_parallel_size=4)
    assert answer["cpu_binding"] == ["numactl", "-C", "0-6,7-13,14-20,21-27", "-p", "0"]


def test_interleaved_module_ids_do_not_share_cores() -> None:
    topology = node([([0, 2, 4, 6], "0-31,64-95"), ([1, 3, 5, 7], "32-63,96-127")])
    assert plan(topology, modules=[0, 4])["cpu_binding"] == ["numactl", "-C", "0-7,16-23", "-p", "0"]


def several(topology: dict[str, Any], held: Any, *requests: dict[str, Any]) -> list[dict[str, Any]]:
    """Plans of one call; requests differ in their ports."""
    wishes = [{"weights": "/m/x", "port": 30001 + number, **request} for number, request in enumerate(requests)]
    answers: list[dict[str, Any]] = plan_all(
        wishes, vendor.catalogue("1.22"), topology, weights_root="/data/models", reservations=held
    )
    return answers


HELD = reservation(a=[(0, "AN00000000")], b=[(1, "AN00000001")])
RUNNING = {0: {"unit": "vllm-a.service"}, 1: {"container_name": "vllm-b"}}


def test_two_instances_may_swap_their_cards() -> None:
    a, b = several(node(TWO, RUNNING), HELD, {"instance": "a", "modules": [1]}, {"instance": "b", "modules": [0]})
    assert (modules(a), modules(b)) == ([1], [0])


def test_a_card_is_given_up_only_by_who_names_others() -> None:
    (a,) = several(node(TWO, RUNNING), HELD, {"instance": "a", "modules": [1]})
    assert "reserved by b" in a["refused"]
    a, b = several(node(TWO, RUNNING), HELD, {"instance": "a", "modules": [1]}, {"instance": "b"})
    assert "reserved by b" in a["refused"]
    assert modules(b) == [1]
    a, b = several(node(TWO, RUNNING), HELD, {"instance": "a", "modules": [1]}, {"instance": "b", "modules": [1]})
    assert "reserved by b" in a["refused"]
    assert modules(b) == [1]


def test_a_card_that_is_given_up_is_still_not_free_for_strangers_to_use() -> None:
    topology = node(TWO, {**RUNNING, 1: {}})
    a, _ = several(topology, HELD, {"instance": "a", "modules": [1]}, {"instance": "b", "modules": [0]})
    assert "used by pid 4242 python3" in a["refused"]


def test_an_instance_that_names_no_card_leaves_those_that_others_name() -> None:
    new, a, b = several(
        node(TWO, RUNNING),
        HELD,
        {"instance": "new"},
        {"instance": "a", "modules": [1]},
        {"instance": "b", "modules": [4]},
    )
    assert (modules(a), modules(b)) == ([1], [4])
    assert modules(new)[0] not in (1, 4)


def test_a_renamed_instance_is_told_to_remove_its_former_name() -> None:
    """Stopped, that keeps its cards; nobody else uses them."""
    (named,) = several(node(TWO), HELD, {"instance": "c", "modules": [0]})
    assert named["refused"].endswith(
        "Choose free cards or remove a, which keeps its cards while it is stopped "
        "(playbooks/remove.yml --limit NODE -e instance=a)."
    )
    small = node([([0, 1], "0-7")])
    (full,) = several(small, HELD, {"instance": "c"})
    assert full["refused"].endswith(
        "Free cards (playbooks/remove.yml --limit NODE -e instance=NAME frees those of a and b)."
    )
    (one,) = several(small, reservation(a=[(0, "AN00000000")]), {"instance": "c", "tensor_parallel_size": 2})
    assert "-e instance=a frees those of a)" in one["refused"]
    (used,) = several(node(TWO, {0: {}}), None, {"instance": "c", "modules": [0]})
    assert used["refused"].endswith("Choose free cards or stop that user.")


QUADS = [[0, 1, 2, 3], [4, 5, 6, 7]]
# Sockets that are not the quads: every one has cards of both.
CROSSED = [([0, 1, 4, 5], "0-39,80-119"), ([2, 3, 6, 7], "40-79,120-159")]


def quads(
    layout: list[tuple[list[int], str]], busy: dict[int, dict[str, Any]] | None = None, **options: Any
) -> dict[str, Any]:
    """The plan on a node of HL-338; ``verified``: its host NICs are, ``held``: what the instance x has already."""
    topology = node(layout, busy)
    for card in topology["cards"]:
        card["name"] = "HL-338"
    verified, held = options.pop("verified", False), options.pop("held", ())
    release = "1.24.1" if "data_parallel_size" in options else "1.22"
    (answer,) = plan_all(
        [{"weights": "/models/QwQ-32B", "instance": "x", **options}],
        vendor.catalogue(release),
        topology,
        weights_root="/data/models",
        host_nics=verified,
        reservations=reservation(x=[(module_id, f"AN{module_id:08}") for module_id in held]) if held else None,
    )
    return answer


@pytest.mark.parametrize(
    ("card", "given_modules", "said"),
    [
        ("HL-225", [3, 4], "Cards of one node: 0,1,2,3 or 4,5,6,7."),
        ("HL-225", [2, 3], ""),
        ("HL-225", [0, 1, 2, 3, 4, 5, 6, 7], ""),
        ("HL-225", "all", ""),
        ("HL-288E", [3, 4], "Cards of one node: 0,1,2,3 or 4,5,6,7."),
    ],
)
def test_given_modules_over_two_sockets_are_warned_of(card: str, given_modules: Any, said: str) -> None:
    topology = node(TWO)
    for each in topology["cards"]:
        each["name"] = card
    answer = plan(topology, modules=given_modules, tensor_parallel_size=None)
    assert [word for word in answer["warnings"] if "NUMA" in word and "modules names" in word and said in word] == (
        [next(word for word in answer["warnings"] if "modules names" in word)] if said else []
    )
    assert said or not any("modules names" in word for word in answer["warnings"])


def test_the_links_of_given_modules_count_before_their_socket() -> None:
    """On these sockets no four cards are of one group: there is nothing better to name."""
    topology = node(CROSSED)
    for each in topology["cards"]:
        each["name"] = "HL-288E"
    joined = plan(topology, modules=[0, 1, 2, 3], tensor_parallel_size=None)
    assert not any("modules names" in word for word in joined["warnings"])
    pair = plan(topology, modules=[0, 2], tensor_parallel_size=None)
    (said,) = [word for word in pair["warnings"] if "modules names" in word]
    assert "Cards of one node: 0,1 or 4,5 or 2,3 or 6,7." in said


def test_an_instance_has_cards_of_one_quad() -> None:
    assert vendor.content("", "cards")["cards"]["HL-338"]["fabric"]["groups"] == QUADS
    assert modules(quads(TWO, tensor_parallel_size=4)) == [0, 1, 2, 3]
    assert modules(quads(TWO, {0: {}}, tensor_parallel_size=4)) == [4, 5, 6, 7]
    # The quad counts before the socket, and in the quad the socket.
    assert modules(quads(CROSSED, tensor_parallel_size=4)) == [0, 1, 2, 3]
    assert modules(quads(CROSSED, {0: {}, 4: {}, 5: {}}, tensor_parallel_size=2)) == [2, 3]
    assert modules(quads(TWO, modules=[7, 4])) == [7, 4]


@settings(max_examples=60, deadline=None)
@given(st.sets(st.integers(0, 7), max_size=7), st.integers(1, 8), st.sampled_from([TWO, CROSSED]))
def test_no_choice_ever_spans_the_quads(busy: set[int], count: int, layout: list[tuple[list[int], str]]) -> None:
    free = [module_id for module_id in range(8) if module_id not in busy]
    answer = quads(layout, {module_id: {} for module_id in busy}, tensor_parallel_size=count)
    most = max(sum(module_id // 4 == quad for module_id in free) for quad in (0, 1))
    if count <= most:
        assert len({module_id // 4 for module_id in modules(answer)}) == 1
    else:
        assert answer["refused_id"] == ("cards_not_joined" if count <= len(free) else "too_few_free_cards")


def test_cards_of_both_quads_are_refused_without_host_nics() -> None:
    answer = quads(TWO, tensor_parallel_size=8)
    assert answer["refused_id"] == "cards_not_joined"
    words = "x asks for 8 cards, and modules 0, 1, 2, 3, 4, 5, 6, 7 are free, but these cards have links in groups only"
    assert answer["refused"].startswith(words)
    assert "(modules 0, 1, 2, 3 and modules 4, 5, 6, 7)" in answer["refused"]
    assert "fabric_check_host_nics: true" in answer["refused"]
    assert quads(TWO, modules=[3, 4])["refused"].startswith("x: modules names 3, 4, but these cards")
    assert quads(TWO, {0: {}, 7: {}}, tensor_parallel_size=4)["refused_id"] == "cards_not_joined"


def test_host_nics_join_the_quads() -> None:
    answer = quads(TWO, tensor_parallel_size=8, verified=True)
    assert modules(answer) == list(range(8))
    assert answer["requires"]["host_nics"] is True
    assert modules(quads(TWO, {0: {}, 7: {}}, tensor_parallel_size=4, verified=True)) == [1, 2, 3, 4]
    assert modules(quads(CROSSED, tensor_parallel_size=4, verified=True)) == [0, 1, 2, 3]


def test_a_reservation_across_the_quads_is_not_kept() -> None:
    assert modules(quads(TWO, tensor_parallel_size=2, held=(3, 4))) == [0, 1]
    assert modules(quads(TWO, tensor_parallel_size=2, held=(3, 4), verified=True)) == [3, 4]


def copies(layout: list[tuple[list[int], str]] = TWO, busy: Sequence[int] = (), **options: Any) -> dict[str, Any]:
    """Two copies of four cards, unless something else is said."""
    wish = {"tensor_parallel_size": 4, "data_parallel_size": 2, "model_config": {"model_type": "qwen2"}, **options}
    return quads(layout, {module_id: {} for module_id in busy}, **wish)


def test_each_copy_of_a_model_has_cards_of_one_quad() -> None:
    answer = copies()
    assert modules(answer) == list(range(8))
    assert answer["environment"]["HABANA_VISIBLE_MODULES"] == "0,1,2,3,4,5,6,7"
    assert answer["requires"]["host_nics"] is False
    # vLLM gives copies their cards in the order of the list: sockets that are not the quads do not mix them.
    assert modules(copies(CROSSED)) == list(range(8))
    assert modules(copies(CROSSED, [0, 4], tensor_parallel_size=3)) == [1, 2, 3, 5, 6, 7]
    # The fuller quad takes as many copies as it can.
    assert modules(copies(busy=[0, 1], tensor_parallel_size=2, data_parallel_size=3)) == [4, 5, 6, 7, 2, 3]
    # One quad with room for all copies goes before two.
    assert modules(copies(busy=[0], tensor_parallel_size=2)) == [4, 5, 6, 7]
    assert modules(copies(tensor_parallel_size=1, data_parallel_size=5)) == [0, 1, 2, 3, 4]
    assert modules(copies(held=range(8))) == list(range(8))
    assert modules(copies(busy=[0, 4, 5], tensor_parallel_size=2, held=(1, 2, 6, 7))) == [1, 2, 6, 7]


def test_copies_of_a_model_with_experts_talk_to_each_other() -> None:
    experts: dict[str, Any] = {"model_config": {"model_type": "qwen3_moe", "num_experts": 128}}
    assert copies(**experts)["refused_id"] == "cards_not_joined"
    assert copies(modules=[0, 1, 2, 3, 4, 5, 6, 7], **experts)["refused_id"] == "cards_not_joined"
    assert modules(copies(tensor_parallel_size=2, busy=[0], **experts)) == [4, 5, 6, 7]
    over = copies(verified=True, **experts)
    assert modules(over) == list(range(8))
    assert over["requires"]["host_nics"] is True


def test_copies_that_no_quad_holds_are_refused_without_host_nics() -> None:
    answer = copies(busy=[0, 1, 2, 7], tensor_parallel_size=2)
    assert answer["refused_id"] == "cards_not_joined"
    assert "Set tensor_parallel_size to 1, or have host NICs configured and measured" in answer["refused"]
    assert modules(copies(busy=[0, 1, 2, 7], tensor_parallel_size=2, verified=True)) == [3, 4, 5, 6]
    assert copies(tensor_parallel_size=8, data_parallel_size=1)["refused_id"] == "cards_not_joined"
    assert copies(modules=[0, 1, 2, 4, 3, 5, 6, 7])["refused_id"] == "cards_not_joined"
    assert modules(copies(modules=[7, 6, 5, 4, 3, 2, 1, 0])) == [7, 6, 5, 4, 3, 2, 1, 0]


def test_a_card_in_two_groups_is_refused() -> None:
    cards = vendor.content("", "cards")["cards"]["HL-338"]
    with pytest.raises(Refusal, match="each module id must be in one group") as refused:
        CardType.table({"cards": {"HL-338": {**cards, "fabric": {**cards["fabric"], "groups": [[0, 3], [3, 4]]}}}})
    assert refused.value.id == "module_in_two_groups"
