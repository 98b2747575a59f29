#!/usr/bin/env python3
"""Turn the language model of a bfloat16 checkpoint into FP8 for Gaudi2, a scale for every output channel.

    fp8_dynamic.py IN OUT [--jobs N] [--verify] [--keep PATTERN]
    fp8_dynamic.py IN OUT --check

IN is never changed. OUT appears, complete, in one rename; the same command continues after any interruption.

Needs Python 3.9, its standard library, and beside this program the packages gaudi_fp8, which says how it works, and
gaudi; in a checkout, gaudi is found in module_utils.

Exit status: 0 done (or done before), 1 refused or failed (one sentence on standard error), 2 wrong usage,
3 not done yet, or found wrong by --verify (--check), 130 interrupted.
"""

from __future__ import annotations

import signal
import sys

# Until the program handles Ctrl-C, it ends the program without a message.
if __name__ == "__main__" and signal.getsignal(signal.SIGINT) == signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from gaudi_fp8.dynamic.program import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
