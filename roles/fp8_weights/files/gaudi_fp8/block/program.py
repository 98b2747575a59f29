"""The command line of fp8_convert.py."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from ..command_line import add_job_arguments, carry_out, positive
from ..refusals import explain_os_error
from ..tasks import do_task
from ..workers import answer, serve_tasks
from .conversion import BlockConversion
from .shard import convert_shard, verify_shard
from .tables import EXACT_HALF, GAUDI2, Factor
from .work import convert


def parse_arguments(arguments: list[str]) -> BlockConversion:
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
    return BlockConversion(
        source=given.source.absolute(),
        target=given.target.absolute(),
        jobs=given.jobs,
        verify=given.verify,
        in_place_space=given.in_place_space,
        progress=given.progress,
        check=given.check,
        reread=given.reread,
        factor=EXACT_HALF if given.exact_half else GAUDI2,
        vendor_compatible=given.vendor_compatible,
        assume_unconverted=given.assume_unconverted,
    )


def work_on(task: dict[str, Any]) -> dict[str, Any]:
    """Convert one shard, unless it is done, and compare it."""
    actions, factor = task["actions"], Factor(*task["factor"])
    only = None if task["only"] is None else task["only"].__contains__
    return do_task(
        task,
        lambda source, target: convert_shard(source, target, actions, factor, lambda n: answer({"advance": n})),
        lambda source, target: verify_shard(source, target, actions, factor, only),
        meanwhile="while it was converted",
    )


def worker_main() -> int:
    """Be one worker; returns the exit status."""
    return serve_tasks(work_on, explain_os_error)


def main(arguments: list[str]) -> int:
    """Entry point; returns the exit status."""
    if arguments == ["--worker"]:
        return worker_main()
    return carry_out(parse_arguments(arguments), convert, explain_os_error)
