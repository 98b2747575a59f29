"""node_report: each part by itself, an error in place of what cannot be read, and nothing that grows with a model."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.gaudi.model.weights_document import weights_in
from ansible.module_utils.gaudi.node import states
from ansible.module_utils.gaudi.node.report import errors, parts, reservations
from ansible.module_utils.gaudi.node.report.parts import OF_PATHS, PARTS
from ansible.module_utils.gaudi.node.report.weights import read_weights

from tests.unit.cards.modules import commands, lay_out, run_main, write
from tests.unit.cards.nodes import BUS_IDS
from tests.unit.cards.test_topology_module import node
from tests.unit.model.test_headers import shard


def report(parts: Sequence[str], **options: Any) -> Any:
    return run_main("node_report", {"parts": [*parts], **options})["report"]


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty node: the file of its reservations, with the folders of instances beside it."""
    monkeypatch.setattr(reservations, "RESERVATIONS", tmp_path / "cards.lock")
    monkeypatch.setattr(reservations, "PLANS", tmp_path / "plans")
    monkeypatch.setattr(states, "PLANS", tmp_path / "plans")
    monkeypatch.setattr(states, "STATES", tmp_path / "states")
    return tmp_path / "cards.lock"


def test_the_cards_are_those_of_the_public_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay_out(tmp_path, monkeypatch)
    with commands(monkeypatch, node()):
        found = report(["cards"])
        shown = run_main("gaudi_topology_info", {})["topology"]
    assert [*found] == ["cards"]
    assert found["cards"]["cards"] == shown["cards"]
    assert len(shown["cards"]) > 1


def test_without_a_driver_the_cards_of_the_bus_are_foreseen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay_out(tmp_path, monkeypatch)
    (tmp_path / "sys/class/accel").rename(tmp_path / "before")
    for bus_id in BUS_IDS:
        write(tmp_path / "sys/bus/pci/devices" / bus_id / "device", "0x1020\n")

    healthy = node()

    def answer(command: Sequence[str]) -> tuple[int, str, str]:
        answered: tuple[int, str, str] = (9, "", "no driver") if "hl-smi" in command[3] else healthy(command)
        return answered

    with commands(monkeypatch, answer):
        cards = report(["cards"], foresee={"1da3:1020": "HL-225"})["cards"]
        plain = report(["cards"])["cards"]
    assert cards["foreseen"]
    assert {card["name"] for card in cards["cards"]} == {"HL-225"}
    assert plain["cards"] == []
    assert "foreseen" not in plain


def test_reservations_are_reported_and_rebuilt_from_the_plans(held: Path) -> None:
    assert report(["reservations"]) == {"reservations": {"reservations": {}, "damage": ""}}
    cards = [{"module_id": 0, "serial": None}]
    held.write_text(json.dumps({"schema": 1, "reservations": {"a": {"cards": cards, "since": "x"}}}), encoding="utf-8")
    assert report(["reservations"])["reservations"]["reservations"] == {"a": {"cards": cards, "since": "x"}}
    held.write_text("broken", encoding="utf-8")
    rebuilt = report(["reservations"])["reservations"]
    assert rebuilt["reservations"] == {}
    assert str(held) in rebuilt["damage"]


def test_a_part_that_cannot_be_read_does_not_end_the_report(held: Path, tmp_path: Path) -> None:
    held.write_text("broken", encoding="utf-8")
    (tmp_path / "plans/a").mkdir(parents=True)
    (tmp_path / "plans/a/plan.json").write_text("broken", encoding="utf-8")
    (tmp_path / "model").mkdir()
    (tmp_path / "model/m.safetensors").write_bytes(b"")
    (tmp_path / "model/linked").symlink_to("/etc/hostname")
    paths = [str(tmp_path / name) for name in ("model", "absent")]
    files = [str(tmp_path / name) for name in ("model/linked", "cards.lock", "none")]
    found = report(["reservations", "last_starts", "weights", "files"], weights=paths, files=files)
    assert found["reservations"]["refused_id"] == "reservations_damaged"
    assert str(held) in found["reservations"]["error"]
    assert found["last_starts"] == {}
    assert found["weights"][paths[0]]["refused_id"] == "not_safetensors"
    assert found["weights"][paths[1]] == {"there": False}
    assert found["files"][files[0]]["refused_id"] == "link_leads_out"
    assert [found["files"][file] for file in files[1:]] == [{"text": "broken"}, {"text": None}]


def test_a_file_that_root_may_not_read_is_named(held: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied", str(held))

    monkeypatch.setattr(reservations, "read_reservations", refuse)
    assert report(["reservations"])["reservations"] == {"error": f"{held} cannot be read: Permission denied."}


def test_what_never_returns_is_an_entry_and_holds_nothing(
    held: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a folder on a server of NFS that is gone; its process must not keep the connection to the node open."""
    (tmp_path / "there").write_text("text")

    def hang(path: str) -> dict[str, Any]:
        if path.endswith("there"):
            return {"text": "text"}
        streams = [str(Path(f"/proc/self/fd/{stream}").readlink()) for stream in (0, 1, 2)]
        (tmp_path / "hangs").write_text(json.dumps([os.getpid(), streams]))
        signal.pause()
        raise AssertionError

    monkeypatch.setattr(errors, "SECONDS", 1.0)
    monkeypatch.setattr(parts, "OF_PATHS", {"files": hang})
    paths = [str(tmp_path / name) for name in ("gone", "there")]
    found = report(["last_starts", "files"], files=paths)
    assert found["files"][paths[0]]["refused_id"] == "not_read_in_time"
    assert found["files"][paths[1]] == {"text": "text"}
    assert found["last_starts"] == {}
    process, streams = json.loads((tmp_path / "hangs").read_text())
    assert streams == [os.devnull] * 3
    os.waitpid(process, 0)


def test_a_part_whose_command_fails_does_not_end_the_report(held: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(module: Any) -> None:
        module.fail_json(msg="systemctl show failed with status 1")

    monkeypatch.setattr(parts, "PARTS", {**PARTS, "jobs": fail})
    assert report(["jobs", "last_starts"]) == {
        "jobs": {"error": "systemctl show failed with status 1"},
        "last_starts": {},
    }


def test_the_last_start_of_an_instance_is_reported(held: Path, tmp_path: Path) -> None:
    (tmp_path / "plans/a").mkdir(parents=True)
    (tmp_path / "states/a").mkdir(parents=True)
    state = {"phase": "serving", "sized_by": "6f1e", "memory": {"kv_cache_blocks": "4096"}}
    (tmp_path / "states/a/state.json").write_text(json.dumps(state), encoding="utf-8")
    assert report(["last_starts"])["last_starts"] == {"a": {"sized_by": "6f1e", "kv_blocks": 4096}}


def test_weights_come_back_as_they_were_read(tmp_path: Path) -> None:
    shard(tmp_path / "one.safetensors", {"a": ("BF16", 200), "b": ("F8_E4M3", 7)})
    config = {"model_type": "qwen3", "auto_map": {"AutoModel": "own.Own"}, "name": "\ud800 é", "length": 1e30}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    beside = {"auto_map": {"AutoTokenizer": [None, "other/repo--evil.Evil"]}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(beside), encoding="utf-8")
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"z": "two.safetensors"}}', encoding="utf-8")
    read = read_weights(str(tmp_path))
    found = report(["weights"], weights=[str(tmp_path)])["weights"][str(tmp_path)]
    assert read is not None
    assert read.code is not None
    assert read.missing
    assert read.foreign.references
    assert weights_in(found) == read


def test_a_report_of_ninety_thousand_tensors_is_small(tmp_path: Path) -> None:
    """DeepSeek-R1 has 92,000 tensors in 163 files, and an index of 9 MB."""
    names = [f"model-{number:05}-of-00163.safetensors" for number in range(163)]
    for name in names:
        shard(tmp_path / name, {f"model.layers.{number}.weight_scale_inv": ("F32", 4) for number in range(560)})
    index = {"weight_map": {f"{name}{number}": name for name in names for number in range(560)}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    found = report(["weights"], weights=[str(tmp_path)])
    assert found["weights"][str(tmp_path)]["parameters"] == {"F32": 163 * 560}
    assert len(json.dumps(found)) < 1000


def test_only_parts_that_there_are_can_be_asked_for() -> None:
    answer = run_main("node_report", {"parts": ["cards", "everything"]})
    assert answer["failed"]
    assert all(part in answer["msg"] for part in (*PARTS, *OF_PATHS))
