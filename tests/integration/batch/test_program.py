"""batch.py against a server of its own: cut off, away, refusing, failing."""

from __future__ import annotations

import http.server
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import batch
import pytest
from gaudi.base import paths
from gaudi.base.listeners import Listener
from gaudi.base.refusal import Refusal
from gaudi.batch import lines
from gaudi.node import listening

PROGRAM = Path(batch.__file__)


class CompletionServer(http.server.ThreadingHTTPServer):
    """Answers as it is told: by custom word in the body, a list of statuses to go through."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), CompletionHandler)
        self.asked: list[str] = []
        self.tokens: set[str] = set()
        self.answers: dict[str, list[int]] = {}
        # Whole answers by word.
        self.bodies: dict[str, str] = {}
        # How many more it answers; all others wait. None: all.
        self.permits: int | None = None
        self.lock = threading.Condition()

    def let(self, permits: int | None) -> None:
        with self.lock:
            self.permits = permits
            self.lock.notify_all()

    def enter(self) -> None:
        with self.lock:
            assert self.lock.wait_for(lambda: self.permits is None or self.permits > 0, 30)
            if self.permits is not None:
                self.permits -= 1

    def handle_error(self, *_: Any) -> None:
        """Who asked was killed."""


class CompletionHandler(http.server.BaseHTTPRequestHandler):
    """One request."""

    server: CompletionServer

    def do_POST(self) -> None:
        said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        word = said["prompt"]
        with self.server.lock:
            self.server.asked.append(word)
            self.server.tokens.add(self.headers.get("Authorization", ""))
            statuses = self.server.answers.get(word, [])
            status = statuses.pop(0) if len(statuses) > 1 else (statuses or [200])[0]
        self.server.enter()
        body = self.server.bodies.get(word) or json.dumps(
            {"id": f"cmpl-{word}", "text": word.upper()} if status == 200 else {"error": {"message": "no"}}
        )
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def _break_off(self, status: int) -> None:
        """Nothing of an answer (0), or the beginning of one (-1)."""
        if status:
            self.send_response(200)
            self.send_header("Content-Length", "100")
            self.end_headers()
            self.wfile.write(b'{"id": "cm')
        self.close_connection = True

    def log_message(self, *_: Any) -> None:
        pass


class BatchNode:
    """A folder for each place on a node, and a server that is the instance."""

    def __init__(self, root: Path) -> None:
        self.server = CompletionServer()
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.root, self.folder = root, root / "batches/b"
        self.folder.mkdir(parents=True)
        self.plan = {
            "schema": 1, "instance": "chat", "task": "complete", "served_model_name": "tiny", "image": "i:1",
            "container": {"name": "vllm-chat"}, "modules": [], "cpu_binding": [], "arguments": [], "environment": {},
            "listen": {"host": "127.0.0.1", "port": self.server.server_port}, "requires": {"weights_path": "/w"},
        }  # fmt: skip
        (root / "instances/chat").mkdir(parents=True)
        (root / "states/chat").mkdir(parents=True)
        self.sockets: list[int] | None = [os.fstat(self.server.fileno()).st_ino]
        self.write_plan()
        self.phase("serving")
        (root / "states/chat" / paths.PROBE).write_text("the-token\n")

    def write_plan(self) -> None:
        (self.root / "instances/chat/plan.json").write_text(json.dumps(self.plan))

    def phase(self, phase: str) -> None:
        whole = self.root / "states/chat/state.new"
        known = {} if self.sockets is None else {"sockets": self.sockets}
        whole.write_text(json.dumps({"phase": phase, "status": f"{phase} now", **known}))
        whole.replace(self.root / "states/chat/state.json")

    def ask(self, *words: str) -> None:
        requests = [
            {"custom_id": word, "method": "POST", "url": "/v1/completions", "body": {"model": "tiny", "prompt": word}}
            for word in words
        ]
        (self.folder / "input.jsonl").write_text("".join(json.dumps(request) + "\n" for request in requests))

    def options(self, **other: Any) -> batch.BatchOptions:
        return batch.BatchOptions(
            **{"folder": self.folder, "instance": "chat", "at_once": 4, "timeout": 300.0, "patience": 300.0, **other}
        )

    def output(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "output.jsonl").read_text().splitlines()]

    def answered(self) -> list[str]:
        path = self.folder / "answered.jsonl"
        return [json.loads(line)["custom_id"] for line in path.read_text().splitlines()] if path.exists() else []

    def start(self, first: str = "", *more: str) -> subprocess.Popen[str]:
        """The program as the job runs it, with the node's places turned here; first: what it does before."""
        code = (
            f"{first}import sys; sys.path[:0] = sys.argv[1:3]; root = sys.argv[3]\n"
            "from gaudi.base import paths\n"
            "paths.INSTANCES, paths.INSTANCE_STATES = root + '/instances', root + '/states'\n"
            "import batch; sys.exit(batch.main(sys.argv[4:]))\n"
        )
        brain = str(Path(paths.__file__).resolve().parents[2])
        words = ["--at-once", "2", "--timeout", "300", "--patience", "300"]
        return subprocess.Popen(
            [sys.executable, "-c", code, str(PROGRAM.parent), brain, str(self.root), str(self.folder), "chat",
             *words, *more],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BatchNode]:
    made = BatchNode(tmp_path)
    monkeypatch.setattr(paths, "INSTANCES", str(tmp_path / "instances"))
    monkeypatch.setattr(paths, "INSTANCE_STATES", str(tmp_path / "states"))
    monkeypatch.setattr(batch, "LOOK_AGAIN", 0.05)
    yield made
    made.server.let(None)
    made.server.shutdown()
    made.server.server_close()


def eventually(true: Callable[[], bool]) -> None:
    until = time.monotonic() + 300
    while not true():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_every_request_is_answered_in_order(node: BatchNode) -> None:
    words = [f"w{number}" for number in range(50)]
    node.ask(*words)
    result = batch.work(node.options())
    assert [line["custom_id"] for line in node.output()] == words
    assert [line["response"]["body"]["text"] for line in node.output()] == [word.upper() for word in words]
    assert sorted(node.server.asked) == sorted(words)
    assert node.server.tokens == {"Bearer the-token"}
    assert (result["requests"], result["failed"], result["told"]) == (50, 0, "All 50 requests are answered.")
    assert {path.stat().st_mode & 0o777 for path in node.folder.glob("[ao]*.jsonl")} == {0o600}


def test_what_the_server_refuses_is_a_failure_and_is_asked_again_next_time(node: BatchNode) -> None:
    node.ask("good", "bad", "last")
    node.server.answers["bad"] = [400]
    result = batch.work(node.options())
    assert (result["failed"], result["told"]) == (1, '1 of 3 requests failed. "bad": status 400: no.')
    assert [line["response"]["status_code"] for line in node.output()] == [200, 400, 200]
    node.server.asked.clear()
    node.server.answers.clear()
    assert batch.work(node.options())["failed"] == 0
    assert node.server.asked == ["bad"]
    assert [line["response"]["status_code"] for line in node.output()] == [200, 200, 200]


@pytest.mark.parametrize(
    ("statuses", "asked", "failed"),
    [([503, 503, 200], 3, 0), ([429, 200], 2, 0), ([500, 200], 2, 0), ([500, 500, 500], 3, 1), ([404], 1, 1)],
)
def test_who_is_busy_or_failed_is_asked_again(node: BatchNode, statuses: list[int], asked: int, failed: int) -> None:
    node.ask("one")
    node.server.answers["one"] = statuses
    assert batch.work(node.options())["failed"] == failed
    assert len(node.server.asked) == asked


def test_while_the_instance_is_away_the_work_waits(node: BatchNode) -> None:
    node.ask("one")
    node.phase("warming-up")
    done: list[Any] = []
    work = threading.Thread(target=lambda: done.append(batch.work(node.options())), daemon=True)
    work.start()
    work.join(0.3)
    assert work.is_alive()
    assert not node.server.asked
    node.phase("serving")
    work.join(300)
    assert done[0]["failed"] == 0


@pytest.mark.parametrize(
    ("sockets", "words"),
    [([1], "listens at its port, and was sent nothing"), (None, "run site.yml"), ([], "run site.yml")],
)
def test_who_else_has_the_port_is_sent_nothing(node: BatchNode, sockets: list[int] | None, words: str) -> None:
    """A local user, or a neighbour's container, who took it when the server ended: before the supervisor says so."""
    node.ask("one")
    node.sockets = sockets
    node.phase("serving")
    with pytest.raises(Refusal) as refused:
        batch.work(node.options(patience=0.2))
    assert refused.value.id == "not_serving"
    assert words in str(refused.value)
    assert (node.server.asked, node.server.tokens) == ([], set())
    node.sockets = [os.fstat(node.server.fileno()).st_ino]
    node.phase("serving")
    assert batch.work(node.options())["failed"] == 0


def test_a_process_that_takes_the_port_before_the_connection_is_sent_nothing(
    node: BatchNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sockets are checked before and after each connection; here each second check finds another process."""
    node.ask("one")
    checks, read = itertools.count(1), listening.listeners_at
    monkeypatch.setattr(
        listening,
        "listeners_at",
        lambda address, port: read(address, port) if next(checks) % 2 else [Listener(address, port, 1)],
    )
    with pytest.raises(Refusal, match="listens at its port, and was sent nothing"):
        batch.work(node.options(at_once=1, patience=0.2))
    assert (node.server.asked, node.server.tokens) == ([], set())


def test_who_stays_away_ends_the_work_and_answers_are_kept(node: BatchNode) -> None:
    node.ask("one", "two")
    batch.work(node.options())
    node.ask("one", "two", "three")
    node.phase("failed")
    with pytest.raises(Refusal) as refused:
        batch.work(node.options(patience=0.2))
    assert refused.value.id == "not_serving"
    assert "failed now" in str(refused.value)
    assert sorted(node.answered()) == ["one", "two"]


def test_no_answer_in_time_is_a_failure(node: BatchNode) -> None:
    node.ask("one")
    node.server.let(0)
    result = batch.work(node.options(timeout=0.3))
    assert result["told"] == '1 of 1 requests failed. "one": no answer within 0 seconds.'


@pytest.mark.parametrize(
    ("key", "value", "id"),
    [("task", "embed", "batch_task"), ("served_model_name", "other", "batch_model"), ("task", 7, "record_damaged")],
)
def test_an_instance_that_does_not_answer_that_is_refused_before_it_is_asked(
    node: BatchNode, key: str, value: object, id: str
) -> None:
    node.ask("one")
    node.plan[key] = value
    node.write_plan()
    with pytest.raises(Refusal) as refused:
        batch.work(node.options())
    assert refused.value.id == id
    assert not node.server.asked


def test_a_line_that_was_cut_off_is_asked_again(node: BatchNode) -> None:
    node.ask("one", "two")
    batch.work(node.options())
    path = node.folder / "answered.jsonl"
    path.write_bytes(path.read_bytes()[:-10])
    node.server.asked.clear()
    assert batch.work(node.options())["failed"] == 0
    assert len(node.server.asked) == 1
    assert len(node.output()) == 2


def test_a_full_disk_keeps_what_is_whole(node: BatchNode) -> None:
    """A limit of the file's size stands for the disk."""
    node.ask(*(f"w{number}" for number in range(20)))
    limit = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    work = node.start(limit + "resource.setrlimit(resource.RLIMIT_FSIZE, (700, resource.RLIM_INFINITY))\n")
    said = work.communicate(timeout=300)[0]
    assert work.returncode == 1
    assert "Answers are kept" in said
    assert "Traceback" not in said
    kept = node.answered()
    assert kept
    node.server.asked.clear()
    assert batch.work(node.options())["failed"] == 0
    assert not set(kept) & set(node.server.asked)


def test_answers_that_are_nested_too_deeply_are_failures_and_end_no_batch(node: BatchNode) -> None:
    """Python reads some of them, and does not write them out."""
    deep = {f"w{levels}": '{"a": ' * levels + "1" + "}" * levels for levels in (50, *range(900, 1010))}
    node.server.bodies.update(deep)
    node.ask("good", *deep)
    result = batch.work(node.options(at_once=1))
    assert (result["requests"], result["failed"]) == (len(deep) + 1, len(deep))
    assert node.output()[0]["response"]["body"]["text"] == "GOOD"


def test_answers_leave_half_of_the_disk_free(node: BatchNode, monkeypatch: pytest.MonkeyPatch) -> None:
    node.ask(*(f"w{number}" for number in range(20)))
    usage = shutil.disk_usage(node.folder)
    # Answers are there twice: as they came, and in order.
    monkeypatch.setattr(shutil, "disk_usage", lambda _folder: usage._replace(free=4000))
    with pytest.raises(Refusal) as refused:
        batch.work(node.options(at_once=1))
    assert refused.value.id == "batch_answers_too_large"
    assert 0 < (node.folder / "answered.jsonl").stat().st_size <= 1000
    kept = node.answered()
    # The copy takes what earlier runs have kept, too: without new disk space another run adds nothing.
    monkeypatch.setattr(shutil, "disk_usage", lambda _folder: usage._replace(free=1000))
    with pytest.raises(Refusal) as again:
        batch.work(node.options(at_once=1))
    assert (again.value.id, node.answered()) == ("batch_answers_too_large", kept)
    monkeypatch.setattr(shutil, "disk_usage", lambda _folder: usage)
    node.server.asked.clear()
    assert batch.work(node.options())["failed"] == 0
    assert not set(kept) & set(node.server.asked)


def test_an_answer_whose_line_nobody_would_read_is_a_failure(node: BatchNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LONGEST_LINE", 1000)
    node.server.bodies["long"] = json.dumps({"text": "x" * 2000})
    node.ask("long", "good")
    assert batch.work(node.options())["failed"] == 1
    assert [line["response"] is None for line in node.output()] == [True, False]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_work_that_is_cut_off_goes_on(node: BatchNode, number: int) -> None:
    words = [f"w{number}" for number in range(8)]
    node.ask(*words)
    node.server.let(3)
    work = node.start()
    eventually(lambda: len(node.answered()) == 3 and len(node.server.asked) == 5)
    os.kill(work.pid, number)
    said = work.communicate(timeout=300)[0]
    if number == signal.SIGTERM:
        assert (work.returncode, "stopped; answers are kept" in said) == (130, True)
    kept = node.answered()
    assert not (node.folder / "output.jsonl").exists()
    node.server.let(None)
    node.server.asked.clear()
    assert batch.work(node.options())["failed"] == 0
    assert [line["custom_id"] for line in node.output()] == words
    assert sorted(node.server.asked) == sorted(set(words) - set(kept))


@pytest.mark.parametrize("number", ["0", "-1", "1025", "many"])
def test_nobody_is_asked_no_times_at_once(node: BatchNode, number: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Without anybody who asks, it would wait for ever."""
    with pytest.raises(SystemExit) as ended:
        batch.main([str(node.folder), "chat", "--at-once", number, "--timeout", "1", "--patience", "1"])
    assert ended.value.code == 2
    assert "--at-once" in capsys.readouterr().err


def test_a_request_that_ends_its_server_is_given_up(node: BatchNode) -> None:
    node.ask("poison", "good")
    node.server.answers["poison"] = [0]
    result = batch.work(node.options())
    assert result["failed"] == 1
    assert '"poison": its answer was broken off' in result["told"]
    assert node.server.asked.count("poison") == batch.TRIES
    assert node.output()[0]["error"]["code"] == "broken_off"


def test_an_answer_that_is_cut_off_is_none(node: BatchNode) -> None:
    node.ask("half")
    node.server.answers["half"] = [-1, 200]
    assert batch.work(node.options())["failed"] == 0
    assert node.server.asked == ["half", "half"]
    assert node.output()[0]["response"]["body"]["text"] == "HALF"


def test_a_plan_that_cannot_be_read_ends_the_work(node: BatchNode) -> None:
    node.ask("one")
    node.plan["schema"] = 2
    node.write_plan()
    with pytest.raises(Refusal) as refused:
        batch.work(node.options())
    assert refused.value.id == "record_damaged"
    assert not node.server.asked


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_whatever_ends_one_who_asks_ends_the_work(node: BatchNode, monkeypatch: pytest.MonkeyPatch) -> None:
    node.ask(*(f"w{number}" for number in range(30)))

    def broken(*_: Any) -> None:
        raise KeyError("unforeseen")

    monkeypatch.setattr(batch.Batch, "_ask", broken)
    with pytest.raises(Refusal) as refused:
        batch.work(node.options())
    assert refused.value.id == "batch_broken"


class Systemd:
    """What systemctl was told, and how it ended."""

    def __init__(self, node: BatchNode, folder: Path, status: int = 0) -> None:
        self.node, self.told, self.folder = node, folder / "told", folder
        program = folder / "systemctl"
        program.write_text(f'#!/bin/sh\necho "$*" >> {self.told}\necho no such thing >&2\nexit {status}\n')
        program.chmod(0o755)
        cards = {name: {"since": "s", "cards": [{"module_id": number, "serial": None}]} for number, name in
                 enumerate(("chat", "other"))}  # fmt: skip
        (node.root / "cards.lock").write_text(json.dumps({"schema": 1, "reservations": cards}))

    def holders(self) -> set[str]:
        return set(json.loads((self.node.root / "cards.lock").read_text())["reservations"])


@pytest.fixture
def systemd(node: BatchNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Systemd:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setattr(paths, "STATE", str(tmp_path))
    return Systemd(node, tmp_path / "bin")


def test_a_server_of_its_own_goes_with_the_work(node: BatchNode, systemd: Systemd) -> None:
    node.ask("one")
    assert batch.work_and_end(node.options(own=True))["failed"] == 0
    assert systemd.told.read_text().splitlines() == ["--quiet disable vllm-chat.service", "stop vllm-chat.service"]
    assert systemd.holders() == {"other"}


def test_who_serves_others_stays(node: BatchNode, systemd: Systemd) -> None:
    node.ask("one")
    batch.work_and_end(node.options())
    assert not systemd.told.exists()
    assert systemd.holders() == {"chat", "other"}


def test_a_server_of_its_own_goes_when_the_work_is_stopped(node: BatchNode, systemd: Systemd) -> None:
    node.ask("one", "two", "three")
    node.server.let(1)
    place = f"import gaudi.base.paths as p; p.STATE = {str(node.root)!r}\n"
    work = node.start(f"import sys; sys.path.insert(0, sys.argv[2]); {place}", "--own")
    eventually(lambda: len(node.answered()) == 1)
    os.kill(work.pid, signal.SIGTERM)
    said = work.communicate(timeout=300)[0]
    assert (work.returncode, "answers are kept" in said) == (130, True)
    assert "stop vllm-chat.service" in systemd.told.read_text()
    assert systemd.holders() == {"other"}


def test_cards_of_a_server_that_does_not_stop_are_not_free(node: BatchNode, systemd: Systemd) -> None:
    node.ask("one")
    Systemd(node, systemd.folder, status=1)
    with pytest.raises(OSError, match=r"systemctl stop vllm-chat\.service failed: no such thing"):
        batch.work_and_end(node.options(own=True))
    assert systemd.holders() == {"chat", "other"}


def test_who_has_all_answers_needs_no_server(node: BatchNode) -> None:
    node.ask("one")
    batch.work(node.options())
    (node.root / "instances/chat/plan.json").unlink()
    assert batch.work(node.options())["failed"] == 0


def test_an_answer_counts_for_what_was_asked(node: BatchNode) -> None:
    """Answers of before the file was edited."""
    node.ask("one", "two")
    batch.work(node.options())
    text = (node.folder / "input.jsonl").read_text()
    (node.folder / "input.jsonl").write_text(text.replace('"prompt": "two"', '"prompt": "three"'))
    node.server.asked.clear()
    assert batch.work(node.options())["failed"] == 0
    assert node.server.asked == ["three"]
    assert [line["response"]["body"]["text"] for line in node.output()] == ["ONE", "THREE"]
