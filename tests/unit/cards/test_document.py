"""The merge: what each source contributes, and what is said when one is missing or another disagrees."""

from __future__ import annotations

import importlib
import itertools
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.gaudi.cards import findings as topology_findings
from ansible.module_utils.gaudi.cards.document import build_topology
from ansible.module_utils.gaudi.cards.query import CommandResult, HlSmiReport, SeenCard, query_hl_smi
from ansible.module_utils.gaudi.cards.sources import AccelCard, PciCard, parse_addresses, sysfs_cpus, sysfs_number
from ansible.module_utils.gaudi.cards.text import WIDTH, describe_node
from ansible.module_utils.gaudi.cards.users import new_user
from ansible.module_utils.gaudi.faults.known import FAULTS
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.cards.nodes import (
    BUS_IDS,
    DETAILS,
    IDENTITY,
    MODULES,
    answers,
    ask,
    details,
    failed,
    holder,
    identity,
    listing,
    ok,
    recorded,
    sources,
)
from tests.unit.cards.test_hl_smi import TABLES

RECORDED = Path(__file__).parent / "recorded"


def found(topology: dict[str, Any]) -> list[str]:
    return [finding["id"] for finding in topology["findings"]]


def message(topology: dict[str, Any], identifier: str) -> str:
    return next(str(finding["message"]) for finding in topology["findings"] if finding["id"] == identifier)


def card_of(topology: dict[str, Any], module_id: int) -> dict[str, Any]:
    return next(card for card in topology["cards"] if card["module_id"] == module_id)


def test_a_healthy_node_is_known_completely_and_without_findings() -> None:
    topology = build_topology(sources())
    assert topology["findings"] == []
    assert [card["module_id"] for card in topology["cards"]] == list(range(8))
    assert (topology["schema"], topology["hl_smi_version"], topology["driver_version"]) == (
        1,
        "1.22.1",
        "1.22.1-97ec1a4",
    )
    assert topology["addresses"] == [["lo", "127.0.0.1/8"], ["eth0", "10.20.0.11/24"]]
    assert card_of(topology, 3) == {
        "index": 0,
        "module_id": 3,
        "name": "HL-225",
        "serial": "AM50016130",
        "uuid": "01P0-HL2080A0-15-TF8A81-09-07-00",
        "bus_id": "0000:33:00.0",
        "numa_node": 0,
        "cpus": "0-39,80-119",
        "memory_total_mib": 98304,
        "memory_used_mib": 768,
        "temperature_c": 27,
        "driver_version": "1.22.1-97ec1a4",
        "nic_driver_version": "1.22.1-97ec1a4",
        "firmware": "hl-gaudi2-1.12.1-fw-46.0.5-sec-6",
        "boot_fit": "hl-gaudi2-1.12.1-fw-46.0.5-sec-6",
        "links_up": 21,
        "links_total": 21,
        "state": "operational",
        "users": [],
    }
    assert json.loads(json.dumps(topology)) == topology


def test_each_call_is_made_once_and_the_common_fields_come_first() -> None:
    calls: list[str] = []
    query_hl_smi(ask(answers(), calls))
    assert calls[:5] == ["", IDENTITY, DETAILS, "-L", f"-n link -i {BUS_IDS[0]}"]
    assert len(calls) == len(set(calls)) == 4 + 8 + 1
    calls.clear()
    query_hl_smi(ask(answers(), calls), links=False)
    assert calls == ["", IDENTITY, DETAILS, "-L", "topo -c -N"]


def test_a_tool_that_hangs_once_is_not_asked_again() -> None:
    calls: list[str] = []
    seen = query_hl_smi(ask(answers(**{"-L": CommandResult(124, "", "")}), calls))
    assert calls == ["", IDENTITY, DETAILS, "-L"]
    assert len(seen.cards) == 8
    assert seen.complaints == ("hl-smi -L did not answer in time, and hl-smi was asked nothing more",)
    calls.clear()
    assert query_hl_smi(ask({"": CommandResult(124, "", "")}, calls)).timed_out
    assert calls == [""]


def test_a_release_that_does_not_know_one_field_is_asked_for_each() -> None:
    given = answers()
    del given[DETAILS]
    given["-Q index,serial -f csv"] = failed("unknown field")
    given["-Q index,temperature.aip -f csv"] = ok(
        "index, temperature.aip [C]\n" + "".join(f"{index}, 4{index} C\n" for index in range(8))
    )
    topology = build_topology(sources(given))
    # -L has the serial number, the table the memory: nothing is lost but what no source has.
    assert card_of(topology, 7)["serial"] == "AM50016131"
    assert card_of(topology, 7)["temperature_c"] == 41
    assert card_of(topology, 7)["memory_total_mib"] == 98304
    assert "hl-smi -Q index,serial -f csv failed" in message(topology, "unreadable")


@pytest.mark.parametrize("driver", TABLES)
def test_the_table_alone_is_enough_for_a_topology(driver: str) -> None:
    table = TABLES[driver]
    topology = build_topology(sources({"": ok(recorded(f"{driver}/hl-smi.txt"))}, pci=(), accel=(), lspci=None))
    assert len(topology["cards"]) == table[3]
    first = next(card for card in topology["cards"] if card["index"] == 0)
    assert (first["name"], first["bus_id"], first["temperature_c"]) == (table[4], table[5][0], table[5][1])
    assert (first["driver_version"], first["nic_driver_version"]) == (table[1], table[2])
    assert topology["driver_version"] == table[1]
    # Module ids are in no table: without another source a card cannot be named.
    assert found(topology).count("module-id-unknown") == table[3]


# Every release from 1.12 to 1.24, each with the layout of the table that the recordings around it have, and with the
# version of its network driver from 1.20 on. Of 1.13 to 1.15, 1.19 and 1.24 there is no recording of hl-smi itself.
RELEASES = [f"1.{minor}.0" for minor in range(12, 25)]
CARD_TYPES = {
    "HL-205": 32768,
    "HL-225": 98304,
    "HL-288": 98304,
    "HL-288E": 98304,
    "HL-325": 131072,
    "HL-325L": 131072,
    "HL-338": 131072,
}


def answers_of(release: str, name: str, memory_mib: int) -> dict[str, CommandResult]:
    """The recorded node, as hl-smi of a release would show it with cards of a type."""
    new = int(release.split(".")[1]) >= 20
    table = recorded("1.22.1/hl-smi.txt" if new else "1.12.1/hl-smi.txt")
    # The old layout's recording is of another node; its addresses do not matter, its words do.
    for old, bus_id in zip(re.findall(r"0000:[0-9a-f]{2}:00\.0", table), BUS_IDS, strict=True):
        table = table.replace(old, f"@{bus_id[5:]}", 1)
    table = table.replace("@", "0000:").replace("HL-225 ", f"{name} ").replace("98304MiB", f"{memory_mib}MiB")
    table = table.replace("1.22.1" if new else "1.12.1", release)
    return {
        call: replace(
            answer,
            stdout=answer.stdout.replace("HL-225", name).replace("98304", str(memory_mib)).replace("1.22.1", release),
        )
        for call, answer in {**answers(), "": ok(table)}.items()
    }


def test_every_release_with_every_card_type(subtests: pytest.Subtests) -> None:
    for release, (name, memory_mib) in itertools.product(RELEASES, CARD_TYPES.items()):
        with subtests.test(release=release, name=name):
            is_known(release, name, memory_mib)


def is_known(release: str, name: str, memory_mib: int) -> None:
    given = answers_of(release, name, memory_mib)
    # A field this release does not know fails the whole call; what identifies a card is answered all the same.
    del given[DETAILS]
    given.update(
        {f"-Q index,{field} -f csv": failed(f"unknown field {field}") for field in ("serial", "uuid", "driver_version")}
    )
    topology = build_topology(sources(given))
    assert topology["hl_smi_version"] == release
    assert topology["driver_version"].startswith(release)
    odd = [finding for finding in topology["findings"] if finding["id"] != "groups"]
    assert {finding["severity"] for finding in odd} <= {"warning"}
    assert (len(odd) < len(topology["findings"])) == (name == "HL-338")
    assert [card["module_id"] for card in topology["cards"]] == list(range(8))
    for card in topology["cards"]:
        assert (card["name"], card["memory_total_mib"], card["state"]) == (name, memory_mib, "operational")
        assert card["serial"] == f"AM5001613{card['index']}"
        assert card["nic_driver_version"] is None or int(release.split(".")[1]) >= 20
    # Another release of the driver than of hl-smi, as in a container, is said and changes nothing else.
    older = {
        call: replace(answer, stdout=answer.stdout.replace(f" {release}-", " 1.11.0-"))
        for call, answer in given.items()
    }
    seen = build_topology(sources(older))
    assert "hl-smi-mismatch" in found(seen)
    assert [card["serial"] for card in seen["cards"]] == [card["serial"] for card in topology["cards"]]


def test_a_gaudi2e_node_of_release_1_23() -> None:
    lspci = recorded("1.23.0/lspci_-d_1da3.txt")
    buses = [f"0000:{line[:7]}" for line in lspci.splitlines()]
    modules = dict(zip(buses, (0, 2, 4, 5, 1, 3, 6, 7), strict=True))
    given = {"": ok(recorded("1.23.0/hl-smi.txt"))}
    given |= {f"-n link -i {bus}": ok(recorded("1.23.0/hl-smi_-n_link.txt")) for bus in buses}
    seen = query_hl_smi(ask(given))
    pci = tuple(PciCard(bus, int(bus[5] in "ab"), "0-47,96-143") for bus in buses)
    accel = tuple(
        AccelCard(card.index, card.bus_id, modules[card.bus_id], "operational")
        for card in seen.cards
        if card.bus_id and card.index is not None
    )
    topology = build_topology(sources(seen=seen, pci=pci, accel=accel, lspci=ok(lspci)))
    assert [card["module_id"] for card in topology["cards"]] == list(range(8))
    assert {(card["name"], card["links_up"], card["links_total"]) for card in topology["cards"]} == {
        ("HL-288E", 18, 18)
    }
    assert card_of(topology, 0)["index"] == 2
    assert topology["driver_version"] == "1.23.0-2eae87a"
    # The recording has no -Q and no -L: that is said, and the serial numbers stay unknown.
    assert {"unreadable", "not-available"} == set(found(topology))


def test_users_have_their_unit_and_container() -> None:
    container = "4f1d2c3b4a59" + "0" * 52
    docker = f"0::/system.slice/docker-{container}.scope\n"
    topology = build_topology(
        sources(
            holders=[
                holder(0, account="alice"),
                holder(1, 99, "python3", docker),
                holder(1, 98, "ray::\x1b[2J", docker),
            ],
            container_names={"4f1d2c3b4a59": "vllm-qwen3-8b"},
        )
    )
    assert card_of(topology, 3)["users"] == [
        {**new_user(), "pid": 4242, "name": "python3", "account": "alice", "unit": "foo.service"}
    ]
    inside = {**new_user(), "container": "4f1d2c3b4a59", "container_name": "vllm-qwen3-8b"}
    assert card_of(topology, 7)["users"] == [
        {**inside, "pid": 98, "name": "ray::"},
        {**inside, "pid": 99, "name": "python3"},
    ]
    assert card_of(topology, 0)["users"] == []


def test_a_process_that_only_hl_smi_lists_is_a_user() -> None:
    given = answers(**{"": ok(recorded("1.16.0/hl-smi.txt"))})
    topology = build_topology(sources(given))
    assert card_of(topology, MODULES[6])["users"] == [{**new_user(), "pid": 618796, "name": "ray::ServeRepli"}]
    # The same process seen in /proc is one user, with its owner.
    topology = build_topology(sources(given, holders=[holder(6, 618796, "ray::ServeRepli")]))
    assert [user["unit"] for user in card_of(topology, MODULES[6])["users"]] == ["foo.service"]


def test_memory_that_nobody_owns_makes_a_card_used() -> None:
    given = answers(**{DETAILS: ok(details().replace("768 MiB", "90351 MiB", 1))})
    topology = build_topology(sources(given))
    (user,) = card_of(topology, 3)["users"]
    assert set(user.values()) == {None}
    assert "Module 3 (accel0, 0000:33:00.0) has 90351 MiB in use" in message(topology, "memory-without-process")
    topology = build_topology(sources(given, holders=[holder(0)]))
    assert (found(topology), len(card_of(topology, 3)["users"])) == ([], 1)


def test_no_hl_smi() -> None:
    topology = build_topology(sources(seen=None))
    assert found(topology) == ["no-hl-smi"]
    assert "PCI shows 8 Gaudi cards" in message(topology, "no-hl-smi")
    # What the driver and the kernel know is still there.
    assert card_of(topology, 3)["bus_id"] == BUS_IDS[0]
    assert card_of(topology, 3)["cpus"] == "0-39,80-119"
    assert card_of(topology, 3)["name"] is None


NO_DEVICE = CommandResult(1, (RECORDED / "1.24.1/hl-smi_no_device.txt").read_text(encoding="utf-8"), "")


def test_no_driver() -> None:
    topology = build_topology(sources({"": NO_DEVICE}, accel=()))
    assert (topology["cards"], found(topology)) == ([], ["no-driver"])
    assert "PCI shows 8 Gaudi cards" in message(topology, "no-driver")
    assert "hl-smi fails (status 1, it said 'no AIPs available')" in message(topology, "no-driver")


def test_no_device_for_hl_smi_is_no_card_where_the_bus_has_none() -> None:
    assert found(build_topology(sources({"": NO_DEVICE}, pci=(), accel=(), lspci=ok("")))) == ["no-cards"]


def test_no_device_for_hl_smi_is_a_failure_where_the_driver_has_cards() -> None:
    topology = build_topology(sources({"": NO_DEVICE}))
    assert found(topology) == ["hl-smi-failed"]
    assert "it said 'no AIPs available'" in message(topology, "hl-smi-failed")
    assert len(topology["cards"]) == 8


def test_neither_driver_nor_hl_smi() -> None:
    topology = build_topology(sources(seen=None, accel=()))
    assert found(topology) == ["no-hl-smi", "no-driver"]
    for fault in found(topology):
        assert "site.yml installs" in message(topology, fault)
        assert "gaudi_driver_repository" in message(topology, fault)
    # A driver that is there without hl-smi is no node for site.yml, and neither is one without a card.
    driven = build_topology(sources(seen=None))
    for topology in (driven, build_topology(sources(seen=None, pci=(), accel=(), lspci=ok("")))):
        assert "site.yml" not in message(topology, "no-hl-smi")
    assert "playbooks/driver.yml" in message(driven, "no-hl-smi")


def test_no_cards() -> None:
    topology = build_topology(sources({}, pci=(), accel=(), lspci=ok("")))
    assert (topology["cards"], found(topology)) == ([], ["no-cards"])


@pytest.mark.parametrize(
    ("answer", "words"),
    [(failed("Timeout"), "hl-smi failed (status 1, it said 'Timeout')"), (CommandResult(124, "", ""), "in time")],
)
def test_hl_smi_fails_although_there_is_a_driver(answer: CommandResult, words: str) -> None:
    topology = build_topology(sources({"": answer}))
    assert found(topology) == ["hl-smi-failed"]
    assert words in message(topology, "hl-smi-failed")
    assert len(topology["cards"]) == 8


def test_not_root() -> None:
    rows = "\n".join(["index, module_id, bus_id, name", *["N/A, N/A, N/A, N/A"] * 8]) + "\n"
    none = "\n".join(
        ["index,serial,uuid,driver_version,memory.total,memory.used,temperature.aip", *[",".join(["N/A"] * 7)] * 8]
    )
    given = {"": failed("permission denied"), IDENTITY: ok(rows), DETAILS: ok(none)}
    topology = build_topology(sources(given, uid=1000))
    assert found(topology)[0] == "not-root"
    assert "user id 1000" in message(topology, "not-root")
    assert "not-available" not in found(topology)
    assert [card["bus_id"] for card in topology["cards"]] == [BUS_IDS[MODULES.index(module)] for module in range(8)]


def test_a_lost_card_is_reported_and_not_averaged_away() -> None:
    seven = [index for index in range(8) if index != 4]
    given = answers(**{IDENTITY: ok(identity(seven)), DETAILS: ok(details(seven))})
    healthy = sources(given)
    topology = build_topology(replace(healthy, accel=[card for card in healthy.accel if card.index != 4]))
    assert (len(topology["cards"]), found(topology)) == (7, ["lost-card"])
    assert message(topology, "lost-card").startswith(
        "A card at 0000:4e:00.0 is lost: hl-smi sees 7 cards, PCI sees 8, and the driver has no device for it."
    )
    # The driver still has it: then its module is known.
    topology = build_topology(healthy)
    assert message(topology, "lost-card").startswith("Module 5 at 0000:4e:00.0 is lost")


def test_sources_that_disagree_are_reported() -> None:
    healthy = sources()
    moved = [replace(card, numa_node=1) if card.bus_id == BUS_IDS[0] else card for card in healthy.pci]
    topology = build_topology(replace(healthy, pci=moved))
    assert found(topology) == ["sources-disagree"]
    assert card_of(topology, 3)["numa_node"] == 1
    assert healthy.lspci is not None
    topology = build_topology(replace(healthy, lspci=ok(healthy.lspci.stdout.replace("33:00.0", "35:00.0"))))
    assert "they differ in 0000:33:00.0, 0000:35:00.0" in message(topology, "sources-disagree")
    topology = build_topology(replace(healthy, pci=healthy.pci[1:], lspci=None))
    assert "PCI does not show 0000:33:00.0" in message(topology, "sources-disagree")


def test_a_card_the_driver_has_no_device_for_is_reported() -> None:
    healthy = sources()
    topology = build_topology(replace(healthy, accel=healthy.accel[:7]))
    assert found(topology) == ["sources-disagree"]
    words = f"hl-smi sees 8 cards, /sys/class/accel shows 7: it has none for {BUS_IDS[7]}."
    assert message(topology, "sources-disagree").startswith(words)
    # A kernel that shows none at all (in a container) says nothing.
    assert found(build_topology(replace(healthy, accel=()))) == []


def test_a_name_that_is_no_card_is_reported() -> None:
    for name in ("HL-999", "hl-225"):
        given = answers(**{IDENTITY: ok(identity().replace("HL-225", name))})
        topology = build_topology(sources({**given, "": failed("no table")}))
        assert "unknown-card" in found(topology)
        assert f"{name} is no card of catalog/cards.yml" in message(topology, "unknown-card")


def test_the_known_names_are_those_of_the_catalogue() -> None:
    cards = yaml.safe_load((Path(__file__).parents[3] / "catalog" / "cards.yml").read_text(encoding="utf-8"))["cards"]
    assert sorted(topology_findings.CARD_NAMES) == sorted(name for card in cards.values() for name in card["names"])


def test_the_known_groups_are_those_of_the_catalogue() -> None:
    cards = yaml.safe_load((Path(__file__).parents[3] / "catalog" / "cards.yml").read_text(encoding="utf-8"))["cards"]
    fabrics = {name: card.get("fabric", {}) for card in cards.values() for name in card["names"]}
    known = {name: each["groups"] for name, each in fabrics.items() if each.get("groups_confidence") == "published"}
    listed = {name: groups for name, groups in known.items() if len(groups) > 1}
    assert {name: [list(group) for group in groups] for name, groups in topology_findings.GROUPS.items()} == listed


def test_two_quads_are_said_and_one_is_not() -> None:
    def said(modules: list[int], name: str = "HL-338") -> list[str]:
        cards = [{"name": name, "module_id": module_id} for module_id in modules]
        return [found["message"] for found in topology_findings.group_findings(cards)]

    (sentence,) = said([0, 1, 2, 3, 4, 6])
    assert sentence.startswith("The links of HL-338 join modules 0, 1, 2, 3 and 4, 6, and nothing joins these groups")
    assert said([4, 5, 6, 7]) == said(list(range(8)), "HL-325L") == []


def test_numbers_that_hl_smi_and_the_driver_give_differently_are_reported() -> None:
    healthy = sources()
    moved = [replace(card, module_id=6) if card.bus_id == BUS_IDS[0] else card for card in healthy.accel]
    topology = build_topology(replace(healthy, accel=moved))
    words = "hl-smi gives module id 3 for the card at 0000:33:00.0, the driver gives 6."
    assert (found(topology), message(topology, "sources-disagree")[: len(words)]) == (["sources-disagree"], words)
    assert card_of(topology, 3)["bus_id"] == BUS_IDS[0]
    swapped = [replace(card, index=1 - card.index) if card.index < 2 else card for card in healthy.accel]
    topology = build_topology(replace(healthy, accel=swapped))
    assert found(topology) == ["sources-disagree", "sources-disagree"]
    assert "hl-smi gives index 0 for the card at 0000:33:00.0, the driver gives 1." in message(
        topology, "sources-disagree"
    )
    # What one of them does not know is no disagreement.
    silent = [replace(card, module_id=None) for card in healthy.accel]
    assert found(build_topology(replace(healthy, accel=silent))) == []


def test_a_card_without_numa_node() -> None:
    pci = tuple(PciCard(bus_id, None, "0-159") for bus_id in BUS_IDS)
    topology = build_topology(sources(pci=pci))
    assert (found(topology), card_of(topology, 0)["numa_node"]) == ([], 0)
    without_topo = {call: answer for call, answer in answers().items() if call != "topo -c -N"}
    topology = build_topology(sources(without_topo, pci=pci))
    assert (card_of(topology, 0)["numa_node"], card_of(topology, 0)["cpus"]) == (None, "")
    assert found(topology).count("numa-unknown") == 8


@pytest.mark.parametrize(
    ("temperature", "finding", "value"),
    [
        ("0 C", "zero-temperature", None),
        ("505712272 C", "implausible-temperature", None),
        ("-5 C", "implausible-temperature", None),
    ],
)
def test_temperatures_that_are_none(temperature: str, finding: str, value: int | None) -> None:
    given = answers(**{DETAILS: ok(details().replace("27 C", temperature, 1))})
    topology = build_topology(sources(given))
    assert found(topology) == [finding]
    assert card_of(topology, 3)["temperature_c"] is value
    assert "Module 3 (accel0, 0000:33:00.0)" in message(topology, finding)


def test_values_that_are_not_available() -> None:
    table = recorded("1.22.1/hl-smi.txt").replace("| N/A   22C ", "| N/A   N/A ", 1)
    given = answers(**{"": ok(table), DETAILS: ok(details().replace("27 C", "N/A", 1).replace("AM50016130", "N/A"))})
    given["-L"] = ok("".join(listing(index) for index in range(1, 8)))
    topology = build_topology(sources(given))
    assert "N/A for the serial number, the temperature of module 3" in message(topology, "not-available")
    assert card_of(topology, 3)["serial"] is None


def test_a_card_that_does_not_work() -> None:
    healthy = sources()
    accel = [replace(card, state="malfunction") if card.index == 6 else card for card in healthy.accel]
    topology = build_topology(replace(healthy, accel=accel))
    assert (found(topology), card_of(topology, 6)["state"]) == (["not-operational"], "malfunction")
    # Without the driver's own word, that of -L.
    given = answers(**{"-L": ok("".join(listing(i, state="In reset" if i == 6 else "Operational") for i in range(8)))})
    topology = build_topology(sources(given, accel=[replace(card, state=None) for card in healthy.accel]))
    assert card_of(topology, 6)["state"] == "in reset"


def test_a_link_that_is_down() -> None:
    down = ok(recorded("reconstructed/hl-smi_-n_link_one_down.txt"))
    topology = build_topology(sources(answers(**{f"-n link -i {BUS_IDS[4]}": down})))
    assert (card_of(topology, 5)["links_up"], card_of(topology, 5)["links_total"]) == (20, 21)
    assert "Module 5 (accel4, 0000:4e:00.0) has 20 of 21 internal links up; down: port 9." in message(
        topology, "link-down"
    )


def test_rows_that_wait_to_be_replaced() -> None:
    blocks = "".join(listing(index, pending="Yes" if index == 2 else "No") for index in range(8))
    topology = build_topology(sources(answers(**{"-L": ok(blocks)})))
    assert message(topology, "rows-pending").startswith("Module 1 (accel2, 0000:34:00.0) has memory rows")


def test_versions_are_compared_by_release() -> None:
    table = recorded("1.22.1/hl-smi.txt")
    other_hash = table.replace(
        "| Nic Driver Version:                                 1.22.1-97ec1a4", "| Nic Driver Version: 1.22.1-0000000"
    )
    assert found(build_topology(sources(answers(**{"": ok(other_hash)})))) == []
    older = other_hash.replace("1.22.1-0000000", "1.21.0-0000000")
    topology = build_topology(sources(answers(**{"": ok(older)})))
    assert found(topology) == ["nic-driver-mismatch"]
    assert "1.21.0-0000000" in message(topology, "nic-driver-mismatch")
    tool = table.replace("hl-1.22.1-fw-61.4.2.1", "hl-1.23.0-fw-62.2.1.1")
    assert found(build_topology(sources(answers(**{"": ok(tool)})))) == ["hl-smi-mismatch"]
    # Of 1.24.1 it says 1.24.0: that is no other release.
    patch = table.replace("hl-1.22.1-fw-61.4.2.1", "hl-1.22.0-fw-61.4.2.0")
    assert found(build_topology(sources(answers(**{"": ok(patch)})))) == []


def test_cards_that_cannot_be_told_apart() -> None:
    twice = identity().replace("1, 7, 0000:9a:00.0", "1, 3, 0000:9a:00.0")
    topology = build_topology(sources(answers(**{IDENTITY: ok(twice)})))
    assert "Two cards have module id 3: module 3 (accel0, 0000:33:00.0) and module 3 (accel1" in message(
        topology, "duplicate-identity"
    )


def test_every_finding_has_a_test_and_a_place_in_the_documentation() -> None:
    documented = importlib.import_module("gaudi_topology_info").RETURN
    tested = Path(__file__).read_text(encoding="utf-8")
    for fault in FAULTS:
        # The number that the inventory promises is the preflight's.
        if fault.seen_by == "module_utils/gaudi/cards/findings.py":
            assert f'"{fault.id}"' in tested
            assert f"V({fault.id})" in documented


def test_sysfs() -> None:
    assert [sysfs_number(text) for text in ("3\n", "-1\n", "", "x", "9" * 99)] == [3, None, None, None, None]
    assert [sysfs_cpus(text) for text in ("0-39,80-119\n", "\n", "x")] == ["0-39,80-119", None, None]


def test_addresses() -> None:
    text = json.dumps(
        [
            {"ifname": "lo", "addr_info": [{"family": "inet", "local": "127.0.0.1", "prefixlen": 8}]},
            {},
            {
                "ifname": "eth0",
                "addr_info": [{"local": "10.0.0.2", "prefixlen": 24}, {"local": "10.0.0.3", "prefixlen": 24}],
            },
        ]
    )
    assert parse_addresses(text) == (("lo", "127.0.0.1/8"), ("eth0", "10.0.0.2/24"), ("eth0", "10.0.0.3/24"))
    for bad in ("x", "3", '[{"addr_info": 3}]', '[{"addr_info": [3]}]', "[" * 100_000):
        with pytest.raises(ValueError, match="ip printed"):
            parse_addresses(bad)


NUMBERS = st.none() | st.integers(-2, 20)
WORDS = st.none() | st.text(max_size=8) | st.sampled_from(["0000:33:00.0", "1.22.1-x", "operational", "HL-225"])
CARDS = st.builds(
    SeenCard,
    index=NUMBERS,
    module_id=NUMBERS,
    bus_id=WORDS,
    name=WORDS,
    serial=WORDS,
    driver_version=WORDS,
    memory_total_mib=NUMBERS,
    memory_used_mib=NUMBERS | st.just(90000),
    temperature_c=NUMBERS | st.just(505712272),
    state=WORDS,
    rows_pending=st.none() | st.booleans(),
    links=st.none() | st.dictionaries(st.integers(0, 23), st.booleans(), max_size=4),
)

# A table of the picture with a cell that has nothing to print.
BLANK_STATE = [SeenCard(), SeenCard(state="\r"), SeenCard(bus_id="")]


@settings(max_examples=60)
@given(
    cards=st.lists(CARDS, max_size=4),
    failure=st.none() | st.text(max_size=8),
    pci=st.lists(st.builds(PciCard, WORDS.map(str), NUMBERS, WORDS), max_size=3),
    accel=st.lists(st.builds(AccelCard, st.integers(0, 20), WORDS, NUMBERS, WORDS), max_size=3),
    uid=st.sampled_from([0, 1000]),
    lspci=st.none() | st.builds(CommandResult, st.integers(0, 2), st.text(max_size=20), st.text(max_size=9)),
)
@example(cards=BLANK_STATE, failure=None, pci=[], accel=[], uid=0, lspci=None)
def test_whatever_is_read_becomes_a_document_and_a_picture(
    cards: list[SeenCard], failure: str | None, **read: Any
) -> None:
    topology = build_topology(sources(seen=HlSmiReport(tuple(cards), failure=failure), **read))
    assert json.loads(json.dumps(topology)) == topology
    picture = describe_node(topology)
    assert max(map(len, picture.split("\n"))) <= WIDTH
    assert all(character.isprintable() for character in picture.replace("\n", ""))


@settings(max_examples=30)
@given(
    st.dictionaries(
        st.sampled_from(sorted(answers())), st.builds(CommandResult, st.integers(0, 2), st.text(), st.text())
    )
)
def test_whatever_hl_smi_answers_there_is_a_topology(changes: dict[str, CommandResult]) -> None:
    topology = build_topology(sources({**answers(), **changes}))
    assert len(topology["cards"]) >= 8 or found(topology)
