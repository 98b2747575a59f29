"""The command line of fp8_dynamic.py."""

from __future__ import annotations

import argparse
import errno
import os
from pathlib import Path
from typing import Any

from gaudi.base.refusal import Refusal

from ..command_line import add_job_arguments, carry_out, positive
from ..refusals import explain_os_error
from ..tasks import do_task
from ..workers import answer, serve_tasks
from .conversion import DynamicConversion
from .shard import convert_shard, verify_shard
from .work import convert


def explain(error: OSError) -> Refusal:
    """An operating system's error as a refusal."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Refusal(
            "no_room",
            "there is no room left for the result. What is finished is kept: free some room and run the same command "
            "again",
        )
    return explain_os_error(error)


def parse_arguments(arguments: list[str]) -> DynamicConversion:
    """The command line; argparse ends the program with status 2 when it is wrong."""
    parser = argparse.ArgumentParser(
        prog="fp8_dynamic.py", description="Turn a bfloat16 multimodal checkpoint into dynamic FP8 for Gaudi2."
    )
    parser.add_argument("source", metavar="IN", type=Path, help="folder of the published checkpoint; never changed")
    parser.add_argument("target", metavar="OUT", type=Path, help="folder that appears when everything is done")
    parser.add_argument(
        "--jobs", type=positive, default=os.cpu_count() or 1, help="worker processes, one a shard (%(default)s)"
    )
    parser.add_argument("--verify", action="store_true", help="compute everything again and compare, not only a sample")
    parser.add_argument("--keep", action="append", default=[], metavar="PATTERN",
                        help="leave these layers as they are: o_proj, or *.layers.0.*; may be repeated")  # fmt: skip
    add_job_arguments(parser)
    given = parser.parse_args(arguments)
    return DynamicConversion(
        source=given.source.absolute(),
        target=given.target.absolute(),
        jobs=given.jobs,
        verify=given.verify,
        in_place_space=False,
        progress=given.progress,
        check=given.check,
        reread=given.reread,
        keep=tuple(sorted(given.keep)),
    )


def work_on(task: dict[str, Any]) -> dict[str, Any]:
    """Convert one shard, unless it is done, and compare it."""
    actions = task["actions"]
    return do_task(
        task,
        lambda source, target: convert_shard(source, target, actions, lambda size: answer({"advance": size})),
        lambda source, target: verify_shard(source, target, actions, task["only"]),
        meanwhile="since the conversion began",
    )


def main(arguments: list[str]) -> int:
    """Entry point; returns the exit status."""
    if arguments == ["--worker"]:
        return serve_tasks(work_on, explain)
    return carry_out(parse_arguments(arguments), convert, explain)
