"""Who fetches a folder of weights from outside, and who takes it from whom, so that N nodes cost about log N rounds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

# Types of file systems that nodes share (as findmnt names them).
SHARED_TYPES = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "lustre", "ceph", "fuse.ceph", "gpfs", "beegfs", "glusterfs", "fuse.glusterfs")
)


@dataclass(frozen=True)
class Place:
    """One node of a run. ``has``: the folder is whole there; ``needs``: it is asked for there.

    site: nodes that reach each other; storage: what the weights root is on, the same for nodes that share it.
    """

    name: str
    site: str
    storage: str
    has: bool
    needs: bool


def storage_id(name: str, fstype: str, source: str, shared: bool | None, site: str) -> str:
    """Tell the storage of a node's weights root from others'; ``shared`` is the site's word, None without one."""
    if shared:
        return f"site:{site}"
    if shared is None and fstype in SHARED_TYPES:
        return f"{fstype}:{source}"
    return f"node:{name}"


def writers(places: Iterable[Place]) -> list[Place]:
    """The nodes that write: of each storage that needs the folder and lacks it, the first node by name."""
    chosen: dict[str, Place] = {}
    places = sorted(places, key=lambda place: place.name)
    full = {place.storage for place in places if place.has}
    for place in places:
        if place.needs and place.storage not in full:
            chosen.setdefault(place.storage, place)
    return list(chosen.values())


def seeds(places: Iterable[Place]) -> list[str]:
    """The nodes that fetch from outside: the first writer of each site where nobody has the folder."""
    places = list(places)
    supplied = {place.site for place in places if place.has}
    chosen: dict[str, str] = {}
    for place in writers(places):
        if place.site not in supplied:
            chosen.setdefault(place.site, place.name)
    return sorted(chosen.values())


def pairs(places: Iterable[Place], turn: int = 0) -> dict[str, str]:
    """One round: taker -> giver, each giver serving one, so that those who have the folder double every round.

    With every ``turn`` the givers move on by one, so that nobody asks a broken one twice in a row.
    """
    places = list(places)
    taken: dict[str, str] = {}
    for site in sorted({place.site for place in places}):
        givers = sorted(_one_a_storage(place for place in places if place.has and place.site == site))
        takers = sorted(place.name for place in writers(places) if place.site == site)
        moved = turn % len(givers) if givers else 0
        taken.update(zip(takers, givers[moved:] + givers[:moved]))
    return taken


def _one_a_storage(places: Iterable[Place]) -> list[str]:
    """One node of each storage: two that read the same disk give no more than one."""
    found: dict[str, str] = {}
    for place in sorted(places, key=lambda place: place.name):
        found.setdefault(place.storage, place.name)
    return list(found.values())


def todo(places: Iterable[Place], turn: int, name: str) -> tuple[str, str | None, bool]:
    """What a node does in this round (fetch, take, nothing), from whom it takes, and whether anybody does a thing."""
    places = list(places)
    fetching, taking = seeds(places), pairs(places, turn)
    busy = bool(fetching or taking)
    if name in fetching:
        return "fetch", None, busy
    return ("take", taking[name], busy) if name in taking else ("nothing", None, busy)


def mounted(mountinfo: str, path: str) -> tuple[str, str]:
    """Type and source of the file system a path is on, from the text of /proc/self/mountinfo; path is absolute."""
    best = ("", "", "")
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, rest = before.split(), after.split()
        if len(fields) > 4 and len(rest) > 1:
            point = fields[4].replace("\\040", " ")
            inside = path == point or path.startswith(point.rstrip("/") + "/")
            # The last mount over a point is the one that is seen.
            if inside and len(point) >= len(best[0]):
                best = (point, rest[0], rest[1])
    return best[1], best[2]
