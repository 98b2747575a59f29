"""Decisions about long work, and the program that runs it."""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible.module_utils.gaudi.jobs import decisions as jobs
from ansible.module_utils.gaudi.jobs import facts
from ansible.module_utils.gaudi.node import long_work
from ansible.module_utils.gaudi.node.report import jobs as report
from hypothesis import example, given
from hypothesis import strategies as st

from action_plugins import node_job as following
from filter_plugins.job_key import job_table, node_jobs
from library import node_job
from tests.unit.host.modules import run_main
from tests.unit.node.damages import DAMAGES, damage
from tests.unit.refused import refused

PROGRAM = Path(__file__).parents[3] / "roles" / "node_job" / "files" / "gaudi_job.py"
# On a node it lies beside the program.
LIBRARY = Path(__file__).parents[3] / "module_utils"


@pytest.mark.parametrize("key", ["fetch.qwen3-8b", "a", "convert.deepseek-r1-0528"])
def test_keys_that_can_name_a_unit(key: str) -> None:
    assert jobs.check_key(key) == key


@pytest.mark.parametrize("key", ["", "../x", "a/b", "a\nb", "-a", "a-", "A", "a..b", "x" * 161, "a%b", "a b", "a\n"])
def test_keys_that_cannot(key: str) -> None:
    with refused("not_a_job_key"):
        jobs.check_key(key)


def test_a_follower_is_woken_by_another_phase_or_the_end_and_not_by_figures() -> None:
    def stands(status: str = "running", state: dict[str, Any] | None = None, **progress: object) -> str:
        return node_job.stands_for({"status": status, "state": state or {}, "progress": progress})

    assert stands(phase="take", done=1) == stands(phase="take", done=2) != stands(phase="verify", done=2)
    assert len({stands(), stands("failed"), stands("failed", {"message": "no room"})}) == 3


def test_work_is_the_same_only_with_the_same_inputs() -> None:
    one = jobs.digest(["fetch"], {"A": "1"}, {"revision": "abc"})
    assert one == jobs.digest(["fetch"], {"A": "1"}, {"revision": "abc"})
    others = [
        jobs.digest(["fetch", ""], {"A": "1"}, {"revision": "abc"}),
        jobs.digest(["fetch"], {"A": "2"}, {"revision": "abc"}),
        jobs.digest(["fetch"], {"A": "1"}, {"revision": "abd"}),
    ]
    assert one not in others


@pytest.mark.parametrize(
    ("state", "active", "expected"),
    [
        ({}, "inactive", "absent"),
        ({}, "activating", "running"),
        ({"state": "running"}, "active", "running"),
        ({"state": "running"}, "inactive", "interrupted"),
        ({"state": "running"}, "failed", "interrupted"),
        ({"state": "succeeded"}, "inactive", "succeeded"),
        ({"state": "failed"}, "failed", "failed"),
        ({"state": "succeeded"}, "active", "running"),
    ],
)
def test_how_a_job_stands(state: dict[str, Any], active: str, expected: str) -> None:
    assert jobs.status(state, active) == expected


def test_what_to_do_about_a_request() -> None:
    assert jobs.decide("absent", None, "a", force=False) == "start"
    assert jobs.decide("running", "a", "a", force=True) == "attach"
    assert jobs.decide("succeeded", "a", "a", force=False) == "keep"
    assert jobs.decide("succeeded", "a", "a", force=True) == "start"
    assert jobs.decide("succeeded", "a", "b", force=False) == "start"
    assert jobs.decide("interrupted", "a", "a", force=False) == "start"
    with refused("other_work_runs"):
        jobs.decide("running", "a", "b", force=True)


def test_other_work_under_a_key_is_refused_in_check_mode_too(monkeypatch: pytest.MonkeyPatch) -> None:
    job = {"key": "fetch.m", "status": "running", "digest": "another"}
    monkeypatch.setattr(node_job, "look", lambda _module, _key: job)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    answer = run_main("library.node_job", {"key": "fetch.m", "command": ["/bin/true"], "state": "started"}, check=True)
    assert answer["msg"].startswith("fetch.m: ")
    assert (answer["refused_id"], answer["job"]) == ("other_work_runs", job)


def test_systemd_reads_units_anew_before_work_starts_whoever_wrote_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was cut off has written unit and drop-in, and nothing is left to be written."""
    asked: list[tuple[str, ...]] = []

    def systemctl(_module: object, *words: str) -> str:
        asked.append(words)
        return "inactive\n"

    monkeypatch.setattr(node_job, "systemctl", systemctl)
    monkeypatch.setattr(node_job, "JOBS", tmp_path / "jobs")
    monkeypatch.setattr(node_job, "UNITS", tmp_path / "units")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    wish = {"key": "fetch.m", "command": ["true"], "mounts_for": [str(tmp_path)], "state": "started", "force": True}
    for _ in range(2):
        asked.clear()
        assert run_main("library.node_job", wish)["changed"] is True
        acts = [words for words in asked if words[0] != "show"]
        assert acts == [("daemon-reload",), ("start", "gaudi-job@fetch.m.service")]


def test_a_job_waits_for_the_file_systems_of_its_paths() -> None:
    assert jobs.paths_dropin([], []) == ""
    assert jobs.paths_dropin(["/data/a b", "/d%"], ["/data", "/d%"]) == (
        '[Unit]\nRequiresMountsFor="/data/a b"\nRequiresMountsFor="/d%%"\n'
        '[Service]\nReadWritePaths="/d%%"\nReadWritePaths="/data"\n'
    )
    with refused("control_character"):
        jobs.paths_dropin(["/data\nExecStart=/bin/sh"], ["/data"])


def test_a_job_sees_homes_only_where_it_was_given_a_folder_there() -> None:
    assert "ProtectHome" not in jobs.paths_dropin(["/data/homes"], ["/data"])
    for path in ("/home/u/models", "/root/models"):
        assert jobs.paths_dropin([path], [path]).endswith("ProtectHome=read-only\n")


def test_a_job_may_write_to_the_nearest_folder_that_is_there(tmp_path: Path) -> None:
    assert long_work.writable_folder(tmp_path / "a" / "b") == tmp_path
    (tmp_path / "a").mkdir()
    assert long_work.writable_folder(tmp_path / "a" / "b") == tmp_path / "a"
    assert not (tmp_path / "a" / "b").exists()


@pytest.mark.parametrize("shared", ["HOMES", "OF_SYSTEM"])
def test_a_folder_directly_below_those_of_others_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: str
) -> None:
    """Work that may write to /var/lib may write what root runs."""
    assert "/var/lib" in long_work.OF_SYSTEM
    monkeypatch.setattr(long_work, shared, (str(tmp_path),))
    assert long_work.writable_folder(tmp_path / "models" / "x") == tmp_path / "models" / "x"
    assert (tmp_path / "models" / "x").is_dir()


def test_a_missing_folder_is_made_or_left_out_as_the_caller_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it would be found in the whole node: a file is not written into a folder that nobody made."""
    monkeypatch.setattr(long_work, "HOMES", (str(tmp_path),))
    monkeypatch.setattr(node_job, "systemctl", lambda *_words: "inactive\n")
    monkeypatch.setattr(node_job, "JOBS", tmp_path / "jobs")
    monkeypatch.setattr(node_job, "UNITS", tmp_path / "units")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    missing = tmp_path / "images"
    wish = {"key": "image.save", "command": ["true"], "mounts_for": [str(missing)], "state": "started"}
    dropin = tmp_path / "units" / "gaudi-job@image.save.service.d" / "mounts.conf"
    run_main("library.node_job", {**wish, "make_folders": False})
    assert not missing.exists()
    assert "ReadWritePaths" not in dropin.read_text()
    assert f'RequiresMountsFor="{missing}"' in dropin.read_text()
    run_main("library.node_job", wish)
    assert missing.is_dir()
    assert f'ReadWritePaths="{missing}"' in dropin.read_text()


def test_work_has_services_of_the_node_only_while_it_asks_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two kinds of work may have one key: measurements are made here, or received from another node."""
    monkeypatch.setattr(node_job, "systemctl", lambda *_words: "inactive\n")
    monkeypatch.setattr(node_job, "JOBS", tmp_path / "jobs")
    monkeypatch.setattr(node_job, "UNITS", tmp_path / "units")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    wish = {"key": "calibrate.m", "command": ["true"], "mounts_for": [str(tmp_path)], "state": "started"}
    folder = tmp_path / "units" / "gaudi-job@calibrate.m.service.d"
    for services in (False, True, False):
        run_main("library.node_job", {**wish, "node_services": services})
        (dropin,) = folder.iterdir()
        assert (jobs.NODE_SERVICES in dropin.read_text()) is services
        assert ("AF_UNIX" in dropin.read_text()) is services
        assert f'ReadWritePaths="{tmp_path}"' in dropin.read_text()


def test_progress_as_text() -> None:
    text = jobs.progress_text(
        {"phase": "fetch", "done": 4.2e9, "total": 16.4e9, "unit": "bytes", "rate": 1e8, "eta": 122.0, "message": ""}
    )
    assert text == "fetch: 4.2 GB of 16.4 GB (26 %), 100.0 MB/s, 2 min 02 s to go"
    assert jobs.progress_text({}, 1.0) == "working: no figures yet"
    # Of work that has ended there is nothing to come.
    assert (jobs.progress_text({"phase": "fetch"}), jobs.progress_text({})) == ("fetch", "")
    assert jobs.progress_text({"phase": "list", "done": 3, "total": 0, "unit": "files"}) == "list: 3 files of 0 files"


def test_progress_says_how_long_a_phase_lasts_while_the_work_runs() -> None:
    document = {"phase": "build: the vLLM fork", "began": 1000.0, "done": 6, "total": 12, "unit": "steps"}
    assert jobs.progress_text(document, 1200.0) == "build: the vLLM fork (for 3 min 20 s): 6 steps of 12 steps (50 %)"
    assert jobs.progress_text(document) == "build: the vLLM fork: 6 steps of 12 steps (50 %)"
    # A clock that was set back.
    assert jobs.progress_text(document, 999.0) == jobs.progress_text(document)
    del document["total"]
    assert jobs.progress_text(document, 1010.0) == "build: the vLLM fork (for 10 s): no figures yet"


@pytest.mark.parametrize(("active", "text"), [("active", "build (for "), ("inactive", "build: 1 of 2")])
def test_no_phase_lasts_longer_than_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, active: str, text: str
) -> None:
    (tmp_path / "k").mkdir()
    files = {
        "job.json": {"digest": "d"},
        "state.json": {"state": "succeeded"},
        "progress.json": {"phase": "build", "began": 0, "done": 1, "total": 2},
    }
    for name, content in files.items():
        (tmp_path / "k" / name).write_text(json.dumps(content))
    for module in (node_job, long_work):
        monkeypatch.setattr(module, "JOBS", tmp_path)
    monkeypatch.setattr(node_job, "systemctl", lambda _module, *_words: active)
    shown = f"Id=gaudi-job@k.service\nActiveState={active}\n"
    monkeypatch.setattr(report, "systemctl", lambda _module, *_words: shown)
    assert node_job.look(SimpleNamespace(), "k")["text"].startswith(text)
    (job,) = node_jobs(run_main("library.node_report", {"parts": ["jobs"]}))
    assert job["text"].startswith(text)
    assert job["text"] in job_table([job])[0]


JOB: dict[str, Any] = {"key": "k", "active": "active", "state": {}, "progress": {}, "now": 0}


@pytest.mark.parametrize(
    "part",
    [
        *(None, 7, {"jobs": [{"key": "k"}]}, {"error": "no systemd"}, {"jobs": [{}] * 30_000}),
        {"jobs": [JOB, JOB | {"key": "k" * 256}]},
    ],
)
def test_a_node_that_cannot_tell_its_jobs_has_not_none(part: object) -> None:
    """idle.yml takes away what running work needs."""
    with pytest.raises(AnsibleFilterError, match="Which long work the node has is not known: "):
        node_jobs({"report": {"jobs": part}})
    with pytest.raises(AnsibleFilterError, match="is not known"):
        node_jobs({})


@given(
    st.dictionaries(
        st.sampled_from(["phase", "began", "done", "total", "unit", "rate", "eta"]), st.none() | st.text() | st.floats()
    )
)
@example({"began": float("-inf")})
@example({"began": float("nan")})
@example({"done": 0.0, "total": 1.0, "eta": float("inf")})
@example({"done": 0.0, "total": 1.0, "eta": float("nan")})
def test_no_progress_document_crashes_the_follower(document: dict[str, Any]) -> None:
    assert jobs.progress_text(document, 1e9)


def test_states_of_several_units() -> None:
    shown = "Id=gaudi-job@a.service\nActiveState=active\n\nId=gaudi-job@b.service\nActiveState=inactive\n"
    assert facts.active_states(shown) == {"gaudi-job@a.service": "active", "gaudi-job@b.service": "inactive"}


def _load() -> Any:
    spec = importlib.util.spec_from_file_location("gaudi_job", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "job").mkdir()
    return tmp_path / "job"


def test_a_description_is_at_no_moment_for_others_to_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_job, "JOBS", tmp_path)
    (tmp_path / "k/job.json").mkdir(parents=True)
    modes = []
    rename = os.rename

    def watched(path: str, target: str, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
        if src_dir_fd is not None:
            modes.append(os.stat(path, dir_fd=src_dir_fd).st_mode & 0o777)
        rename(path, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    def no_chmod(path: Path, mode: int) -> None:
        raise AssertionError(f"{path} could be read until it got the mode {mode:o}")

    monkeypatch.setattr("os.rename", watched)
    monkeypatch.setattr(Path, "chmod", no_chmod)
    params = {"key": "k", "command": ["/bin/true"], "environment": {}, "inputs": {}}
    node_job.describe(SimpleNamespace(params=params), "d")
    assert modes == [0o600]
    assert json.loads((tmp_path / "k/job.json").read_text())["digest"] == "d"
    assert (tmp_path / "k/job.json.was-a-directory").is_dir()


def test_a_directory_in_the_place_of_the_lock_goes_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_job, "JOBS", tmp_path)
    monkeypatch.setattr(node_job, "look", lambda _module, _key: {"key": "k", "status": "running", "digest": "d"})
    monkeypatch.setattr(node_job, "decided", lambda _module, _job, _wanted: "attach")
    (tmp_path / "k/lock").mkdir(parents=True)
    params = {"key": "k", "command": ["/bin/true"], "environment": {}, "inputs": {}}
    assert not node_job.request(SimpleNamespace(params=params, check_mode=False))
    assert (tmp_path / "k/lock").is_file()
    assert (tmp_path / "k/lock.was-a-directory").is_dir()


def describe(folder: Path, code: str, **environment: str) -> None:
    (folder / "job.json").write_text(
        json.dumps({"command": [sys.executable, "-c", code], "environment": environment, "digest": "d"})
    )


def state(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "state.json").read_text()))


def run(folder: Path) -> int:
    script = (
        f"import sys; sys.path[:0] = {[str(PROGRAM.parent), str(LIBRARY)]!r}; import gaudi_job, pathlib;"
        f"gaudi_job.JOBS = pathlib.Path({str(folder.parent)!r}); sys.exit(gaudi_job.main(['job']))"
    )
    return subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, timeout=300).returncode


def test_success_brings_back_the_result(folder: Path) -> None:
    describe(folder, "import os, json; json.dump({'n': 3}, open(os.environ['GAUDI_JOB_RESULT'], 'w')); print('done')")
    assert run(folder) == 0
    assert state(folder)["state"] == "succeeded"
    assert state(folder)["result"] == {"n": 3}
    assert state(folder)["log"] == ["done"]


def test_an_old_result_is_not_taken_for_a_new_one(folder: Path) -> None:
    (folder / "result.json").write_text('{"n": 1}')
    describe(folder, "pass")
    run(folder)
    assert state(folder)["result"] == {}


def test_failure_carries_the_works_own_sentence(folder: Path) -> None:
    describe(folder, "import sys; print('started'); print('no room left', file=sys.stderr); sys.exit(3)")
    assert run(folder) == 3
    assert (state(folder)["state"], state(folder)["message"]) == ("failed", "no room left (exit status 3)")


def test_a_line_without_end_is_cut_and_the_work_goes_on(folder: Path) -> None:
    describe(folder, "print('first\\r\\n'); print('x' * (4 << 20)); print('a\\rb'); print('last', end='')")
    assert run(folder) == 0
    # Blank lines stay.
    assert [line[:9] for line in state(folder)["log"]] == ["first", "", "xxxxxxxxx", "a", "b", "last"]
    assert max(map(len, state(folder)["log"])) < 1 << 16
    assert (folder / "log").stat().st_size < 1 << 16


def test_a_refusal_has_its_id_in_the_state(folder: Path) -> None:
    refuse = (
        f"import sys; sys.path.append({str(LIBRARY)!r})\n"
        "from gaudi.base.refusal import Refusal\n"
        "from gaudi.node import long_work\n"
        "long_work.tell_refusal(Refusal('no_room', 'no room left')); sys.exit('no room left.')"
    )
    describe(folder, refuse)
    assert run(folder) == 1
    ended = state(folder)
    # A sentence that goes on has no full stop before.
    assert ended["message"] == "no room left (exit status 1)"
    assert ended["result"] == {"refused": "no room left", "refused_id": "no_room"}
    describe(folder, "import sys; sys.exit('it fell over')")
    run(folder)
    assert state(folder)["result"] == {}


@pytest.mark.parametrize("left", ["{", "[]", "[1]"])
def test_a_result_that_is_none_does_not_hide_how_the_work_ended(folder: Path, left: str) -> None:
    describe(folder, f"import os, sys; open(os.environ['GAUDI_JOB_RESULT'], 'w').write({left!r}); sys.exit('no')")
    assert run(folder) == 1
    assert state(folder)["message"] == "no (exit status 1)"
    assert state(folder)["result"] == {}


def test_failure_brings_back_the_result_as_well(folder: Path) -> None:
    leave = "json.dump({'refused_id': 'no_room'}, open(os.environ['GAUDI_JOB_RESULT'], 'w'))"
    describe(folder, f"import os, json, sys; {leave}; sys.exit('no room left')")
    assert run(folder) == 1
    assert state(folder)["result"] == {"refused_id": "no_room"}


def test_what_killed_work_left_is_not_read(folder: Path) -> None:
    describe(folder, "import os, signal; open(os.environ['GAUDI_JOB_RESULT'], 'w').write('{'); os.kill(os.getpid(), 9)")
    assert run(folder) == 1
    assert (state(folder)["state"], state(folder)["result"]) == ("failed", {})


@pytest.mark.parametrize(("left", "expected"), [({"result": {"refused_id": "no_room"}}, "no_room"), ({}, "")])
def test_whoever_follows_is_told_the_id_of_a_refusal(left: dict[str, Any], expected: str) -> None:
    class LeftJobAction(following.ActionModule):
        def __init__(self) -> None:
            self._task = SimpleNamespace(args={"key": "fetch.tiny"}, check_mode=False, diff=False, async_val=0)
            self._connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir=None))

        def _execute_module(self, **_options: Any) -> dict[str, Any]:
            state = {"message": "no room left", **left}
            job = {"key": "fetch.tiny", "status": "failed", "text": "", "progress": {}, "state": state}
            return {"changed": True, "job": job, "digest": "d", "result": {}}

    answer = LeftJobAction().run(None, {"inventory_hostname": "gaudi-01"})
    assert (answer["failed"], answer["refused_id"]) == (True, expected)


def test_a_killed_work_says_so(folder: Path) -> None:
    describe(folder, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert run(folder) == 1
    assert state(folder)["message"] == "it printed nothing (killed by signal 9)"


def test_a_command_that_is_not_there_says_so(folder: Path) -> None:
    (folder / "job.json").write_text(json.dumps({"command": ["/nonexistent"], "environment": {}, "digest": "d"}))
    assert run(folder) == 1
    assert "/nonexistent: No such file" in state(folder)["message"]


def no_room() -> None:
    """As on a full file system: no file takes a byte."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def test_without_room_for_what_only_reports_the_work_goes_on(folder: Path) -> None:
    work = (
        f"import sys; sys.path.append({str(LIBRARY)!r})\n"
        "from gaudi.node import long_work\n"
        "for done in range(3): long_work.tell_progress(long_work.progress_file(), {'done': done})\n"
        "print('one'); print('two')"
    )
    describe(folder, work)
    script = (
        f"import sys; sys.path[:0] = {[str(PROGRAM.parent), str(LIBRARY)]!r}; import gaudi_job, pathlib;"
        f"gaudi_job.JOBS = pathlib.Path({str(folder.parent)!r}); sys.exit(gaudi_job.main(['job']))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, timeout=300, text=True, preexec_fn=no_room
    )
    assert (ran.returncode, ran.stdout) == (0, "<6>one\n<6>two\n")
    assert ran.stderr == (
        f"<6>{folder}/state.json cannot be written (File too large). Only this journal says so: running.\n"
        f"<6>{folder}/log cannot be written (File too large). The work goes on.\n"
        f"<6>{folder}/state.json cannot be written (File too large). Only this journal says so: succeeded.\n"
    )


def test_only_the_end_of_a_long_log_is_kept(folder: Path) -> None:
    describe(folder, "for i in range(60000): print('line', i, 'x' * 40)")
    assert run(folder) == 0
    assert state(folder)["log"][-1].startswith("line 59999 ")
    assert len(state(folder)["log"]) == 20
    assert (folder / "log").stat().st_size + (folder / "log.1").stat().st_size < 2.2 * 1024 * 1024


def test_a_log_that_cannot_be_begun_ends_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = _load().Log(folder / "gone" / "log")
    log.add("one")
    assert log.tail == ["one"]
    said = capsys.readouterr()
    assert said.err == f"<6>{folder}/gone/log cannot be written (No such file or directory). The work goes on.\n"


@pytest.mark.parametrize("what", ["replace", "open"])
def test_a_log_for_which_no_other_file_can_be_begun_ends_nothing(
    folder: Path, what: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def read_only(*_arguments: object, **_options: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    log = _load().Log(folder / "log")
    log.size = _load().LOG_LIMIT + 1
    monkeypatch.setattr(Path, what, read_only)
    log.add("one")
    log.add("two")
    monkeypatch.undo()
    log.add("three")
    assert log.tail == ["one", "two", "three"]
    assert (folder / "log").read_text() == "three\n"
    said = capsys.readouterr()
    assert said.err == f"<6>{folder}/log cannot be written (Read-only file system). The work goes on.\n"


# A pipe is what a process waits for that opens it: below, in one that is ended.
@pytest.mark.parametrize("name", ["log", "log.1"])
@pytest.mark.parametrize("kind", sorted(DAMAGES.keys() - {"a pipe"}))
def test_whatever_lies_where_the_log_is_to_be_gives_way(folder: Path, name: str, kind: str) -> None:
    program = _load()
    damage(folder / name, kind)
    log = program.Log(folder / "log")
    for _ in range(2 * program.LOG_LIMIT // 10_000):
        log.add("x" * 9_999)
    log.add("the end")
    assert not log.lost
    assert (folder / "log").read_text().endswith("\nthe end\n")
    assert (folder / "log.1").is_file()


def test_pipes_where_the_log_is_to_be_stop_no_work(folder: Path) -> None:
    describe(folder, f"print(('x' * 999 + '\\n') * {2 * _load().LOG_LIMIT // 1000}, 'the end')")
    for name in ("log", "log.1"):
        damage(folder / name, "a pipe")
    assert run(folder) == 0
    assert state(folder)["log"][-1] == " the end"
    assert (folder / "log.1").is_file()


# Seconds after which a test counts as hung, however busy the machine is.
PATIENCE = 120
# As if a signal came just before the program waits for the next line: another thread takes it, which wakes nobody.
UNNOTICED = (
    "import signal, threading\n"
    "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\n"
)


@pytest.mark.parametrize("before", ["", UNNOTICED], ids=["noticed", "unnoticed"])
@pytest.mark.parametrize(("cancelled", "expected"), [(True, "cancelled"), (False, "interrupted")])
def test_a_stop_reaches_the_work_and_is_written_down(folder: Path, cancelled: bool, expected: str, before: str) -> None:
    describe(
        folder,
        # It waits for the signal itself: one that came just before signal.pause() would wake it no more.
        "import signal, sys, pathlib, os\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\n"
        "pathlib.Path(os.environ['GAUDI_JOB_PROGRESS']).write_text('{}')\n"
        "sys.exit(128 + signal.sigwait([signal.SIGTERM]))",
    )
    script = (
        f"{before}import sys; sys.path[:0] = {[str(PROGRAM.parent), str(LIBRARY)]!r}; import gaudi_job, pathlib;"
        f"gaudi_job.JOBS = pathlib.Path({str(folder.parent)!r}); sys.exit(gaudi_job.main(['job']))"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + PATIENCE
    while not (folder / "progress.json").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    if cancelled:
        (folder / "cancelled").touch()
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0
    assert state(folder)["state"] == expected
