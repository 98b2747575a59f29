"""What the command lines of both programs have in common."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from gaudi.base.refusal import Refusal
from gaudi.node import long_work

from .conversion import ConversionT
from .finished import is_done, reread


def positive(text: str) -> int:
    """Argument type: a whole number of at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return number


def add_job_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of every program that runs as long work of a node."""
    parser.add_argument("--check", action="store_true",
                        help="only say whether OUT is the finished conversion of IN; status 3 if not")  # fmt: skip
    parser.add_argument("--reread", action="store_true",
                        help="only read every byte of OUT again, against the checksums in its record")  # fmt: skip
    parser.add_argument("--progress", type=Path, metavar="FILE", default=long_work.progress_file(),
                        help="keep a JSON progress document there")  # fmt: skip


def _interrupted(signum: int, _frame: Any) -> NoReturn:
    raise KeyboardInterrupt(signum)


def carry_out(
    conversion: ConversionT, convert: Callable[[ConversionT], str], explain: Callable[[OSError], Refusal]
) -> int:
    """Convert, or with --check only look whether that is done, and say how it ended; returns the exit status."""
    name = conversion.tool
    try:
        signal.signal(signal.SIGTERM, _interrupted)
        if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:
            signal.signal(signal.SIGINT, _interrupted)
        if conversion.check:
            finished = is_done(conversion)
            print("converted" if finished else "not converted yet")
            return 0 if finished else 3
        print(reread(conversion) if conversion.reread else convert(conversion))
    except (Refusal, OSError) as error:
        refusal = error if isinstance(error, Refusal) else explain(error)
        print(f"{name}: {refusal}", file=sys.stderr)
        long_work.tell_refusal(refusal)
        return 1
    except KeyboardInterrupt:
        print(f"{name}: interrupted; run the same command to continue with the next shard", file=sys.stderr)
        return 130
    return 0
