"""Directories of the node that may be mounted at the same path in the container, and those that may not."""

from __future__ import annotations

import re
from dataclasses import dataclass

from . import paths
from .checks import shown
from .refusal import Refusal

# System directories on the node and in the container. A mount would expose the node's files, or hide the programs and
# libraries of the image.
SYSTEM = (
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/opt/amazon",
    "/opt/habanalabs",
    "/proc",
    "/run",
    "/sbin",
    "/sys",
    "/usr",
    "/var/lib/containerd",
    "/var/lib/docker",
    paths.STATE,
    "/var/log",
    "/var/run",
)
# A directory below these may be mounted. The directories themselves may not: they expose other data, or hide what the
# image needs.
SHARED = ("/home", "/root")
# World-writable directories: any user could create our directory first and put files in it that root or a server reads.
EVERYBODYS = ("/tmp", "/var/tmp")  # noqa: S108 - nothing is written there
# File system types that nodes share, by the kernel's names.
SHARED_TYPES = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "lustre", "ceph", "fuse.ceph", "gpfs", "beegfs", "glusterfs", "fuse.glusterfs")
)
CALIBRATIONS = "quantization"
"""Below a weights root: the output of calibrate_model.sh, a folder for each model."""
ADVICE = "Use a directory of its own, such as one below /data."
# Where a server may write, beside the weights: /srv, /mnt and /var/cache are for it by the Filesystem Hierarchy
# Standard 3.0, /data and /vllm_cache are what the vendor's manuals and this project use, the last two are for our
# profiles and compiled recipes.
DATA = ("/data", "/mnt", "/srv", "/var/cache", "/vllm_cache", f"{paths.STATE}/profiles", paths.RECIPES)
# Home directories hold keys and login scripts, so a server may not write there, even if the weights' root lies there.
PEOPLE = ("/home", "/root")


def normal(path: str) -> str:
    """An absolute path without ``//``, ``.`` and ``..``; a slash at its end stays, as it was meant to be a directory.

    >>> normal("//data/./models//../models/x/")
    '/data/models/x/'
    """
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    shortest = "/" + "/".join(parts)
    return f"{shortest}/" if path.endswith("/") and shortest != "/" else shortest


def check_place(path: str, what: str, fork_directory: str | None = None) -> None:
    """Refuse a directory that must not be mounted in a container; ``path`` is normal.

    ``fork_directory`` is where the release's image keeps vLLM itself.
    """
    path = path.rstrip("/")
    if not path:
        raise Refusal("directory_is_root", f"{what} is /, which is the whole node. {ADVICE}")
    kept = (*SYSTEM, fork_directory) if fork_directory else SYSTEM
    for place in kept:
        of = "the release's fork_directory" if place == fork_directory else "a directory of the system"
        if is_below(path, place):
            inside = "" if path == place else f", inside {place}"
            raise Refusal(
                "directory_of_system",
                f"{what} is {shown(path)}{inside}, {of}: it must not be mounted in the container. {ADVICE}",
            )
        if is_below(place, path):
            raise Refusal(
                "directory_hides_system",
                f"{what} is {shown(path)}, which would hide {place} in the container. {ADVICE}",
            )
    if path in (*SHARED, *EVERYBODYS):
        raise Refusal("directory_of_others", f"{what} is {path}, which others use as well. {ADVICE}")
    for place in EVERYBODYS:
        if is_below(path, place):
            raise Refusal(
                "directory_of_others", f"{what} is {shown(path)}, inside {place}, where everybody may write. {ADVICE}"
            )


def is_of_system(path: str) -> bool:
    """Whether a normal path is, holds, or is inside a directory of the system or of root."""
    return any(is_below(path, place) or is_below(place, path) for place in (*SYSTEM, "/root"))


def check_writable(path: str, what: str, weights_root: str) -> None:
    """Refuse a directory that a server must not write to; ``path`` and ``weights_root`` are normal.

    A server runs as root in its container. Write access to cron's directories, to keys or to a database would give it
    the node. So it may only write below a data directory: one of DATA, the weights' root, or the directory that
    contains this root.
    """
    allowed = [*DATA, *_of_site(weights_root)]
    if any(is_below(path, place) and path.rstrip("/") != place for place in allowed):
        return
    own = [place for place in allowed if not is_below(place, paths.STATE)]
    raise Refusal(
        "not_for_data",
        f"{what} is {shown(path)}, but a server writes only below a directory for data: {', '.join(own[:-1])} or "
        f"{own[-1]}. Choose one there; beside gaudi_weights_root is another place for data.",
    )


def _of_site(weights_root: str) -> list[str]:
    """Return the data directory that a site's weights' root implies, if DATA does not already contain it."""
    beside = weights_root.rpartition("/")[0]
    place = beside if _is_for_data(beside) else weights_root
    return [] if not place or any(is_below(place, data) for data in DATA) else [place]


def _is_for_data(place: str) -> bool:
    try:
        check_place(place, "")
    except Refusal:
        return False
    return not any(is_below(place, home) for home in PEOPLE)


def as_named(field: str) -> str:
    r"""Decode a path of fstab or mountinfo, where blank, tab, line feed and backslash are octal numbers (fstab(5)).

    >>> as_named(r"/data/two\040models")
    '/data/two models'
    """
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found.group(1), 8)), field)


def is_below(path: str, directory: str) -> bool:
    """Whether a normal path equals a directory or lies inside it."""
    return f"{path.rstrip('/')}/".startswith(f"{directory.rstrip('/')}/")


@dataclass(frozen=True)
class Room:
    """Space wanted below one path, and what its file system has. Sizes in bytes."""

    what: str
    path: str
    filesystem: str
    wanted: int
    free: int
