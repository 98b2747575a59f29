"""Convert checkpoints to the FP8 of Gaudi2, bit for bit and restartable; fp8_convert.py and fp8_dynamic.py run it.

Python 3.9 and its standard library.
"""
