"""The real hf_xet against the simulated hub's Xet storage, and what happens when that fails."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from gaudi.base.refusal import Refusal
from gaudi_weights import fetch, xet
from gaudi_weights.hub_huggingface import HuggingFace
from gaudi_weights.model import SourceFailure, StopSwitch, TransferInterrupt
from gaudi_weights.network import Connections
from gaudi_weights.progress import TransferProgress

from simulator.hub import xet as storage
from simulator.hub.content import HubFile
from simulator.hub.server import Front, HubFault, SimulatedHub, running
from tests.unit.weights.models import MODEL, SERVED, requested, source, wait_until, write_model

SECOND = "model-00002-of-00003.safetensors"
SIZE = 3_000_000  # bytes of a shard: three xorbs


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[SimulatedHub]:
    """A hub that has its large files in Xet storage, too."""
    with running() as made:
        made.xet = True
        made.repository(MODEL, write_model(tmp_path / "hub", size=SIZE))
        yield made


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of nobody's: what the library leaves there is seen."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(xet, "HEARTBEAT", 0.1)
    library = Path(__file__).resolve().parents[3] / "roles/model_weights/files"
    monkeypatch.setenv("PYTHONPATH", f"{library}:{library.parents[2] / 'module_utils'}")
    return tmp_path / "home"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """For storage that fails: what is silent is given up soon. A sound one is waited for, however busy the machine."""
    monkeypatch.setattr(xet, "SILENCE_SECONDS", 2.0)
    monkeypatch.setattr(xet, "CONNECT_SECONDS", 1.0)


def same(folder: Path, original: Path) -> None:
    """What is served is there, byte for byte."""
    for name in SERVED:
        assert (folder / name).read_bytes() == (original / name).read_bytes(), name


def ways(hub: SimulatedHub) -> tuple[int, int]:
    """Requests for content: of Xet storage, of plain files."""
    storage = sum("/xorbs/" in seen.path for seen in hub.seen)
    return storage, sum(seen.where == "delivery" and seen.path.count("/") == 1 for seen in hub.seen)


def test_what_is_in_xet_storage_comes_from_there(
    hub: SimulatedHub, home: Path, tmp_path: Path, progress: TransferProgress, stop: StopSwitch
) -> None:
    asked = requested(tmp_path, source(hub))
    result = fetch.fetch(asked, progress, stop)
    same(asked.target, tmp_path / "hub")
    storage, plain = ways(hub)
    assert (storage, plain) == (9, 0)  # three xorbs a shard
    assert result["received"] == result["bytes"]
    assert [path.name for path in (asked.target / ".gaudi-serving").iterdir()] == ["manifest.json"]
    assert not home.exists()
    assert not asked.staging.exists()


def test_access_is_asked_for_with_the_token_and_the_token_goes_nowhere_else(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch
) -> None:
    hub.tokens.add("hf_right")
    hub.repositories[MODEL].private = True
    (tmp_path / "token").write_text("hf_right\n")
    fetch.fetch(requested(tmp_path, source(hub, token_file=tmp_path / "token")), progress, stop)
    assert [seen.token for seen in hub.seen if "xet-read-token" in seen.path] == ["hf_right"] * 3
    assert ways(hub)[0] == 9
    assert {seen.token for seen in hub.seen if seen.where == "delivery"} == {None, hub.signature}


def test_it_continues_at_the_byte(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch
) -> None:
    asked = requested(tmp_path, source(hub))
    asked.staging.mkdir(parents=True)
    content = (tmp_path / "hub" / SECOND).read_bytes()
    (asked.staging / SECOND).write_bytes(content[:2_500_001])
    result = fetch.fetch(asked, progress, stop)
    same(asked.target, tmp_path / "hub")
    assert result["received"] == result["bytes"] - 2_500_001
    assert ways(hub) == (7, 0)  # of the second shard only the last xorb


def test_a_file_comes_in_parts_each_with_access_of_its_own(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xet, "PART", 1_200_000)
    asked = requested(tmp_path, source(hub), include=(SECOND,))
    fetch.fetch(asked, progress, stop)
    assert (asked.target / SECOND).read_bytes() == (tmp_path / "hub" / SECOND).read_bytes()
    assert sum("xet-read-token" in seen.path for seen in hub.seen) == 3


def test_with_a_rate_limit_plain_http(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch
) -> None:
    fetch.fetch(requested(tmp_path, source(hub), rate_limit=100_000_000), progress, stop)
    assert ways(hub) == (0, 3)


def test_few_files_come_at_once_since_each_holds_a_piece(
    hub: SimulatedHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = xet.Storage(Connections(source(hub), 1), tmp_path)
    monkeypatch.setattr(made, "_access", lambda *_: xet.Access("http://127.0.0.1", "token", 0))
    monkeypatch.setattr(made, "_part", lambda access, name, size, begin, end: iter([name.encode()]))
    begun = [made.blocks("renew", {}, f"{number}", 10, 0) for number in range(xet.STREAMS)]
    assert [next(one) for one in begun] == [b"0", b"1"]
    third = made.blocks("renew", {}, "third", 10, 0)
    assert [next(third), next(third)] == [b"", b""]
    begun[0].close()  # as when its file has failed
    assert [block for block in third if block] == [b"third"]


def test_who_waited_for_others_does_not_fail_as_slowly_as_they(
    hub: SimulatedHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    made = xet.Storage(Connections(source(hub), 1), tmp_path)

    def silent(renew: str, headers: dict[str, str]) -> xet.Access:
        asked.append(renew)
        raise SourceFailure("nothing came", passing=True)

    monkeypatch.setattr(made, "_access", silent)
    for _ in range(3):
        with pytest.raises(SourceFailure, match="nothing came"):
            next(made.blocks("renew", {}, "hash", 10, 0))
    assert asked == ["renew"]


def test_a_stop_ends_it_at_once(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch
) -> None:
    hub.rate = 100_000  # a minute and a half for everything
    asked = requested(tmp_path, source(hub), jobs=3)  # more than come at once
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(fetch.fetch, asked, progress, stop)
        wait_until(lambda: ways(hub)[0] >= 2)
        stop.ask()
        with pytest.raises(TransferInterrupt):
            running.result(300)
    assert asked.staging.exists()


def test_it_ends_with_who_started_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:  # takes connections and never answers
        task = {"endpoint": f"http://127.0.0.1:{deaf.getsockname()[1]}", "token": "t", "ends": 4102444800}
        task |= {"hash": "ab" * 32, "size": 10, "begin": 0, "end": 10, "settings": xet.SETTINGS}
        command = [sys.executable, "-m", "gaudi_weights.xet", str(tmp_path)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None
            process.stdin.write(json.dumps(task) + "\n")
            process.stdin.flush()
            deaf.settimeout(300)
            deaf.accept()  # it asks, and waits
            process.stdin.close()
            assert process.wait(300) == 1


def test_a_full_disk_ends_files_that_wait_for_others(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch, monkeypatch: pytest.MonkeyPatch
) -> None:
    met = threading.Event()
    both = threading.Barrier(xet.STREAMS, met.set)

    def full(count: int) -> None:
        if not met.is_set():
            both.wait(300)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(progress, "advance", full)
    asked = requested(tmp_path, source(hub), jobs=3, include=("*.safetensors",))
    with ThreadPoolExecutor(1) as threads, pytest.raises(OSError, match="No space"):
        threads.submit(fetch.fetch, asked, progress, stop).result(600)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    "fault",
    [
        HubFault(name="*", where="access", status=404, times=9),
        HubFault(name=SECOND, where="reconstruction", status=500, times=9),
        HubFault(name=SECOND, where="xorb", status=403, times=9),
        HubFault(name=SECOND, where="xorb", cut_after=100_000, times=9),
        HubFault(name=SECOND, where="xorb", rate=1, times=9),
    ],
    ids=["no-access", "no-reconstruction", "no-xorb", "cut", "silent"],
)
def test_plain_http_serves_where_xet_fails(
    hub: SimulatedHub,
    tmp_path: Path,
    progress: TransferProgress,
    stop: StopSwitch,
    capsys: pytest.CaptureFixture[str],
    fault: HubFault,
) -> None:
    hub.faults = [fault]
    asked = requested(tmp_path, source(hub), jobs=1)
    result = fetch.fetch(asked, progress, stop)
    same(asked.target, tmp_path / "hub")
    assert result["received"] == result["bytes"]
    assert ways(hub)[1] >= 1
    said = capsys.readouterr().out
    assert said.count("what is left comes over plain HTTP, since Xet failed (") == 1
    assert hub.signature not in said


def endless(front: Front) -> None:
    """An answer that does not end."""
    front.send_response(200)
    front.end_headers()
    with contextlib.suppress(OSError):
        while True:
            front.wfile.write(b" " * 65536)


def said_by(**content: object) -> Callable[[Front], None]:
    """Access with something else in it."""

    def answer(front: Front) -> None:
        proper = {"accessToken": front.hub.signature, "exp": int(time.time()) + 3600, "casUrl": front.hub.delivery}
        front.send_json({**proper, **{key: os.path.expandvars(str(value)) for key, value in content.items()}})

    return answer


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    "answer",
    [
        endless,
        said_by(casUrl="local://$HOME/storage"),
        said_by(casUrl="memory://"),
        said_by(casUrl="http://[::1/x"),
        said_by(casUrl="http://127.0.0.1:1"),
        said_by(exp="soon"),
        said_by(accessToken="a\nb"),
    ],
    ids=["endless", "local", "memory", "no-address", "closed-port", "no-time", "two-lines"],
)
def test_access_that_is_none_is_not_taken(
    hub: SimulatedHub,
    home: Path,
    tmp_path: Path,
    progress: TransferProgress,
    stop: StopSwitch,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answer: Callable[[Front], None],
) -> None:
    monkeypatch.setattr(Front, "xet_access", answer)
    asked = requested(tmp_path, source(hub))
    fetch.fetch(asked, progress, stop)
    same(asked.target, tmp_path / "hub")
    assert "since Xet failed (" in capsys.readouterr().out
    assert not home.exists()


@pytest.mark.usefixtures("impatient")
def test_a_library_that_waits_for_ever_is_ended(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch, monkeypatch: pytest.MonkeyPatch
) -> None:
    proper = storage.reconstruction

    def absurd(*said: Any) -> dict[str, Any]:
        found: dict[str, Any] = proper(*said)
        return {**found, "terms": [{**term, "unpacked_length": 2**32 - 1} for term in found["terms"]]}

    monkeypatch.setattr(storage, "reconstruction", absurd)
    asked = requested(tmp_path, source(hub))
    fetch.fetch(asked, progress, stop)
    same(asked.target, tmp_path / "hub")


@pytest.mark.parametrize(
    "address",
    ["http://127.0.0.1:notaport/x", "http://127.0.0.1:99999999/x", "http://[::1/x", "", "http://OTHER\\@HUB/x"],
    ids=["port", "number", "bracket", "empty", "two-readings"],
)
def test_an_address_for_access_that_is_none_is_not_asked(
    hub: SimulatedHub,
    tmp_path: Path,
    progress: TransferProgress,
    stop: StopSwitch,
    monkeypatch: pytest.MonkeyPatch,
    address: str,
) -> None:
    other = f"127.0.0.1:{urlsplit(hub.delivery).port}"
    address = address.replace("OTHER", other).replace("HUB", urlsplit(hub.endpoint).netloc)
    headers = {"X-Xet-Hash": "ab" * 32, "Link": f'<{address}>; rel="xet-auth"'}
    monkeypatch.setattr(Front, "xet_headers", lambda *_: headers)
    (tmp_path / "token").write_text("hf_right\n")
    hub.tokens.add("hf_right")
    asked = requested(tmp_path, source(hub, token_file=tmp_path / "token"))
    fetch.fetch(asked, progress, stop)
    same(asked.target, tmp_path / "hub")
    assert {seen.token for seen in hub.seen if seen.where == "delivery"} == {None}


def test_wrong_bytes_are_fetched_again_over_plain_http(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.faults = [HubFault(name=SECOND, where="xorb", flip=True)]
    asked = requested(tmp_path, source(hub), jobs=1)
    fetch.fetch(asked, progress, stop)
    same(asked.target, tmp_path / "hub")
    assert f"since Xet failed ({SECOND} did not come as the hub states it)" in capsys.readouterr().out


def test_what_came_before_it_ended_too_early_is_kept(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = (tmp_path / "hub" / SECOND).read_bytes()

    def short(*_: object) -> Iterator[bytes]:
        yield content[:100_000]

    monkeypatch.setattr(xet.Storage, "blocks", short)
    asked = requested(tmp_path, source(hub), include=(SECOND,))
    fetch.fetch(asked, progress, stop)
    assert (asked.target / SECOND).read_bytes() == content
    assert [seen.range for seen in hub.seen if seen.where == "delivery"] == ["bytes=100000-"]


def test_both_ways_wrong_is_a_refusal(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch
) -> None:
    hub.faults = [HubFault(name=SECOND, where="xorb", flip=True), HubFault(name=SECOND, flip=True)]
    asked = requested(tmp_path, source(hub), jobs=1)
    with pytest.raises(Refusal, match=f"{SECOND} came twice with wrong content"):
        fetch.fetch(asked, progress, stop)
    assert not asked.target.exists()


@pytest.mark.parametrize("why", ["unwanted", "missing", "elsewhere"])
def test_plain_http_where_xet_is_not_to_be_used(
    hub: SimulatedHub,
    tmp_path: Path,
    progress: TransferProgress,
    stop: StopSwitch,
    monkeypatch: pytest.MonkeyPatch,
    why: str,
) -> None:
    if why == "missing":
        monkeypatch.setattr(xet, "installed", lambda: False)
    elif why == "elsewhere":
        # Access is given at another host than the hub: it is not asked, least of all with the token.
        headers = {"X-Xet-Hash": "ab" * 32, "Link": f'<{hub.delivery}/xet-read-token>; rel="xet-auth"'}
        monkeypatch.setattr("simulator.hub.server.Front.xet_headers", lambda *_: headers)
    asked = requested(tmp_path, source(hub, xet=why != "unwanted"))
    fetch.fetch(asked, progress, stop)
    same(asked.target, tmp_path / "hub")
    assert ways(hub) == (0, 3)
    assert not any("xet" in seen.path for seen in hub.seen)


def test_a_mirror_that_hands_on_the_hubs_own_address_is_asked_itself(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch, monkeypatch: pytest.MonkeyPatch
) -> None:
    proper = Front.xet_headers

    def handed_on(front: Front, name: str, commit: str, file: HubFile) -> dict[str, str]:
        return {
            k: v.replace(hub.endpoint, "https://huggingface.co") for k, v in proper(front, name, commit, file).items()
        }

    monkeypatch.setattr(Front, "xet_headers", handed_on)
    asked = requested(tmp_path, source(hub))
    fetch.fetch(asked, progress, stop)
    same(asked.target, tmp_path / "hub")
    assert ways(hub) == (9, 0)


def test_through_a_proxy_plain_http(hub: SimulatedHub, tmp_path: Path) -> None:
    assert HuggingFace(source(hub), tmp_path).xet_wanted
    assert not HuggingFace(source(hub, proxy="http://proxy.example.com:3128"), tmp_path).xet_wanted


def test_a_proxy_of_the_environment_is_not_used(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    fetch.fetch(requested(tmp_path, source(hub)), progress, stop)
    assert ways(hub) == (9, 0)


def test_a_library_that_is_not_there_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert xet.installed()
    monkeypatch.setitem(sys.modules, "hf_xet", None)
    assert not xet.installed()
