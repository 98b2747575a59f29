#!/usr/bin/env python3
"""Convert a block-quantised FP8 checkpoint to the FP8 range of Gaudi2, bit for bit and restartable.

Published checkpoints use float8_e4m3fn up to its end at 448; Gaudi2 computes with an FP8 that ends at 240.
Every FP8 weight is therefore multiplied by 240/448 and rounded to the nearest even code, and its scales by
448/240, so that weight x scale stays what it was. An FP8 value is one byte, so the whole weight conversion
is one table of 256 bytes: no torch, no numpy, only the standard library of Python 3.9 or newer. The package
gaudi_fp8 lies beside this program.

    fp8_convert.py IN OUT [--jobs N] [--verify]
    fp8_convert.py IN OUT --check

IN is never changed. OUT appears, complete, in one rename; until then the work is in OUT.partial, and the same
command continues there after any interruption. What was done is written to OUT/.gaudi-serving/fp8.json.

Exit status: 0 converted (or already converted from the same input), 1 refused or failed (one sentence on
standard error), 2 wrong usage, 3 not converted yet, or found wrong by --verify (--check), 130 interrupted.
"""

from __future__ import annotations

import signal
import sys

# Until there is somebody to say so, Ctrl-C ends the program without a word.
if __name__ == "__main__" and signal.getsignal(signal.SIGINT) == signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from gaudi_fp8.block.program import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
