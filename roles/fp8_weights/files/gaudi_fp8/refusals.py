"""Why work cannot be done, in sentences for people."""

from __future__ import annotations

import errno
import reprlib

from gaudi.base.refusal import Refusal

short = reprlib.repr  # of what a file says, which may be long


class WrongResult(Refusal):
    """A file of the result is not what it has to be."""


def explain_os_error(error: OSError) -> Refusal:
    """An operating system's error as a refusal."""
    where = error.filename or "the target"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Refusal(
            "no_room",
            "there is no room left for the result. What is finished is kept: free some room and run the same "
            "command again, or use --in-place-space, which gives up each source shard once its twin is verified",
        )
    if error.errno == errno.EROFS:
        return Refusal("read_only", f"{where} is on a read-only file system; name a target that can be written")
    if error.errno in (errno.EACCES, errno.EPERM):
        return Refusal("not_permitted", f"{where} may not be opened or written by this user ({error.strerror})")
    if error.errno == errno.ENOENT:
        return Refusal(
            "not_there",
            f"{where} is not there; put it back, or fetch the model again, then run the same command again",
        )
    return Refusal("system_error", f"{where}: {error.strerror or error}")
