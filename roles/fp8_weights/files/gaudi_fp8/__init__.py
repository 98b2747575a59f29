"""Convert checkpoints to the FP8 of Gaudi2, bit for bit and restartable. Python 3.9 and its standard library.

block is what fp8_convert.py does, dynamic what fp8_dynamic.py does; both use the modules of this folder.
"""
