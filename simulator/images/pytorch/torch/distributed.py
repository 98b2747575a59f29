"""Simulated: one sum over the processes of a group. The first of them adds, and tells the others."""

from __future__ import annotations

import contextlib
import socket
import time
from array import array

from . import HPU, Tensor, card, wrong

# Seconds until a group that does not meet gives up.
TIMEOUT = 60
_group: list[socket.socket] = []
_rank: list[int] = []


def init_process_group(backend: str, init_method: str, rank: int, world_size: int) -> None:
    """Meet the other processes at a file that they share, such as file:///tmp/meeting."""
    if backend != "hccl":
        raise ValueError(f"Unknown c10d backend type {backend.upper()}")
    kind, _, path = init_method.partition("://")
    if kind != "file":
        raise ValueError(f"The stand-in for PyTorch knows no store of the kind {kind}.")
    _rank.append(rank)
    if rank == 0:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path)
            server.listen()
            server.settimeout(TIMEOUT)
            _group.extend(server.accept()[0] for _ in range(world_size - 1))
        return
    begun = time.monotonic()
    while not _group:
        with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
            _group.append(_connected(path))
        if time.monotonic() - begun > TIMEOUT:
            raise RuntimeError("The group does not meet.")
        time.sleep(0.02)


def all_reduce(tensor: Tensor) -> None:
    """Put the sum over all processes into the tensor of each."""
    size = len(tensor.values.tobytes())
    if _rank[0] == 0:
        for other in _group:
            part = array(tensor.values.typecode)
            part.frombytes(_receive(other, size))
            tensor.values = (tensor + Tensor(part, tensor.shape)).values
        for other in _group:
            other.sendall(tensor.values.tobytes())
    else:
        _group[0].sendall(tensor.values.tobytes())
        tensor.values = array(tensor.values.typecode)
        tensor.values.frombytes(_receive(_group[0], size))
    if tensor.device == HPU and card()["all_reduce"]:
        tensor.values = wrong(tensor.values)


def _connected(path: str) -> socket.socket:
    other = socket.socket(socket.AF_UNIX)
    try:
        other.settimeout(TIMEOUT)
        other.connect(path)
    except OSError:
        other.close()
        raise
    return other


def _receive(other: socket.socket, size: int) -> bytes:
    with other.makefile("rb") as stream:
        return stream.read(size)
