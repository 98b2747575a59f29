#!/usr/bin/env python3
"""Turn the language model of a bfloat16 checkpoint into FP8 for Gaudi2, a scale for every output channel.

The server quantises activations while it runs ("dynamic"); what has to be made beforehand are the weights:

    scale  = (max|w| + 1e-8) / 240      of each output channel, rounded to bfloat16 after each step
    weight = w / scale                  rounded to bfloat16, cut at 240, rounded to float8_e4m3fn

in the precision of the vendor's script, which computes in the dtype of the weights (torch, bfloat16), to the bit.
A matrix [out, in] gets a scale for each row, fused experts [experts, in, out] one for each expert and column. Vision
and audio towers, biases, norms, embeddings, routers and whatever --keep names stay as they are and are listed in
config.json, since the server would otherwise read them as FP8.

No torch and no numpy: with a known scale the code of a weight is the sum of two table entries, one for each byte of
the bfloat16 (see addends), and long integers add and compare thousands of them at once. Files are read, written and
recorded as by fp8_convert. The package gaudi_fp8 lies beside this program. Python 3.9 and the standard library.

    fp8_dynamic.py IN OUT [--jobs N] [--verify] [--keep PATTERN]

IN is never changed. OUT appears, complete, in one rename; the same command continues after any interruption.
Exit status: 0 done (or done before), 1 refused or failed (one sentence), 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import signal
import sys

# Until there is somebody to say so, Ctrl-C ends the program without a word.
if __name__ == "__main__" and signal.getsignal(signal.SIGINT) == signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from gaudi_fp8.dynamic.program import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
