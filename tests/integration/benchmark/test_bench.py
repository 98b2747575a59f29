"""The job of a benchmark, against a docker of our own: what is kept, followed, refused, and cleaned up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import bench
import pytest
from ansible.module_utils.gaudi.benchmark import asked
from gaudi.base.refusal import Refusal

from tests import compiled
from tests.unit.benchmark.made import DIGEST, plan, release, written
from tests.unit.node.damages import FOR_PROGRAMS, damage

# A docker whose containers say what the orders say; "stop" and "rm" end the one that hangs.
DOCKER = """#!{python}
import contextlib, json, os, signal, sys, time
from pathlib import Path
home = Path({home!r})
with (home / "docker.log").open("a") as log:
    log.write(json.dumps(sys.argv[1:]) + "\\n")
running = home / "running"
if sys.argv[1] == "container":
    assert sys.argv[-1] == "label=gaudi-serving.benchmark=chat", sys.argv
    print(json.loads((home / "orders.json").read_text()).get("left", ""))
    sys.exit(0)
if sys.argv[1] != "run":
    if running.exists():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(running.read_text()), signal.SIGKILL)
    sys.exit(0)
running.write_text(str(os.getpid()))
signal.signal(signal.SIGTERM, signal.SIG_IGN)
orders = json.loads((home / "orders.json").read_text())
for line in orders["lines"]:
    print(line, flush=True)
if orders.get("hangs"):
    (home / "hanging").touch()
    time.sleep(60)
sys.exit(orders.get("status", 0))
"""


def result(**changes: Any) -> str:
    return "RESULT " + json.dumps(written(**changes))


class BenchmarkNode:
    """A place for results, and a stand-in for docker."""

    def __init__(self, home: Path) -> None:
        self.home = home
        (home / "bin").mkdir()
        (home / "state").mkdir()
        (home / "bin/docker").write_text(DOCKER.format(python=sys.executable, home=str(home)))
        (home / "bin/docker").chmod(0o755)
        made = plan()
        box = {**made["container"], "name": "vllm-chat"}
        self.document: dict[str, Any] = asked.describe(
            {**made, "container": box}, DIGEST, asked.BenchmarkClient.of_release(release()), asked.BenchmarkLoad((1, 4))
        )
        self.orders(lines=["words", "50%|#5   | 2/4 [00:01<00:01]", result(requests=4), result(requests=16)])

    def orders(self, **orders: Any) -> None:
        (self.home / "orders.json").write_text(json.dumps(orders))

    def start(self) -> subprocess.Popen[str]:
        (self.home / "document.json").write_text(json.dumps(self.document))
        environment = {
            "PATH": f"{self.home}/bin:{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(sys.path),
            "GAUDI_JOB_PROGRESS": str(self.home / "progress.json"),
            "GAUDI_JOB_RESULT": str(self.home / "result.json"),
            **compiled.SETTINGS,
        }
        # Where a node has its state.
        program = (
            f"import sys, bench; from gaudi.base import paths; paths.BENCHMARKS = {str(self.home / 'state')!r}; "
            "sys.exit(bench.main(sys.argv[1:]))"
        )
        command = [sys.executable, "-c", program, str(self.home / "document.json")]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def run(self) -> tuple[int, str]:
        work = self.start()
        said, _ = work.communicate(timeout=300)
        return work.returncode, said

    def last(self) -> str:
        status, said = self.run()
        assert status == 1, said
        assert "Traceback" not in said
        return said.rstrip().splitlines()[-1]

    def docker(self) -> list[list[str]]:
        return [json.loads(line) for line in (self.home / "docker.log").read_text().splitlines()]

    def kept(self) -> list[Path]:
        return sorted((self.home / "state/chat").glob("*.json"))


@pytest.fixture
def node(tmp_path: Path) -> BenchmarkNode:
    return BenchmarkNode(tmp_path)


def test_what_was_measured_is_kept_and_named(node: BenchmarkNode) -> None:
    status, said = node.run()
    assert status == 0, said
    (file,) = node.kept()
    run = json.loads(file.read_text())
    assert run["run"] == file.stem == json.loads((node.home / "result.json").read_text())["run"]
    assert file.stem.startswith("3f2a91c07d1e-")
    assert [(step["concurrency"], step["requests"], step["failed"]) for step in run["steps"]] == [(1, 4, 0), (4, 16, 0)]
    assert (run["image"], run["release"], run["plan"]) == (node.document["image"], "1.22", DIGEST)
    assert file.stat().st_mode & 0o777 == 0o600
    # What the journal and the job's log end with.
    assert "tokens/s" in said
    progress = json.loads((node.home / "progress.json").read_text())
    assert (progress["total"], progress["unit"]) == (20, "requests")


def test_the_container_has_no_card_no_key_and_may_write_nowhere(node: BenchmarkNode) -> None:
    node.document["guarded"] = True
    assert node.run()[0] == 0
    first, words = node.docker()
    assert first[:3] == ["container", "ls", "--all"]
    assert words[words.index("--runtime") + 1] == "runc"
    assert words[words.index("--cap-drop") + 1] == "ALL"
    assert {"--read-only", "no-new-privileges", "--rm", "core=0:0"} <= set(words)
    mounts = [words[place + 1] for place, word in enumerate(words) if word == "--mount"]
    assert all(mount.endswith(",readonly") for mount in mounts)
    # The token is a file that the container reads; it is in no argument and in no --env.
    assert [mount for mount in mounts if "target=/run/gaudi-serving/bench/token" in mount]
    assert not [word for word in words if "KEY=" in word or "TOKEN=" in word]
    assert words[-4:] == ["python3", "-B", "/run/gaudi-serving/bench/bench_client.py", "/run/gaudi-serving/bench"]


def test_an_open_instance_is_asked_without_a_token(node: BenchmarkNode) -> None:
    assert node.run()[0] == 0
    assert not [word for word in node.docker()[-1] if "/token" in word]


def test_requests_that_failed_are_said_and_the_run_is_kept(node: BenchmarkNode) -> None:
    node.orders(lines=[result(requests=4), result(requests=13)])
    status, said = node.run()
    assert (status, len(node.kept())) == (0, 1)
    assert "tokens/s" in said
    told = json.loads((node.home / "result.json").read_text())
    assert told["failed"] == "Requests of chat failed: 3 of 16 with 4 at a time."


def test_the_container_of_a_killed_run_is_known_by_its_label(node: BenchmarkNode) -> None:
    """Another one may have its name, which then is nobody's to remove."""
    node.orders(
        lines=['Error response from daemon: Conflict. The container name "/bench-chat" is already in use'], status=125
    )
    node.last()
    assert json.loads((node.home / "result.json").read_text())["refused_id"] == "container-name-in-use"
    assert not [words for words in node.docker() if words[0] == "rm"]
    node.orders(lines=[result(requests=4), result(requests=16)], left="0123456789ab")
    assert node.run()[0] == 0
    assert [words for words in node.docker() if words[0] == "rm"] == [["rm", "--force", "--volumes", "0123456789ab"]]


@pytest.mark.parametrize(
    ("orders", "identifier"),
    [
        ({"lines": ["ModuleNotFoundError: No module named 'pandas'"], "status": 1}, "benchmark-imports"),
        ({"lines": ["python3: can't open file 'x'"], "status": 2}, "benchmark-client"),
        ({"lines": ["Unable to find image 'vault/image:1' locally"], "status": 125}, "image-missing"),
        ({"lines": ["OSError: [Errno 28] No space left on device: '/tmp/x'"], "status": 1}, "disk-full"),
        ({"lines": ["aiohttp: Connect call failed"], "status": 1}, "benchmark-no-answer"),
        ({"lines": [], "status": 1}, "client_failed"),
        ({"lines": [result(requests=4)], "status": 0}, "client_failed"),
        ({"lines": ["RESULT x"], "status": 0}, "not_a_result"),
        ({"lines": ["RESULT " + "[" * 100_000], "status": 0}, "not_a_result"),
    ],
)
def test_a_client_that_fails_leaves_a_reason_and_nothing_else(
    node: BenchmarkNode, orders: dict[str, Any], identifier: str
) -> None:
    node.orders(**orders)
    last = node.last()
    told = json.loads((node.home / "result.json").read_text())
    assert (told["refused_id"], f"bench: {told['refused']}") == (identifier, last)
    assert node.kept() == []


@pytest.mark.parametrize("ends", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_benchmark_stops_its_container_and_keeps_nothing(node: BenchmarkNode, ends: signal.Signals) -> None:
    node.orders(lines=["words"], hangs=True)
    work = node.start()
    assert work.stdout is not None
    while not (node.home / "hanging").exists():
        assert work.poll() is None
    work.send_signal(ends)
    said, _ = work.communicate(timeout=300)
    assert work.returncode == 130
    assert "bench: stopped; nothing was kept of this run" in said
    assert node.docker()[-1][:2] == ["stop", "--time"]
    assert node.kept() == []


def test_a_description_that_is_not_there_or_damaged_is_refused(node: BenchmarkNode) -> None:
    node.document = {"schema": 1}
    assert "run playbooks/bench.yml, which writes it" in node.last()
    with pytest.raises(Refusal, match="is not there"):
        bench.read_description(node.home / "none.json")


@pytest.mark.parametrize("kind", FOR_PROGRAMS)
def test_every_damage_of_a_description_is_refused(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "wish.json"
    damage(path, kind)
    with pytest.raises(Refusal) as refused:
        bench.read_description(path)
    assert refused.value.id == "record_damaged"
    assert str(refused.value).startswith(f"{path} is damaged: it ")


def test_a_line_without_end_is_not_kept_whole(node: BenchmarkNode) -> None:
    node.orders(lines=["x" * (4 << 20), result(requests=4), result(requests=16)])
    status, said = node.run()
    assert status == 0
    assert said.count("x" * 100) < 1 << 14
