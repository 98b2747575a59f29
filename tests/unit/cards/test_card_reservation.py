"""card_reservation: the file, the lock, check mode, and twenty callers at once."""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.gaudi.cards.document import build_topology

from tests.unit.cards.modules import run_main
from tests.unit.cards.nodes import holder, sources
from tests.unit.cards.test_reservations import card

CALLERS = Path(__file__).with_name("reserve_in_processes.py")


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A healthy node on which nothing was ever reserved."""
    module = importlib.import_module("card_reservation")
    monkeypatch.setattr(module, "STATE", tmp_path / "state")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    on_node(monkeypatch)
    return tmp_path / "state"


def on_node(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    module = importlib.import_module("card_reservation")
    monkeypatch.setattr(module, "read_topology", lambda _module, links: build_topology(sources(**changes)))


def reserve(instance: str, *modules: int, **options: Any) -> dict[str, Any]:
    return run_main("card_reservation", {"instance": instance, "cards": [card(m) for m in modules], **options})


def held(state: Path) -> dict[str, list[int]]:
    reservations = json.loads((state / "cards.lock").read_text(encoding="utf-8"))["reservations"]
    return {name: [one["module_id"] for one in value["cards"]] for name, value in reservations.items()}


def files(state: Path) -> list[str]:
    return sorted(path.name for path in state.iterdir())


def test_taking_asking_again_and_freeing(state: Path) -> None:
    taken = reserve("qwq-32b", 0, 1)
    assert (taken["changed"], held(state)) == (True, {"qwq-32b": [0, 1]})
    file = state / "cards.lock"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE((state / "cards.lock.guard").stat().st_mode) == 0o600
    before = file.stat()
    again = reserve("qwq-32b", 1, 0)
    assert (again["changed"], again["reservations"]) == (False, taken["reservations"])
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert reserve("qwen3-8b", 2)["changed"]
    freed = reserve("qwq-32b", state="absent")
    assert (freed["changed"], held(state)) == (True, {"qwen3-8b": [2]})
    assert not reserve("qwq-32b", state="absent")["changed"]


def test_cards_of_an_interrupted_check_are_free(state: Path) -> None:
    """A check that runs holds its lock; a kill or a loss of power releases it."""
    reserve("compute-check", 0, 1)
    with (state / "acceptance.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "reserved by compute-check" in reserve("qwq-32b", 0)["msg"]
    assert reserve("qwq-32b", 0)["changed"]
    assert held(state) == {"qwq-32b": [0]}


def test_a_refusal_leaves_everything_as_it_was(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reserve("qwq-32b", 0, 1)
    before = (state / "cards.lock").read_bytes()
    refused = reserve("qwen3-8b", 2, 1)
    assert refused["failed"]
    assert "reserved by qwq-32b" in refused["msg"]
    assert refused["refused_id"] == "card_reserved"
    assert list(refused["reservations"]) == ["qwq-32b"]
    on_node(monkeypatch, holders=[holder(0)])
    assert "in use by foo.service (pid 4242 python3)" in reserve("qwen3-8b", 3)["msg"]
    assert (state / "cards.lock").read_bytes() == before


def test_a_refusal_on_an_untouched_node_reserves_nothing(state: Path) -> None:
    assert "is none. Choose another name" in reserve("../../etc", 0)["msg"]
    assert not (state / "cards.lock").exists()


def test_a_directory_in_the_place_of_the_lock_is_said(state: Path) -> None:
    (state / "cards.lock.guard").mkdir(parents=True)
    refused = reserve("qwq-32b", 0)
    assert refused["refused_id"] == "lock_damaged"
    assert f"{state}/cards.lock.guard is damaged: it is a directory. Move it away" in refused["msg"]
    assert files(state) == ["cards.lock.guard"]


def test_anybody_but_root_is_refused(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert "this ran as user id 1000. Run the task with become: true" in reserve("qwq-32b", 0)["msg"]
    assert not state.exists()


def test_freeing_needs_no_cards_to_look_at(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reserve("qwq-32b", 0)
    on_node(monkeypatch, seen=None, pci=(), accel=())
    assert reserve("qwq-32b", state="absent")["changed"]
    assert held(state) == {}


def test_check_mode_foresees_and_changes_nothing(state: Path) -> None:
    foreseen = reserve("qwq-32b", 0, _ansible_check_mode=True, _ansible_diff=True)
    assert (foreseen["changed"], list(foreseen["reservations"]), state.exists()) == (True, ["qwq-32b"], False)
    assert foreseen["diff"]["before"] == ""
    assert '"module_id": 0' in foreseen["diff"]["after"]
    reserve("qwq-32b", 0)
    (state / "cards.lock.guard").unlink()
    before = (state / "cards.lock").read_bytes()
    assert reserve("qwen3-8b", 1, _ansible_check_mode=True)["changed"]
    assert not reserve("qwq-32b", 0, _ansible_check_mode=True)["changed"]
    assert "reserved by qwq-32b" in reserve("qwen3-8b", 0, _ansible_check_mode=True)["msg"]
    assert ((state / "cards.lock").read_bytes(), files(state)) == (before, ["cards.lock"])


def test_the_diff_is_the_file(state: Path) -> None:
    first = reserve("qwq-32b", 0, _ansible_diff=True)["diff"]
    text = (state / "cards.lock").read_text(encoding="utf-8")
    assert (first["before"], first["after"]) == ("", text)
    again = reserve("qwq-32b", 0, _ansible_diff=True)["diff"]
    assert (again["before"], again["after"]) == (text, text)
    assert "diff" not in reserve("qwq-32b", 0)


@pytest.mark.parametrize("content", [b"", b"x", b"\xff\xfe", b'{"schema": 9}'])
def test_a_broken_file_beside_a_broken_plan_gives_no_card_and_keeps_nobody_from_leaving(
    state: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    state.mkdir()
    (state / "cards.lock").write_bytes(content)
    plan = state / "plans/other/plan.json"
    plan.parent.mkdir(parents=True)
    plan.write_text("{")
    monkeypatch.setattr(importlib.import_module("card_reservation"), "PLANS", state / "plans")
    failed = reserve("qwq-32b", 0)
    assert str(plan) in failed["msg"]
    assert failed["refused_id"] == "reservations_damaged"
    left = reserve("qwq-32b", state="absent")
    assert left.get("changed") is False, left
    assert str(plan) in capsys.readouterr().err
    assert (state / "cards.lock").read_bytes() == content


def test_an_interruption_leaves_the_old_file(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reserve("qwq-32b", 0)
    before = (state / "cards.lock").read_bytes()
    module = importlib.import_module("card_reservation")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken, pytest.raises(OSError, match="No space left"):
        broken.setattr("os.fsync", full)
        module.write_file("{}")
    assert (state / "cards.lock").read_bytes() == before
    assert files(state) == ["cards.lock", "cards.lock.guard"]


def test_the_documentation_is_the_specification() -> None:
    module = importlib.import_module("card_reservation")
    documented = yaml.safe_load(module.DOCUMENTATION)["options"]

    def plain(options: dict[str, Any], inner: str) -> dict[str, Any]:
        return {
            name: {
                **{key: value for key, value in option.items() if key not in {"description", inner}},
                **({"options": plain(option[inner], inner)} if inner in option else {}),
            }
            for name, option in options.items()
        }

    assert plain(documented, "suboptions") == plain(module.ARGUMENT_SPEC, "options")


@contextlib.contextmanager
def waiting_callers(state: Path, wishes: Mapping[str, Sequence[int]]) -> Iterator[dict[str, int]]:
    """Have a process for each instance that wants cards, all waiting for their turn; yields their ids.

    The lock is held, as by another caller, until the end of the block; after it all of them have answered.
    """
    state.mkdir()
    guard = os.open(state / "cards.lock.guard", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(guard, fcntl.LOCK_EX)
    requests = {name: {"instance": name, "cards": [card(m) for m in modules]} for name, modules in wishes.items()}
    with subprocess.Popen(
        [sys.executable, str(CALLERS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as callers:
        assert callers.stdin is not None
        assert callers.stdout is not None
        json.dump({"state": str(state), "requests": requests}, callers.stdin)
        callers.stdin.close()
        pids = json.loads(callers.stdout.readline())
        assert not (state / "cards.lock").exists(), "somebody did not wait for the turn"
        yield pids
        os.close(guard)
    assert callers.returncode == 0


def answers(state: Path, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    return {name: json.loads(Path(f"{state}.{name}.json").read_text(encoding="utf-8")) for name in names}


def test_twenty_callers_at_once(tmp_path: Path) -> None:
    """Twenty instances want two cards each, out of eight: each card goes to one, and nothing is lost."""
    wishes = {f"i{number}": (number % 8, (number + 1) % 8) for number in range(20)}
    state = tmp_path / "state"
    with waiting_callers(state, wishes) as pids:
        assert len(set(pids.values())) == 20
    answered = answers(state, wishes)
    granted = {name for name, answer in answered.items() if answer.get("changed")}
    assert held(state) == {name: sorted(wishes[name]) for name in granted}
    cards = [module for modules in held(state).values() for module in modules]
    assert len(cards) == len(set(cards))
    # Whoever was refused was told the name of somebody who does have the card.
    for name in set(wishes) - granted:
        assert answered[name]["failed"]
        assert any(f"is reserved by {other} since" in answered[name]["msg"] for other in granted)
        assert any(module in cards for module in wishes[name])
    assert files(state) == ["cards.lock", "cards.lock.guard"]


def test_a_caller_that_is_killed_does_not_hold_up_the_others(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with waiting_callers(state, {"qwq-32b": [0], "qwen3-8b": [0]}) as pids:
        os.kill(pids["qwq-32b"], signal.SIGKILL)
    assert answers(state, ["qwen3-8b"])["qwen3-8b"]["changed"]
    assert held(state) == {"qwen3-8b": [0]}
