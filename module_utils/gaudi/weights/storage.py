"""The file system that weights are on: what it does not allow, and what to do about it."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from dataclasses import dataclass

from ..base.places import SHARED_TYPES, as_named, is_below
from ..base.refusal import Refusal

# Owners and permissions are those that the mount's options name, for all files.
BY_MOUNT = ("cifs", "smb3", "vfat", "msdos", "exfat", "ntfs", "ntfs3", "fuse")
# The largest file is 4 GiB - 1 byte.
SMALL_FILES = ("vfat", "msdos")
LARGEST_THERE = (1 << 32) - 1  # bytes
# Locks of such a mount hold on one node only (nfs(5)).
LOCAL_LOCKS = ("nolock", "local_lock=all", "local_lock=flock")
ACCESS = "read or written"
# While a file is written, its name has this many more bytes (node/beneath.py: a random part and WRITING).
LONGER = 25

_AWAY = (errno.EIO, errno.ENOTCONN, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.ECONNREFUSED, errno.ESHUTDOWN, errno.ENODEV)
_UNSUPPORTED = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.ENOLCK)


@dataclass(frozen=True)
class FileSystem:
    """A mounted file system as /proc/self/mountinfo has it: mount point, type, source and all options."""

    point: str = ""
    kind: str = ""
    source: str = ""
    options: frozenset[str] = frozenset()

    def __str__(self) -> str:
        """Name it in a sentence."""
        return f"{self.kind} ({self.source}, mounted at {self.point})" if self.kind else "its file system"

    @property
    def shared(self) -> bool:
        """Whether a server decides what root of this node may do."""
        return self.kind in SHARED_TYPES

    @property
    def by_mount(self) -> bool:
        """Whether the mount's options decide who owns files."""
        return (not self.shared and self.kind.partition(".")[0] in BY_MOUNT) or self.kind in ("cifs", "smb3")


def mount_of(mountinfo: str, path: str) -> FileSystem:
    """Return the file system of an absolute path; mountinfo: the text of /proc/self/mountinfo."""
    best = FileSystem()
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, rest = before.split(), after.split()
        if len(fields) > 4 and len(rest) > 1:
            point = as_named(fields[4])
            # Of several mounts on one point, the last one is visible.
            if is_below(path, point) and len(point) >= len(best.point):
                options = ",".join([*fields[5:6], *rest[2:3]]).split(",")
                best = FileSystem(point, rest[0], rest[1], frozenset(options))
    return best


def owner_advice(path: str, on: FileSystem, writable: bool) -> str:
    """Say how a directory becomes one that only root writes to; ``writable``: whether root may write to it now."""
    another = "use another folder that only root writes to"
    if on.by_mount:
        return (
            f"It is on {on}, where the mount's options decide who owns it. Mount it with uid=0, gid=0 and a mode that "
            f"lets no others write (CIFS: dir_mode=0755,file_mode=0644; others: umask=022), or {another}"
        )
    if not writable:
        begin = "Root of this node may not write there, nor change its owner"
        if on.shared:
            return (
                f"{begin}: on {on}, the server maps root to another account (root_squash). Have it exported to this "
                f"node with no_root_squash and made root's on its server, or {another}"
            )
        return f"{begin}. Have its owner make it root's, or {another}"
    if on.shared:
        return (
            f"It is on {on}. Make it root's, with mode 0755, on its server (a client may be refused that), or {another}"
        )
    return f"Use a folder that only root writes to, or make it one: chown root:root {path}; chmod go-w {path}"


def not_writable(path: str, on: FileSystem, read_only: bool) -> Refusal:
    """Refuse a directory that root may not write to."""
    if read_only:
        return Refusal(
            "read_only_storage",
            f"{path} is on {on}, which is mounted read-only. Mount it read-write; where /etc/fstab has it so, the "
            "kernel changed it after an error, which dmesg shows",
        )
    if on.kind.startswith("fuse"):
        remedy = "A FUSE file system that another user mounted refuses root: mount it as root, or with allow_root"
    elif on.by_mount:
        remedy = (
            "Mount it with uid=0 and with an account that may write there (CIFS: username), or set gaudi_weights_root "
            "to another file system"
        )
    elif on.shared:
        remedy = (
            "The server maps root of this node to another account, as NFS does with root_squash. Have it exported to "
            "this node with no_root_squash, or set gaudi_weights_root to another file system"
        )
    else:
        remedy = "Read its attributes (lsattr -d) and the log of SELinux or AppArmor, or set another gaudi_weights_root"
    return Refusal("root_may_not_write", f"Root of this node may not write to {path}, which is on {on}. {remedy}")


def no_locks(path: str, on: FileSystem, reason: str) -> Refusal:
    """Refuse a file system on which two fetches at once could not be told apart."""
    if on.kind in ("nfs", "nfs4"):
        remedy = "Have the server's lock service run (NFS 3: rpc.statd and lockd), or mount it with NFS 4"
    elif on.kind in ("cifs", "smb3"):
        remedy = "Mount it without nobrl, or set gaudi_weights_root to a file system with locks"
    else:
        remedy = "Set gaudi_weights_root to a file system with locks"
    return Refusal(
        "no_locks",
        f"{path} cannot be locked ({reason}): {on} has no locks, and two fetches of a model at once would damage it. "
        f"{remedy}",
    )


def too_large(files: Iterable[tuple[str, int]], on: FileSystem, longest: int) -> Refusal | None:
    """Refuse files (name, bytes) whose name or size the file system cannot hold; ``longest``: bytes of a name."""
    for name, size in files:
        part = max(name.split("/"), key=lambda one: len(one.encode()))
        if len(part.encode()) + LONGER > longest:
            return Refusal(
                "name_too_long",
                f"The name {part[:80]!r} has {len(part.encode())} bytes and needs {LONGER} more while it is written; "
                f"{on} takes {longest}. Set gaudi_weights_root to another file system",
            )
        if on.kind in SMALL_FILES and size > LARGEST_THERE:
            return Refusal(
                "file_beyond_storage",
                f"{name} has {size} bytes, and {on} takes {LARGEST_THERE} in a file. Set gaudi_weights_root to another "
                "file system",
            )
    return None


def fault(number: int, reason: str, path: str, on: FileSystem, doing: str = ACCESS) -> Refusal | None:
    """Explain an error of the system (errno and its text); None where its text says it all.

    ``doing``: what failed, of a file or, if it is anything but ACCESS, of any file in a directory.
    """
    if number in (errno.EACCES, errno.EPERM):
        return not_writable(path, on, read_only=False)
    if number == errno.EROFS:
        return not_writable(path, on, read_only=True)
    if number == errno.EDQUOT:
        remedy = "The quota of the account or project that it belongs to is used up there. Raise it, or remove files"
    elif number == errno.ESTALE:
        remedy = "Its server has exchanged or no longer exports it. Mount it again (umount, then mount)"
    elif number == errno.ENAMETOOLONG:
        remedy = "The name is longer than that takes. Set gaudi_weights_root to another file system"
    elif number == errno.EFBIG:
        remedy = "The file is larger than that, or a limit of the process, takes. Set gaudi_weights_root to another one"
    elif number in _AWAY:
        remedy = "It does not answer. Look whether its server, device or FUSE program is up (dmesg), and mount it again"
    elif number in _UNSUPPORTED or (number == errno.EXDEV and doing != ACCESS):
        remedy = "That lacks what a safe fetch needs. Set gaudi_weights_root to another file system"
    else:
        return None
    what = path if doing == ACCESS else f"Files in {path}"
    return Refusal(
        "storage_fault",
        f"{what} cannot be {doing} ({reason}). It is on {on}. {remedy}. What has arrived is kept; then run the same "
        "again",
    )
