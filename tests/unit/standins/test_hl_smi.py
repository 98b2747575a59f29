"""hl-smi: to the byte what real machines printed, and real processes as the users of cards."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from simulator.standins import description
from simulator.standins.node import hl_smi

NOW = datetime(2025, 11, 21, 3, 0, tzinfo=UTC)
Recorded = Callable[[str], str]
Described = Callable[..., dict[str, Any]]


def ask(node: dict[str, Any], *arguments: str, held: dict[int, list[tuple[int, str]]] | None = None) -> str:
    return hl_smi.answer(list(arguments), node, held or {}, NOW)


def test_memory_that_is_free_late_is_shown_without_a_process(node: dict[str, Any]) -> None:
    fields = ("-Q", "index,memory.used", "-f", "csv,noheader,nounits")
    before, after = (
        hl_smi.answer(list(fields), node, {}, NOW, late).splitlines() for late in (frozenset[int](), frozenset({3}))
    )
    assert [number for number, (a, b) in enumerate(zip(before, after, strict=True)) if a != b] == [3]
    assert int(after[3].split(", ")[1]) > 80000
    table = hl_smi.answer([], node, {}, NOW, frozenset({3}))
    assert "python" not in table


def measured(rows: list[tuple[int, int, int]]) -> list[dict[str, int]]:
    return [{"temperature": t, "power": p, "utilization": u} for t, p, u in rows]


OLD_BUSES = ["43", "44", "1a", "19", "b3", "b4", "cc", "cd"]
FLAT = [{"cpus": "0-79", "modules": list(range(8))}]


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("gaudi2-oam8", "hl-smi__v1.22.1_gaudi2_8card.txt"),
        ("gaudi2e-pcie8", "hl-smi__v1.23.0_gaudi2e_pcie_8card.txt"),
        ("gaudi3-oam8-mixed", "hl-smi__v1.21.0_gaudi3_8card_mixed_driver.txt"),
    ],
)
def test_table_of_a_described_node_is_the_recorded_one(name: str, file: str, recorded: Recorded) -> None:
    assert ask(description.load(name)) + "\n" == recorded(file)


def test_old_layout_is_the_recorded_one(described: Described, recorded: Recorded) -> None:
    rows = [(30, 84, 0), (28, 87, 0), (30, 93, 1), (27, 93, 0), (26, 93, 0), (27, 91, 0), (27, 98, 2), (27, 85, 0)]
    node = described(
        release="1.12.1",
        modules=list(range(8)),
        numa=FLAT,
        bus_ids=[f"0000:{bus}:00.0" for bus in OLD_BUSES],
        measured=measured(rows),
    )
    assert ask(node) + "\n" == recorded("hl-smi__v1.12.1_gaudi2_8card.txt")


def test_old_layout_with_two_cards(described: Described, recorded: Recorded) -> None:
    node = described(
        release="1.17.1",
        modules=[0, 1],
        numa=[{"cpus": "0-79", "modules": [0, 1]}],
        bus_ids=["0000:4d:00.0", "0000:b4:00.0"],
        measured=measured([(31, 95, 0), (28, 85, 0)]),
    )
    assert ask(node) + "\n" == recorded("hl-smi__v1.17.1_gaudi2_2card.txt")


def test_old_layout_overflows_as_recorded_with_a_gaudi_3(described: Described, recorded: Recorded) -> None:
    node = described(
        card="HL-325",
        release="1.18.0",
        modules=[0],
        numa=[{"cpus": "0-79", "modules": [0]}],
        bus_ids=["0000:21:00.0"],
        measured=measured([(43, 264, 0)]),
    )
    head = recorded("hl-smi__v1.18.0_gaudi3_1card_head.txt")
    assert ask(node).startswith(head.rstrip("\n"))


def test_new_layout_over_an_older_driver(described: Described, recorded: Recorded) -> None:
    node = described(
        release="1.20.1",
        driver={"version": "1.19.1-6f47ddd", "nic_version": "1.19.1-f071c23"},
        hl_smi={"version": "hl-1.20.0-fw-58.1.1.1", "perf": "N/A"},
        modules=[0, 1, 2],
        numa=[{"cpus": "0-79", "modules": [0, 1, 2]}],
        bus_ids=["0000:9a:00.0", "0000:9b:00.0", "0000:b3:00.0"],
        measured=measured([(22, 96, 0), (24, 78, 0), (25, 81, 0)]),
    )
    head = recorded("hl-smi__v1.20.0_smi_1.19.1_driver_gaudi2_head.txt")
    assert ask(node).startswith(head.rstrip("\n"))


def test_busy_cards_of_the_new_layout(described: Described, recorded: Recorded) -> None:
    node = described(
        release="1.21.1",
        modules=[0, 1, 2],
        numa=[{"cpus": "0-79", "modules": [0, 1, 2]}],
        bus_ids=["0000:33:00.0", "0000:34:00.0", "0000:4e:00.0"],
        measured=[
            {"temperature": 35, "power": 525, "utilization": 88, "uncorrected": 21},
            {"temperature": 34, "power": 80},
            {"temperature": 25, "power": 81},
        ],
        busy=[
            {"module": 0, "name": "python3", "pid": 1, "memory": 94195},
            {"module": 2, "name": "python3", "pid": 2, "memory": 89583},
        ],
    )
    head = recorded("hl-smi__v1.21.1_gaudi2_busy_head.txt")
    assert ask(node).startswith(head.rstrip("\n"))


def test_a_process_row_of_the_old_layout(described: Described, recorded: Recorded) -> None:
    rows = [(26, 82, 0), (26, 96, 0), (27, 71, 0), (26, 89, 0), (26, 91, 0), (31, 100, 0), (26, 101, 0), (25, 99, 0)]
    node = described(
        release="1.16.0",
        modules=list(range(8)),
        numa=FLAT,
        bus_ids=[f"0000:{bus}:00.0" for bus in ["b3", "b4", "cc", "cd", "19", "1a", "43", "44"]],
        measured=measured(rows),
        busy=[{"module": 6, "name": "ray::ServeRepli", "pid": 618796, "memory": 26330}],
    )
    ours, theirs = ask(node).splitlines(), recorded("hl-smi__v1.16.0_gaudi2_8card_busy6.txt").splitlines()
    assert [line for n, line in enumerate(ours, 1) if n != 41] == [line for n, line in enumerate(theirs, 1) if n != 41]
    # The source cut this line behind the amount.
    assert ours[40].startswith(theirs[40].rstrip())
    assert len(ours[40]) == len(ours[0])


def test_every_line_of_the_table_is_as_wide_as_its_rule(node: dict[str, Any]) -> None:
    held = {0: [(4242, "python3"), (4243, "a-very-long-process-name")]}
    assert {len(line) for line in ask(node, held=held).splitlines()} == {79}


@pytest.mark.parametrize(
    ("arguments", "file"),
    [
        (("topo", "-c", "-N"), "hl-smi_topo_-c_-N__gaudi2_8card_smt.txt"),
        (("topo", "-N", "-c"), "hl-smi_topo_-c_-N__gaudi2_8card_smt.txt"),
        (("topo", "-N"), "hl-smi_topo_-N__reconstructed.txt"),
        (("topo", "-c"), "hl-smi_topo_-c__reconstructed.txt"),
        (("-Q", "index,module_id", "-f", "csv"), "hl-smi_-Q_index,module_id_csv__reconstructed.csv"),
        (
            ("-Q", "index,module_id,bus_id,memory.used,temperature.aip,name", "-f", "csv,noheader"),
            "hl-smi_-Q_ighs_csv_noheader__reconstructed.csv",
        ),
    ],
)
def test_queries_of_the_default_node(
    arguments: tuple[str, ...], file: str, node: dict[str, Any], recorded: Recorded
) -> None:
    # The author of one recorded file cut the blanks at its end.
    assert ask(node, *arguments).rstrip() == recorded(file).rstrip()


def test_headers_keep_their_units_under_nounits(node: dict[str, Any], recorded: Recorded) -> None:
    header = recorded("hl-smi_-Q_metrics_csv_nounits__gaudi1_v1.18.0.csv").splitlines()[0]
    fields = "name, uuid,power.draw,temperature.aip,utilization.aip,memory.used,memory.total"
    lines = ask(node, "-Q", fields, "-f", "csv,nounits").splitlines()
    assert lines[0] == header
    assert lines[1] == "HL-225, 01P0-HL2080A0-15-SIM003-09-07-06, 88, 22, 0, 768, 98304"


def test_values_carry_their_units_as_recorded(recorded: Recorded) -> None:
    real = recorded("hl-smi_-Q_metrics_csv_noheader__gaudi3_v1.22.1.csv").splitlines()[0].split(", ")
    fields = "index,uuid,name,driver_version,memory.total,memory.used,memory.free,"
    fields += "power.draw,power.max,temperature.aip,utilization.aip"
    ours = ask(description.load("gaudi3-oam8"), "-Q", fields, "-f", "csv,noheader").splitlines()[0].split(", ")
    assert [value.split()[1:] for value in ours] == [value.split()[1:] for value in real]
    assert ours[4:7] == real[4:7]


def test_links(node: dict[str, Any], described: Described, recorded: Recorded) -> None:
    gaudi2e = description.load("gaudi2e-pcie8")
    assert ask(gaudi2e, "-n", "link", "-i", "0000:2a:00.0") + "\n" == recorded("hl-smi_-n_link__gaudi2e_v1.23.0.txt")
    down = described(links_down=[{"module": 3, "ports": [9]}])
    assert ask(down, "-n", "link", "-i", "33:00.0") + "\n" == recorded("hl-smi_-n_link__one_down__reconstructed.txt")
    assert ask(node, "-n", "link", "-i", "0000:33:00.0", "-P", "8,22") == "port  8:        UP\nport 22:        UP"
    external = [line for line in ask(node, "-n", "ports", "-i", "0000:33:00.0").splitlines() if "external" in line]
    assert external == recorded("hl-smi_-n_ports_external__gaudi2.txt").splitlines()


def test_the_long_listing_has_the_recorded_labels(node: dict[str, Any], recorded: Recorded) -> None:
    def labels(text: str) -> list[str]:
        return [line.partition(":")[0] for line in text.splitlines() if ":" in line]

    real = labels(recorded("hl-smi_-L_-i__v1.12.1_gaudi2.txt"))
    ours = labels(ask(node, "-L", "-i", "0000:33:00.0"))
    block = ours.index("[0] AIP (accel0) 0000")
    assert set(ours[:block]) <= set(real)
    assert {label.rstrip() for label in ours[block + 1 :]} <= {label.rstrip() for label in real}
    assert ask(node, "-L").count("SPI") == 8
    assert "Bus Id                  : 0000:33:00.0" in ask(node, "-L")


def test_a_real_process_is_the_user_of_its_card(node: dict[str, Any], tmp_path: Path) -> None:
    for pid, target in (
        (1, "/dev/null"),
        (17, "/dev/accel/accel3"),
        (4, "/dev/accel/accel3"),
        (9, "/dev/accel/accel_controlD1"),
    ):
        (tmp_path / str(pid) / "fd").mkdir(parents=True)
        (tmp_path / str(pid) / "fd" / "5").symlink_to(target)
        (tmp_path / str(pid) / "comm").write_text(f"name-{pid}\n", encoding="utf-8")
    (tmp_path / "sys").mkdir()
    held = hl_smi.holders(tmp_path)
    assert held == {3: [(4, "name-4"), (17, "name-17")]}
    lines = ask(node, held=held).splitlines()
    assert "|   3            4     C   name-4                                  88473MiB   |" in lines
    assert (
        ask(node, "-Q", "index,memory.used", "-f", "csv,noheader", held={3: [(4, "x")]}).splitlines()[3]
        == "3, 89241 MiB"
    )


def test_not_root_sees_no_process(described: Described) -> None:
    node = described(
        hl_smi={"sees_processes": False}, busy=[{"module": 0, "name": "python3", "pid": 7, "memory": 1000}]
    )
    rows = [line for line in ask(node).splitlines() if "python3" in line]
    assert not rows
    assert "  1768MiB" in ask(node)


def test_a_lost_card_vanishes_and_a_sick_one_reads_zero_degrees() -> None:
    node = description.load("gaudi2-oam8-faulty")
    rows = ask(node, "-Q", "module_id,temperature.aip", "-f", "csv,noheader").splitlines()
    assert "2, " not in "\n".join(row[:3] for row in rows)
    assert len(rows) == 7
    assert "6, 0 C" in rows


REFUSED = [
    ("--bogus",),
    ("extra",),
    ("-Q", "index,bogus", "-f", "csv"),
    ("-Q", "index"),
    ("-Q", "index", "-f", "xml"),
    ("-Q", "index", "-f", "csv,bogus"),
    ("-n", "bogus", "-i", "0000:33:00.0"),
    ("-n", "link"),
    ("-n", "link", "-i", "0000:00:00.0"),
    ("-n", "link", "-i", "0000:33:00.0", "-P", "77"),
    ("-n", "link", "-i", "0000:33:00.0", "-P", "x"),
    ("-i", "0000:33:00.0"),
    ("-f", "csv"),
    ("topo",),
    ("topo", "-x"),
    ("-L", "-Q", "index", "-f", "csv"),
]


@pytest.mark.parametrize("arguments", REFUSED, ids=" ".join)
def test_what_the_tool_does_not_know_is_refused(arguments: tuple[str, ...], node: dict[str, Any]) -> None:
    with pytest.raises(hl_smi.HlSmiError, match=r".+"):
        ask(node, *arguments)


@pytest.mark.parametrize("arguments", [(), ("-L",), ("topo", "-c", "-N"), ("-Q", "index", "-f", "csv")], ids=" ".join)
def test_without_a_driver_everything_fails_but_the_version(arguments: tuple[str, ...]) -> None:
    node = description.load("gaudi2-oam8-no-driver")
    with pytest.raises(hl_smi.NoDevice, match=r"^no AIPs available$"):
        ask(node, *arguments)
    assert ask(node, "-v") == "HL-SMI Version : hl-1.22.1-fw-61.4.2.1"


@pytest.mark.parametrize(
    ("name", "firmware", "cpld"),
    [
        ("gaudi2-oam8", "hl-gaudi2-1.22.1-fw-61.4.2-sec-9", "0x0000000d"),
        # Seen on somebody's HL-325L with 1.24.0.
        ("gaudi3-oam8", "hl-gaudi3-1.24.0-fw-62.6.1-sec-3", "0x00000004"),
    ],
)
def test_firmware_is_what_was_seen_of_a_card(name: str, firmware: str, cpld: str) -> None:
    shown = ask(description.load(name), "-L")
    assert f"Preboot version {firmware} (simulated)" in shown
    assert f": {cpld}\n" in shown


def test_refusals_end_with_status_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, node: dict[str, Any]
) -> None:
    document = tmp_path / "node.json"
    monkeypatch.setattr(hl_smi, "NODE_DOCUMENT", document)
    monkeypatch.setattr("sys.argv", ["hl-smi", "-v"])
    assert hl_smi.main() == 1
    assert "has not been described" in capsys.readouterr().err
    document.write_text(description.render(node), encoding="utf-8")
    assert hl_smi.main() == 0
    assert "simulated" in capsys.readouterr().err
    monkeypatch.setattr("sys.argv", ["hl-smi", "--bogus"])
    assert hl_smi.main() == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "unrecognized arguments: --bogus" in captured.err
