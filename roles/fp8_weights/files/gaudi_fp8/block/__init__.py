"""Convert a block-quantised FP8 checkpoint to the FP8 range of Gaudi2, bit for bit and restartable.

Published checkpoints use float8_e4m3fn up to its end at 448; Gaudi2 computes with an FP8 that ends at 240.
Every FP8 weight is therefore multiplied by 240/448 and rounded to the nearest even code, and its scales by
448/240, so that weight x scale stays what it was. An FP8 value is one byte, so the whole weight conversion
is one table of 256 bytes: no torch, no numpy, only the standard library of Python 3.9 or newer.
"""
