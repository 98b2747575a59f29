"""The downloader against a hub that misbehaves, with the real client library in between."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gaudi.base.refusal import Refusal
from gaudi.jobs.decisions import progress_text
from gaudi_weights import contents, fetch, manifest, model, staging, transfer
from gaudi_weights.model import RemoteFile, SourceFailure, StopSwitch, TransferInterrupt, choose
from gaudi_weights.network import Connections
from gaudi_weights.progress import TransferProgress
from gaudi_weights.request import HubSource, WeightsRequest

from simulator.hub.server import Front, HubFault, HubHandler, SimulatedHub
from tests.unit.weights.models import MODEL, SERVED, SHARD, LeapingClock, requested, safetensors, source

# One that numpy 2.3.5 wrote with savez, of the shape of INC's: a mapping of names to lists of arrays.
MEASURED = (Path(__file__).parent / "recorded/inc_hooks_maxabs_0_2.npz").read_bytes()
SECOND = "model-00002-of-00003.safetensors"


def same(folder: Path, original: Path) -> None:
    """Exactly what is served is there, byte for byte."""
    there = {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and not path.relative_to(folder).as_posix().startswith(".gaudi-serving/")
    }
    assert there == SERVED
    for name in SERVED:
        assert (folder / name).read_bytes() == (original / name).read_bytes()


def content_bytes(tmp_path: Path) -> int:
    """Bytes of what is served."""
    return sum((tmp_path / "hub" / name).stat().st_size for name in SERVED)


def test_a_model_arrives_whole_with_its_record(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch
) -> None:
    asked = requested(tmp_path, source(hub))
    result = fetch.fetch(asked, progress, stop)
    same(asked.target, tmp_path / "hub")
    done = manifest.load(asked.target)
    assert done is not None
    assert (done.revision, done.repository, done.size) == (source(hub).revision, MODEL, content_bytes(tmp_path))
    assert result["received"] == result["bytes"] == hub.sent
    assert not asked.staging.exists()
    assert [path.name for path in (asked.target / ".gaudi-serving").iterdir()] == ["manifest.json"]


def test_a_finished_model_is_recognised_by_its_record_and_sizes_alone(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch
) -> None:
    asked = requested(tmp_path, source(hub))
    fetch.fetch(asked, progress, stop)
    hub.seen.clear()
    # Whoever reads the weights, which takes an hour, sees that these are others.
    shard = asked.target / SECOND
    shard.write_bytes(bytes(shard.stat().st_size))
    result = fetch.fetch(asked, TransferProgress(None), stop)
    assert (result["received"], hub.seen) == (0, [])


def test_a_branch_becomes_the_commit_it_names(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch
) -> None:
    result = fetch.fetch(requested(tmp_path, source(hub, revision="main")), progress, stop)
    assert result["revision"] == hub.repositories[MODEL].main
    assert all("/main/" not in seen.path for seen in hub.seen if "/resolve/" in seen.path)


@pytest.mark.parametrize("cut", [0, 1, 300_000, SHARD - 1])
@pytest.mark.report("W11")
def test_a_cut_connection_is_continued_at_the_byte(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch, cut: int
) -> None:
    hub.faults = [HubFault(name=SECOND, cut_after=cut)]
    asked = requested(tmp_path, source(hub))
    fetch.fetch(asked, progress, stop)
    same(asked.target, tmp_path / "hub")
    assert [seen.range for seen in hub.seen if seen.range] == ([f"bytes={cut}-"] if cut else []) * 2
    assert progress.received == content_bytes(tmp_path)
    assert progress.done == progress.total


@pytest.mark.parametrize(
    ("missing", "sentence"),
    [({"sha": None}, "does not say which commit"), ({"size": None}, r"does not tell the size of 'config\.json'")],
)
@pytest.mark.report("W12")
def test_a_list_without_what_is_needed_of_it_is_refused(
    hub: SimulatedHub,
    tmp_path: Path,
    progress: TransferProgress,
    stop: StopSwitch,
    monkeypatch: pytest.MonkeyPatch,
    missing: dict[str, Any],
    sentence: str,
) -> None:
    def without(front: Front, content: dict[str, Any], status: int = 200) -> None:
        content = {**content, **{key: missing[key] for key in missing.keys() & content.keys()}}
        content["siblings"] = [{**file, **missing} for file in content["siblings"]]
        HubHandler.send_json(front, content, status)

    monkeypatch.setattr(Front, "send_json", without)
    with pytest.raises(Refusal, match=sentence):
        fetch.fetch(requested(tmp_path, source(hub)), progress, stop)
    assert not any("/resolve/" in seen.path for seen in hub.seen)


@pytest.mark.parametrize("location", ["http://[::1/x", "http://127.0.0.1:99999999/x"])
def test_an_answer_that_sends_to_no_address_is_a_sentence(
    hub: SimulatedHub,
    tmp_path: Path,
    progress: TransferProgress,
    stop: StopSwitch,
    monkeypatch: pytest.MonkeyPatch,
    location: str,
) -> None:
    monkeypatch.setattr(hub, "signed", lambda *_: location)
    with pytest.raises(Refusal, match="is no address"):
        fetch.fetch(requested(tmp_path, source(hub)), progress, stop)


def test_a_token_belongs_to_the_host_that_is_connected_to() -> None:
    """One library reads the host before the backslash, another the one behind the @."""
    hub = "http://hub.example.com/model"
    assert transfer.origin("http://hub.example.com:80/x") != transfer.origin("http://hub.example.com:8080/x")
    assert transfer.origin("http://other.example.com\\@hub.example.com/x") != transfer.origin(hub)
    assert transfer.origin("HTTP://HUB.example.com/x") == transfer.origin(hub)


@pytest.mark.parametrize("said", [None, "bytes 3-9/10", "bytes 4-9/11", "bytes 4-8/10"])
def test_a_continuation_from_elsewhere_is_not_taken(said: str | None) -> None:
    file = RemoteFile("model.safetensors", 10)
    transfer.check_range("bytes 4-9/10", 4, file)
    with pytest.raises(transfer.ChecksumMismatch, match="asked for 'bytes 4-9/10'"):
        transfer.check_range(said, 4, file)


@pytest.mark.parametrize("names", [["a", "b", "a"], ["a/b", "a"], ["\udc80"], ["/".join("a" * 100_000)], ["../a"]])
def test_a_list_that_no_folder_can_have_is_refused(
    names: list[str], hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch
) -> None:
    """A file listed twice would be written by two threads at once, and each would see only what it wrote itself."""
    bringing = fetch.Fetch(requested(tmp_path, source(hub)), source(hub), progress, stop)
    bringing.hub.files = lambda: [RemoteFile(name, 1, "0" * 64) for name in names]  # type: ignore[method-assign]
    with pytest.raises(SourceFailure, match=r"twice, or as a file and as a folder|no text|no folder of weights"):
        bringing.files()


def test_a_source_may_ask_to_wait_for_any_time() -> None:
    assert model.at(1e300).startswith("9999-12-31")


class TestWithoutChecksums:
    """A hub that states sizes alone: they are held, with what lies there and with what comes."""

    def fetch(self, hub: SimulatedHub, tmp_path: Path, stop: StopSwitch, size: int) -> None:
        place = transfer.FileLocation(f"{hub.endpoint}/{MODEL}/resolve/main/{SECOND}", {})
        bringing = transfer.Transfer(Connections(source(hub), 1), transfer.RateLimit(0), stop, patience=30)
        bringing.fetch(RemoteFile(SECOND, size), lambda file: place, tmp_path, lambda count: None)

    def test_more_than_the_file_is_fetched_anew(self, hub: SimulatedHub, tmp_path: Path, stop: StopSwitch) -> None:
        original = (tmp_path / "hub" / SECOND).read_bytes()
        (tmp_path / SECOND).write_bytes(original + b"more")
        self.fetch(hub, tmp_path, stop, len(original))
        assert (tmp_path / SECOND).read_bytes() == original

    def test_a_source_that_sends_more_is_refused(self, hub: SimulatedHub, tmp_path: Path, stop: StopSwitch) -> None:
        size = (tmp_path / "hub" / SECOND).stat().st_size - 5
        with pytest.raises(SourceFailure, match=f"{SECOND} came twice with wrong content: more came than"):
            self.fetch(hub, tmp_path, stop, size)
        assert not (tmp_path / SECOND).exists()


def test_a_source_without_ranges_starts_again_and_still_ends(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch
) -> None:
    hub.faults = [HubFault(name=SECOND, cut_after=300_000), HubFault(name=SECOND, ignore_range=True)]
    asked = requested(tmp_path, source(hub))
    fetch.fetch(asked, progress, stop)
    same(asked.target, tmp_path / "hub")


@pytest.mark.parametrize("where", ["list", "resolve", "content"])
@pytest.mark.parametrize("status", [429, 500, 503])
def test_busy_and_broken_answers_are_waited_out(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch, where: str, status: int
) -> None:
    hub.faults = [HubFault(where=where, status=status, times=2)]
    asked = requested(tmp_path, source(hub))
    fetch.fetch(asked, progress, stop)
    same(asked.target, tmp_path / "hub")


def test_a_server_may_say_how_long_to_wait(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "FIRST_PAUSE", 30.0)
    hub.faults = [HubFault(name=SECOND, status=429, retry_after="1")]
    began = time.monotonic()
    fetch.fetch(requested(tmp_path, source(hub)), progress, stop)
    assert 1 <= time.monotonic() - began < 20


class TestContinuing:
    """What an interrupted fetch knows of the files it has."""

    @pytest.fixture
    def asked(self, hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch) -> WeightsRequest:
        """A fetch that failed with all shards but one there."""
        hub.faults = [HubFault(name="config.json", status=404, where="resolve")]
        asked = requested(tmp_path, source(hub), jobs=1)
        with pytest.raises(Refusal):
            fetch.fetch(asked, progress, stop)
        hub.sent = 0
        return asked

    def read(self, monkeypatch: pytest.MonkeyPatch, asked: WeightsRequest) -> int:
        """Bytes the next run puts through a checksum."""
        added: list[int] = []
        add = transfer.Checksums.add

        def count(self: transfer.Checksums, block: bytes) -> None:
            added.append(len(block))
            add(self, block)

        monkeypatch.setattr(transfer.Checksums, "add", count)
        fetch.fetch(asked, TransferProgress(None), StopSwitch())
        return sum(added)

    def test_files_that_were_checked_are_not_read_again(
        self, asked: WeightsRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert self.read(monkeypatch, asked) < 10_000
        same(asked.target, tmp_path / "hub")
        assert [path.name for path in (asked.target / ".gaudi-serving").iterdir()] == ["manifest.json"]

    def test_a_file_that_was_touched_since_is_read_and_repaired(
        self, asked: WeightsRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        content = bytearray((asked.staging / SECOND).read_bytes())
        content[-1] ^= 1
        (asked.staging / SECOND).write_bytes(content)
        # Read, found wrong, and fetched.
        assert 2 * len(content) <= self.read(monkeypatch, asked) < 2 * len(content) + 10_000
        same(asked.target, tmp_path / "hub")

    @pytest.mark.parametrize("torn", ["[", '["a"]\n', "", '["model-00002-of-00003.safetensors", 1', "\0\0\0"])
    def test_a_torn_note_costs_a_reading_and_no_more(
        self, asked: WeightsRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torn: str
    ) -> None:
        note = asked.staging / ".gaudi-serving/arrived"
        lines = note.read_text().splitlines(keepends=True)
        note.write_text("".join(line for line in lines if SECOND not in line) + torn)
        assert SHARD <= self.read(monkeypatch, asked) < SHARD + 20_000
        same(asked.target, tmp_path / "hub")

    def test_another_checksum_is_another_file(self, asked: WeightsRequest) -> None:
        arrived = manifest.ArrivedFiles(asked.staging)
        known = arrived.known[SECOND][2]
        assert arrived.has(SECOND, known)
        assert not arrived.has(SECOND, "0" * 64)
        assert not arrived.has(SECOND, None)
        (asked.staging / SECOND).unlink()
        assert not arrived.has(SECOND, known)


@pytest.mark.parametrize("sent", [0, 1_000_000])
def test_a_hub_that_is_gone_for_ten_minutes_costs_nothing(
    tmp_path: Path, progress: TransferProgress, hub: SimulatedHub, sent: int
) -> None:
    """It goes before or after the list of files has come with the first of them, and comes back."""
    asked = requested(tmp_path, source(hub))
    hub.faults = [HubFault(name="*.safetensors", cut_after=sent // 3, times=3)]
    pauses: list[float] = []

    def later(now: float) -> None:
        pauses.append(now)
        hub.away = now < 600

    fetch.fetch(asked, progress, LeapingClock(later))
    same(asked.target, tmp_path / "hub")
    assert pauses[-1] >= 600
    # Ten minutes are some tries, not a storm of them, and nothing came twice.
    assert 20 < len(pauses) < 200
    assert progress.received == content_bytes(tmp_path)


@pytest.mark.parametrize("sent", [0, 300_000])
def test_who_follows_is_told_why_nothing_comes(tmp_path: Path, hub: SimulatedHub, sent: int) -> None:
    """A rate and the time that is left stood there for a quarter of an hour."""
    asked = requested(tmp_path, source(hub))
    told = TransferProgress(tmp_path / "progress.json")
    hub.faults = [HubFault(name="*.safetensors", cut_after=sent, times=3)]
    shown: list[str] = []

    def later(now: float) -> None:
        shown.append(progress_text(json.loads((tmp_path / "progress.json").read_text()), time.time()))
        hub.away = now < 100

    fetch.fetch(asked, told, LeapingClock(later))
    assert all("; waiting: " in line and "/s" not in line and "to go" not in line for line in shown)
    assert any(
        re.search(r"model-0000\d-of-00003\.safetensors does not come \(.+\), asked again for", line) for line in shown
    )
    last = json.loads((tmp_path / "progress.json").read_text())
    assert (last["done"], last["waiting"]) == (content_bytes(tmp_path), "")


def test_a_hub_that_stays_away_is_given_up_and_what_came_is_kept(
    tmp_path: Path, hub: SimulatedHub, stop: StopSwitch, progress: TransferProgress
) -> None:
    asked = requested(tmp_path, source(hub))
    hub.faults = [HubFault(name="*.safetensors", cut_after=300_000, times=3)]
    gone = LeapingClock(lambda now: setattr(hub, "away", True))
    with pytest.raises(Refusal, match=r"could not be fetched for 900 s .*run the same again when the source is back"):
        fetch.fetch(asked, progress, gone)
    assert 800 < gone.now < 3 * 3600
    hub.away = False
    assert fetch.fetch(asked, TransferProgress(None), stop)["received"] == content_bytes(tmp_path) - progress.received
    same(asked.target, tmp_path / "hub")
    # By SHA-256 as well: every byte is read again.
    assert fetch.verify(asked, TransferProgress(None), stop)["wrong"] == []


def test_who_has_waited_for_all_of_it_waits_no_more(
    tmp_path: Path, hub: SimulatedHub, progress: TransferProgress
) -> None:
    """Also at times that 900 seconds cannot be added to and taken from without a rounding error."""
    leap, asked = LeapingClock(), []
    leap.now = 900.65
    assert leap.now + 900.0 - 900.0 > leap.now

    def gone(wanted: HubSource) -> dict[str, Any]:
        progress.received += 1
        asked.append(wanted)
        raise SourceFailure("it went", passing=True, waited=900.0)

    with pytest.raises(Refusal, match="it went"):
        fetch.first_that_serves(requested(tmp_path, source(hub)), gone, progress, leap)
    assert len(asked) == 1


def test_a_hub_that_was_never_there_is_given_up_within_minutes(
    tmp_path: Path, hub: SimulatedHub, progress: TransferProgress
) -> None:
    hub.away = True
    leap = LeapingClock()
    with pytest.raises(Refusal, match="cannot be reached"):
        fetch.fetch(requested(tmp_path, source(hub)), progress, leap)
    assert 30 < leap.now < 120


def test_one_file_with_wrong_bytes_is_fetched_again(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch
) -> None:
    hub.faults = [HubFault(name=SECOND, flip=True)]
    asked = requested(tmp_path, source(hub))
    fetch.fetch(asked, progress, stop)
    same(asked.target, tmp_path / "hub")
    assert progress.done == progress.total


@pytest.mark.parametrize("name", [SECOND, "config.json"])
def test_wrong_bytes_twice_are_refused_with_the_name(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch, name: str
) -> None:
    hub.faults = [HubFault(name=name, flip=True, times=2)]
    asked = requested(tmp_path, source(hub))
    with pytest.raises(Refusal, match=f"{name} came twice with wrong content"):
        fetch.fetch(asked, progress, stop)
    assert not asked.target.exists()


@pytest.mark.parametrize("longer", [0, 5, -5])
def test_a_file_that_changes_on_its_way_is_not_taken_for_either(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch, longer: int
) -> None:
    """Half of it comes before the change and half after, as nobody should see it."""
    hub.faults = [HubFault(name=SECOND, cut_after=300_000)]
    asked = requested(tmp_path, source(hub, revision="main"))
    old = hub.repositories[MODEL].commits[hub.repositories[MODEL].main]
    changed = tmp_path / "changed"
    changed.write_bytes(safetensors(SHARD + 1000 + longer, 9))
    swapped = LeapingClock(
        lambda now: old.update({SECOND: replace(old[SECOND], path=changed, size=changed.stat().st_size)})
    )
    with pytest.raises(Refusal, match=f"{SECOND} came twice with wrong content"):
        fetch.fetch(asked, progress, swapped)
    assert not asked.target.exists()
    # The next list says what it is now.
    shutil.copy(changed, tmp_path / "hub" / SECOND)
    hub.repository(MODEL, tmp_path / "hub")
    fetch.fetch(asked, TransferProgress(None), stop)
    same(asked.target, tmp_path / "hub")


def test_the_next_source_continues_where_the_first_failed(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch
) -> None:
    absent = source(hub, name="mirror", repository="maker/Nothing")
    broken = source(hub, name="broken", endpoint="http://127.0.0.1:1")
    asked = requested(tmp_path, absent, broken, source(hub))
    assert fetch.fetch(asked, progress, stop)["source"] == "hub"
    same(asked.target, tmp_path / "hub")


def test_bytes_of_a_failed_source_are_kept_for_the_next(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch
) -> None:
    hub.faults = [HubFault(name="model-00003*", status=404, where="resolve")]
    asked = requested(tmp_path, source(hub, name="lacking"), source(hub), jobs=1)
    assert fetch.fetch(asked, progress, stop)["source"] == "hub"
    same(asked.target, tmp_path / "hub")
    assert progress.received == content_bytes(tmp_path)


def test_a_slow_trickle_is_not_given_up(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "SILENCE_SECONDS", 0.7)
    hub.faults = [HubFault(name=SECOND, rate=300_000)]
    asked = requested(tmp_path, source(hub))
    fetch.fetch(asked, progress, stop)
    assert sum(SECOND in seen.path for seen in hub.seen) == 1
    same(asked.target, tmp_path / "hub")


def test_the_rate_is_limited(hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch) -> None:
    began = time.monotonic()
    fetch.fetch(requested(tmp_path, source(hub), rate_limit=1_200_000), progress, stop)
    assert time.monotonic() - began > content_bytes(tmp_path) / 1_200_000 - 0.1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"revision": "0" * 40}, r"has no revision 0{40}: pin one that exists, in catalog/models or as revision"),
        ({"repository": "maker/Nothing"}, "does not exist or is private, and no token was sent"),
        ({"endpoint": "http://127.0.0.1:1"}, "cannot be reached"),
    ],
)
def test_refusals_say_what_to_do(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, change: dict[str, str], says: str
) -> None:
    asked = requested(tmp_path, source(hub, **change))
    with pytest.raises(Refusal, match=says):
        fetch.fetch(asked, progress, LeapingClock())
    assert not asked.target.exists()


def test_a_gated_model_wants_a_token_of_an_account(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch
) -> None:
    hub.repositories[MODEL].gated = True
    with pytest.raises(Refusal, match="is gated: accept its licence"):
        fetch.fetch(requested(tmp_path, source(hub)), progress, stop)


def test_a_wrong_token_is_named_and_the_right_one_serves(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch
) -> None:
    hub.repositories[MODEL].gated = True
    hub.tokens = {"hf_right"}
    token = tmp_path / "token"
    token.write_text("hf_wrong\n")
    asked = requested(tmp_path, source(hub, token_file=token))
    with pytest.raises(Refusal, match="refuses the token") as refused:
        fetch.fetch(asked, progress, stop)
    assert "hf_wrong" not in str(refused.value)
    token.write_text("hf_right\n")
    fetch.fetch(asked, progress, stop)
    same(asked.target, tmp_path / "hub")


def test_a_token_never_follows_to_another_host(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch
) -> None:
    hub.tokens = {"hf_right"}
    token = tmp_path / "token"
    token.write_text("hf_right")
    fetch.fetch(requested(tmp_path, source(hub, token_file=token)), progress, stop)
    assert {seen.token for seen in hub.seen if seen.where == "hub"} == {"hf_right"}
    assert {seen.token for seen in hub.seen if seen.where == "delivery"} == {None}


def test_a_proxy_is_used_for_everything(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch
) -> None:
    # The front server is its own proxy, but not the delivery network's: only small files come this way.
    asked = requested(tmp_path, source(hub, proxy=hub.endpoint), include=("config.json",))
    fetch.fetch(asked, progress, stop)
    assert hub.seen
    assert all(seen.proxied for seen in hub.seen)


def test_no_room_is_refused_before_the_first_byte_with_three_numbers(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch
) -> None:
    asked = requested(tmp_path, source(hub), extra_room=10**18, reserve=5 * 10**9)
    with pytest.raises(Refusal, match=r"needs 1\.8 MB for .* 1000000\.00 TB for .* 5\.0 GB in reserve.*are free"):
        fetch.fetch(asked, progress, stop)
    assert hub.sent == 0


@pytest.mark.parametrize(
    ("option", "advice"), [("gaudi_weights_root", ", or set another gaudi_weights_root"), ("", "")]
)
def test_whoever_has_no_room_is_told_where(
    option: str, advice: str, hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch
) -> None:
    asked = requested(tmp_path, source(hub), extra_room=10**18, root_option=option)
    with pytest.raises(Refusal) as refused:
        fetch.fetch(asked, progress, stop)
    assert re.search(rf"Make room for [0-9.]+ TB more in {asked.target.parent}{advice}$", str(refused.value))


def test_what_is_here_already_needs_no_room(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch
) -> None:
    # The file behind one that fails may have begun when the fetch ends.
    names = (SECOND, "model-00001-of-00003.safetensors")
    hub.faults = [HubFault(name=name, status=404, where="resolve") for name in names]
    asked = requested(tmp_path, source(hub), jobs=1)
    with pytest.raises(Refusal):
        fetch.fetch(asked, progress, stop)
    with pytest.raises(Refusal, match=r"needs 1\.2 MB for what is still missing"):
        fetch.fetch(replace(asked, extra_room=10**18), TransferProgress(None), stop)


def test_a_folder_of_somebody_else_is_never_touched(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch
) -> None:
    asked = requested(tmp_path, source(hub))
    asked.target.mkdir(parents=True)
    (asked.target / "mine").write_text("precious")
    with pytest.raises(Refusal, match="somebody's own and is not touched"):
        fetch.fetch(asked, progress, stop)
    assert [path.name for path in asked.target.iterdir()] == ["mine"]
    assert hub.seen == []


def test_a_target_on_another_file_system_is_published_there(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch
) -> None:
    """Staging lies beside the target, so a rename publishes wherever that is."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
        assert Path(elsewhere).stat().st_dev != tmp_path.stat().st_dev
        asked = replace(requested(tmp_path, source(hub)), target=Path(elsewhere) / "Small-Model")
        assert asked.staging.parent == asked.target.parent
        fetch.fetch(asked, progress, stop)
        same(asked.target, tmp_path / "hub")


def test_a_symbolic_link_is_refused(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch
) -> None:
    asked = requested(tmp_path, source(hub))
    asked.target.parent.mkdir()
    asked.target.symlink_to(tmp_path)
    with pytest.raises(Refusal, match="symbolic link"):
        fetch.fetch(asked, progress, stop)


def test_a_file_system_that_is_not_mounted_is_refused(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch
) -> None:
    with pytest.raises(Refusal, match="is not mounted"):
        fetch.fetch(requested(tmp_path, source(hub), mounted_on=tmp_path), progress, stop)
    assert not (tmp_path / "models").exists()


def test_another_revision_is_refused_and_the_first_kept(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch
) -> None:
    asked = requested(tmp_path, source(hub))
    fetch.fetch(asked, progress, stop)
    with pytest.raises(Refusal, match=r"holds revision .* another one is asked for"):
        fetch.fetch(requested(tmp_path, source(hub, revision="1" * 40)), progress, stop)
    same(asked.target, tmp_path / "hub")


@pytest.mark.report("W09")
def test_a_missing_shard_is_refused_before_the_weights(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch
) -> None:
    (tmp_path / "hub" / SECOND).unlink()
    hub.repositories.clear()
    hub.repository(MODEL, tmp_path / "hub")
    with pytest.raises(Refusal, match=f"the source lacks {SECOND}"):
        fetch.fetch(requested(tmp_path, source(hub)), progress, stop)
    assert hub.sent < 10_000


def test_a_broken_header_is_refused(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch
) -> None:
    (tmp_path / "hub" / SECOND).write_bytes(safetensors(5000, 1)[:-1])
    hub.repositories.clear()
    hub.repository(MODEL, tmp_path / "hub")
    with pytest.raises(Refusal, match=f"{SECOND} is no proper safetensors file: .*cut short"):
        fetch.fetch(requested(tmp_path, source(hub)), progress, stop)


def test_files_of_an_earlier_listing_are_not_published(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch
) -> None:
    asked = requested(tmp_path, source(hub))
    asked.staging.mkdir(parents=True)
    (asked.staging / "old.safetensors").write_bytes(b"old")
    (asked.staging / SECOND).write_bytes(b"also old, and of the wrong content")
    fetch.fetch(asked, progress, stop)
    same(asked.target, tmp_path / "hub")


def test_a_second_fetch_at_the_same_time_is_refused(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch
) -> None:
    asked = requested(tmp_path, source(hub))
    with staging.only_one(asked), pytest.raises(Refusal, match="is being fetched already"):
        fetch.fetch(asked, progress, stop)


def test_a_stop_keeps_what_has_arrived(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch
) -> None:
    hub.rate = 100_000
    asked = requested(tmp_path, source(hub))

    def kept() -> int:
        return sum((asked.staging / name).stat().st_size for name in SERVED if (asked.staging / name).exists())

    def stop_when_something_has_arrived() -> None:
        deadline = time.monotonic() + 60
        while not kept() and time.monotonic() < deadline:
            time.sleep(0.01)
        stop.ask()

    threading.Thread(target=stop_when_something_has_arrived).start()
    with pytest.raises(TransferInterrupt):
        fetch.fetch(asked, progress, stop)
    assert kept() > 0
    hub.rate = 0
    fetch.fetch(asked, TransferProgress(None), StopSwitch())
    same(asked.target, tmp_path / "hub")


class TestRepair:
    """Bad files of a finished model."""

    @pytest.fixture
    def asked(self, hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch) -> WeightsRequest:
        asked = requested(tmp_path, source(hub))
        fetch.fetch(asked, progress, stop)
        hub.seen.clear()
        hub.sent = 0
        return asked

    @pytest.mark.parametrize("cut", [None, 1000])
    def test_a_missing_or_short_file_is_fetched_alone(
        self, asked: WeightsRequest, hub: SimulatedHub, tmp_path: Path, stop: StopSwitch, cut: int | None
    ) -> None:
        if cut is None:
            (asked.target / SECOND).unlink()
        else:
            os.truncate(asked.target / SECOND, cut)
        assert fetch.fetch(asked, TransferProgress(None), stop)["repaired"] == [SECOND]
        same(asked.target, tmp_path / "hub")
        assert hub.sent == (tmp_path / "hub" / SECOND).stat().st_size
        assert not asked.staging.exists()

    @pytest.mark.parametrize("verified", [True, False])
    def test_a_damaged_file_is_named_and_repaired_alone(
        self, asked: WeightsRequest, hub: SimulatedHub, tmp_path: Path, stop: StopSwitch, verified: bool
    ) -> None:
        content = bytearray((asked.target / SECOND).read_bytes())
        content[-1] ^= 1
        (asked.target / SECOND).write_bytes(content)
        assert fetch.fetch(asked, TransferProgress(None), stop)["repaired"] == []  # sizes alone show nothing
        if verified:
            with pytest.raises(Refusal, match=f"1 of 6 files of .* are missing or damaged: {SECOND}"):
                fetch.verify(asked, TransferProgress(None), stop)
            assert json.loads((asked.target / ".gaudi-serving/verified.json").read_text())["wrong"] == [SECOND]
        # What was found is known; otherwise every byte has to be read on request.
        again = replace(asked, recheck=not verified)
        assert fetch.fetch(again, TransferProgress(None), stop)["repaired"] == [SECOND]
        same(asked.target, tmp_path / "hub")
        assert hub.sent == len(content)
        fetch.verify(asked, TransferProgress(None), stop)
        assert json.loads((asked.target / ".gaudi-serving/verified.json").read_text())["wrong"] == []

    def test_what_is_repaired_afterwards_is_no_reason_to_fail(
        self, asked: WeightsRequest, hub: SimulatedHub, stop: StopSwitch
    ) -> None:
        (asked.target / SECOND).write_bytes(bytes((asked.target / SECOND).stat().st_size))
        again = replace(asked, recheck=True)
        assert fetch.verify(again, TransferProgress(None), stop)["wrong"] == [SECOND]
        assert json.loads((asked.target / ".gaudi-serving/verified.json").read_text())["wrong"] == [SECOND]
        assert hub.sent == 0
        fetch.fetch(asked, TransferProgress(None), stop)
        assert fetch.verify(again, TransferProgress(None), stop)["wrong"] == []

    def test_a_source_with_other_content_repairs_nothing(
        self, asked: WeightsRequest, hub: SimulatedHub, tmp_path: Path, stop: StopSwitch
    ) -> None:
        (asked.target / SECOND).unlink()
        hub.faults = [HubFault(name=SECOND, flip=True, times=9)]
        with pytest.raises(Refusal, match="came twice with wrong content"):
            fetch.fetch(asked, TransferProgress(None), stop)
        assert not (asked.target / SECOND).exists()

    def test_a_damaged_record_is_refused(self, asked: WeightsRequest, stop: StopSwitch) -> None:
        (asked.target / ".gaudi-serving/manifest.json").write_text("{")
        with pytest.raises(Refusal, match="is damaged"):
            fetch.fetch(asked, TransferProgress(None), stop)

    def test_there_is_nothing_to_verify_without_a_model(self, asked: WeightsRequest, stop: StopSwitch) -> None:
        shutil.rmtree(asked.target)
        with pytest.raises(Refusal, match="no finished model"):
            fetch.verify(asked, TransferProgress(None), stop)


class TestChoice:
    """Which files are served."""

    def files(self, *names: str) -> list[RemoteFile]:
        return [RemoteFile(name, 1) for name in names]

    def names(self, files: list[RemoteFile]) -> list[str]:
        return [file.name for file in files]

    def test_weights_twice_are_fetched_once(self) -> None:
        listed = self.files(
            "a.safetensors", "pytorch_model.bin", "original/x.pth", "consolidated.safetensors", "c.json"
        )
        assert self.names(choose(listed, (), ())) == ["a.safetensors", "c.json"]

    def test_the_only_weights_are_fetched_whatever_their_format(self) -> None:
        assert self.names(choose(self.files("pytorch_model.bin", "a.png"), (), ())) == ["pytorch_model.bin"]

    def test_patterns_decide(self) -> None:
        listed = self.files("a.safetensors", "sub/b.bin", "c.json")
        assert self.names(choose(listed, ("*.bin", "c.*"), ("c.json",))) == ["sub/b.bin"]

    def test_nothing_wanted_is_refused(self) -> None:
        with pytest.raises(Refusal, match="none of the source's 1 files is wanted"):
            choose(self.files("a"), ("b",), ())

    @pytest.mark.parametrize(
        "name", ["../x", "/etc/passwd", "a/../../b", "", "a//b", "x\ny", ".gaudi-serving/manifest.json", "a\\b", "."]
    )
    def test_names_that_leave_the_folder_are_refused(self, name: str) -> None:
        with pytest.raises(Refusal, match="does not stay in the model's folder"):
            choose(self.files(name, "config.json"), (), ())


class TestMeasurements:
    """Three files for each of N cards."""

    def names(self, cards: int, stem: str = "inc_measure_output_hooks_maxabs") -> list[str]:
        return [f"{stem}_{rank}_{cards}{kind}" for rank in range(cards) for kind in contents.KINDS]

    @pytest.mark.parametrize("cards", [1, 8, 16])
    def test_a_whole_set_is_taken(self, cards: int) -> None:
        contents.check_measurements(["README.md", *self.names(cards)], cards)

    @pytest.mark.parametrize("missing", range(24))
    def test_each_file_counts(self, missing: int) -> None:
        names = self.names(8)
        with pytest.raises(Refusal, match=r"needs 24 measurement files, and the source lacks inc_measure") as refused:
            contents.check_measurements(names[:missing] + names[missing + 1 :], 8)
        assert names[missing] in str(refused.value)

    def test_a_set_for_another_size_is_refused(self) -> None:
        with pytest.raises(Refusal, match="for tensor parallel size 16 are needed, there are files for 8"):
            contents.check_measurements(self.names(8), 16)

    def test_no_measurements_are_refused(self) -> None:
        with pytest.raises(Refusal, match="there are none at all"):
            contents.check_measurements(["config.json"], 8)

    def test_they_are_fetched_as_a_model_is(
        self, hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch
    ) -> None:
        folder = tmp_path / "measured"
        folder.mkdir()
        for name in self.names(2):
            (folder / name).write_bytes(MEASURED if name.endswith(".npz") else name.encode())
        (folder / "setup.py").write_text("nobody needs it")
        hub.repository("maker/measured", folder)
        revision = hub.repositories["maker/measured"].main
        asked = requested(tmp_path, source(hub, repository="maker/measured", revision=revision), measured_cards=2)
        assert fetch.fetch(asked, progress, stop)["files"] == 6
        with pytest.raises(Refusal, match="there are files for 2"):
            fetch.fetch(
                replace(asked, target=tmp_path / "models/other", measured_cards=4), TransferProgress(None), stop
            )
