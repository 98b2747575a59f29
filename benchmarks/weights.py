"""Fetching weights against the hub's own command line and sha256sum, and against git lfs clone, all from this machine.

    python -m benchmarks.weights

A generated model of 2.1 GB in 8 files is served by the simulator's hub and git host, each a process of its own. Every
contender runs as a process, in turn, three times; medians are printed. Ours checks every byte while it arrives and has
it on the disk when it ends; the others are as their users type them.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from simulator import host
from simulator.settings import ROOT

SHARDS, SHARD_SIZE = 8, 264_000_000
RUNS = 3
MODEL = "maker/Measured"
# Required, from the project's own aims.
CLIENT_RATIO, CLONE_RATIO, DISK_RATIO, MEMORY_LIMIT = 0.95, 2.0, 1.01, 300  # MB
RECOGNISED = 1.0  # seconds for a model that is there already
LIBRARY = f"{ROOT / 'roles/model_weights/files'}:{ROOT / 'roles/fp8_weights/files'}:{ROOT / 'module_utils'}"


@dataclass
class ContenderRun:
    """One run of one contender: seconds, largest size on disk in bytes, largest resident memory in MB."""

    seconds: float
    disk: int
    memory: int


def generate(folder: Path) -> int:
    """Write the model; returns its bytes."""
    folder.mkdir(parents=True)
    names = [f"model-{number + 1:05}-of-{SHARDS:05}.safetensors" for number in range(SHARDS)]
    header = json.dumps({"x": {"dtype": "U8", "shape": [SHARD_SIZE], "data_offsets": [0, SHARD_SIZE]}}).encode()
    noise = os.urandom(8_000_000)
    for number, name in enumerate(names):
        with (folder / name).open("wb") as out:
            out.write(struct.pack("<Q", len(header)) + header)
            for piece in range(SHARD_SIZE // len(noise)):
                # Each piece its own, so that nothing that looks for what it has seen finds it.
                out.write(bytes([number, piece]) + noise[2:])
    weight_map = {f"layer.{number}": name for number, name in enumerate(names)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    (folder / "config.json").write_text("{}")
    return sum(path.stat().st_size for path in folder.iterdir())


@contextmanager
def hub(folder: Path, log: Path, *options: str) -> Iterator[tuple[str, str]]:
    """Serve the model by a simulated hub in a process of its own; gives its address and the model's commit.

    ``log`` has a line for each answer it has given.
    """
    command = [sys.executable, "-m", "simulator.hub", *options, "--port", "0", f"{MODEL}={folder}"]
    with log.open("w") as out, subprocess.Popen(command, cwd=ROOT, stdout=out, text=True) as process:
        try:
            while not (said := log.read_text().split()):
                if process.poll() is not None:
                    raise SystemExit("the hub has ended")
                time.sleep(0.1)  # between two looks: nobody is told when a file grows
            yield said[0].removesuffix(f"/{MODEL}"), said[2]
        finally:
            process.terminate()


def on_disk(folder: Path) -> int:
    """Bytes a folder takes of the disk; what vanishes meanwhile is not counted."""
    found = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                found += Path(parent, name).lstat().st_blocks * 512
    return found


def measure(
    folder: Path, commands: list[list[str]], environment: dict[str, str], first: list[list[str]] | None = None
) -> ContenderRun:
    """Run commands one after the other in a new folder, and look how much of the disk and of memory they take.

    What is done first is not measured.
    """
    folder.mkdir()
    for command in first or []:
        subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    os.sync()
    over = threading.Event()
    peak = [0]

    def look() -> None:
        while not over.wait(0.1):
            peak[0] = max(peak[0], on_disk(folder))

    watcher = threading.Thread(target=look)
    watcher.start()
    begun = time.monotonic()
    memory = 0
    try:
        for command in commands:
            process = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode:
                raise SystemExit(f"{command} ended with status {process.returncode}")
            memory = max(memory, usage.ru_maxrss // 1000)
        seconds = time.monotonic() - begun
    finally:
        over.set()
        watcher.join()
    found = ContenderRun(seconds, max(peak[0], on_disk(folder)), memory)
    shutil.rmtree(folder)
    return found


def contenders(folder: Path, hub: str, commit: str, forge: str) -> dict[str, Callable[[], ContenderRun]]:
    """What is compared, as its users start it."""
    home = folder / "home"
    home.mkdir()
    plain = {"PATH": os.environ["PATH"], "HOME": str(home), "GIT_TERMINAL_PROMPT": "0"}
    target = folder / "run"
    request = folder / "request.json"
    request.write_text(
        json.dumps(
            {
                "target": str(target / "model"),
                "sources": [
                    {"name": "hub", "kind": "huggingface", "endpoint": hub, "repository": MODEL, "revision": commit}
                ],
                **{"include": [], "exclude": [], "jobs": 8, "rate_limit": 0, "extra_room": 0, "reserve": 0},
                **{"recheck": False, "measured_cards": 0, "mounted_on": ""},
            }
        )
    )
    client = {**plain, "HF_ENDPOINT": hub, "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    download = [
        str(Path(sys.executable).parent / "hf"),
        "download",
        MODEL,
        "--revision",
        commit,
        "--local-dir",
        "model",
    ]
    digest = ["sh", "-c", "sha256sum model/*.safetensors"]
    subprocess.run(["git", "lfs", "install"], env=plain, check=True, capture_output=True)
    program = [sys.executable, "-m", "gaudi_weights", "fetch", str(request)]
    ours = {**plain, "PYTHONPATH": LIBRARY, "PYTHONDONTWRITEBYTECODE": "1"}
    clone = ["git", "lfs", "clone", f"{forge}/{MODEL}.git", "model"]
    return {
        "ours": lambda: measure(target, [program], ours),
        "again": lambda: measure(target, [program], ours, first=[program]),
        "hf": lambda: measure(target, [download, digest], client),
        "clone": lambda: measure(target, [clone], plain),
    }


def ratio(name: str, value: float, limit: float, at_most: bool = False) -> bool:
    """One comparison; True when it keeps its limit."""
    print(f"  {name:44} {value:7.2f} x  (required: {'at most' if at_most else 'at least'} {limit:g})")
    return value <= limit if at_most else value >= limit


def main() -> int:
    """Measure in turn and print one table; 1 when a limit is missed."""
    (ROOT / ".cache").mkdir(exist_ok=True)
    host.install_packages({"git-lfs": "git-lfs"}, print)
    with tempfile.TemporaryDirectory(dir=ROOT / ".cache", prefix="gaudi-weights-") as name:
        folder = Path(name)
        size = generate(folder / "hub")
        made, log = folder / "hub", folder / "hub.log"
        with hub(made, log) as (library, commit), hub(made, folder / "forge.log", "--kind", "git") as (forge, _):
            runs = contenders(folder, library, commit, forge)
            found: dict[str, list[ContenderRun]] = {name: [] for name in runs}
            for _ in range(RUNS):
                for contender, run in runs.items():
                    found[contender].append(run())
    seconds = {name: statistics.median(run.seconds for run in runs) for name, runs in found.items()}
    print(f"{size / 1e9:.2f} GB in {SHARDS} files, load of this machine {os.getloadavg()[0]:.1f}")
    for contender, label in (
        ("ours", "fetched and checked"),
        ("hf", "hf download, sha256sum"),
        ("clone", "git lfs clone"),
    ):
        disk, memory = (max(getattr(run, figure) for run in found[contender]) for figure in ("disk", "memory"))
        print(
            f"  {label:24} {seconds[contender]:6.2f} s  {size / seconds[contender] / 1e6:6.0f} MB/s  "
            f"disk {disk / size:.3f} x  memory {memory} MB"
        )
    peak = max(run.memory for run in found["ours"])
    print(f"  {'peak resident memory':44} {peak:7d} MB (required: at most {MEMORY_LIMIT})")
    print(f"  {'a finished model is recognised in':44} {seconds['again']:7.2f} s  (required: under {RECOGNISED:g})")
    kept = [
        seconds["again"] < RECOGNISED,
        ratio("throughput against hf and sha256sum", seconds["hf"] / seconds["ours"], CLIENT_RATIO),
        ratio("throughput against git lfs clone", seconds["clone"] / seconds["ours"], CLONE_RATIO),
        ratio("disk", max(run.disk for run in found["ours"]) / size, DISK_RATIO, at_most=True),
        peak <= MEMORY_LIMIT,
    ]
    return int(not all(kept))


if __name__ == "__main__":
    sys.exit(main())
