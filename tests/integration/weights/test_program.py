"""The program as the job runs it: killed, out of room, and with a secret."""

from __future__ import annotations

import contextlib
import json
import os
import random
import secrets
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from gaudi.base.refusal import Refusal
from gaudi_weights import request, take

from simulator.hub.server import HubFault, SimulatedHub, running
from tests import compiled
from tests.unit.node.damages import FOR_PROGRAMS, damage
from tests.unit.weights.models import MODEL, SERVED, source, write_model

ROOT = Path(__file__).resolve().parents[3]
LIBRARY = f"{ROOT / 'roles/model_weights/files'}:{ROOT / 'roles/fp8_weights/files'}:{ROOT / 'module_utils'}"


def describe(tmp_path: Path, hub: SimulatedHub, **more: Any) -> Path:
    """A request file as the role writes it."""
    origin = source(hub, **more.pop("source", {}))
    content = {
        "target": str(tmp_path / "models/Small-Model"),
        "sources": [{key: str(value) if isinstance(value, Path) else value for key, value in vars(origin).items()}],
        **{"include": [], "exclude": [], "jobs": 2, "rate_limit": 0, "extra_room": 0, "reserve": 0},
        **{"recheck": False, "measured_cards": 0, "mounted_on": "", **more},
    }
    path = tmp_path / "request.json"
    path.write_text(json.dumps(content))
    return path


def environment(tmp_path: Path) -> dict[str, str]:
    """The environment the job gives it."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path / "home"),
        "PYTHONPATH": LIBRARY,
        **compiled.SETTINGS,
        "GAUDI_JOB_PROGRESS": str(tmp_path / "progress.json"),
        "GAUDI_JOB_RESULT": str(tmp_path / "result.json"),
    }


def start(tmp_path: Path, request: Path, work: str = "fetch") -> subprocess.Popen[str]:
    """Start the program with the environment the job gives it."""
    return subprocess.Popen(
        [sys.executable, "-m", "gaudi_weights", work, str(request)],
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(tmp_path: Path, request: Path, work: str = "fetch") -> tuple[int, str]:
    """Run the program to its end; its status and words."""
    with start(tmp_path, request, work) as running:
        said, _ = running.communicate(timeout=300)
    return running.returncode, said


def arrived(staging: Path) -> int:
    """Bytes of the model in the staging folder, which may become the model at any moment."""
    found = 0
    for name in SERVED:
        with contextlib.suppress(FileNotFoundError):
            found += (staging / name).stat().st_size
    return found


def test_progress_and_result_are_left_for_the_job(hub: SimulatedHub, tmp_path: Path) -> None:
    status, said = run(tmp_path, describe(tmp_path, hub))
    assert status == 0, said
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["files"], result["revision"]) == (len(SERVED), hub.repositories[MODEL].main)
    progress = json.loads((tmp_path / "progress.json").read_text())
    assert (progress["phase"], progress["done"], progress["unit"]) == ("fetch", result["bytes"], "bytes")
    assert progress["done"] == progress["total"]
    # What a job says of itself is root's alone.
    for name in ("progress.json", "result.json"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    # A server may read the weights, whatever the umask of the job.
    assert (tmp_path / "models/Small-Model/config.json").stat().st_mode & 0o044 == 0o044
    assert run(tmp_path, describe(tmp_path, hub), "verify")[0] == 0


@pytest.mark.parametrize("xet", [False, True], ids=["http", "xet"])
@pytest.mark.report("W10")
def test_killed_at_random_points_it_loses_nothing(tmp_path: Path, xet: bool) -> None:
    rounds = int(os.environ.get("GAUDI_WEIGHTS_KILLS", "5"))
    seed = int(os.environ.get("GAUDI_WEIGHTS_SEED", str(secrets.randbelow(10**6))))
    print(f"seed {seed} (repeat with GAUDI_WEIGHTS_SEED={seed} GAUDI_WEIGHTS_KILLS={rounds})")
    draw = random.Random(seed)
    # Each phase is drawn once, the rest as chance has it; where in the phase is always chance.
    phases = ["before the first byte", "bytes arriving", "all bytes there"]
    planned = phases + draw.choices(phases, k=max(0, rounds - len(phases)))
    draw.shuffle(planned)
    hit = set()
    with running() as hub:
        hub.xet = xet
        # Over Xet a megabyte comes at a time: more of them, so that there is something between nothing and everything.
        hub.repository(MODEL, write_model(tmp_path / "hub", size=3_100_000 if xet else 700_000))
        total = sum((tmp_path / "hub" / name).stat().st_size for name in SERVED)
        request = describe(tmp_path, hub)
        target, staging = tmp_path / "models/Small-Model", tmp_path / "models/Small-Model.partial"
        for phase in planned:
            before = arrived(staging)
            # What is there already cannot arrive any more.
            if before and (phase == "before the first byte" or (phase == "bytes arriving" and before == total)):
                shutil.rmtree(staging)
                before = 0
            cut = {"before the first byte": 0, "all bytes there": total}.get(
                phase, before + draw.randrange(1, max(2, (total - before) // 2))
            )
            hub.rate = 0 if phase == "all bytes there" else total
            with start(tmp_path, request) as work:
                deadline = time.monotonic() + 300
                while arrived(staging) < cut and not target.exists():
                    assert (work.poll() is None or target.exists()) and time.monotonic() < deadline
                    time.sleep(0.001)
                # The record is written within the first milliseconds, a list has come within a second.
                time.sleep(draw.uniform(0, 0.02 if cut else 0.9))
                work.kill()
            kept = total if target.exists() else arrived(staging)
            hit.add("published" if target.exists() else phases[(kept > 0) + (kept == total)])
            hub.rate = 0
            if target.exists() or draw.random() < 0.5:
                status, said = run(tmp_path, request)
                assert status == 0, said
                # What had arrived is not asked for again, to the byte.
                assert json.loads((tmp_path / "result.json").read_text())["received"] == total - kept
                whole(tmp_path)
                shutil.rmtree(target)
        status, said = run(tmp_path, request)
        assert status == 0, said
        whole(tmp_path)
    print(f"phases hit: {sorted(hit)}")
    assert "bytes arriving" in hit, hit
    assert hit & {"all bytes there", "published"}, hit
    assert any("/xorbs/" in seen.path for seen in hub.seen) == xet


def whole(tmp_path: Path) -> None:
    """The model is there byte for byte with its record, and nothing else."""
    folder = tmp_path / "models/Small-Model"
    for name in SERVED:
        assert (folder / name).read_bytes() == (tmp_path / "hub" / name).read_bytes()
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert there - {".gaudi-serving/lock"} == {*SERVED, ".gaudi-serving/manifest.json"}
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_a_stop_ends_it_with_a_sentence(hub: SimulatedHub, tmp_path: Path) -> None:
    hub.rate = 100_000
    with start(tmp_path, describe(tmp_path, hub)) as work:
        while hub.sent < 100_000:
            time.sleep(0.01)
        work.terminate()
        said, _ = work.communicate(timeout=300)
    assert work.returncode == 130
    assert said == "stopped; what has arrived is kept, and the same request continues there\n"


def test_a_secret_is_nowhere_but_in_its_file(hub: SimulatedHub, tmp_path: Path) -> None:
    secret = f"hf_{secrets.token_hex(16)}"
    hub.tokens = {secret}
    hub.repositories[MODEL].gated = True
    hub.rate = 100_000
    token = tmp_path / "token"
    token.write_text(secret)
    token.chmod(0o600)
    request = describe(tmp_path, hub, source={"token_file": str(token)})
    with start(tmp_path, request) as work:
        while hub.sent < 100_000:  # of 1.8 MB: it lives for another 17 seconds at this rate
            for name in ("cmdline", "environ"):
                assert secret.encode() not in Path(f"/proc/{work.pid}/{name}").read_bytes()
            time.sleep(0.02)
        hub.rate = 0
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


# The program on a file system of its own, in a mount namespace that ends with the shell: fill it, free it, continue.
SMALL_DISK = """
set -eu
mount -t tmpfs -o size={size},mode=0755 tmpfs {folder}
python=$1; request=$2; staging={folder}/Small-Model.partial; target={folder}/Small-Model
if [ {fill_from} -gt 0 ]; then
  $python -m gaudi_weights fetch $request 2>{said} & work=$!
  until [ "$(du -sb $staging 2>/dev/null | cut -f1)" -gt {fill_from} ] 2>/dev/null; do sleep 0.01; done
  # Nothing arrives while the disk fills up, however long that takes.
  kill -STOP $work
  cat /dev/zero >{folder}/filler 2>/dev/null || true
  kill -CONT $work
  status=0; wait $work || status=$?
else
  status=0; $python -m gaudi_weights fetch $request 2>{said} || status=$?
fi
echo "status $status"
[ ! -e $target ]
find $staging -type f -not -path '*/.gaudi-serving/*' -printf '%s\\n' |
  awk '{{ sum += $1 }} END {{ print "kept", sum + 0 }}'
rm -f {folder}/filler
mount -o remount,size=16m {folder}
$python -m gaudi_weights fetch $request >/dev/null
cp -r $target {copy}
"""


@pytest.mark.parametrize("when", ["at the first bytes", "in the middle", "before the last bytes", "at the record"])
def test_a_full_disk_is_a_sentence_and_loses_nothing(hub: SimulatedHub, tmp_path: Path, when: str) -> None:
    total = sum((tmp_path / "hub" / name).stat().st_size for name in SERVED)
    pages = sum(-(-(tmp_path / "hub" / name).stat().st_size // 4096) for name in SERVED)
    # The smallest disk holds the model to the page and the list of what has arrived, and nothing beside.
    size, fill_from = {
        "at the first bytes": ("16m", 1000),
        "in the middle": ("16m", total // 2),
        "before the last bytes": ("16m", total * 85 // 100),
        "at the record": (str((pages + 1) * 4096), 0),
    }[when]
    # Slow enough, the first time, that the disk is full before the last byte is there.
    hub.faults = [HubFault(name=name, rate=150_000) for name in SERVED if fill_from and name.endswith(".safetensors")]
    folder = tmp_path / "models"
    folder.mkdir()
    script = SMALL_DISK.format(
        size=size, fill_from=fill_from, folder=folder, said=tmp_path / "said", copy=tmp_path / "copy"
    )
    # A user's own namespace where this is not root.
    own = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    done = subprocess.run(
        ["unshare", *own, "--mount", "sh", "-c", script, "sh", sys.executable, str(describe(tmp_path, hub))],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = (tmp_path / "said").read_text()
    assert "No space left on device" in said
    assert "What has arrived is kept; correct that or make room, then run the same again" in said
    assert "Traceback" not in said
    figures = dict(line.split() for line in done.stdout.splitlines())
    assert figures["status"] == "1"
    assert json.loads((tmp_path / "result.json").read_text())["received"] == total - int(figures["kept"])
    assert (int(figures["kept"]) == total) is (not fill_from)
    for name in SERVED:
        assert (tmp_path / "copy" / name).read_bytes() == (tmp_path / "hub" / name).read_bytes()


def test_two_at_once_fetch_it_once(hub: SimulatedHub, tmp_path: Path) -> None:
    hub.rate = 100_000
    request = describe(tmp_path, hub)
    with start(tmp_path, request) as first:
        while hub.sent < 100_000:
            time.sleep(0.01)
        status, said = run(tmp_path, request)
        assert (status, "is being fetched already" in said) == (1, True), said
        hub.rate = 0
        assert first.wait(300) == 0
    total = sum((tmp_path / "hub" / name).stat().st_size for name in SERVED)
    assert json.loads((tmp_path / "result.json").read_text())["received"] == total
    whole(tmp_path)


@pytest.mark.parametrize(
    ("content", "says"),
    [("{", "cannot be read"), ("{}", "cannot be read (KeyError: 'target')")],
)
def test_a_broken_request_is_a_sentence(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "request.json").write_text(content)
    status, said = run(tmp_path, tmp_path / "request.json")
    assert (status, says in said, "Traceback" in said) == (1, True, False), said


@pytest.mark.parametrize("kind", FOR_PROGRAMS)
def test_a_damaged_request_is_a_sentence(tmp_path: Path, kind: str) -> None:
    """To read a pipe waited for ever."""
    damage(tmp_path / "request.json", kind)
    with pytest.raises(Refusal) as refused:
        request.load(tmp_path / "request.json")
    assert refused.value.id == "request_unreadable"
    assert str(refused.value).startswith(f"the request {tmp_path / 'request.json'} cannot be read (")
    with pytest.raises(Refusal, match="cannot be read"):
        take.load(tmp_path / "request.json")
