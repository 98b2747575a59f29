"""Taking a folder from another node: what is checked, what is refused, what continues.

A small program stands in for rsync here, so that it can misbehave; real rsync between nodes is in molecule/fanout.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import threading
import time
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from gaudi.base.refusal import Refusal
from gaudi.node import folders
from gaudi.weights import pin_file, record
from gaudi_weights import fetch, manifest, rsync, take
from gaudi_weights.model import StopSwitch
from gaudi_weights.progress import TransferProgress
from gaudi_weights.request import WeightsRequest
from gaudi_weights.staging import only_one

from simulator.hub.server import SimulatedHub
from tests.unit.host.modules import run_main
from tests.unit.preflight.test_templates import evaluate, fact_of, task_of
from tests.unit.weights.models import SERVED, requested, source

ROOT = Path(__file__).parents[3]
LIBRARY = f"{ROOT / 'roles/model_weights/files'}:{ROOT / 'module_utils'}"
FIRST = "model-00001-of-00003.safetensors"

# Copies what it is asked for out of the folder GIVEN, or GIVEN.partial, and does to it what WRONG says.
RSYNC = """#!{python}
import os, shutil, sys, time
from pathlib import Path
folder, address = Path(sys.argv[-1]), sys.argv[-2]
assert address.startswith("rsync://receiver@10.0.0.7:8730/"), address
given = Path(os.environ["GIVEN"] + dict(weights="", arriving=".partial")[address.split("/")[3]])
assert Path(next(a for a in sys.argv if a.startswith("--password-file=")).partition("=")[2]).read_text() == "secret"
names = [name for name in sys.stdin.read().split(chr(0)) if name]
exec(os.environ.get("WRONG", ""))
if not given.exists():
    sys.exit("@ERROR: chroot failed")
for name in names:
    if "--ignore-missing-args" in sys.argv and not (given / name).exists():
        continue
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(given / name, folder / name)
exec(os.environ.get("WRONG_AFTER", ""))
for name in names:
    if (folder / name).exists():
        print((folder / name).stat().st_size, name)
"""

Ask = Callable[..., Path]


@pytest.fixture
def given(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A finished folder on another node, and a program named rsync that copies out of it."""
    made = requested(tmp_path / "peer", source(hub))
    fetch.fetch(made, progress, stop)
    program = tmp_path / "bin" / "rsync"
    program.parent.mkdir()
    program.write_text(RSYNC.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    monkeypatch.setenv("GIVEN", str(made.target))
    return made.target


@pytest.fixture
def ask(given: Path, tmp_path: Path) -> Ask:
    """A request as the role writes it; arguments replace what it says."""

    def write(**more: Any) -> Path:
        (tmp_path / "token").write_text("secret")
        (tmp_path / "node").mkdir(exist_ok=True)
        content = {
            "peer": "gaudi-01",
            "address": "rsync://receiver@10.0.0.7:8730",
            "relays": False,
            "repositories": {},
            "kinds": ["huggingface", "modelscope"],
            "password_file": str(tmp_path / "token"),
            "target": str(tmp_path / "node" / "Small-Model"),
            "manifest": json.loads((given / ".gaudi-serving/manifest.json").read_text()),
            "mounted_on": "",
            "root_option": "gaudi_weights_root",
            "reserve": 0,
            "extra_room": 0,
            "measured_cards": 0,
        }
        path = tmp_path / "take.json"
        path.write_text(json.dumps({**content, **more}))
        return path

    return write


def run(request: Path) -> dict[str, Any]:
    return take.take(*take.load(request), TransferProgress(None))


def test_it_arrives_whole_with_the_peers_record(ask: Ask, given: Path, tmp_path: Path) -> None:
    result = run(ask())
    target = tmp_path / "node" / "Small-Model"
    assert manifest.load(target) == manifest.load(given)
    assert all((target / name).read_bytes() == (given / name).read_bytes() for name in SERVED)
    assert result["received"] == result["bytes"] > 0
    assert not target.with_name("Small-Model.partial").exists()
    assert run(ask())["received"] == 0


@pytest.mark.parametrize(
    "wrong",
    [
        f"(folder / {FIRST!r}).write_bytes(b'x' * (folder / {FIRST!r}).stat().st_size)",
        f"os.truncate(folder / {FIRST!r}, 5)",
        f"(folder / {FIRST!r}).unlink()",
        f"(folder / {FIRST!r}).unlink(); (folder / {FIRST!r}).symlink_to(os.environ['GIVEN'] + '/{FIRST}')",
    ],
)
def test_what_is_not_as_recorded_is_named_and_brought_again(
    wrong: str, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WRONG_AFTER", wrong)
    with pytest.raises(Refusal, match=rf"^gaudi-01 gave 1 files of Small-Model .*{FIRST}\. playbooks/verify_weights"):
        run(ask())
    assert not (tmp_path / "node" / "Small-Model").exists()
    monkeypatch.delenv("WRONG_AFTER")
    assert run(ask())["bytes"] > 0


# Sends a file, and writes to it again once it has been checked: rsync would, for a peer that sends its index again.
SENDS_AGAIN = """
first, last = names[0], names[-1]
for name in names:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(given / name, folder / name)
sent = open(folder / first, "r+b")
print(0, first, flush=True)
print(0, last, flush=True)
until = time.monotonic() + 1
while (folder / first).exists() and time.monotonic() < until:
    time.sleep(0.01)
sent.write(b"other bytes")
sent.close()
sys.exit(0)
"""


def test_a_file_that_is_sent_again_after_its_check_is_not_taken(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WRONG", SENDS_AGAIN)
    with pytest.raises(Refusal) as refused:
        run(ask())
    assert refused.value.id == "not_as_recorded"
    assert not (tmp_path / "node" / "Small-Model").exists()


def test_a_file_that_is_opened_for_writing_while_it_is_read_is_checked_again(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"bytes")
    with path.open("rb") as stream:
        unwritten = take.unwritten_since_now(stream)
        assert unwritten()
        # It waits for the reader.
        writer = subprocess.Popen(["sh", "-c", f": >>{path}"])
        # Less than python -m tests.breaks gives a test: one that is ended there is not caught.
        until = time.monotonic() + 120
        while unwritten() and time.monotonic() < until:
            threading.Event().wait(0.01)
        assert not unwritten()
    assert writer.wait(300) == 0
    with path.open("rb+"), path.open("rb") as stream:
        assert not take.unwritten_since_now(stream)()


def test_a_file_stays_in_its_place_until_rsync_has_set_its_times(
    ask: Ask, given: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rsync prints a file's line first. If the file is gone when it sets the times, it ends with status 23."""
    sets_times = """
for name in sorted(names):
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(given / name, folder / name)
    print((folder / name).stat().st_size, name, flush=True)
    print(4096, "./", flush=True)
    deadline = time.monotonic() + 0.5
    while time.monotonic() < deadline:
        time.sleep(0.01)
        if not (folder / name).exists():
            sys.exit(23)
sys.exit(0)
"""
    monkeypatch.setenv("WRONG", sets_times)
    assert run(ask())["received"] > 0
    assert manifest.load(tmp_path / "node" / "Small-Model") == manifest.load(given)


def test_a_peer_that_goes_away_is_named_and_what_came_is_kept(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = (
        f"shutil.copy2(Path(os.environ['GIVEN']) / {FIRST!r}, folder / {FIRST!r});"
        "print('rsync error: timeout waiting for daemon connection', file=sys.stderr); sys.exit(35)"
    )
    monkeypatch.setenv("WRONG", gone)
    said = r"gaudi-01 did not give Small-Model \(rsync, status 35: rsync error: timeout .* each other at 10.0.0.7:8730"
    with pytest.raises(Refusal, match=said):
        run(ask())
    monkeypatch.delenv("WRONG")
    result = run(ask())
    assert result["bytes"] - result["received"] == (tmp_path / "node" / "Small-Model" / FIRST).stat().st_size


# Several times the folder, in one file that was asked for, in one that was not, or in thousands of empty ones. Whoever
# does not stop it finds that it ends well.
FLOODS = [
    "(folder / names[0]).touch(); os.truncate(folder / names[0], 1 << 33)",
    "(folder / 'more.bin').touch(); os.truncate(folder / 'more.bin', 1 << 33)",
    "[(folder / f'more-{count}').touch() for count in range(3000)]",
    "(folder / 'code').mkdir(); [(folder / 'code' / str(count)).mkdir() for count in range(3000)]",
]


@pytest.mark.parametrize("flood", FLOODS)
def test_a_peer_that_sends_more_than_its_record_has_is_stopped(
    flood: str, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rsync, "INSPECT_EVERY", 0.05)
    # Nothing of it is there any more when the folder is copied after all.
    monkeypatch.setenv("WRONG", f"{flood}; time.sleep(60); shutil.rmtree(folder); folder.mkdir()")
    with pytest.raises(Refusal, match="gaudi-01 sent more than its record of Small-Model has") as refused:
        run(ask())
    assert refused.value.id == "peer_sends_too_much"
    assert not (tmp_path / "node" / "Small-Model").exists()
    assert not (tmp_path / "node" / "Small-Model.partial" / record.INCOMING).exists()
    monkeypatch.delenv("WRONG")
    assert run(ask())["received"] > 0


def test_a_peer_is_asked_for_the_files_of_its_record_and_for_none_that_is_larger(
    ask: Ask, given: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = tmp_path / "asked"
    monkeypatch.setenv("WRONG", f"Path({str(asked)!r}).write_text(chr(10).join(sys.argv + names))")
    run(ask())
    lines = asked.read_text().splitlines()
    largest = max(file.size for file in record.parse((given / record.MANIFEST).read_text()).files)
    assert f"--max-size={max(largest, rsync.SMALL)}" in lines
    assert set(SERVED) <= set(lines)
    assert "--recursive" not in lines


def test_what_a_peer_prints_without_end_is_not_kept(ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "for stream in (sys.stdout, sys.stderr): [stream.write('x' * (1 << 20)) for _ in range(64)]"
    monkeypatch.setenv("WRONG", f"{text}\nsys.exit(5)")
    _, offer = take.load(ask())
    tracemalloc.start()
    try:
        with pytest.raises(Refusal, match="status 5: xxx") as refused:
            rsync.receive(offer.peer, tmp_path, "Small-Model", [], [FIRST], rsync.Limit.of(tmp_path, [FIRST], 1, 1))
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    assert len(str(refused.value)) < 1000


def test_measurements_that_run_something_are_not_taken_whoever_recorded_them(
    ask: Ask, given: Path, tmp_path: Path
) -> None:
    evil = io.BytesIO()
    header = b"{'descr': '|O', 'fortran_order': False, 'shape': (), }".ljust(117) + b"\n"
    with zipfile.ZipFile(evil, "w") as archive:
        array = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + b"cos\nsystem\n(S'id'\ntR."
        archive.writestr("arr_0.npy", array)
    (given / "m_0_1.npz").write_bytes(evil.getvalue())
    file = {
        "name": "m_0_1.npz",
        "size": len(evil.getvalue()),
        "sha256": hashlib.sha256(evil.getvalue()).hexdigest(),
    }
    made = json.loads((given / record.MANIFEST).read_text())
    made["files"].append(file)
    with pytest.raises(Refusal, match="would run what is in it") as refused:
        run(ask(measured_cards=1, manifest=made))
    assert refused.value.id == "measurements_unsafe"
    assert not (tmp_path / "node" / "Small-Model").exists()


def with_file(folder: Path, name: str, content: bytes) -> dict[str, Any]:
    """The record of a folder that gives another file, or one more: its owner says what he likes."""
    (folder / name).write_bytes(content)
    made: dict[str, Any] = json.loads((folder / record.MANIFEST).read_text())
    made["files"] = [file for file in made["files"] if file["name"] != name]
    made["files"].append({"name": name, "size": len(content), "sha256": hashlib.sha256(content).hexdigest()})
    return made


@pytest.mark.parametrize("name", ["config.json", "modeling_evil.py", "pytorch_model.bin", "tokenizer.model.v3"])
@pytest.mark.parametrize("repository", ["", "somebody/else"])
def test_what_is_pinned_binds_a_neighbour(name: str, repository: str, ask: Ask, given: Path, tmp_path: Path) -> None:
    """As it binds a mirror: another node of the site may have been taken over, or may have brought its own."""
    recorded = json.loads((given / record.MANIFEST).read_text())
    pinned = {file["name"]: file["sha256"] for file in recorded["files"] if pin_file.needs_pin(file["name"])}
    assert "config.json" in pinned
    source = {"repository": recorded["repository"], "revision": recorded["revision"], "files": pinned}
    repositories = {"huggingface": source}
    assert run(ask(repositories=repositories))["received"] > 0
    shutil.rmtree(tmp_path / "node")
    made = {**with_file(given, name, b"{}"), "repository": repository or recorded["repository"]}
    with pytest.raises(Refusal) as refused:
        run(ask(repositories=repositories, manifest=made))
    assert refused.value.id == "peer_not_as_pinned"
    assert (repository or name) in str(refused.value)
    assert not (tmp_path / "node" / "Small-Model").exists()
    # Nothing is pinned: not of the site's hub, although of another, or of none.
    unpinned = {"modelscope": {"repository": made["repository"], "revision": "master"}}
    released: list[dict[str, Any]] = [
        {"repositories": {**unpinned, **repositories}, "kinds": ["modelscope"]},
        {"repositories": {}},
    ]
    for more in released:
        assert run(ask(manifest=made, **more))["received"] > 0
        shutil.rmtree(tmp_path / "node")


@pytest.mark.parametrize("name", ["config.json", "chat_template.jinja", "pytorch_model.bin"])
@pytest.mark.parametrize("kinds", [["huggingface"], ["huggingface", "modelscope"], ["git"], []])
@pytest.mark.parametrize("claim", ["pinned", "unpinned", "neither"])
def test_an_unpinned_hub_does_not_release_a_neighbour_from_the_pins(
    name: str, claim: str, kinds: list[str], ask: Ask, given: Path, tmp_path: Path
) -> None:
    recorded = json.loads((given / record.MANIFEST).read_text())
    files = {file["name"]: file["sha256"] for file in recorded["files"] if pin_file.needs_pin(file["name"])}
    pinned = {"repository": recorded["repository"], "revision": recorded["revision"], "files": files}
    unpinned = {"repository": "other/Small-Model"}
    origins = {"huggingface": pinned, "modelscope": unpinned}
    claimed = {"pinned": recorded["repository"], "unpinned": unpinned["repository"], "neither": "somebody/else"}[claim]
    made = {**with_file(given, name, b"{}"), "repository": claimed}
    with pytest.raises(Refusal) as refused:
        run(ask(repositories=origins, kinds=kinds, manifest=made))
    assert refused.value.id == "peer_not_as_pinned"
    assert not (tmp_path / "node" / "Small-Model").exists()


def test_what_was_read_once_is_not_read_again(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WRONG_AFTER", f"(folder / {FIRST!r}).unlink()")
    with pytest.raises(Refusal):
        run(ask())
    monkeypatch.delenv("WRONG_AFTER")
    read: list[str] = []
    real = manifest.sha256_of

    def reading(path: Path, place: Path, advance: Callable[[int], None]) -> str:
        read.append(path.name)
        return real(path, place, advance)

    monkeypatch.setattr(manifest, "sha256_of", reading)
    run(ask())
    assert read == [FIRST]


def damaged(folder: Path, names: dict[str, bytes | None]) -> None:
    """Change files of a finished folder as a bad disk would, and have it found out where sizes do not show it."""
    for name, content in names.items():
        if content is None:
            (folder / name).unlink()
        else:
            (folder / name).write_bytes(content)
    (folder / record.VERIFIED).write_text(json.dumps({"verified": "2026-01-31T08:00:00Z", "wrong": sorted(names)}))


def test_files_that_are_wrong_are_taken_alone_and_put_in_their_places(ask: Ask, given: Path, tmp_path: Path) -> None:
    run(ask())
    target = tmp_path / "node" / "Small-Model"
    size = (target / FIRST).stat().st_size
    damaged(target, {FIRST: b"x" * size, "config.json": None})
    kept = {path: path.stat().st_ino for path in target.iterdir() if path.is_file() and path.name != FIRST}
    result = run(ask())
    assert result["repaired"] == ["config.json", FIRST]
    assert result["received"] == size + (given / "config.json").stat().st_size
    assert all((target / name).read_bytes() == (given / name).read_bytes() for name in SERVED)
    assert {path: path.stat().st_ino for path in kept} == kept
    assert [path.name for path in (target / record.FOLDER).iterdir()] == ["manifest.json"]
    assert [path.name for path in target.parent.iterdir()] == ["Small-Model"]


def test_what_is_repaired_is_checked_before_it_is_put_in_its_place(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(ask())
    target = tmp_path / "node" / "Small-Model"
    damaged(target, {FIRST: b"x"})
    monkeypatch.setenv("WRONG_AFTER", f"(folder / {FIRST!r}).write_bytes(b'y')")
    with pytest.raises(
        Refusal, match="gaudi-01 gave 1 files of Small-Model that are not what its record says"
    ) as refused:
        run(ask())
    assert refused.value.id == "not_as_recorded"
    assert (target / FIRST).read_bytes() == b"x"
    assert (target / record.VERIFIED).exists()


def test_a_peer_of_other_files_repairs_nothing(ask: Ask, given: Path, tmp_path: Path) -> None:
    run(ask())
    damaged(tmp_path / "node" / "Small-Model", {FIRST: b"x"})
    other = json.loads((given / ".gaudi-serving/manifest.json").read_text())
    del other["files"][0]
    with pytest.raises(Refusal, match="gaudi-01 has other files under the name Small-Model"):
        run(ask(manifest=other))
    # Nothing came, so nothing is left.
    assert [path.name for path in (tmp_path / "node").iterdir()] == ["Small-Model"]


def test_where_nothing_came_nothing_is_left_but_what_came_is(tmp_path: Path) -> None:
    wanted = requested(tmp_path / "node")
    with only_one(wanted):
        (wanted.staging / record.SCRATCH / "tree").mkdir(parents=True)
        (wanted.staging / record.SCRATCH / "tree" / "pack").write_text("of a source that was refused")
    assert not wanted.staging.exists()
    with only_one(wanted):
        (wanted.staging / FIRST).write_bytes(b"x")
    assert (wanted.staging / FIRST).exists()


@pytest.mark.parametrize("gone", [False, True], ids=["beside it", "removed"])
@pytest.mark.parametrize("program", [take, fetch])
def test_a_run_that_publishes_while_this_one_waits_is_no_fault(
    program: ModuleType,
    gone: bool,
    ask: Ask,
    hub: SimulatedHub,
    tmp_path: Path,
    progress: TransferProgress,
    stop: StopSwitch,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wanted = requested(tmp_path / "node", source(hub))

    @contextmanager
    def after_another(mine: WeightsRequest) -> Iterator[None]:
        monkeypatch.setattr(program, "only_one", only_one)
        fetch.fetch(wanted, progress, stop)
        with only_one(mine):
            if gone:
                shutil.rmtree(mine.staging)
            yield

    monkeypatch.setattr(program, "only_one", after_another)
    request = ask(target=str(wanted.target))
    result = run(request) if program is take else fetch.fetch(wanted, progress, stop)
    assert result["repaired"] == []
    assert manifest.load(wanted.target) is not None
    assert not wanted.staging.exists()


def test_somebodys_own_folder_is_left_alone(ask: Ask, tmp_path: Path) -> None:
    own = tmp_path / "node" / "Small-Model"
    own.mkdir(parents=True)
    (own / "thesis.txt").write_text("mine")
    with pytest.raises(Refusal, match="somebody's own"):
        run(ask())
    assert [path.name for path in own.iterdir()] == ["thesis.txt"]


def test_another_revision_is_not_replaced(ask: Ask, given: Path) -> None:
    run(ask())
    other = json.loads((given / ".gaudi-serving/manifest.json").read_text()) | {"revision": "f" * 40}
    with pytest.raises(Refusal, match="another one is asked for"):
        run(ask(manifest=other))


def test_room_is_looked_at_before_the_first_byte(ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WRONG", "raise SystemExit('rsync was started')")
    with pytest.raises(Refusal, match=r"Make room for .* more"):
        run(ask(reserve=10**18))
    assert not (tmp_path / "node" / "Small-Model").exists()


def test_an_unmounted_file_system_is_not_written_to(ask: Ask, tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="is not mounted"):
        run(ask(mounted_on=str(tmp_path)))
    assert list((tmp_path / "node").iterdir()) == []


def test_a_record_cannot_name_files_outside_the_folder(ask: Ask, given: Path) -> None:
    content = json.loads((given / ".gaudi-serving/manifest.json").read_text())
    content["files"][0]["name"] = "../outside"
    with pytest.raises(Refusal, match="leaves the folder"):
        take.load(ask(manifest=content))


def test_as_a_program_it_needs_nothing_but_the_standard_library(ask: Ask, tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    environment = {**os.environ, "PYTHONPATH": LIBRARY, "GAUDI_JOB_RESULT": str(result)}
    command = [sys.executable, "-S", "-m", "gaudi_weights.take"]
    done = subprocess.run([*command, str(ask())], env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == json.loads(result.read_text())
    refused = subprocess.run(
        [*command, str(tmp_path / "none.json")], env=environment, capture_output=True, text=True, check=False
    )
    assert refused.returncode == 1
    assert "none.json cannot be read" in refused.stderr
    assert "Traceback" not in refused.stderr
    said = json.loads(result.read_text())
    assert said == {"refused_id": "request_unreadable", "refused": refused.stderr.strip()}


def relaying(given: Path) -> Path:
    """The peer's folder, of which nothing has come yet."""
    staging = given.with_name(given.name + ".partial")
    (staging / ".gaudi-serving").mkdir(parents=True)
    (staging / ".gaudi-serving/relay.json").write_text('{"beat": 1, "gave_up": ""}')
    return staging


def test_what_a_peer_does_not_have_yet_is_waited_for(
    ask: Ask, given: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "node" / "Small-Model"
    order = [*SERVED]
    pauses: list[int] = []
    hidden = given.rename(given.with_name("hidden"))
    staging = relaying(given)

    def a_file_comes(_seconds: float) -> None:
        pauses.append(len(list(target.with_name("Small-Model.partial").glob("*.safetensors"))))
        if order:
            name = order.pop()
            (staging / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(hidden / name, staging / name)
        elif staging.exists():
            # The peer publishes its folder: what is still asked for is there.
            shutil.rmtree(staging)
            hidden.rename(given)

    content = json.loads((hidden / ".gaudi-serving/manifest.json").read_text())
    monkeypatch.setattr(time, "sleep", a_file_comes)
    monkeypatch.setenv("GIVEN", str(given))
    given.mkdir()
    (given / ".gaudi-serving").mkdir()
    (given / ".gaudi-serving/manifest.json").write_text(json.dumps(content))
    request = ask(relays=True)
    shutil.rmtree(given)
    result = run(request)
    assert result["received"] == result["bytes"] > 0
    assert manifest.load(target) == record.parse(json.dumps(content))
    # It gave on what it had while it waited for more.
    assert pauses[-1] > pauses[0] == 0
    assert sorted(path.name for path in (target / ".gaudi-serving").iterdir()) == ["manifest.json"]


def test_a_folder_published_in_between_is_found(ask: Ask, given: Path) -> None:
    # There is no .partial any more: the peer was done before this node asked.
    assert run(ask(relays=True))["received"] > 0
    assert not given.with_name(given.name + ".partial").exists()


def test_a_peer_that_gave_up_is_quoted_and_so_is_the_next(
    ask: Ask, given: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    staging = relaying(given)
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)
    (staging / ".gaudi-serving/relay.json").write_text('{"beat": 0, "gave_up": "the disk is full"}')
    with pytest.raises(Refusal, match=r"^gaudi-01 cannot pass on Small-Model: the disk is full$"):
        run(ask(relays=True))
    said = json.loads((tmp_path / "node/Small-Model.partial/.gaudi-serving/relay.json").read_text())
    assert said["gave_up"] == "gaudi-01 cannot pass on Small-Model: the disk is full"
    # What an earlier peer said does not count when another one is asked.
    shutil.rmtree(staging)
    assert run(ask(relays=True))["received"] > 0


def test_a_peer_without_a_sign_of_life_is_not_waited_for(
    ask: Ask, given: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    staging = relaying(given)
    clock = [0.0]
    beats = iter(range(2, 6))

    def wait(seconds: float) -> None:
        clock[0] += 40 * seconds
        if (beat := next(beats, None)) is not None:
            (staging / ".gaudi-serving/relay.json").write_text(json.dumps({"beat": beat, "gave_up": ""}))

    monkeypatch.setattr(time, "sleep", wait)
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    with pytest.raises(Refusal, match="gaudi-01 was to pass on Small-Model and has shown no sign of life for 60 s"):
        run(ask(relays=True))
    # Its four beats were signs of life, though nothing came.
    assert clock[0] >= 6 * 40


def test_nothing_unchecked_is_passed_on(ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    staging = tmp_path / "node" / "Small-Model.partial"
    staging.mkdir(parents=True)
    # Of an interrupted run: its bytes are used, but not given on before they are checked.
    (staging / FIRST).write_bytes(b"x")
    there = f"[(where / {FIRST!r}).exists() for where in (folder.parents[1], folder)]"
    monkeypatch.setenv("WRONG", f"assert {there} == [False, True]")
    assert run(ask())["bytes"] > 0


def test_a_file_that_is_moved_while_it_is_counted_is_no_fault(tmp_path: Path) -> None:
    there, over = tmp_path / "file", threading.Event()
    there.write_text("x")

    def move() -> None:
        while not over.is_set():
            there.rename(tmp_path / "other")
            (tmp_path / "other").rename(there)

    mover = threading.Thread(target=move)
    mover.start()
    try:
        assert {folders.size_of(there, tmp_path) for _ in range(10000)} <= {1, None}
    finally:
        over.set()
        mover.join()


def test_a_folder_that_is_gone_is_said(ask: Ask, given: Path) -> None:
    request = ask()
    shutil.rmtree(given)
    with pytest.raises(Refusal, match=r"gaudi-01 has Small-Model no more \(rsync: @ERROR: chroot failed\)"):
        run(request)


def test_what_vanishes_while_it_is_given_is_missed_only_where_it_is_needed(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WRONG_AFTER", f"(folder / {FIRST!r}).unlink(); sys.exit(24)")
    with pytest.raises(Refusal, match=f"gave 1 files of Small-Model that are not what its record says: {FIRST}"):
        run(ask())
    # The sign of life of a node that has just published its folder.
    monkeypatch.setenv("WRONG_AFTER", "sys.exit(24)")
    assert run(ask())["bytes"] > 0


def test_others_may_read_what_was_continued(ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # rsync leaves a file it was killed over as it made it: its own.
    monkeypatch.setenv("WRONG_AFTER", f"(folder / {FIRST!r}).chmod(0o600)")
    run(ask())
    assert (tmp_path / "node" / "Small-Model" / FIRST).stat().st_mode & 0o777 == 0o644


def test_an_empty_folder_under_the_name_does_not_hide_what_comes(
    ask: Ask, given: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = ask(relays=True)
    given.rename(relaying(given) / "x")
    staging = given.with_name(given.name + ".partial")
    for path in (staging / "x").iterdir():
        if path.name != ".gaudi-serving":
            path.rename(staging / path.name)
    given.mkdir()
    # Before the peer began there was only the empty folder.
    hidden = staging.rename(staging.with_name("hidden"))
    monkeypatch.setattr(time, "sleep", lambda _seconds: None if staging.exists() else hidden.rename(staging))
    assert run(request)["received"] > 0


def test_a_fetch_from_outside_after_a_take_in_vain_leaves_nothing_of_it(
    ask: Ask,
    hub: SimulatedHub,
    tmp_path: Path,
    progress: TransferProgress,
    stop: StopSwitch,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    half = f"os.truncate(folder / {FIRST!r}, 5); sys.exit(30)"
    monkeypatch.setenv("WRONG_AFTER", half)
    wanted = requested(tmp_path / "node", source(hub))
    with pytest.raises(Refusal, match="did not give"):
        run(ask(target=str(wanted.target)))
    assert (wanted.staging / record.INCOMING / FIRST).exists()
    fetch.fetch(wanted, progress, stop)
    assert [path.name for path in (wanted.target / record.FOLDER).iterdir()] == ["manifest.json"]


def test_what_a_node_that_shares_it_has_published_is_not_taken_once_more(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(ask())
    target = tmp_path / "node" / "Small-Model"
    published = target.rename(tmp_path / "published")

    # As NFS does: before it is asked for what is in a folder, it knows nothing of what others put there.
    def revalidate_directory(*folders: Path) -> None:
        if target.parent in folders and published.exists():
            published.rename(target)

    monkeypatch.setattr(folders, "revalidate_directory", revalidate_directory)
    monkeypatch.setattr(take, "only_one", None)  # nothing is begun
    assert run(ask())["received"] == 0
    assert [path.name for path in target.parent.iterdir()] == ["Small-Model"]


def test_a_lock_that_was_published_with_its_folder_holds_nothing(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, _offer = take.load(ask())
    # Who held it published the folder between the opening of the lock and its being free.
    monkeypatch.setattr(folders, "revalidate_directory", lambda *_folders: wanted.staging.rename(wanted.target))
    with pytest.raises(Refusal, match="is being fetched already"), only_one(wanted):
        raise AssertionError("two hold the lock")
    assert [path.name for path in wanted.target.parent.iterdir()] == ["Small-Model"]


def test_the_role_blames_by_the_id_and_not_by_the_words() -> None:
    """A node that gave what is not as recorded is asked no more; any other failure says nothing of it."""
    remember = task_of("weights_supply", "take", "Remember why not")["ansible.builtin.set_fact"]
    (_why, (blames, text)) = remember.items()
    way = {
        fact_of("weights_supply", "round", "Decide which nodes"): {
            "take": {"me": {"peer": "gaudi-01", "seed": "gaudi-00"}}
        }
    }

    def blamed(**failed: str) -> Any:
        known = {**way, blames: "before", "inventory_hostname": "me"}
        return evaluate("weights_supply", text, **known, ansible_failed_result=failed)

    assert blamed(msg="other words by now", refused_id="not_as_recorded") == "gaudi-01"
    assert blamed(msg="x", refused_id="peer_sends_too_much") == "gaudi-01"
    assert blamed(msg="x", refused_id="peer_not_as_pinned") == "gaudi-00", "the record is the seed's"
    assert blamed(msg="files that are not what its record says", refused_id="rsync_failed") == "before"
    assert blamed(msg="files that are not what its record says") == "before"


@pytest.mark.report("W01")
def test_a_proxy_is_not_for_a_peer(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RSYNC_PROXY", "http_proxy", "HTTPS_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "proxy.example.com:3128")
    monkeypatch.setenv("WRONG", "assert not [name for name in os.environ if name.lower().endswith('_proxy')]")
    assert take.main([str(ask())]) == 0


def test_a_token_that_an_earlier_release_left_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was called giver.token; a hub's token stays."""
    monkeypatch.setattr("library.node_files.OWNER", (os.getuid(), os.getgid()))
    files = evaluate("weights_supply", task_of("weights_supply", "ready", "node_files")["node_files"]["files"])
    for name in ("giver.token", "huggingface.token"):
        (tmp_path / name).write_text("secret")
    here = [{**file, "path": file["path"].replace("/etc/gaudi-serving/weights", str(tmp_path))} for file in files[1:]]
    assert run_main("library.node_files", {"files": here})["changed"]
    assert [path.name for path in tmp_path.iterdir()] == ["huggingface.token"]
    assert not run_main("library.node_files", {"files": here})["changed"]
