"""The static checks: each fault is caused, and nothing else is said; gaudinet.json against the cards."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.gaudi.cards.document import new_card, new_topology
from ansible.module_utils.gaudi.cards.findings import finding
from ansible.module_utils.gaudi.cards.hl_smi import parse_links
from ansible.module_utils.gaudi.cards.users import label
from ansible.module_utils.gaudi.fabric import static
from ansible.module_utils.gaudi.fabric.gaudinet import check_gaudinet
from ansible.module_utils.gaudi.fabric.static import ExpectedFabric, Interface, Port, StaticFault, check
from ansible.module_utils.gaudi.faults.known import FAULTS
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.fabric.made import EIGHT, TYPES, fabric

RECORDED = Path(__file__).parents[1] / "cards" / "recorded"


def topology(name: str = "HL-325L", modules: tuple[int, ...] = EIGHT, **facts: Any) -> dict[str, Any]:
    cards = [
        {**new_card(place, module), "name": name, "bus_id": f"0000:{module:02x}:00.0"}
        for place, module in enumerate(modules)
    ]
    kind = TYPES[name]
    for card in cards:
        card.update(links_up=kind.internal_ports, links_total=kind.internal_ports)
    return new_topology(cards, **facts)


def ports(name: str = "HL-325L", modules: tuple[int, ...] = EIGHT) -> list[Port]:
    """Every port of every card, up, as hl-smi -n ports tells them apart."""
    table = fabric(name).external_ports
    return [Port(module, number, number in table.get(module, ()), True) for module in modules for number in range(24)]


def interfaces(name: str = "HL-325L") -> list[Interface]:
    return [
        Interface(module, f"ens{module}np{number}", f"b0:fd:0b:00:{module:02x}:{number:02x}", True, 9000, 200000)
        for module, numbers in sorted(fabric(name).external_ports.items())
        for number in numbers
    ]


def changed(items: list[Any], where: Callable[[Any], bool], **values: object) -> list[Any]:
    return [type(item)(**{**vars(item), **values}) if where(item) else item for item in items]


ALL = ExpectedFabric(cards=8, external=True, mtu=9000, speed=200000)


def test_a_whole_node_has_no_fault() -> None:
    assert check(topology(), TYPES, ports(), interfaces(), ALL) == ()
    assert check(topology("HL-288E"), TYPES, [], [], ExpectedFabric(cards=8, external=True)) == ()


def test_seven_of_eight_are_said() -> None:
    seven = tuple(module for module in EIGHT if module != 5)
    faults = check(topology(modules=seven), TYPES, [], [], ExpectedFabric(cards=8))
    assert [fault.id for fault in faults] == ["card-count"]
    assert "7 cards are seen (modules: 0-4, 6, 7), but gaudi_expected_cards says 8." in faults[0].sentence


def test_a_link_that_is_down_is_found_and_its_card_named() -> None:
    down = changed(ports(), lambda port: (port.module, port.number) == (3, 9), up=False)
    faults = check(topology(), TYPES, down, interfaces(), ALL)
    assert [(fault.id, fault.modules, fault.fatal) for fault in faults] == [("internal-port-down", (3,), True)]
    assert "Module 3 (accel3, 0000:03:00.0) has internal ports down: 9." in faults[0].sentence


def test_a_port_that_hl_smi_does_not_show_is_missing() -> None:
    less = [port for port in ports() if (port.module, port.number) != (3, 9)]
    assert [fault.id for fault in check(topology(), TYPES, less, interfaces(), ALL)] == ["internal-port-missing"]
    counted = topology()
    counted["cards"][2]["links_total"] = 20
    assert [(fault.id, fault.modules) for fault in check(counted, TYPES, [], [], ExpectedFabric())] == [
        ("internal-port-missing", (2,))
    ]


def test_what_hl_smi_calls_external_is_believed_over_the_catalogue() -> None:
    """The externals of an HL-325L depend on the module id; a board that has others is no fault."""
    other = changed(ports(), lambda port: port.module == 0, external=False)
    other = changed(other, lambda port: port.module == 0 and port.number in (8, 22, 23), external=True, up=False)
    assert check(topology(), TYPES, other, interfaces(), ExpectedFabric(cards=8)) == ()
    untold = changed(ports(), lambda port: True, external=None)
    untold = changed(untold, lambda port: port.module == 0 and port.number in (17, 20, 21), up=False)
    assert check(topology(), TYPES, untold, interfaces(), ExpectedFabric(cards=8)) == ()


def test_recorded_links_are_whole_and_one_down_is_found() -> None:
    def read(path: str) -> list[Port]:
        links = parse_links((RECORDED / path).read_text(encoding="utf-8"))
        return [Port(0, number, False, up) for number, up in links.items()]

    assert check(topology("HL-288E", (0,)), TYPES, read("1.23.0/hl-smi_-n_link.txt"), [], ExpectedFabric()) == ()
    faults = check(
        topology("HL-225", (0,)), TYPES, read("reconstructed/hl-smi_-n_link_one_down.txt"), [], ExpectedFabric()
    )
    assert [fault.id for fault in faults] == ["internal-port-down"]


def test_what_the_topology_found_ends_acceptance_where_cards_or_links_are_not_whole() -> None:
    document = topology()
    card = document["cards"][4]
    facts = {"card": label(card), "Card": label(card).capitalize(), "bus_id": card["bus_id"], "state": "'lost'"}
    found = [finding("not-operational", **facts), finding("rows-pending", **facts), finding("numa-unknown", **facts)]
    document["findings"] = [*found, finding("not-available", values="the serial number", **facts)]
    faults = check(document, TYPES, ports(), [], ExpectedFabric())
    assert [(fault.id, fault.modules, fault.fatal) for fault in faults] == [
        ("not-operational", (4,), True),
        ("rows-pending", (4,), True),
        ("not-available", (4,), False),
    ]


def test_a_link_that_only_the_topology_saw_counts() -> None:
    document = topology()
    card = document["cards"][1]
    down = finding("link-down", card=label(card), Card=label(card).capitalize(), up=20, total=21, ports="port 9")
    document["findings"] = [down]
    assert [(fault.id, fault.modules) for fault in check(document, TYPES, [], [], ExpectedFabric())] == [
        ("link-down", (1,))
    ]
    assert check(document, TYPES, ports(), [], ExpectedFabric()) == ()


def test_every_finding_of_the_topology_that_is_named_here_exists() -> None:
    found = [fault for fault in FAULTS if fault.seen_by == "module_utils/gaudi/cards/findings.py"]
    assert {fault.id for fault in found} >= static._ENDING | static._TOLD
    assert {fault.id for fault in found if fault.severity == "error"} <= static._ENDING


def test_cards_of_two_types_are_not_measured_together() -> None:
    document = topology()
    document["cards"][0]["name"] = "HL-225"
    assert [fault.id for fault in check(document, TYPES, [], [], ExpectedFabric())] == ["cards-differ"]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"up": False}, "is down"),
        ({"mtu": 1500}, "has an MTU of 1500 where 9000 is wanted"),
        ({"speed": 100000}, "runs at 100000 Mb/s where 200000 is wanted"),
        ({"speed": None}, "runs at no known Mb/s"),
    ],
)
def test_an_interface_that_is_not_as_wanted_is_named(values: dict[str, Any], words: str) -> None:
    wrong = changed(interfaces(), lambda each: each.name == "ens2np8", **values)
    faults = check(topology(), TYPES, ports(), wrong, ALL)
    assert [(fault.id, fault.modules) for fault in faults] == [("interface-wrong", (2,))]
    assert words in faults[0].sentence
    assert check(topology(), TYPES, ports(), wrong, ExpectedFabric(cards=8)) == ()


def test_external_ports_count_where_the_site_uses_them() -> None:
    down = changed(ports(), lambda port: (port.module, port.number) == (1, 5), up=False)
    assert [fault.id for fault in check(topology(), TYPES, down, interfaces(), ALL)] == ["external-port-down"]
    assert check(topology(), TYPES, down, interfaces(), ExpectedFabric(cards=8)) == ()
    none = check(topology(), TYPES, ports(), [], ALL)
    assert [fault.id for fault in none] == ["interface-missing"] * 8


def gaudinet(**changes: object) -> str:
    entries = [
        {"NIC_MAC": each.mac.upper(), "NIC_IP": f"10.0.{each.module}.{place}", "SUBNET_MASK": "255.255.255.0"}
        for place, each in enumerate(interfaces())
    ]
    entries[0].update({key: str(value) for key, value in changes.items()})
    return json.dumps({"NIC_NET_CONFIG": entries})


def test_gaudinet_of_these_cards_is_right_and_none_is_no_fault() -> None:
    assert check_gaudinet(gaudinet(), interfaces(), "/etc/gaudinet.json") == ()
    assert check_gaudinet(None, interfaces(), "/etc/gaudinet.json") == ()


def test_a_gaudinet_without_interfaces_to_compare_it_with_ends_nothing() -> None:
    (fault,) = check_gaudinet(gaudinet(), [], "/etc/gaudinet.json")
    assert (fault.id, fault.fatal) == ("gaudinet-not-compared", False)


@pytest.mark.parametrize(
    ("text", "ids", "words"),
    [
        (gaudinet(NIC_MAC="b0:fd:0b:ff:ff:ff"), ["gaudinet-stale", "gaudinet-incomplete"], "1 of its 24 addresses"),
        (gaudinet(NIC_MAC="nonsense"), ["gaudinet-entry"], "'nonsense' is no MAC address"),
        (gaudinet(NIC_IP="10.0.0.300"), ["gaudinet-entry"], "'10.0.0.300' is no IPv4 address"),
        (gaudinet(NIC_IP="10.0.0.1"), ["gaudinet-entry"], "NIC_IP 10.0.0.1 is there twice"),
        ("{", ["gaudinet-unreadable"], "no JSON"),
        ("[]", ["gaudinet-unreadable"], "NIC_NET_CONFIG"),
        ('{"NIC_NET_CONFIG": [1]}', ["gaudinet-unreadable"], "NIC_NET_CONFIG"),
        (" \n", ["gaudinet-empty"], "leaves it out"),
        ('{"NIC_NET_CONFIG": []}', ["gaudinet-incomplete"], "lacks 24 addresses"),
    ],
)
def test_a_gaudinet_that_does_not_match_is_told(text: str, ids: list[str], words: str) -> None:
    faults = check_gaudinet(text, interfaces(), "/etc/gaudinet.json")
    assert [fault.id for fault in faults] == ids
    assert words in faults[0].sentence
    assert all(fault.sentence.startswith("/etc/gaudinet.json") for fault in faults)


@given(
    st.one_of(
        st.text(),
        st.recursive(
            st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
        ).map(json.dumps),
    )
)
def test_any_text_of_a_gaudinet_is_judged(text: str) -> None:
    assert all(isinstance(fault, StaticFault) for fault in check_gaudinet(text, interfaces(), "x"))
