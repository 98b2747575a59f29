"""The command line of fp8_dynamic.py."""

from __future__ import annotations

import argparse
import errno
import os
from pathlib import Path
from typing import Any

from ..block.tables import Factor
from ..checkpoint import Identity
from ..command_line import add_job_arguments, carry_out, positive
from ..finished import is_done
from ..refusals import Refusal, explain_os_error
from ..workers import answer, serve_tasks
from .conversion import Wish
from .shard import MARKER, convert_shard, verify_shard
from .work import convert

# Base fields of a wish; there is no factor in this conversion.
CHANNEL = Factor(MARKER, 1, 1)


def explain(error: OSError) -> str:
    """An operating system's refusal as a sentence."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            "there is no room left for the result. What is finished is kept: free some room and run the same command "
            "again"
        )
    return explain_os_error(error)


def parse_arguments(arguments: list[str]) -> Wish:
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
    return Wish(
        source=given.source.absolute(),
        target=given.target.absolute(),
        jobs=given.jobs,
        verify=given.verify,
        factor=CHANNEL,
        vendor_compatible=False,
        in_place_space=False,
        assume_unconverted=False,
        progress=given.progress,
        check=given.check,
        keep=tuple(sorted(given.keep)),
    )


def work_on(task: dict[str, Any]) -> dict[str, Any]:
    """Convert one shard, unless it is done, and compare it."""
    source, target, actions = Path(task["source"]), Path(task["target"]), task["actions"]
    result: dict[str, Any] = {}
    if task["convert"]:
        identity = Identity(*task["identity"])
        changed = Refusal(f"{source} changed since the conversion began; remove {target.parent} to start over")
        if Identity.of(source) != identity:
            raise changed
        result = convert_shard(source, target, actions, lambda size: answer({"advance": size}))
        if Identity.of(source) != identity:
            target.unlink()
            raise changed
    result["whole"] = task["only"] is None
    result["compared"] = verify_shard(source, target, actions, task["only"])
    return result


def main(arguments: list[str]) -> int:
    """Entry point; returns the exit status."""
    if arguments == ["--worker"]:
        return serve_tasks(work_on, explain)
    return carry_out("fp8_dynamic", parse_arguments(arguments), is_done, convert, explain)
