#!/usr/bin/env python3
"""Convert a block-quantised FP8 checkpoint to the FP8 range of Gaudi2, bit for bit and restartable.

    fp8_convert.py IN OUT [--jobs N] [--verify]
    fp8_convert.py IN OUT --check

IN is never changed. OUT appears, complete, in one rename; until then the work is in OUT.partial, and the same
command continues there after any interruption. What was done is written to OUT/.gaudi-serving/fp8.json.

Needs Python 3.9, its standard library, and beside this program the packages gaudi_fp8, which says how it works, and
gaudi; in a checkout, gaudi is found in module_utils.

Exit status: 0 converted (or already converted from the same input), 1 refused or failed (one sentence on
standard error), 2 wrong usage, 3 not converted yet, or found wrong by --verify (--check), 130 interrupted.
"""

from __future__ import annotations

import signal
import sys

# Until the program handles Ctrl-C, it ends the program without a message.
if __name__ == "__main__" and signal.getsignal(signal.SIGINT) == signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from gaudi_fp8.block.program import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
