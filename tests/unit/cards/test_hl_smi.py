"""Parsers on what hl-smi, lspci and the firmware printed, release by release."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.gaudi.cards import hl_smi
from hypothesis import given
from hypothesis import strategies as st

RECORDED = Path(__file__).parent / "recorded"


def recorded(name: str) -> str:
    return (RECORDED / name).read_text(encoding="utf-8")


def test_every_recording_has_its_provenance() -> None:
    index = recorded("INDEX.md")
    files = {str(path.relative_to(RECORDED)) for path in RECORDED.glob("*/*")}
    assert {
        line.split(" | ")[0].strip("| ") for line in index.splitlines() if line.startswith("| ") and "/" in line
    } == files


# driver: hl-smi's version, driver's, network driver's, cards, name, and of the first card address, temperature,
# memory used and total.
TABLES = {
    "1.12.1": (
        "hl-1.12.1-fw-46.0.5.0",
        "1.12.1-cb7a7bc",
        None,
        8,
        "HL-225",
        ("0000:43:00.0", 30, 768, 98304),
    ),
    "1.16.0": (
        "hl-1.16.0-fw-50.1.2.0",
        "1.16.0-94aac46",
        None,
        8,
        "HL-225",
        ("0000:b3:00.0", 26, 768, 98304),
    ),
    "1.17.1": (
        "hl-1.17.1-fw-51.5.0",
        "1.17.1-78932ae",
        None,
        2,
        "HL-225",
        ("0000:4d:00.0", 31, 768, 98304),
    ),
    "1.18.0": (
        "hl-1.18.0-fw-53.1.1.1",
        "1.18.0-ee698fb",
        None,
        1,
        "HL-325",
        ("0000:21:00.0", 43, 672, 131072),
    ),
    "1.19.1": (
        *("hl-1.20.0-fw-58.1.1.1", "1.19.1-6f47ddd", "1.19.1-f071c23", 3, "HL-225"),
        ("0000:9a:00.0", 22, 768, 98304),
    ),
    "1.20.1": (
        *("hl-1.21.0-fw-59.2.1.0", "1.20.1-366eb9c", "1.20.1-213b09b", 8, "HL-325L"),
        ("0000:e9:00.0", 36, 672, 131072),
    ),
    "1.21.1": (
        *("hl-1.21.1-fw-59.2.3.0", "1.21.1-bfcec49", "1.21.1-ead2cb0", 3, "HL-225"),
        ("0000:33:00.0", 35, 94963, 98304),
    ),
    "1.22.1": (
        *("hl-1.22.1-fw-61.4.2.1", "1.22.1-97ec1a4", "1.22.1-97ec1a4", 8, "HL-225"),
        ("0000:33:00.0", 22, 768, 98304),
    ),
    "1.23.0": (
        *("hl-1.23.0-fw-62.2.1.1", "1.23.0-2eae87a", "1.23.0-2eae87a", 8, "HL-288E"),
        ("0000:2a:00.0", 28, 768, 98304),
    ),
    "1.24.1": (
        *("hl-1.24.0-fw-62.6.2.0", "1.24.1-b336d5e", "1.24.1-b336d5e", 1, "HL-225"),
        ("0000:02:00.0", 29, 768, 98304),
    ),
}


def test_every_recorded_table_is_expected_to_be_something() -> None:
    assert {path.parent.name for path in RECORDED.glob("*/hl-smi.txt")} == set(TABLES)


@pytest.mark.parametrize("driver", TABLES)
def test_table(driver: str) -> None:
    table = hl_smi.parse_table(recorded(f"{driver}/hl-smi.txt"))
    version, driver_version, nic_version, count, name, first = TABLES[driver]
    assert (table.hl_smi_version, table.driver_version, table.nic_driver_version) == (
        version,
        driver_version,
        nic_version,
    )
    assert [card.index for card in table.cards] == list(range(count))
    assert {card.name for card in table.cards} == {name}
    card = table.cards[0]
    assert first == (card.bus_id, card.temperature_c, card.memory_used_mib, card.memory_total_mib)
    assert all(None not in vars(card).values() for card in table.cards)


@pytest.mark.parametrize("driver", ["1.17.1", "1.22.1"])
@pytest.mark.parametrize(
    "name", ["HL-205", "HL-225", "HL-288", "HL-288E", "HL-325", "HL-325L", "HL-338", "HL-338-PCIe"]
)
def test_every_card_type_in_both_layouts(driver: str, name: str) -> None:
    text = recorded(f"{driver}/hl-smi.txt").replace("HL-225 ", f"{name} ")
    assert {card.name for card in hl_smi.parse_table(text).cards} == {name}


def test_the_cards_of_a_table_keep_the_order_of_their_indexes_not_of_their_addresses() -> None:
    table = hl_smi.parse_table(recorded("1.20.1/hl-smi.txt"))
    assert [card.bus_id[5:7] for card in table.cards] == ["e9", "c1", "b7", "ad", "a3", "df", "d5", "cb"]


def test_a_process_whose_line_is_cut_is_read() -> None:
    table = hl_smi.parse_table(recorded("1.16.0/hl-smi.txt"))
    assert table.processes == (hl_smi.TableProcess(6, 618796, "ray::ServeRepli", 26330),)
    assert table.cards[6].memory_used_mib == 27098


def test_process_names_may_hold_blanks_and_two_processes_one_card() -> None:
    text = recorded("1.22.1/hl-smi.txt").replace(
        "|   3        N/A   N/A    N/A                                      N/A        |",
        "|   3       4242     C   python3 -m vllm serve                    75000MiB    |\n"
        "|   3       4243     C   python3                                  N/A         |",
    )
    assert hl_smi.parse_table(text).processes == (
        hl_smi.TableProcess(3, 4242, "python3 -m vllm serve", 75000),
        hl_smi.TableProcess(3, 4243, "python3", None),
    )


def test_a_card_whose_values_are_garbled_is_still_a_card() -> None:
    text = recorded("1.22.1/hl-smi.txt").replace(
        "| N/A   24C   P0   80W /  600W  |   768MiB /  98304MiB |     0%            0% |",
        "| N/A   N/A   N/A  N/A /  N/A   |   N/A    /  N/A      |     N/A         N/A |",
    )
    card = hl_smi.parse_table(text).cards[3]
    assert (card.bus_id, card.temperature_c, card.memory_used_mib) == ("0000:4d:00.0", None, None)
    text = text.replace(
        "| N/A   N/A   N/A  N/A /  N/A   |   N/A    /  N/A      |     N/A         N/A |", "| ERR! the device is lost |"
    )
    cards = hl_smi.parse_table(text).cards
    assert (len(cards), cards[3].temperature_c, cards[4].temperature_c) == (8, None, 22)


def test_a_card_whose_name_has_a_blank_is_not_lost() -> None:
    text = recorded("1.24.1/hl-smi.txt").replace("HL-225   ", "HL-225 B ")
    assert [(card.name, card.bus_id) for card in hl_smi.parse_table(text).cards] == [("HL-225 B", "0000:02:00.0")]


@pytest.mark.parametrize("driver", ["1.17.1", "1.22.1", "1.24.1"])
def test_a_table_that_somebody_pasted_is_read(driver: str) -> None:
    text = recorded(f"{driver}/hl-smi.txt")
    table = hl_smi.parse_table(text)
    indented = "".join(f"    {line}   \r\n" for line in text.splitlines())
    assert hl_smi.parse_table(f"# hl-smi\nWARNING: the versions differ\n{indented}") == table


def test_a_text_that_is_no_table_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no table with a version: 'The habanalabs driver is not loaded'"):
        hl_smi.parse_table("The habanalabs driver is not loaded")


def test_list() -> None:
    (card,) = hl_smi.parse_list(recorded("1.12.1/hl-smi_-L_-i.txt"))
    assert card == hl_smi.ListedCard(
        index=0,
        bus_id="0000:43:00.0",
        name="HL-225",
        serial="AM50016138",
        uuid="01P0-HL2080A0-15-TF8A81-09-07-06",
        module_id=0,
        state="operational",
        firmware="hl-gaudi2-1.12.1-fw-46.0.5-sec-6",
        boot_fit="hl-gaudi2-1.12.1-fw-46.0.5-sec-6",
        memory_total_mib=98304,
        memory_used_mib=768,
        rows_pending=False,
    )


def test_list_of_several_cards_keeps_them_apart() -> None:
    block = recorded("1.12.1/hl-smi_-L_-i.txt")
    other = (
        block[block.index("[0] AIP") :]
        .replace("[0] AIP (accel0) 0000:43:00.0", "[11] AIP (accel11) 0000:44:00.0")
        .replace("AM50016138", "AM50016139")
        .replace("Module status                   : Operational", "Module status                   : Malfunction")
        .replace("Pending                 : No", "Pending                 : Yes")
        .replace("Module ID                       : 0", "Module ID                       : N/A")
    )
    first, second = hl_smi.parse_list(block + other)
    assert (first.serial, first.state, first.rows_pending, first.module_id) == ("AM50016138", "operational", False, 0)
    assert (second.index, second.serial, second.state) == (11, "AM50016139", "malfunction")
    assert (second.rows_pending, second.module_id) == (True, None)


def test_list_without_a_device_is_refused() -> None:
    with pytest.raises(ValueError, match="printed no device"):
        hl_smi.parse_list("HL-SMI LOG\nAttached AIPs : 0\n")


METRICS = ["index", "uuid", "name", "driver_version", "memory.total", "memory.used"]
METRICS += ["memory.free", "power.draw", "power.max", "temperature.aip", "utilization.aip"]


def test_csv_without_units_keeps_them_in_its_header() -> None:
    fields = ["name", "uuid", "power.draw", "temperature.aip", "utilization.aip", "memory.used", "memory.total"]
    rows = hl_smi.parse_csv(recorded("1.18.0/hl-smi_-Q_nounits.csv"), fields)
    assert len(rows) == 8
    assert (rows[0]["name"], rows[0]["uuid"]) == ("HL-205", "00P1-HL2000A1-14-P64X00-16-07-11")
    assert (
        hl_smi.parse_mib(rows[7]["memory.total"] or ""),
        hl_smi.parse_celsius(rows[7]["temperature.aip"] or ""),
    ) == (32768, 34)


def test_csv_without_header_keeps_its_units() -> None:
    rows = hl_smi.parse_csv(recorded("1.22.1/hl-smi_-Q_noheader.csv"), METRICS)
    assert [row["index"] for row in rows] == ["0", "1"]
    assert hl_smi.parse_mib(rows[1]["memory.total"] or "") == 131072
    assert hl_smi.parse_amount(rows[1]["power.max"] or "", ["W"]) == 850


def test_csv_of_index_and_module_id() -> None:
    rows = hl_smi.parse_csv(recorded("reconstructed/hl-smi_-Q_index_module_id.csv"), ["index", "module_id"])
    assert [(row["index"], row["module_id"]) for row in rows][:3] == [("0", "3"), ("1", "7"), ("2", "1")]
    # The columns may come in another order than they were asked for.
    assert rows == hl_smi.parse_csv(recorded("reconstructed/hl-smi_-Q_index_module_id.csv"), ["module_id", "index"])


def test_csv_of_the_vendors_health_screen() -> None:
    fields = ["index", "module_id", "bus_id", "memory.used", "temperature.aip", "name"]
    rows = hl_smi.parse_csv(recorded("reconstructed/hl-smi_-Q_noheader.csv"), fields)
    assert rows[7] == {
        "index": "7",
        "module_id": "2",
        "bus_id": "0000:b4:00.0",
        "memory.used": "768 MiB",
        "temperature.aip": "21 C",
        "name": "HL-225",
    }


def test_csv_with_unknown_values() -> None:
    assert hl_smi.parse_csv("0, N/A, [N/A]\n", ["index", "serial", "uuid"]) == [
        {"index": "0", "serial": None, "uuid": None}
    ]
    assert hl_smi.parse_csv("", ["index"]) == []
    assert hl_smi.parse_csv("index, serial\n\n", ["index", "serial"]) == []


IDENTITY = "index, module_id, bus_id, name\n0, 3, 0000:33:00.0, HL-225\n1, N/A, 0000:9a:00.0, HL-225\n"


@pytest.mark.parametrize(
    "text",
    [
        IDENTITY,
        f"WARNING: the versions differ\n{IDENTITY}",
        f"Warning: a, b, c\n\n{IDENTITY}",
        f"Warning: a, b, c, d\n{IDENTITY}",
        f"\ufeff{IDENTITY}",
        f"{IDENTITY}\nWARNING: a card is lost\n",
        IDENTITY.replace("\n", "\r\n"),
        IDENTITY.replace("\n", ",\n"),
        IDENTITY.replace("index, module_id", "INDEX, Module_ID"),
        IDENTITY.replace("index,", "index (n),"),
        "timestamp, name, index, bus_id, x, module_id\n"
        "2026/09/10 12:00:00, HL-225, 0, 0000:33:00.0, N/A, 3\n"
        "2026/09/10 12:00:00, HL-225, 1, 0000:9a:00.0, N/A, N/A\n",
    ],
)
def test_csv_in_another_form_has_the_same_rows(text: str) -> None:
    assert hl_smi.parse_csv(text, hl_smi.IDENTITY_FIELDS) == [
        {"index": "0", "module_id": "3", "bus_id": "0000:33:00.0", "name": "HL-225"},
        {"index": "1", "module_id": None, "bus_id": "0000:9a:00.0", "name": "HL-225"},
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0, 1, 2\n", "3 cells for 2 fields: '0, 1, 2'"),
        ("index\n0\n", "no column serial: 'index'"),
        ('Unknown query field "serial"\n', "1 cells for 2 fields"),
        ("no AIPs available\n", "1 cells for 2 fields"),
        # A row that was cut off is no sentence.
        ("index, serial\n0\n", "1 cells for 2 fields: '0'"),
    ],
)
def test_csv_that_does_not_fit_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        hl_smi.parse_csv(text, ["index", "serial"])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("768 MiB", 768),
        ("768MiB", 768),
        ("98304 MB", 98304),
        ("32768 Mib", 32768),
        ("102", 102),
        ("98304.5 MiB", 98304),
        ("98304.0000 MiB", 98304),
        ("N/A", None),
        ("", None),
    ],
)
def test_memory(text: str, value: int | None) -> None:
    assert hl_smi.parse_mib(text) == value


@pytest.mark.parametrize(
    "text", ["96 GiB", "30 C", "many", "0x10", "1 2", "--1", "98.304 MiB", "98,304 MiB", "98 304 MiB"]
)
def test_memory_in_another_unit_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a number in MiB or MB") as refusal:
        hl_smi.parse_mib(text)
    assert repr(text) in str(refusal.value)


def test_topo_with_smt() -> None:
    rows = hl_smi.parse_topo(recorded("1.22.0/hl-smi_topo_-c_-N.txt"))
    assert [row.module_id for row in rows] == list(range(8))
    assert rows[0] == hl_smi.Affinity(0, "0-39,80-119", 0)
    assert rows[7] == hl_smi.Affinity(7, "40-79,120-159", 1)


HEAD = "modID   CPU Affinity      NUMA Affinity    \n-----   ------------      -------------    \n"


@pytest.mark.parametrize(
    ("row", "affinity"),
    [
        ("0       0-31     0  ", (0, "0-31", 0)),
        ("10      0-39,80-119      1", (10, "0-39,80-119", 1)),
        ("2\t0-13, 28-41, 56-69\t2  ", (2, "0-13,28-41,56-69", 2)),
        ("3       0, 2, 4, 6     0", (3, "0,2,4,6", 0)),
        ("4       0-159      -1", (4, "0-159", None)),
        ("5       N/A      N/A", (5, None, None)),
    ],
)
def test_topo_rows(row: str, affinity: tuple[int, str | None, int | None]) -> None:
    assert hl_smi.parse_topo(HEAD + row + "\n") == (hl_smi.Affinity(*affinity),)


@pytest.mark.parametrize(
    "text",
    [
        "modID   CPU Affinity    NUMA Affinity\n-----   ---\n0       0-39, 80-119    1\n\nWARNING: x is not known\n",
        "modID   CPU affinity    NUMA affinity\n0       0-39,80-119    1\n",
        "modID   NUMA Affinity   CPU Affinity\n-----   ----\n0   1   0-39, 80-119\n",
        "modID   CPU Affinity    NUMA Affinity   Links\n0       0-39, 80-119    1   21\n",
    ],
)
def test_topo_in_another_form_has_the_same_rows(text: str) -> None:
    (row,) = hl_smi.parse_topo(text)
    assert (row.module_id, row.cpus, row.numa_node) == (0, "0-39,80-119", 1)


def test_topo_of_one_kind_only() -> None:
    assert hl_smi.parse_topo(recorded("reconstructed/hl-smi_topo_-N.txt"))[4] == hl_smi.Affinity(4, None, 1)
    assert hl_smi.parse_topo(recorded("reconstructed/hl-smi_topo_-c.txt"))[4] == hl_smi.Affinity(
        4, "40-79,120-159", None
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no 'modID' header"),
        ("modID  Colour\n", "neither CPU nor NUMA"),
        (HEAD + "0   0-31\n", "row that cannot be read: '0   0-31'"),
        (HEAD + "0   0-31  0\n0   0-31  0\n", "module 0 twice"),
        (HEAD + "0   31-0  0\n", "runs backwards"),
    ],
)
def test_topo_that_cannot_be_read_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        hl_smi.parse_topo(text)


def test_links() -> None:
    links = hl_smi.parse_links(recorded("1.23.0/hl-smi_-n_link.txt"))
    assert len(links) == 18
    assert all(links.values())
    down = hl_smi.parse_links(recorded("reconstructed/hl-smi_-n_link_one_down.txt"))
    assert [port for port, up in down.items() if not up] == [9]
    assert hl_smi.parse_links("port 7: UP\nport 10:        DOWN\n") == {7: True, 10: False}
    assert hl_smi.parse_links("") == {}


def test_links_without_those_that_are_not_known() -> None:
    assert hl_smi.parse_links("WARNING: x\nPort 0: UP\nport 1: N/A\nport 2: DOWN\n") == {0: True, 2: False}
    with pytest.raises(ValueError, match="no port"):
        hl_smi.parse_links("port 0: N/A\n")


def test_ports() -> None:
    assert hl_smi.parse_ports(recorded("reconstructed/hl-smi_-n_ports.txt")) == dict.fromkeys((8, 22, 23), "external")


@pytest.mark.parametrize("text", ["port 1: SIDEWAYS", "port one: UP", "no device", "port 1 UP"])
def test_links_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"{text[:4]}|sideways"):
        hl_smi.parse_links(text)


def test_lspci_with_details_and_complaints_has_the_same_devices() -> None:
    text = recorded("1.23.0/lspci_-d_1da3.txt")
    below = "\tSubsystem: Habana Labs Ltd. Device 1021\n\tKernel driver in use: habanalabs\n"
    detailed = "".join(f"{line}\n{below}\n" for line in text.splitlines())
    assert hl_smi.parse_lspci(f"pcilib: Cannot open /sys/bus/pci/devices/0/label\n{detailed}") == hl_smi.parse_lspci(
        text
    )


def test_lspci() -> None:
    devices = hl_smi.parse_lspci(recorded("1.23.0/lspci_-d_1da3.txt"))
    assert [device.bus_id for device in devices][:2] == ["0000:29:00.0", "0000:2a:00.0"]
    assert {device.revision for device in devices} == {"05"}


@pytest.mark.parametrize(
    ("line", "device"),
    [
        ("29:00.0 1200: 1da3:1021 (rev 05)", ("0000:29:00.0", "05")),
        ("0001:E9:00.0 Processing accelerators: Habana Labs Ltd. Gaudi3 (rev 01)", ("0001:e9:00.0", "01")),
        ("00000000:29:00.0 Processing accelerators [1200]: Habana Labs Ltd. [1da3:1060]", ("0000:29:00.0", None)),
    ],
)
def test_lspci_in_its_other_forms(line: str, device: tuple[str, str | None]) -> None:
    assert hl_smi.parse_lspci(line + "\n") == (hl_smi.PciDevice(*device),)


def test_firmware() -> None:
    for line in recorded("1.18.0/hl-smi_-L_grep_SPI.txt").splitlines():
        version = hl_smi.parse_version(line)
        assert version == hl_smi.FirmwareVersion("hl-gaudi2-1.18.0-fw-53.1.1-sec-9", "1.18.0", "53.1.1", 9)
    loader = hl_smi.parse_version(recorded("1.22.0/hl-fw-loader_-s_SPI.txt"))
    assert (loader.release, loader.firmware, loader.security) == ("1.22.0", "61.3.2", 9)
    tool = hl_smi.parse_version("hl-1.22.1-fw-61.4.2.1")
    assert (tool.release, tool.firmware, tool.security) == ("1.22.1", "61.4.2.1", None)


def test_firmware_by_component() -> None:
    assert hl_smi.parse_fw_versions(recorded("reconstructed/hl-smi_--fw-versions.txt")) == {
        0: {
            "erom": "hl-gaudi2-1.12.1-fw-46.0.5-sec-6",
            "cpld": "0x00000010.0x63ea7d5d",
            "preboot": "hl-gaudi2-1.22.0-fw-61.3.2-sec-9",
        }
    }


def test_releases_are_compared_without_their_hashes() -> None:
    assert hl_smi.release_of("1.22.1-97ec1a4") == "1.22.1"
    assert hl_smi.release_of("1.18.0-ee698fb") == hl_smi.release_of("1.18.0-95323a5")
    for text in ("", "N/A", "1.22", "1.22.1.4"):
        with pytest.raises(ValueError, match="no release"):
            hl_smi.release_of(text)


PARSERS: list[Callable[[str], Any]] = [
    hl_smi.parse_table,
    hl_smi.parse_list,
    hl_smi.parse_topo,
    hl_smi.parse_links,
    hl_smi.parse_ports,
    hl_smi.parse_lspci,
    hl_smi.parse_fw_versions,
    hl_smi.parse_version,
    hl_smi.release_of,
    hl_smi.parse_bus_id,
    hl_smi.parse_mib,
    hl_smi.parse_celsius,
    lambda text: hl_smi.parse_csv(text, METRICS),
    lambda text: hl_smi.parse_csv(text, ["name"]),
]
TEXTS = [path.read_text(encoding="utf-8") for path in sorted(RECORDED.glob("*/*"))]


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """A recorded output with a piece cut out and another put in."""
    text = draw(st.sampled_from(TEXTS))
    start = draw(st.integers(0, len(text)))
    end = draw(st.integers(start, min(len(text), start + 200)))
    return (
        text[:start]
        + draw(st.text(max_size=12) | st.sampled_from(["|", "N/A", "\n", ":", ", ", "9" * 40]))
        + text[end:]
    )


@pytest.mark.parametrize("number", range(len(PARSERS)))
@given(text=st.text() | damaged())
def test_any_text_is_read_or_refused(number: int, text: str) -> None:
    try:
        PARSERS[number](text)
    except ValueError as error:
        assert len(str(error)) < 500
