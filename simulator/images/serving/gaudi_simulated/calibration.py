"""The vendor's measuring tools at their command lines: right names and numbers of files, made-up contents.

``calibration.py run_example_tp ARGS`` stands in for scripts/run_example_tp.py of the deepseek_r1 fork,
``calibration.py calibrate_model ARGS`` for calibration/calibrate_model.sh of vllm-hpu-extension. Nothing is measured;
every file says that it is simulated. Cards are acquired, the data set is looked for, ``faults`` of the node count:
crash_at_start, slow_warmup (seconds a prompt), hang_at_warmup and out_of_memory_at_warmup (at that prompt).
"""

from __future__ import annotations

import argparse
import io
import json
import os
import signal
import sys
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import cards, written

DATASET = "NeelNanda/pile-10k"
# All prompts together, unless the node description asks for slow ones.
QUICK = 1.0
# An array of one number, as numpy writes it.
HEADER = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }".ljust(117) + b"\n"
ARRAY = b"\x93NUMPY\x01\x00" + len(HEADER).to_bytes(2, "little") + HEADER + bytes(4)


def measure(prompts: int, faults: Mapping[str, Any]) -> None:
    """Show a bar as the tool does, at the described pace and with the described faults."""
    pause = faults.get("slow_warmup", QUICK / prompts)
    for number in range(1, prompts + 1):
        if number == faults.get("hang_at_warmup"):
            signal.pause()
        if number == faults.get("out_of_memory_at_warmup"):
            sys.exit("RuntimeError: [Rank:0] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::939524096")
        time.sleep(pause)
        print(f"\rProcessed prompts: {100 * number // prompts:3d}%|#  | {number}/{prompts}", end="", flush=True)
    print()


def write(prefix: Path, world: int) -> None:
    """Three files for each rank: maxima as JSON and as npz, the list of modules."""
    for rank in range(world):
        name = f"{prefix}_hooks_maxabs_{rank}_{world}"
        said = {"simulated": True, "rank": rank, "Nodes": {}}
        Path(f"{name}.json").write_text(json.dumps(said), encoding="utf-8")
        Path(f"{name}_mod_list.json").write_text('["simulated"]', encoding="utf-8")
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as archive:
            archive.writestr("simulated.npy", ARRAY)
        Path(f"{name}.npz").write_bytes(content.getvalue())


def begin(model: str, dataset: str, world: int) -> Mapping[str, Any]:
    """Look for model and data set, acquire the cards; the faults of the node."""
    print("SIMULATED calibration: nothing is measured, no accelerator is used.", flush=True)
    node = cards.load_node()
    faults: Mapping[str, Any] = node["faults"]
    if faults.get("crash_at_start"):
        sys.exit("RuntimeError: Engine core initialization failed. See root cause above. (simulated fault)")
    if not Path(model, "config.json").is_file():
        sys.exit(f"OSError: {model} does not appear to have a file named config.json.")
    if not Path(dataset).exists():
        sys.exit(f"ConnectionError: Couldn't reach '{dataset}' on the Hub (simulated: there is no network)")
    try:
        written.write_log(os.environ)
        modules = cards.acquire(node, os.environ, world)
    except cards.AcquireError as error:
        sys.exit(str(error))
    except OSError as error:
        sys.exit(f"{type(error).__name__}: {error}")
    print(f"acquired modules {modules}", flush=True)
    return faults


def run_example_tp(arguments: list[str]) -> None:
    """As run_inc_calib.sh calls it."""
    parser = argparse.ArgumentParser(prog="run_example_tp.py")
    for option in ("--model", "--tokenizer", "--dataset"):
        parser.add_argument(option, required=True)
    for option in ("--tp_size", "--ep_size", "--osl", "--nprompts", "--max_num_seqs", "--max_model_len"):
        parser.add_argument(option, type=int, required=True)
    given = parser.parse_args(arguments)
    config = json.loads(Path(os.environ["QUANT_CONFIG"]).read_text(encoding="utf-8"))
    if config["mode"] != "MEASURE":
        sys.exit(f"ValueError: QUANT_CONFIG asks for {config['mode']}, measuring needs MEASURE")
    measure(given.nprompts, begin(given.model, DATASET, given.tp_size))
    write(Path(config["dump_stats_path"]), given.tp_size)


def calibrate_model(arguments: list[str]) -> None:
    """As its usage says."""
    parser = argparse.ArgumentParser(prog="calibrate_model.sh")
    for option in ("-m", "-d", "-o"):
        parser.add_argument(option, required=True)
    for option, default in (("-t", 1), ("-l", 512), ("-b", 32)):
        parser.add_argument(option, type=int, default=default)
    parser.add_argument("-u", action="store_true")
    given = parser.parse_args(arguments)
    faults = begin(given.m, given.d, given.t)
    result = Path(given.o, Path(given.m).name.lower())
    (result / "g2").mkdir(parents=True, exist_ok=True)
    measure(given.l, faults)
    write(result / "g2" / "inc_output", given.t)
    for mode in ("measure", "quant"):
        said = {"simulated": True, "mode": mode.upper(), "dump_stats_path": f"{result}/g2/inc_output"}
        (result / f"maxabs_{mode}_g2.json").write_text(json.dumps(said), encoding="utf-8")
    print("Calibration process done")


if __name__ == "__main__":
    {"run_example_tp": run_example_tp, "calibrate_model": calibrate_model}[sys.argv[1]](sys.argv[2:])
