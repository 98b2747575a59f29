"""The program as the job runs it: killed, out of room, and with a secret."""

from __future__ import annotations

import json
import os
import random
import secrets
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from simulator.hub.server import Hub, running
from tests.unit.weights.models import MODEL, SERVED, source, write_model

ROOT = Path(__file__).resolve().parents[3]
LIBRARY = f"{ROOT / 'roles/model_weights/files'}:{ROOT / 'roles/fp8_weights/files'}"


def describe(tmp_path: Path, hub: Hub, **more: Any) -> Path:
    """A request file as the role writes it."""
    origin = source(hub, **more.pop("source", {}))
    content = {
        "target": str(tmp_path / "models/Small-Model"),
        "sources": [{key: str(value) if value is not None else None for key, value in vars(origin).items()}],
        **{"include": [], "exclude": [], "jobs": 2, "rate_limit": 0, "extra_room": 0, "reserve": 0},
        **{"recheck": False, "measured_cards": 0, "mounted_on": "", **more},
    }
    path = tmp_path / "request.json"
    path.write_text(json.dumps(content))
    return path


def start(tmp_path: Path, request: Path, work: str = "fetch") -> subprocess.Popen[str]:
    """Start the program with the environment the job gives it."""
    return subprocess.Popen(
        [sys.executable, "-m", "gaudi_weights", work, str(request)],
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path / "home"),
            "PYTHONPATH": LIBRARY,
            "PYTHONDONTWRITEBYTECODE": "1",
            "GAUDI_JOB_PROGRESS": str(tmp_path / "progress.json"),
            "GAUDI_JOB_RESULT": str(tmp_path / "result.json"),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(tmp_path: Path, request: Path, work: str = "fetch") -> tuple[int, str]:
    """Run the program to its end; its status and words."""
    with start(tmp_path, request, work) as running:
        said, _ = running.communicate(timeout=120)
    return running.returncode, said


def arrived(staging: Path) -> int:
    """Bytes of the model in the staging folder."""
    return sum((staging / name).stat().st_size for name in SERVED if (staging / name).exists())


def test_progress_and_result_are_left_for_the_job(hub: Hub, tmp_path: Path) -> None:
    status, said = run(tmp_path, describe(tmp_path, hub))
    assert status == 0, said
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["files"], result["revision"]) == (len(SERVED), hub.repositories[MODEL].main)
    progress = json.loads((tmp_path / "progress.json").read_text())
    assert (progress["phase"], progress["done"], progress["unit"]) == ("fetch", result["bytes"], "bytes")
    assert progress["done"] == progress["total"]
    # A server may read the weights, whatever the umask of the job.
    assert (tmp_path / "models/Small-Model/config.json").stat().st_mode & 0o044 == 0o044
    assert run(tmp_path, describe(tmp_path, hub), "verify")[0] == 0


def test_killed_at_random_points_it_loses_nothing(tmp_path: Path) -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")  # pytest shows it when the test fails
    draw = random.Random(seed)
    with running() as hub:
        hub.repository(MODEL, write_model(tmp_path / "hub", size=1_500_000))
        hub.rate = 3_000_000
        total = sum((tmp_path / "hub" / name).stat().st_size for name in SERVED)
        request = describe(tmp_path, hub)
        staging = tmp_path / "models/Small-Model.partial"
        for cut in sorted(draw.sample(range(total * 95 // 100), 5)):
            with start(tmp_path, request) as work:
                deadline = time.monotonic() + 60
                while arrived(staging) < cut:
                    assert work.poll() is None and time.monotonic() < deadline
                    time.sleep(0.005)
                work.kill()
            assert not (tmp_path / "models/Small-Model").exists()
        kept = arrived(staging)
        status, said = run(tmp_path, request)
        assert status == 0, said
        # What had arrived is not asked for again, to the byte.
        assert json.loads((tmp_path / "result.json").read_text())["received"] == total - kept
    for name in SERVED:
        assert (tmp_path / "models/Small-Model" / name).read_bytes() == (tmp_path / "hub" / name).read_bytes()
    assert not staging.exists()


def test_a_stop_ends_it_with_a_sentence(hub: Hub, tmp_path: Path) -> None:
    hub.rate = 300_000
    with start(tmp_path, describe(tmp_path, hub)) as work:
        while hub.sent < 100_000:
            time.sleep(0.01)
        work.terminate()
        said, _ = work.communicate(timeout=30)
    assert work.returncode == 130
    assert said == "stopped; what has arrived is kept, and the same request continues there\n"


def test_a_secret_is_nowhere_but_in_its_file(hub: Hub, tmp_path: Path) -> None:
    secret = f"hf_{secrets.token_hex(16)}"
    hub.tokens = {secret}
    hub.repositories[MODEL].gated = True
    hub.rate = 1_500_000
    token = tmp_path / "token"
    token.write_text(secret)
    token.chmod(0o600)
    request = describe(tmp_path, hub, source={"token_file": str(token)})
    with start(tmp_path, request) as work:
        while hub.sent < 1_000_000:  # of 1.8 MB: it lives for another half second at this rate
            for name in ("cmdline", "environ"):
                assert secret.encode() not in Path(f"/proc/{work.pid}/{name}").read_bytes()
            time.sleep(0.02)
        said = work.stdout.read() if work.stdout else ""
    assert work.returncode == 0, said
    hub.tokens = {"another"}  # and in no refusal either
    for path in (tmp_path / "models").rglob("*.safetensors"):
        path.unlink()
    status, refused = run(tmp_path, request)
    assert (status, "refuses the token" in refused) == (1, True), refused
    for path in tmp_path.rglob("*"):
        if path.is_file() and path != token:
            assert secret.encode() not in path.read_bytes(), path
    assert secret not in said + refused
    assert all(secret not in seen.path for seen in hub.seen)


def test_a_disk_that_takes_no_more_is_a_sentence_and_loses_nothing(hub: Hub, tmp_path: Path) -> None:
    request = describe(tmp_path, hub)
    # A limit on the size of files fails the same write as a full disk does, and needs no mount.
    limited = subprocess.run(
        ["prlimit", "--fsize=300000", sys.executable, "-m", "gaudi_weights", "fetch", str(request)],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": LIBRARY, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert limited.returncode == 1
    assert "What has arrived is kept; mend it or make room" in limited.stderr
    assert "Traceback" not in limited.stderr
    before = hub.sent
    status, said = run(tmp_path, request)
    assert status == 0, said
    total = sum((tmp_path / "hub" / name).stat().st_size for name in SERVED)
    assert hub.sent - before < total - 300_000


@pytest.mark.parametrize(
    ("content", "says"),
    [("{", "cannot be read"), ("{}", "cannot be read (KeyError: 'target')")],
)
def test_a_broken_request_is_a_sentence(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "request.json").write_text(content)
    status, said = run(tmp_path, tmp_path / "request.json")
    assert (status, says in said, "Traceback" in said) == (1, True, False), said
