"""What somebody who may write to a folder of weights could have root do: a container, or a user of the node."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gaudi.base.refusal import Refusal
from gaudi.node.weight_folders import missing_weights
from gaudi.weights import record
from gaudi_weights import fetch, hubs, staging
from gaudi_weights.model import StopSwitch
from gaudi_weights.progress import TransferProgress
from gaudi_weights.request import HubSource, WeightsRequest

from simulator.hub.server import SimulatedHub
from tests.unit.weights.models import requested, source

ROOT = Path(__file__).parents[3]
VICTIM = "root:x:0:0:root:/root:/bin/bash\n"
COMMAND = "x$(id)"


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file of the node that only root writes."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "passwd").write_text(VICTIM)
    return tmp_path / "etc" / "passwd"


@pytest.fixture
def finished(hub: SimulatedHub, tmp_path: Path) -> WeightsRequest:
    """A finished folder."""
    made = requested(tmp_path, source(hub))
    fetch.fetch(made, TransferProgress(None), StopSwitch())
    return made


@contextlib.contextmanager
def serving(answer: str) -> Iterator[str]:
    """A server that answers every request with one text, and success; yields its address."""

    class OnePage(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer.encode())

        def log_message(self, *_said: object) -> None:
            """Nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), OnePage) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def planted_names(folder: Path) -> None:
    """Have the record name a file as somebody would who wants the name written elsewhere."""
    record_of = json.loads((folder / record.MANIFEST).read_text())
    record_of["files"].append({"name": COMMAND, "size": 1, "sha256": "0" * 64})
    (folder / record.MANIFEST).write_text(json.dumps(record_of))


@pytest.mark.parametrize("answer", ["<html>Log in</html>", "null", "[]", "7", '{"siblings": [7]}', "[" * 100_000])
def test_a_source_that_answers_with_another_page_is_passed_over(hub: SimulatedHub, tmp_path: Path, answer: str) -> None:
    """The page where a proxy asks for an account has the status of success."""
    with serving(answer) as address:
        other = replace(source(hub, name="other"), endpoint=address)
        made = requested(tmp_path, other, source(hub))
        assert fetch.fetch(made, TransferProgress(None), StopSwitch())["source"] == "hub"


@pytest.mark.parametrize("size", [-(10**15), 10**400, 1 << 60, "7", 1.5, True])
def test_a_source_that_states_no_size_of_a_file_is_passed_over(
    hub: SimulatedHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: Any
) -> None:
    """A negative one would hide what the others take; of a huge one a person would be asked to make room."""
    connect = hubs.connect

    def connected(asked: HubSource, scratch: Path) -> Any:
        made = connect(asked, scratch)
        if asked.name == "evil":
            files = made.files()
            monkeypatch.setattr(made, "files", lambda: [replace(files[0], size=size), *files[1:]])
        return made

    monkeypatch.setattr(fetch, "connect", connected)
    with pytest.raises(Refusal) as refused:
        fetch.fetch(requested(tmp_path, source(hub, name="evil")), TransferProgress(None), StopSwitch())
    assert refused.value.id == "no_source_serves"
    assert len(str(refused.value)) < 1000
    made = requested(tmp_path, source(hub, name="evil"), source(hub))
    assert fetch.fetch(made, TransferProgress(None), StopSwitch())["source"] == "hub"


@pytest.mark.parametrize("name", ["verified.json", "verified.json.writing"])
def test_a_recheck_writes_through_no_link(finished: WeightsRequest, victim: Path, name: str) -> None:
    planted_names(finished.target)
    (finished.target / record.FOLDER / name).symlink_to(victim)
    with pytest.raises(Refusal, match="damaged"):
        fetch.verify(finished, TransferProgress(None), StopSwitch())
    assert victim.read_text() == VICTIM
    assert COMMAND in (finished.target / record.VERIFIED).read_text()
    assert not (finished.target / record.VERIFIED).is_symlink()


def test_a_recheck_follows_no_linked_folder_of_records(finished: WeightsRequest, tmp_path: Path) -> None:
    # Everything of the record is right, but it lies where the link leads: so does what is written.
    (finished.target / record.FOLDER).rename(tmp_path / "elsewhere")
    (finished.target / record.FOLDER).symlink_to(tmp_path / "elsewhere")
    before = sorted(path.name for path in (tmp_path / "elsewhere").iterdir())
    with pytest.raises(Refusal):
        fetch.verify(finished, TransferProgress(None), StopSwitch())
    assert sorted(path.name for path in (tmp_path / "elsewhere").iterdir()) == before


@pytest.mark.parametrize("name", ["manifest.json", "verified.json"])
def test_a_pipe_for_a_record_keeps_nobody_waiting(finished: WeightsRequest, name: str) -> None:
    path = finished.target / record.FOLDER / name
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    look = (
        "import sys, pathlib; from gaudi.node.weight_folders import look; print(look(pathlib.Path(sys.argv[1]), None))"
    )
    done = subprocess.run(
        [sys.executable, "-c", look, str(finished.target.parent)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert ("'status': 'damaged'" in done.stdout) is (name == "manifest.json")


def test_a_pipe_for_a_shard_is_a_wrong_file(finished: WeightsRequest) -> None:
    shard = finished.target / "model-00001-of-00003.safetensors"
    shard.unlink()
    os.mkfifo(shard)
    with pytest.raises(Refusal, match=r"model-00001-of-00003\.safetensors"):
        fetch.verify(finished, TransferProgress(None), StopSwitch())


def test_what_a_linked_staging_folder_leads_to_is_not_emptied(finished: WeightsRequest, tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / record.FOLDER).mkdir(parents=True)
    (home / "thesis.txt").write_text("years of work")
    finished.staging.symlink_to(home)
    with pytest.raises(Refusal, match="is a link"):
        staging.clear(finished.staging)
    assert (home / "thesis.txt").read_text() == "years of work"


def test_a_linked_staging_folder_is_not_fetched_into(hub: SimulatedHub, tmp_path: Path) -> None:
    asked = requested(tmp_path, source(hub))
    (tmp_path / "home").mkdir()
    asked.target.parent.mkdir()
    asked.staging.symlink_to(tmp_path / "home")
    with pytest.raises(Refusal, match="is a link"):
        fetch.fetch(asked, TransferProgress(None), StopSwitch())
    assert list((tmp_path / "home").iterdir()) == []


@pytest.mark.parametrize("mode", [0o777, 0o1777], ids=oct)
@pytest.mark.parametrize("above", [False, True])
def test_a_root_that_others_write_to_is_refused(hub: SimulatedHub, tmp_path: Path, mode: int, above: bool) -> None:
    asked = requested(tmp_path / "all" if above else tmp_path, source(hub))
    shared = tmp_path / "all" if above else asked.target.parent
    shared.mkdir(parents=True)
    shared.chmod(mode)
    with pytest.raises(Refusal, match=r"can be written by everybody.*chown root:root .*; chmod go-w"):
        fetch.fetch(asked, TransferProgress(None), StopSwitch())
    assert list(shared.iterdir()) == []


def test_a_file_is_not_fetched_through_a_link(hub: SimulatedHub, tmp_path: Path, victim: Path) -> None:
    asked = requested(tmp_path, source(hub))
    asked.staging.mkdir(parents=True)
    (asked.staging / "config.json").symlink_to(victim)
    with pytest.raises(Refusal, match=r"config\.json is a link"):
        fetch.fetch(asked, TransferProgress(None), StopSwitch())
    assert victim.read_text() == VICTIM


def test_what_a_kill_left_half_written_is_not_published(hub: SimulatedHub, tmp_path: Path) -> None:
    asked = requested(tmp_path, source(hub))
    (asked.staging / record.FOLDER).mkdir(parents=True)
    for name in ("config.json.0a1b.writing", f"{record.MANIFEST}.0a1b.writing"):
        (asked.staging / name).write_text("{")
    fetch.fetch(asked, TransferProgress(None), StopSwitch())
    assert not list(asked.target.rglob("*.writing"))


@pytest.mark.parametrize("name", ["../etc/passwd", "/etc/passwd", "a/../../etc/passwd", ".gaudi-serving/x", ""])
def test_an_index_names_files_of_its_folder_alone(victim: Path, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "weights"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"x")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    said = missing_weights(folder)
    assert said is not None
    assert said.endswith(f"it names the shard {name!r}, which is no file of its folder")
    assert victim.exists()


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "model.safetensors.index.json"])
@pytest.mark.parametrize("leads", ["victim", "/dev/zero"])
@pytest.mark.report("W13")
def test_weights_that_are_links_to_elsewhere_are_refused(victim: Path, tmp_path: Path, name: str, leads: str) -> None:
    folder = tmp_path / "weights"
    folder.mkdir()
    files = {"config.json": "{}", "model.safetensors": "x"}
    index = json.dumps({"weight_map": {"a": "model.safetensors"}})
    for file, content in {**files, "model.safetensors.index.json": index}.items():
        (folder / file).write_text(content)
    assert missing_weights(folder) is None
    (folder / name).unlink()
    (folder / name).symlink_to(victim if leads == "victim" else leads)
    said = missing_weights(folder)
    assert said is not None
    assert re.search("is a link to|not a regular file|it is a device|has no config|holds no weights", said), said
