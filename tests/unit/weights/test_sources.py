"""Each kind of source: its stand-in as the real client sees it, and the downloader against it."""

from __future__ import annotations

import gc
import io
import json
import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import urllib3
import yaml
from gaudi.base.refusal import Refusal
from gaudi.weights.hub_kinds import DEFAULT, KINDS, origin_sentences
from gaudi_weights import fetch, hub_git, hubs, manifest, request
from gaudi_weights.model import RemoteFile, SourceFailure, StopSwitch
from gaudi_weights.progress import TransferProgress
from gaudi_weights.request import HubSource
from modelscope_hub import HubApi, HubConfig

from simulator import host
from simulator.hub import git
from simulator.hub.modelscope import ModelScopeFront
from simulator.hub.server import HubFault, SimulatedHub, running
from tests.unit.weights.models import MODEL, SERVED, LeapingClock, requested, safetensors, source, write_model

ROOT = Path(__file__).resolve().parents[3]
SECOND = "model-00002-of-00003.safetensors"


def serve(kind: str, tmp_path: Path) -> Any:
    """A hub of a kind that serves while the block runs; without a model yet."""
    fronts = {"modelscope": ModelScopeFront, "git": type("Host", (git.GitHost,), {"root": tmp_path / "bare"})}
    return running(front=fronts.get(kind))


def publish(kind: str, hub: SimulatedHub, folder: Path, name: str = MODEL) -> str:
    """Make a folder's files the newest commit on a hub; returns the commit's id."""
    if kind == "git":
        return git.publish(hub, name, folder, hub.servers[0].RequestHandlerClass.root).main  # type: ignore[attr-defined]
    return hub.repository(name, folder).main


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Every kind of source in turn."""
    return str(request.param)


@pytest.fixture
def served(kind: str, tmp_path: Path) -> Iterator[SimulatedHub]:
    """A hub of this kind with the small model."""
    with serve(kind, tmp_path) as hub:
        publish(kind, hub, write_model(tmp_path / "hub"))
        yield hub


def token_file(tmp_path: Path, token: str) -> Path:
    path = tmp_path / "token"
    path.write_text(token + "\n")
    path.chmod(0o600)
    return path


def same(folder: Path, original: Path) -> None:
    """Exactly what is served is there, byte for byte."""
    done = manifest.load(folder)
    assert done is not None
    assert {file.name for file in done.files} == SERVED
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert there == {*SERVED, ".gaudi-serving/manifest.json"}
    for name in SERVED:
        assert (folder / name).read_bytes() == (original / name).read_bytes()


class TestEveryKind:
    """What does not depend on where a model comes from."""

    @pytest.mark.parametrize("branch", [False, True])
    def test_a_model_arrives_whole_with_its_record(
        self,
        kind: str,
        served: SimulatedHub,
        tmp_path: Path,
        progress: TransferProgress,
        stop: StopSwitch,
        branch: bool,
    ) -> None:
        name = "master" if kind == "modelscope" else "main"
        asked = requested(tmp_path, source(served, kind=kind, **({"revision": name} if branch else {})))
        result = fetch.fetch(asked, progress, stop)
        same(asked.target, tmp_path / "hub")
        # ModelScope does not say which commit a branch is.
        known = served.repositories[MODEL].main
        assert result["revision"] == ("master" if branch and kind == "modelscope" else known)
        assert progress.done == progress.total == result["bytes"]
        served.seen.clear()
        assert fetch.fetch(asked, TransferProgress(None), stop)["received"] == 0
        assert served.seen == []
        fetch.verify(asked, TransferProgress(None), stop)

    def test_a_cut_connection_is_continued_at_the_byte(
        self, kind: str, served: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch
    ) -> None:
        served.faults = [HubFault(name=SECOND, cut_after=300_000)]
        asked = requested(tmp_path, source(served, kind=kind))
        fetch.fetch(asked, progress, stop)
        same(asked.target, tmp_path / "hub")
        assert "bytes=300000-" in [seen.range for seen in served.seen]
        assert progress.received == progress.total

    @pytest.mark.parametrize("where", ["list", "resolve", "content"])
    @pytest.mark.parametrize("status", [429, 503])
    def test_busy_and_broken_answers_are_waited_out(
        self,
        kind: str,
        served: SimulatedHub,
        tmp_path: Path,
        progress: TransferProgress,
        monkeypatch: pytest.MonkeyPatch,
        where: str,
        status: int,
    ) -> None:
        # The ModelScope library waits by itself, in its own clock.
        monkeypatch.setattr("modelscope_hub._legacy_api.REPO_TREE_PAGE_RETRY_MAX_DELAY_SECONDS", 0.05)
        served.faults = [HubFault(where=where, status=status, times=2)]
        asked = requested(tmp_path, source(served, kind=kind))
        fetch.fetch(asked, progress, LeapingClock())
        same(asked.target, tmp_path / "hub")
        assert served.faults[0].times == 0

    @pytest.mark.parametrize("change", [{"revision": "0" * 40}, {"repository": "maker/Nothing"}])
    def test_what_is_not_there_is_a_sentence(
        self,
        kind: str,
        served: SimulatedHub,
        tmp_path: Path,
        progress: TransferProgress,
        stop: StopSwitch,
        change: dict[str, str],
    ) -> None:
        asked = requested(tmp_path, source(served, kind=kind, **change))
        with pytest.raises(Refusal, match=r"(has no revision|does not exist)") as refused:
            fetch.fetch(asked, progress, stop)
        assert next(iter(change.values())) in str(refused.value)
        assert not asked.target.exists()

    def test_a_gated_model_wants_a_token_and_a_wrong_one_is_named(
        self, kind: str, served: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch
    ) -> None:
        served.repositories[MODEL].gated = True
        served.tokens = {"right"}
        asked = requested(tmp_path, source(served, kind=kind))
        with pytest.raises(Refusal, match="token"):
            fetch.fetch(asked, progress, stop)
        with_token = replace(asked.sources[0], token_file=token_file(tmp_path, "wrong"))
        with pytest.raises(Refusal, match="refuses the token") as refused:
            fetch.fetch(replace(asked, sources=(with_token,)), progress, stop)
        assert "wrong" not in str(refused.value)
        token_file(tmp_path, "right")
        fetch.fetch(replace(asked, sources=(with_token,)), TransferProgress(None), stop)
        same(asked.target, tmp_path / "hub")
        # It goes to the hub only, never to where that redirects.
        assert "right" in {seen.token for seen in served.seen if seen.where == "hub"}
        assert {seen.token for seen in served.seen if seen.where == "delivery"} == {None}

    def test_nothing_is_taken_from_the_environment(
        self,
        kind: str,
        served: SimulatedHub,
        tmp_path: Path,
        progress: TransferProgress,
        stop: StopSwitch,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        home = tmp_path / "home"
        home.mkdir()
        (home / ".netrc").write_text("default login me password stolen\n")
        for name in ("HF_TOKEN", "MODELSCOPE_API_TOKEN"):
            monkeypatch.setenv(name, "stolen")
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, "http://127.0.0.1:1")
        monkeypatch.setenv("HOME", str(home))
        fetch.fetch(requested(tmp_path, source(served, kind=kind)), progress, stop)
        assert {seen.token for seen in served.seen} == {None}
        assert os.environ["http_proxy"] == "http://127.0.0.1:1"

    def test_a_proxy_is_used(
        self, kind: str, served: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch
    ) -> None:
        # The front server is its own proxy, but not the delivery network's: only small files come this way.
        asked = requested(tmp_path, source(served, kind=kind, proxy=served.endpoint), include=("config.json",))
        fetch.fetch(asked, progress, stop)
        assert served.seen
        assert all(seen.proxied for seen in served.seen)

    def test_a_damaged_file_is_repaired_from_it(
        self, kind: str, served: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch
    ) -> None:
        asked = requested(tmp_path, source(served, kind=kind))
        fetch.fetch(asked, progress, stop)
        (asked.target / SECOND).unlink()
        (asked.target / "config.json").unlink()
        assert fetch.fetch(asked, TransferProgress(None), stop)["repaired"] == ["config.json", SECOND]
        same(asked.target, tmp_path / "hub")


class TestMixed:
    """Sources of several kinds, in order."""

    @pytest.mark.parametrize("second", ["modelscope", "git"])
    def test_the_next_kind_continues_with_the_bytes_that_are_there(
        self, hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, second: str
    ) -> None:
        shards = [name for name in SERVED if name.endswith(".safetensors")]
        hub.faults = [HubFault(name=name, cut_after=400_000) for name in shards]
        hub.faults += [HubFault(name=name, status=503, times=999) for name in shards]
        with serve(second, tmp_path) as other:
            publish(second, other, tmp_path / "hub")
            first = source(hub, name="huggingface")
            then = source(other, name="other", kind=second)
            asked = requested(tmp_path, first, then)
            result = fetch.fetch(asked, progress, LeapingClock())
            assert result["source"] == "other"
            same(asked.target, tmp_path / "hub")
            assert "bytes=400000-" in [seen.range for seen in other.seen]
        # What the first one sent is not asked for again, to the byte.
        assert progress.received == sum((tmp_path / "hub" / name).stat().st_size for name in SERVED)

    def test_what_is_called_alike_and_is_another_file_is_fetched_again(
        self, hub: SimulatedHub, tmp_path: Path, progress: TransferProgress
    ) -> None:
        """The same weights, and a page of text that each hub writes for itself."""
        hub.faults = [HubFault(name="*.safetensors", status=404, where="resolve", times=9)]
        theirs = write_model(tmp_path / "theirs")
        (theirs / "config.json").write_text('{"model_type": "qwen2" }')
        with serve("modelscope", tmp_path) as other:
            publish("modelscope", other, theirs)
            asked = requested(tmp_path, source(hub, name="huggingface"), source(other, name="other", kind="modelscope"))
            fetch.fetch(asked, progress, LeapingClock())
        same(asked.target, theirs)

    def test_the_pin_that_counts_is_that_of_where_it_came_from(
        self, hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch
    ) -> None:
        asked = requested(tmp_path, source(hub, name="huggingface"))
        fetch.fetch(asked, progress, stop)
        other = source(hub, name="other", kind="modelscope", revision="master")
        both = replace(asked, sources=(asked.sources[0], other))
        assert fetch.fetch(both, TransferProgress(None), stop)["received"] == 0
        moved = replace(asked.sources[0], revision="1" * 40)
        with pytest.raises(Refusal, match="another one is asked for"):
            fetch.fetch(replace(asked, sources=(moved, other)), TransferProgress(None), stop)


def test_the_modelscope_library_downloads_a_whole_repository(tmp_path: Path) -> None:
    with serve("modelscope", tmp_path) as hub:
        publish("modelscope", hub, write_model(tmp_path / "hub"))
        api = HubApi(HubConfig(endpoint=hub.endpoint, token="", cache_dir=tmp_path, config_dir=tmp_path / "config"))
        there = Path(api.download_repo(MODEL, "model", local_dir=tmp_path / "there"))
        for file in (tmp_path / "hub").rglob("*"):
            if file.is_file():
                assert (there / file.relative_to(tmp_path / "hub")).read_bytes() == file.read_bytes()


class TestGit:
    """What only git has."""

    @pytest.fixture
    def kind(self) -> str:
        return "git"

    def test_git_and_git_lfs_clone_from_the_stand_in(self, served: SimulatedHub, tmp_path: Path) -> None:
        host.install_packages({"git-lfs": "git-lfs"}, print)
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1"}
        subprocess.run(["git", "lfs", "install"], env=environment, check=True, capture_output=True)
        command = ["git", "clone", "--quiet", f"{served.endpoint}/{MODEL}.git", str(tmp_path / "there")]
        subprocess.run(command, env=environment, check=True, capture_output=True)
        for file in (tmp_path / "hub").rglob("*"):
            if file.is_file():
                assert (tmp_path / "there" / file.relative_to(tmp_path / "hub")).read_bytes() == file.read_bytes()

    @pytest.mark.parametrize("suffix", ["", ".git"])
    def test_both_ways_to_write_an_address_work(
        self, served: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch, suffix: str
    ) -> None:
        fetch.fetch(requested(tmp_path, source(served, kind="git", repository=MODEL + suffix)), progress, stop)

    def test_an_earlier_commit_is_fetched_when_it_is_pinned(
        self, served: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch
    ) -> None:
        first = served.repositories[MODEL].main
        newer = write_model(tmp_path / "newer")
        (newer / SECOND).write_bytes(safetensors(1000, 7))
        assert publish("git", served, newer) != first
        asked = requested(tmp_path, source(served, kind="git", revision=first))
        fetch.fetch(asked, progress, stop)
        same(asked.target, tmp_path / "hub")

    def test_only_pointers_come_with_the_list(self, served: SimulatedHub, tmp_path: Path) -> None:
        asked = hub_git.Git(source(served, kind="git"), tmp_path / "scratch")
        listed = {file.name: file for file in asked.files()}
        assert listed[SECOND].sha256 is not None
        assert listed["config.json"].sha256 is None
        brought = sum(path.stat().st_size for path in (tmp_path / "scratch").rglob("*") if path.is_file())
        assert brought < 100_000 < listed[SECOND].size

    def test_a_secret_is_nowhere_but_in_its_file(
        self,
        served: SimulatedHub,
        tmp_path: Path,
        progress: TransferProgress,
        stop: StopSwitch,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        secret = f"glpat-{secrets.token_hex(16)}"
        served.repositories[MODEL].gated = True
        served.tokens = {secret}
        path = token_file(tmp_path, secret)
        started = []
        run = hub_git.Git.run

        def watch(self: hub_git.Git, command: list[str], given: bytes) -> Any:
            done = run(self, command, given)
            started.append(json.dumps([command, self.environment()]))
            for file in (tmp_path / "models").rglob("*"):
                if file.is_file():
                    assert secret.encode() not in file.read_bytes(), file
            return done

        monkeypatch.setattr(hub_git.Git, "run", watch)
        fetch.fetch(requested(tmp_path, source(served, kind="git", token_file=path)), progress, stop)
        assert len(started) > 3
        assert secret not in "".join(started)
        assert all(secret not in seen.path for seen in served.seen)

    def test_credentials_are_for_their_own_host(self, served: SimulatedHub, tmp_path: Path) -> None:
        mine = source(served, kind="git", token_file=token_file(tmp_path, "x"), endpoint="https://git.example.com:8443")
        helpers = [value for value in hub_git.Git(mine, tmp_path).environment().values() if value.endswith(".helper")]
        assert helpers == ["credential.helper", "credential.https://git.example.com:8443.helper"]

    def test_a_large_file_outside_git_lfs_is_refused_before_it_comes(
        self,
        served: SimulatedHub,
        tmp_path: Path,
        progress: TransferProgress,
        stop: StopSwitch,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(hub_git, "LARGEST", "1k")
        (tmp_path / "hub/vocab.json").write_bytes(b"x" * 2000)
        publish("git", served, tmp_path / "hub")
        with pytest.raises(Refusal, match=r"has vocab\.json in git itself and not in git-lfs, larger than 1kB"):
            fetch.fetch(requested(tmp_path, source(served, kind="git")), progress, stop)

    def test_a_host_that_sends_too_much_is_stopped(
        self,
        served: SimulatedHub,
        tmp_path: Path,
        progress: TransferProgress,
        stop: StopSwitch,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(hub_git, "MOST_BROUGHT", 1 << 20)
        for number in range(3):
            (tmp_path / f"hub/notes-{number}.txt").write_bytes(secrets.token_bytes(1 << 20))
        publish("git", served, tmp_path / "hub")
        with pytest.raises(Refusal, match="sends more outside git-lfs than a model has"):
            fetch.fetch(requested(tmp_path, source(served, kind="git")), progress, stop)
        assert sum(path.stat().st_size for path in (tmp_path / "models").rglob("*") if path.is_file()) < 1 << 20

    def test_a_host_that_sends_without_end_is_stopped_while_it_sends(
        self, served: SimulatedHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A stand-in for git, of which another process writes, as git's own do, and would go on without it."""
        monkeypatch.setattr(hub_git, "MOST_BROUGHT", 1 << 20)
        (tmp_path / "bin").mkdir()
        program = tmp_path / "bin/git"
        program.write_text(
            '#!/bin/sh\n[ "$3" = fetch ] || exit 0\n'
            '(for part in 1 2 3 4 5 6 7 8 9; do head -c 1000000 /dev/zero >> "$2/pack"; sleep 1; done; '
            f"touch {tmp_path / 'ended'}) & wait\n"
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
        with pytest.raises(SourceFailure, match="sends more outside git-lfs than a model has"):
            hub_git.Git(source(served, kind="git"), tmp_path / "scratch").files()
        assert not (tmp_path / "scratch/git").exists()
        assert not (tmp_path / "ended").exists()

    def test_a_host_that_sends_more_than_half_of_the_free_disk_space_is_stopped(
        self, served: SimulatedHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for number in range(3):
            (tmp_path / f"hub/notes-{number}.txt").write_bytes(secrets.token_bytes(1 << 20))
        publish("git", served, tmp_path / "hub")
        (tmp_path / "scratch").mkdir()
        space = type(shutil.disk_usage(tmp_path))(16 << 30, (16 << 30) - (4 << 20), 4 << 20)
        monkeypatch.setattr(shutil, "disk_usage", lambda _path: space)
        with pytest.raises(SourceFailure, match="half of the free disk space"):
            hub_git.Git(source(served, kind="git"), tmp_path / "scratch").files()
        assert not (tmp_path / "scratch/git").exists()

    def test_a_name_of_a_file_that_is_not_utf_8_is_a_failure_of_the_source(
        self, served: SimulatedHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "bin").mkdir()
        program = tmp_path / "bin/git"
        program.write_text(
            f'#!/bin/sh\ncase $3 in\nrev-parse) echo {"a" * 40} ;;\nrev-list) printf "{"b" * 40} \\377.txt\\n" ;;\n'
            f'ls-tree) printf "100644 blob {"b" * 40}\\t\\377.txt\\0" ;;\nesac\n'
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
        with pytest.raises(SourceFailure, match="whose name is not UTF-8"):
            hub_git.Git(source(served, kind="git"), tmp_path / "scratch").files()

    @pytest.mark.parametrize(
        "answer",
        [
            b"[" * 100_000,
            b'{"objects": [{"x": %s}]}' % (b"[" * 100_000),
            b"\xff\xfe{",
            b'{"objects": [{"error": ["x"]}]}',
            b'{"objects": [{"error": {"code": Infinity}}]}',
            b'{"objects": [{"actions": {"download": {"href": "https://x", "header": ["x"]}}}]}',
        ],
    )
    def test_any_answer_of_git_lfs_is_a_failure_of_the_source(
        self, served: SimulatedHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes
    ) -> None:
        client = hub_git.Git(source(served, kind="git"), tmp_path)
        response = urllib3.HTTPResponse(io.BytesIO(answer), status=200, preload_content=False)
        monkeypatch.setattr(client.pool, "request", lambda *_arguments, **_options: response)
        # Where a deep answer ends the recursion, a finalizer of another test would fail, if the collector ran it there.
        gc.collect()
        gc.disable()
        try:
            with pytest.raises(SourceFailure, match=r"no answer of git-lfs"):
                client.place(RemoteFile("a.bin", 1, sha256="0" * 64))
        finally:
            gc.enable()

    def test_an_answer_of_git_lfs_without_end_is_not_kept(
        self, served: SimulatedHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        body = io.BytesIO(b" " * (64 << 20))
        client = hub_git.Git(source(served, kind="git"), tmp_path)
        response = urllib3.HTTPResponse(body, status=200, preload_content=False)
        monkeypatch.setattr(client.pool, "request", lambda *_arguments, **_options: response)
        read: list[int] = []
        monkeypatch.setattr(response, "close", lambda: read.append(body.tell()))
        with pytest.raises(SourceFailure, match=r"no answer of git-lfs"):
            client.place(RemoteFile("a.bin", 1, sha256="0" * 64))
        assert read[0] <= 2 << 20

    def test_a_list_without_end_is_not_kept(
        self,
        served: SimulatedHub,
        tmp_path: Path,
        progress: TransferProgress,
        stop: StopSwitch,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """A few folders, each of which has the next one many times, are a list of any length."""
        monkeypatch.setattr(hub_git, "MOST_PRINTED", 100)
        with pytest.raises(Refusal, match="sends more outside git-lfs than a model has"):
            fetch.fetch(requested(tmp_path, source(served, kind="git")), progress, stop)

    def test_a_pointer_without_its_object_is_named(
        self, served: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch
    ) -> None:
        commit = served.repositories[MODEL].commits[served.repositories[MODEL].main]
        commit.pop(SECOND)
        with pytest.raises(Refusal, match=f"does not have {SECOND}: Object does not exist"):
            fetch.fetch(requested(tmp_path, source(served, kind="git")), progress, stop)

    def test_a_node_without_git_is_told(
        self, served: SimulatedHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(SourceFailure, match="install the package git"):
            hub_git.Git(source(served, kind="git"), tmp_path / "scratch").files()

    @pytest.mark.parametrize(
        ("text", "found"),
        [
            (b"version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize 12\n" % (b"a" * 64), True),
            (
                b"version https://git-lfs.github.com/spec/v1\next-0-x sha256:b\noid sha256:%s\nsize 0\n" % (b"a" * 64),
                True,
            ),
            (b"version https://git-lfs.github.com/spec/v1\noid md5:%s\nsize 12\n" % (b"a" * 64), False),
            (b"see version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize 12\n" % (b"a" * 64), False),
        ],
    )
    def test_pointers(self, text: bytes, found: bool) -> None:
        assert bool(hub_git.POINTER.fullmatch(text)) is found


def test_a_kind_nobody_knows_is_refused(tmp_path: Path) -> None:
    """Nothing takes it for Hugging Face: not the request, and not what asks a hub."""
    unknown = HubSource("a", "https://b", "c/d", "main", None, None, kind="ftp")
    with pytest.raises(Refusal, match="'ftp', and can be huggingface, modelscope, git") as refused:
        hubs.connect(unknown, tmp_path)
    assert refused.value.id == "unknown_kind"
    written = tmp_path / "request.json"
    written.write_text(json.dumps({"target": "/t", "sources": [{**vars(unknown), "revision": None}]}))
    with pytest.raises(Refusal, match="'ftp', and can be") as refused:
        request.load(written)
    assert refused.value.id == "unknown_kind"


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_has_a_module_of_its_own(kind: str, tmp_path: Path) -> None:
    source = HubSource("a", "https://b.example.com", "c/d", "main", None, None, kind=kind)
    client = type(hubs.connect(source, tmp_path))
    assert (client.__module__, client.__name__) == (f"gaudi_weights.hub_{kind}", KINDS[kind].client)


def test_every_list_of_kinds_has_all_of_them() -> None:
    """What cannot read the table names the same kinds."""
    known = list(KINDS)
    specs = yaml.safe_load((ROOT / "roles/model_weights/meta/argument_specs.yml").read_text())["argument_specs"]
    assert specs["main"]["options"]["model_weights_sources"]["options"]["kind"]["choices"] == known
    schema = json.loads((ROOT / "catalog/schemas/model.schema.json").read_text())
    assert list(schema["$defs"]["repositories"]["properties"]) == known
    table = (ROOT / "docs/weights.md").read_text().partition("| kind |")[2].partition("\n\n")[0]
    rows = re.findall(r"(?m)^\| `(\w+)`", table)
    assert rows == known


def test_code_names_no_kind_but_in_the_table() -> None:
    names = re.compile(rf"""["']({"|".join(KINDS)})["']""")
    looked = [*ROOT.glob("module_utils/**/*.py"), *ROOT.glob("library/*.py"), *ROOT.glob("action_plugins/*.py")]
    looked += [ROOT / "roles/model_weights/templates/request.json.j2"]
    looked += [path for path in ROOT.glob("roles/model_weights/files/**/*.py") if not path.stem.startswith("hub_")]
    # What an image is built with is the program git, and what is installed the package.
    looked = [path for path in looked if path.parent.name != "image" and path.parts[-2:] != ("engine", "packages.py")]
    assert {str(path) for path in looked if names.search(path.read_text())} == {
        str(ROOT / "module_utils/gaudi/weights/hub_kinds.py")
    }


def test_roles_and_playbooks_name_the_kind_of_a_bare_repository_and_no_other() -> None:
    """Whoever adds a kind finds nothing to add there: tasks loop over what the catalogue and the site name."""
    files = [*ROOT.glob("roles/*/tasks/**/*.yml"), *ROOT.glob("roles/*/vars/*.yml"), *ROOT.glob("playbooks/**/*.yml")]
    words = {kind: re.compile(rf"""(['.]{kind}\b(?!\.co)|: {kind}$)""", re.MULTILINE) for kind in KINDS}
    named = {
        (str(path.relative_to(ROOT)), kind) for path in files for kind in KINDS if words[kind].search(path.read_text())
    }
    assert named == {
        ("playbooks/pin.yml", DEFAULT),
        # The default of the role model_weights, handed to the preflight.
        ("playbooks/serve.yml", DEFAULT),
        ("playbooks/vars/fetch_entry.yml", DEFAULT),
        ("roles/model_weights/vars/main.yml", DEFAULT),
        ("roles/preflight/vars/main.yml", DEFAULT),
        ("roles/weights_supply/vars/main.yml", DEFAULT),
        # git has to be installed for it.
        ("roles/model_weights/vars/main.yml", "git"),
    }


def test_a_folder_that_no_source_of_the_site_has_is_named() -> None:
    item = {"directory": "Big", "repositories": {"modelscope": {"repository": "o/Big"}}}
    (said,) = origin_sentences([item], ["huggingface", "git"])
    assert said.startswith("Big is published on modelscope, and model_weights_sources has no source of that kind. Add")
    assert origin_sentences([item], ["huggingface", "modelscope"]) == []
