"""Fetch a model whole, once, and provably: list, check the room, transfer, check every byte, publish in one rename.

Runs on the node in a virtual environment of its own (Python 3.10 or newer, pinned hub library), started as long
work by the role model_weights. The hub's library lists, authenticates and resolves; the bytes are fetched by
transfer.py, because resuming at a byte, checking while reading and limiting the rate need it.
"""
