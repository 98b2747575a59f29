"""The command line of fp8_convert.py."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from ..checkpoint import Identity
from ..command_line import add_job_arguments, carry_out, positive
from ..conversion import Wish
from ..finished import is_done
from ..refusals import Refusal, explain_os_error
from ..workers import answer, serve_tasks
from .conversion import convert
from .shard import convert_shard, verify_shard
from .tables import EXACT_HALF, GAUDI2, Factor


def parse_arguments(arguments: list[str]) -> Wish:
    """The command line; argparse ends the program with status 2 when it is wrong."""
    parser = argparse.ArgumentParser(
        prog="fp8_convert.py",
        description="Convert a block-quantised FP8 checkpoint to the FP8 range of Gaudi2.",
    )
    parser.add_argument("source", metavar="IN", type=Path, help="folder of the published checkpoint; never changed")
    parser.add_argument("target", metavar="OUT", type=Path, help="folder that appears when everything is done")
    parser.add_argument(
        "--jobs", type=positive, default=min(8, os.cpu_count() or 1), help="worker processes (%(default)s)"
    )
    parser.add_argument("--verify", action="store_true", help="re-read and compare every byte, not only a sample")
    parser.add_argument("--vendor-compatible", action="store_true",
                        help="also turn bf16 '*proj.weight' (eh_proj) into FP8 without a scale, "
                             "as the vendor's script does")  # fmt: skip
    parser.add_argument("--exact-half", action="store_true",
                        help="use the factor 1/2, exact for 236 of 252 codes; not validated on hardware, "
                             "not usable with published measurement files")  # fmt: skip
    parser.add_argument("--in-place-space", action="store_true",
                        help="delete each source shard once its converted twin is verified and recorded")  # fmt: skip
    parser.add_argument("--assume-unconverted", action="store_true",
                        help="skip the test that refuses weights without any value above 240")  # fmt: skip
    add_job_arguments(parser)
    given = parser.parse_args(arguments)
    return Wish(
        given.source.absolute(),
        given.target.absolute(),
        given.jobs,
        given.verify,
        EXACT_HALF if given.exact_half else GAUDI2,
        given.vendor_compatible,
        given.in_place_space,
        given.assume_unconverted,
        given.progress,
        given.check,
    )


def work_on(task: dict[str, Any]) -> dict[str, Any]:
    """Convert one shard, unless it is done, and compare it."""
    source, target = Path(task["source"]), Path(task["target"])
    factor = Factor(*task["factor"])
    result: dict[str, Any] = {}
    if task["convert"]:
        identity = Identity.of(source)
        if identity != Identity(*task["identity"]):
            raise Refusal(f"{source} changed since the conversion began; remove {target.parent} to start over")
        result = convert_shard(source, target, task["actions"], factor, lambda n: answer({"advance": n}))
        if Identity.of(source) != identity:
            target.unlink()
            raise Refusal(f"{source} changed while it was converted; remove {target.parent} to start over")
    chosen = task["only"]
    result["whole"] = chosen is None
    result["compared"] = verify_shard(
        source, target, task["actions"], factor, None if chosen is None else chosen.__contains__
    )
    return result


def worker_main() -> int:
    """Be one worker; returns the exit status."""
    return serve_tasks(work_on, explain_os_error)


def main(arguments: list[str]) -> int:
    """Entry point; returns the exit status."""
    if arguments == ["--worker"]:
        return worker_main()
    return carry_out("fp8_convert", parse_arguments(arguments), is_done, convert, explain_os_error)
