"""FP8 conversion for Gaudi2 against the vendor's way in torch and against copying, two workers on two cores.

    python -m benchmarks.fp8

A generated checkpoint with DeepSeek's names, block scales and sizes, 8 shards, 4.5 GB. Everything is timed as whole
processes, in turn, in one run; medians of three are printed, after a first round that does not count, with processor
time, since other work on the machine lengthens only the clock's. The torch baseline runs in the stand-in serving image,
because torch comes with it.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes.util import find_library
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from simulator import engine, images
from simulator.settings import ROOT

PROGRAM = ROOT / "roles" / "fp8_weights" / "files" / "fp8_convert.py"
BASELINE = ROOT / "benchmarks" / "_fp8_torch.py"
TABLE_ALONE = ROOT / "benchmarks" / "_fp8_table.py"
# DeepSeek-R1: 61 layers, the first three dense; an expert's up_proj is 2048 x 7168.
SHARDS, LAYERS, DENSE, EXPERTS, ROWS, COLUMNS = 8, 61, 3, 5, 2048, 7168
RUNS = 3
WORKERS = 2
# Required, from the project's own aims: 15 times the vendor's way and 0.6 of a copy in memory, 0.9 of a copy on disk.
TORCH_RATIO, MEMORY_RATIO, DISK_RATIO = 15.0, 0.6, 0.9
ALONE = f"the table alone, {WORKERS} processes"  # name of a row
MEMORY_LIMIT = 150  # MB resident, of any process
# Linux's, root's to change: order of the smallest block of free pages that is given back to the host.
REPORTING = Path("/sys/module/page_reporting/parameters/page_reporting_order")

# Runs a command and prints seconds, processor seconds and the largest resident memory (KiB) of any process in it. A
# small process of its own: the kernel counts the memory of whoever starts a process as that process's.
MEASURE = """
import json, resource, subprocess, sys, time
begun = time.monotonic()
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
seconds = time.monotonic() - begun
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([seconds, used.ru_utime, used.ru_stime, used.ru_maxrss]))
"""


@dataclass(frozen=True)
class ConversionRun:
    """One run, or the medians of several: seconds on the clock, of processor in user and kernel mode; MB resident."""

    seconds: float
    user: float
    system: float
    resident: float


def tensors(layer: int) -> Iterator[tuple[str, str, list[int], bytes]]:
    """Name, dtype, shape and data of a layer's tensors, in the order they are written."""
    # One weight's bytes serve all: no FP8 NaN, every block reaching 448.
    weight = bytes(code if code & 0x7F != 0x7F else 0x7E for code in range(256)) * (ROWS * COLUMNS >> 8)
    scale = struct.pack("<f", 0.00123) * (ROWS // 128 * (COLUMNS // 128))
    prefix = f"model.layers.{layer}"
    for leaf in ("input_layernorm", "post_attention_layernorm"):
        yield f"{prefix}.{leaf}.weight", "BF16", [COLUMNS], b"\x80\x3f" * COLUMNS
    yield f"{prefix}.mlp.gate.weight", "BF16", [256, COLUMNS], b"\x23\x3c" * (256 * COLUMNS)
    for expert in range(EXPERTS):
        name = f"{prefix}.mlp.experts.{expert}.up_proj.weight"
        yield name, "F8_E4M3", [ROWS, COLUMNS], weight
        yield f"{name}_scale_inv", "F32", [ROWS // 128, COLUMNS // 128], scale


def generate(folder: Path) -> int:
    """Write the checkpoint; returns its bytes."""
    folder.mkdir(parents=True)
    weight_map = {}
    for number in range(SHARDS):
        shard = f"model-{number + 1:05d}-of-{SHARDS:05d}.safetensors"
        header: dict[str, object] = {"__metadata__": {"format": "pt"}}
        position = 0
        content = [tensor for layer in range(DENSE + number, LAYERS, SHARDS) for tensor in tensors(layer)]
        for name, dtype, shape, data in content:
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [position, position + len(data)]}
            weight_map[name] = shard
            position += len(data)
        raw = json.dumps(header).encode()
        raw += b" " * (-len(raw) % 8)
        with (folder / shard).open("wb") as out:
            out.write(struct.pack("<Q", len(raw)) + raw)
            for *_, data in content:
                out.write(data)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return sum(path.stat().st_size for path in folder.iterdir())


def measured(command: list[str], result: Path) -> ConversionRun:
    """One run of a command whose result is then removed."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", MEASURE, *command], check=True, stdout=subprocess.PIPE, text=True
    )
    shutil.rmtree(result)
    seconds, user, system, resident = json.loads(done.stdout)
    return ConversionRun(seconds, user, system, resident * 1024 / 1e6)


def ours(source: Path, target: Path, jobs: int) -> Callable[[], ConversionRun]:
    """What is under measurement."""
    return lambda: measured([sys.executable, str(PROGRAM), str(source), str(target), "--jobs", str(jobs)], target)


def table_alone(source: Path, target: Path) -> Callable[[], ConversionRun]:
    """The table and nothing else: what Python itself allows on this machine."""
    return lambda: measured([sys.executable, str(TABLE_ALONE), str(source), str(target), str(WORKERS)], target)


@contextmanager
def kept_memory() -> Iterator[str]:
    """This machine keeps the memory that is freed while it measures; says whether it does.

    A virtual machine may give freed memory back to its host (free page reporting) and pays for it at the next touch,
    0.3 to 2 s a GB here: whoever comes next pays for whoever was before, or nobody does.
    """
    before = REPORTING.read_text() if REPORTING.exists() else ""
    try:
        for order in range(20, 9, -1):  # of the blocks it gives back; there are none of the largest that is accepted
            with contextlib.suppress(OSError):
                REPORTING.write_text(str(order))
                break
        else:
            before = ""
        yield "freed memory is kept" if before else "freed memory may go back to a host, and comes back slowly"
    finally:
        if before:
            REPORTING.write_text(before)


def medians(runs: dict[str, Callable[[], ConversionRun]]) -> dict[str, ConversionRun]:
    """Medians of several commands, run in turn so that a drifting machine hits all alike; a first round counts nothing.

    In that round memory comes from the host, and the source into the page cache.
    """
    found: dict[str, list[ConversionRun]] = {name: [] for name in runs}
    for number in range(RUNS + 1):
        for name, run in runs.items():
            one = run()
            if number:
                found[name].append(one)
    return {
        name: ConversionRun(
            statistics.median(one.seconds for one in ones),
            statistics.median(one.user for one in ones),
            statistics.median(one.system for one in ones),
            max(one.resident for one in ones),
        )
        for name, ones in found.items()
    }


def torch_run(image: str, source: Path, target: Path) -> ConversionRun:
    """The vendor's way, without the start of its container."""
    python = "/opt/venv/bin/python3"
    baseline = [python, "/baseline.py", str(source), str(target), str(WORKERS)]
    mounts = ["-v", f"{source.parent}:{source.parent}", "-v", f"{BASELINE}:/baseline.py:ro"]
    command = ["docker", "run", "--rm", "--network", "none", *mounts, image, python, "-c", MEASURE, *baseline]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    shutil.rmtree(target)
    seconds, user, system, resident = json.loads(printed.splitlines()[-1])
    return ConversionRun(seconds, user, system, resident * 1024 / 1e6)


def table(title: str, size: int, found: dict[str, ConversionRun]) -> None:
    """Print what was found."""
    print(f"\n{title}, {size / 1e9:.2f} GB   seconds     GB/s   user+system s   largest process")
    for name, run in found.items():
        print(
            f"  {name:32} {run.seconds:7.2f}  {size / run.seconds / 1e9:7.2f}   {run.user:5.2f} + {run.system:5.2f}"
            f"   {run.resident:8.0f} MB"
        )


def ratio(name: str, value: float, required: float) -> bool:
    """Print one comparison; True when it is what is required."""
    print(f"  {name:32} {value:7.2f} x  (required {required:g})")
    return value >= required


def load() -> str:
    """What else the machine was doing."""
    return f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors"


def workers(number: int) -> str:
    """Name of a row."""
    return f"fp8_convert.py --jobs {number}"


def in_memory(folder: Path, image: str) -> bool:
    """Against torch and cp on a memory file system, where fsync costs nothing."""
    source, target, copy = folder / "in", folder / "out", folder / "copy"
    size = generate(source)
    before = load()
    found = medians(
        {
            "cp -r": lambda: measured(["cp", "-r", str(source), str(copy)], copy),
            **{workers(number): ours(source, target, number) for number in (WORKERS, 1, 4)},
            ALONE: table_alone(source, target),
            f"torch, {WORKERS} threads": lambda: torch_run(image, source, folder / "torch"),
        }
    )
    torch = found[f"torch, {WORKERS} threads"]
    table("memory file system", size, found)
    mine = found[workers(WORKERS)]
    peak = max(found[workers(number)].resident for number in (1, WORKERS, 4))
    # Nothing that writes these files is much faster than a copy, and nothing in Python than the table without checks:
    # where these are slow, so is the ratio to torch.
    for name in ("cp -r", ALONE):
        print(f"  torch / {name:24} {torch.seconds / found[name].seconds:7.2f} x")
    kept = [
        ratio("torch / ours", torch.seconds / mine.seconds, TORCH_RATIO),
        ratio("cp / ours", found["cp -r"].seconds / mine.seconds, MEMORY_RATIO),
        peak <= MEMORY_LIMIT,
    ]
    print(f"  {'peak resident memory':32} {peak:7.0f} MB (at most {MEMORY_LIMIT})\n  {before} before, {load()} after")
    return all(kept)


def on_disk(folder: Path) -> bool:
    """Against cp and sync on the disk the checkout lies on."""
    source, target, copy = folder / "in", folder / "out", folder / "copy"
    size = generate(source)
    os.sync()
    before = load()
    found = medians(
        {
            "cp -r && sync": lambda: measured(["sh", "-c", f"cp -r {source} {copy} && sync"], copy),
            **{workers(number): ours(source, target, number) for number in (WORKERS, 1, 4)},
        }
    )
    table("disk", size, found)
    kept = ratio("cp and sync / ours", found["cp -r && sync"].seconds / found[workers(WORKERS)].seconds, DISK_RATIO)
    print(f"  {before} before, {load()} after")
    return kept


def main() -> int:
    """Measure both, print one table each; 1 when a required ratio is missed."""
    print(datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"))
    image = images.vllm(engine.ensure(), print)  # before anything is measured: making it takes minutes
    cache = ROOT / ".cache"
    cache.mkdir(exist_ok=True)
    with kept_memory() as said:
        print(f"{said}; checksums by {'libdeflate' if find_library('deflate') else 'zlib'}")
        with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="gaudi-fp8-") as folder:
            memory = in_memory(Path(folder), image)
        with tempfile.TemporaryDirectory(dir=cache, prefix="gaudi-fp8-") as folder:
            disk = on_disk(Path(folder))
    return int(not (memory and disk))


if __name__ == "__main__":
    sys.exit(main())
