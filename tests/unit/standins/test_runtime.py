"""The container runtime: what it does to a bundle, and what it leaves alone."""

from __future__ import annotations

import copy
import fcntl
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.standins.node import habana_container_runtime as runtime
from simulator.standins.node import hl_smi

ROOT = Path(__file__).resolve().parents[3]

UNLIMITED = 18446744073709551615


def spec(*environment: str, rlimits: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {"process": {"env": ["PATH=/bin", *environment], "rlimits": rlimits or []}, "mounts": [], "linux": {}}


def rewrite(changed: dict[str, Any], available: list[int], **config: Any) -> list[str]:
    return runtime.rewrite(
        changed, config, available, {"RLIMIT_MEMLOCK": 8388608, "RLIMIT_NOFILE": -1}, may_raise=False
    )


def devices(changed: dict[str, Any]) -> list[str]:
    return [mount["destination"] for mount in changed["mounts"] if mount["destination"].startswith("/dev/")]


@pytest.mark.parametrize(
    ("environment", "cards"),
    [
        (["HABANA_VISIBLE_DEVICES=2,0"], [0, 2]),
        (["HABANA_VISIBLE_DEVICES=all"], [0, 1, 2, 3]),
        (["HABANA_VISIBLE_DEVICES="], [0, 1, 2, 3]),
        ([], [0, 1, 2, 3]),
        # The real runtime compares with "all" only.
        (["HABANA_VISIBLE_DEVICES=ALL"], []),
    ],
)
def test_a_container_gets_the_cards_it_names(environment: list[str], cards: list[int]) -> None:
    changed = spec(*environment)
    rewrite(changed, [0, 1, 2, 3])
    assert devices(changed) == [f"/dev/accel/{name}{n}" for n in cards for name in ("accel", "accel_controlD")]
    assert "/etc/gaudi-simulator/node.json" in [mount["destination"] for mount in changed["mounts"]]


def test_a_card_whose_memory_is_not_free_is_not_given() -> None:
    changed = spec("HABANA_VISIBLE_DEVICES=0,1")
    notes = runtime.rewrite(changed, {}, [0, 1], {}, may_raise=True, held=frozenset({1, 7}))
    assert devices(changed) == ["/dev/accel/accel0", "/dev/accel/accel_controlD0"]
    assert notes == ["cards [1] are not given: their memory is not free yet", "cards [0]"]


@pytest.fixture
def ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A node; says what containers leave behind there."""
    monkeypatch.setattr(runtime, "CONTAINERS", tmp_path / "containers")
    monkeypatch.setattr(runtime, "FREE_AT", tmp_path / "free_at")
    monkeypatch.setattr(runtime, "NODE_DOCUMENT", tmp_path / "node.json")

    def describe(**said: Any) -> None:
        document = {"ended": {"memory_free_after": 0, "worker_stays": False, **said}}
        (tmp_path / "node.json").write_text(json.dumps(document))

    return describe


def test_memory_is_free_late_after_a_deleted_container_where_that_is_described(
    ended: Callable[..., None], tmp_path: Path
) -> None:
    ended(memory_free_after=10)
    changed = spec("HABANA_VISIBLE_DEVICES=1,2")
    rewrite(changed, [0, 1, 2])
    runtime.remember(changed, "c0")
    assert runtime.still_held(100.0) == set()
    assert runtime.forget("c0", 100.0) is None
    assert runtime.still_held(109.9) == {1, 2}
    assert hl_smi.still_held(109.9, tmp_path / "free_at") == {1, 2}
    assert runtime.still_held(110.0) == set() == set(hl_smi.still_held(110.0, tmp_path / "free_at"))
    # The engine deletes a second time where it is not sure.
    assert runtime.forget("c0", 200.0) is None
    assert runtime.still_held(200.0) == set()


@pytest.mark.parametrize(
    ("path", "group"),
    [
        ("system.slice:docker:c0", "system.slice/docker-c0.scope"),
        ("/docker/c0", "docker/c0"),
        (None, "docker/c0"),
    ],
)
def test_a_worker_stays_in_its_containers_group_where_that_is_described(
    ended: Callable[..., None], path: str | None, group: str
) -> None:
    ended(worker_stays=True)
    changed = spec("HABANA_VISIBLE_DEVICES=1,2")
    changed["linux"]["cgroupsPath"] = path
    rewrite(changed, [0, 1, 2])
    runtime.remember(changed, "c0")
    command = runtime.forget("c0", 100.0)
    assert command is not None
    assert command[2:] == [group, "1", "2"]
    # A container without cards leaves nothing.
    changed = spec("HABANA_VISIBLE_DEVICES=none")
    runtime.remember(changed, "c1")
    assert runtime.forget("c1", 100.0) is None


def test_a_worker_holds_its_cards_until_it_is_killed(tmp_path: Path) -> None:
    (tmp_path / "accel3").touch()
    program = (
        f"from pathlib import Path; from simulator.standins.node import simulated_worker as it; "
        f"it.DEV = it.GROUPS = Path({str(tmp_path)!r}); it.main()"
    )
    worker = subprocess.Popen([sys.executable, "-c", program, "docker/c0", "3"], cwd=ROOT)
    try:
        # It blocks signals last; one that is made has them blocked, too.
        named = re.compile(r"Name:\tVLLM::Worker_TP\n.*^SigBlk:\t0*[1-9a-f]", re.MULTILINE | re.DOTALL)
        while not named.match(Path(f"/proc/{worker.pid}/status").read_text()):
            assert worker.poll() is None
        worker.terminate()
        assert (tmp_path / "docker/c0/cgroup.procs").read_text() == str(worker.pid)
        with (tmp_path / "accel3").open() as device, pytest.raises(BlockingIOError):
            fcntl.flock(device, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert worker.poll() is None
    finally:
        worker.kill()
        assert worker.wait() == -9
    with (tmp_path / "accel3").open() as device:
        fcntl.flock(device, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.parametrize(
    ("arguments", "container"),
    [
        (["--root", "/run/x", "delete", "--force", "c0"], "c0"),
        (["delete", "c0"], "c0"),
        (["kill", "c0", "9"], None),
        (["create", "--bundle", "/b", "c0"], None),
    ],
)
def test_only_a_delete_ends_a_container(arguments: list[str], container: str | None) -> None:
    assert runtime.deleted_by(arguments) == container


def test_a_card_that_is_not_there_is_an_error_the_container_can_read() -> None:
    changed = spec("HABANA_VISIBLE_DEVICES=1,9")
    notes = rewrite(changed, [0, 1])
    assert devices(changed) == ["/dev/accel/accel1", "/dev/accel/accel_controlD1"]
    assert 'HABANA_RUNTIME_ERROR="mountHLDevice: requested device does not exist: 9"' in changed["process"]["env"]
    assert "requested device does not exist: 9" in notes


def test_without_a_driver_the_container_starts_without_cards_and_says_why() -> None:
    changed = spec("HABANA_VISIBLE_DEVICES=all")
    notes = rewrite(changed, [])
    assert devices(changed) == []
    assert notes == ["no habanalabs devices found. driver might not be loaded"]
    assert f'HABANA_RUNTIME_ERROR="{runtime.NO_DEVICES}"' in changed["process"]["env"]


def test_a_container_that_asks_for_no_card_is_left_alone_where_configured() -> None:
    quiet = {"habana-container-runtime": {"visible_devices_all_as_default": False}}
    untouched = spec()
    before = copy.deepcopy(untouched)
    assert rewrite(untouched, [0, 1], **quiet) == []
    assert untouched == before


def test_under_a_device_plugin_devices_are_not_added() -> None:
    changed = spec("HABANA_VISIBLE_DEVICES=all")
    rewrite(changed, [0, 1], mount_accelerators=False)
    assert devices(changed) == []


def test_an_rlimit_above_what_may_be_granted_is_lowered_and_named() -> None:
    changed = spec(
        rlimits=[
            {"type": "RLIMIT_MEMLOCK", "hard": UNLIMITED, "soft": UNLIMITED},
            {"type": "RLIMIT_NOFILE", "hard": 1048576, "soft": 1048576},
        ]
    )
    notes = rewrite(changed, [0])
    assert changed["process"]["rlimits"] == [
        {"type": "RLIMIT_MEMLOCK", "hard": 8388608, "soft": 8388608},
        {"type": "RLIMIT_NOFILE", "hard": 1048576, "soft": 1048576},
    ]
    assert notes[0].startswith(f"RLIMIT_MEMLOCK {UNLIMITED} lowered to 8388608")


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(0, 2**63))
def test_limits_are_never_raised(hard: int, soft: int, granted: int) -> None:
    changed = spec(rlimits=[{"type": "RLIMIT_MEMLOCK", "hard": hard, "soft": min(soft, hard)}])
    runtime.lower_rlimits(changed["process"], may_raise=False, own={"RLIMIT_MEMLOCK": granted})
    limit = changed["process"]["rlimits"][0]
    assert limit["hard"] == min(hard, granted)
    assert limit["soft"] == min(soft, hard, granted)
    kept = spec(rlimits=[{"type": "RLIMIT_MEMLOCK", "hard": hard, "soft": 0}])
    runtime.lower_rlimits(kept["process"], may_raise=True, own={"RLIMIT_MEMLOCK": granted})
    assert kept["process"]["rlimits"][0]["hard"] == hard


@pytest.mark.parametrize(
    ("arguments", "bundle"),
    [
        (["--root", "/run/x", "create", "--bundle", "/b/1", "--pid-file", "/p", "id"], Path("/b/1")),
        (["--log=/l", "create", "--bundle=/b/2", "id"], Path("/b/2")),
        (["create", "-b", "/b/3", "id"], Path("/b/3")),
        (["create", "id"], Path.cwd()),
        (["start", "--bundle", "/b/4", "id"], None),
        (["delete", "--force", "id"], None),
    ],
)
def test_only_a_create_names_a_bundle(arguments: list[str], bundle: Path | None) -> None:
    assert runtime.bundle_of(arguments) == bundle


@pytest.mark.parametrize(
    ("arguments", "process"),
    [
        (["--root", "/run/x", "exec", "--process", "/p/1", "--detach", "id"], Path("/p/1")),
        (["exec", "-p=/p/2", "id"], Path("/p/2")),
        (["exec", "id", "true"], None),
        (["create", "--process", "/p/3", "id"], None),
    ],
)
def test_only_an_exec_names_a_process(arguments: list[str], process: Path | None) -> None:
    assert runtime.process_of(arguments) == process


def test_a_process_that_is_added_gets_no_more_than_the_node_may_grant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    added = tmp_path / "process"
    added.write_text(json.dumps({"rlimits": [{"type": "RLIMIT_NOFILE", "hard": 1 << 20, "soft": 1 << 20}]}))
    became: list[list[str]] = []
    monkeypatch.setattr(sys, "argv", ["runtime", "exec", "--process", str(added), "id"])
    monkeypatch.setattr(runtime, "may_raise_limits", lambda: False)
    monkeypatch.setattr(runtime, "hard_limits", lambda: {"RLIMIT_NOFILE": 20000})
    monkeypatch.setattr("shutil.which", lambda _name: "/usr/bin/runc")
    monkeypatch.setattr("os.execv", lambda _path, words: became.append(words))
    runtime.main()
    assert json.loads(added.read_text())["rlimits"] == [{"type": "RLIMIT_NOFILE", "hard": 20000, "soft": 20000}]
    assert became == [["/usr/bin/runc", "exec", "--process", str(added), "id"]]


def test_the_configuration_that_is_installed_can_be_read() -> None:
    config = tomllib.loads(
        (Path(runtime.__file__).parent / "habana-container-runtime.toml").read_text(encoding="utf-8")
    )
    assert config["mount_accelerators"] is True
    assert config["habana-container-runtime"]["visible_devices_all_as_default"] is True
