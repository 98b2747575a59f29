"""Free pieces of low memory, as kernels with other blocks and pages show them."""

from __future__ import annotations

import pytest
from ansible.module_utils.gaudi.host.low_memory import free_pieces

DMA = "Node 0, zone      DMA      0      0      0      0      0      0      0      0      1      1      3\n"
# Of a kernel 6.18, after hours of work.
USED = "Node 0, zone    DMA32   3570   3342   3518   1384    795    337    143     96     42      1    460\n"
# 2 MiB are free a thousand times, 4 MiB never.
HALVES = "Node 0, zone    DMA32      0      0      0      0      0      0      0      0      0   1000      0\n"
NORMAL = "Node 0, zone   Normal  37361  61489  24585   6463  11106   3031    239    162     48     11      2\n"


@pytest.mark.parametrize(
    ("buddyinfo", "page", "pieces"),
    [
        (DMA + USED + NORMAL, 4096, 460),
        (DMA + HALVES + NORMAL, 4096, 0),
        # Two memory nodes, of which the second has low memory too.
        (DMA + HALVES + USED.replace("Node 0", "Node 1"), 4096, 460),
        # Blocks beyond 4 MiB hold several pieces: one of 8 MiB, and one of 16.
        (HALVES.replace("0\n", "3 1 1\n"), 4096, 3 + 2 + 4),
        # Of a kernel whose largest block has 2 MiB, and which cannot have what is asked.
        (USED.rsplit(maxsplit=1)[0] + "\n", 4096, None),
        # Pages of 64 KiB: 64 of them, in blocks up to 512 MiB.
        ("Node 0, zone      DMA      9      9      9      9      9      9      2      1      0\n", 65536, 4),
        ("Node 0, zone      DMA      9      9      9      9      9      9      0      0      0\n", 65536, 0),
        # Pages of 16 KiB.
        ("Node 0, zone      DMA      9      9      9      9      9      9      9      9      5\n", 16384, 5),
        # No low zone; and a kernel that does not say.
        (NORMAL, 4096, None),
        ("", 4096, None),
    ],
)
def test_free_pieces_are_counted_by_their_size(buddyinfo: str, page: int, pieces: int | None) -> None:
    assert free_pieces(buddyinfo, page) == pieces
