"""Ends a program at a line of its own instead of at a time, which a busy machine misses."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

# Runs a program and sends a signal at one of its lines, as they are carried out, to the whole group, workers included,
# as a terminal sends Ctrl-C. Counted are one line of one file alone, or (every) all lines in the program's folder from
# there on; 0 is none. In the end a file has how many there were.
SIGNAL_AT = """
import os, pathlib, runpy, signal, sys
sent, at, counted, begun, first, every, program, *arguments = sys.argv[1:]
sent, at, first, every, lines = int(sent), int(at), int(first), every == "True", 0
folder = os.path.join(os.path.dirname(program), "")
sys.argv = [program, *arguments]
def count(frame, event, argument):
    global lines
    if not frame.f_code.co_filename.startswith(folder):
        return None
    here = (frame.f_code.co_filename, frame.f_lineno) == (begun, first)
    if event == "line" and (lines and every or here):
        lines += 1
        if lines == at:
            os.killpg(0, sent)
    return count
signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts in the background is born deaf to it
sys.path.insert(0, os.path.dirname(program))
sys.settrace(count)
try:
    runpy.run_path(program, run_name="__main__")
finally:
    pathlib.Path(counted).write_text(str(lines))
"""


def at_line(
    program: Path,
    number: int,
    sent: signal.Signals,
    counted: Path,
    *arguments: object,
    line: tuple[Path, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program that gets a signal when it has come to a line so many times, or to so many lines.

    counted: a file that gets how many there were, if the program came to its end. line: a file of the program, and one
    of its lines. All lines begin with the program's import of its package: the interpreter's own start, and its reading
    of the program, come before and are not ours.
    """
    begun, text = line or (program, next(n for n in program.read_text().splitlines() if n.startswith("from gaudi_fp8")))
    first = begun.read_text().splitlines().index(text) + 1
    return subprocess.run(
        [
            *(sys.executable, "-I", "-S", "-c", SIGNAL_AT),
            *map(str, (int(sent), number, counted, begun, first, line is None, program, *arguments)),
        ],
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        start_new_session=True,
    )
