"""How many whole pieces of low memory the host still has for the driver. Pure: the text of /proc/buddyinfo is given."""

from __future__ import annotations

PIECE = 4 << 20
"""Bytes. The driver extends its page tables by pieces of this size (SZ_4M in hl_mmu_hr_init of 1.24.1, as one owner
read it); a piece has to be contiguous where no IOMMU translates."""
# The owner who had the fault names the low zone. Zone DMA, the first 16 MiB of a processor of Intel, is not it: the
# kernel keeps it from allocations that may lie higher (vm.lowmem_reserve_ratio), so that its pieces are free on every
# host. It counts where it is the only low zone.
_LOW_ZONES = ("DMA32", "DMA")


def free_pieces(buddyinfo: str, page: int) -> int | None:
    """Return how many free pieces the low memory has, larger blocks counted as the pieces in them; page: in bytes.

    None where nothing can be told: the host has no such zone, or its kernel has no block as large as a piece.
    Column N counts blocks of 2**N pages; kernels differ in how many columns there are, so the page's size decides.
    """
    zones: dict[str, list[list[int]]] = {}
    for words in map(str.split, buddyinfo.splitlines()):
        if words[2:3] == ["zone"]:
            zones.setdefault(words[3], []).append([int(word) for word in words[4:]])
    low = next((zones[name] for name in _LOW_ZONES if name in zones), [])
    order = max(PIECE // page, 1).bit_length() - 1
    counts = [count << (number - order) for columns in low for number, count in enumerate(columns) if number >= order]
    return sum(counts) if counts else None
