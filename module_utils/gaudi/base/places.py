"""Directories of the node that may be mounted at the very same place in the container, and those that may not."""

from __future__ import annotations

from . import paths
from .checks import shown
from .refusal import Refusal

# Everything below belongs to the system, on the node and in the container: mounted, it would show what nobody meant
# to show, or hide the programs and libraries of the image.
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
# A directory of one's own below these is fine; these themselves hold what is not meant, or hide what the image needs.
SHARED = ("/home", "/root")
# Everybody may make a directory here, before we do and under any name, and puts in it what root or a server reads.
EVERYBODYS = ("/tmp", "/var/tmp")  # noqa: S108 - nothing is written there
ADVICE = "Use a directory of its own, such as one below /data."


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


def is_below(path: str, directory: str) -> bool:
    """Whether a normal path is a directory, or lies in it."""
    return f"{path.rstrip('/')}/".startswith(f"{directory.rstrip('/')}/")
