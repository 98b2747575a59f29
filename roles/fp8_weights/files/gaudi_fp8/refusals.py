"""Why work cannot be done, in sentences for people."""

from __future__ import annotations

import errno
import reprlib

short = reprlib.repr  # of what a file says, which may be long


class Refusal(Exception):
    """The input or the request cannot be converted; the text is one sentence for a person."""


class Wrong(Refusal):
    """A file of the result is not what it has to be."""


def explain_os_error(error: OSError) -> str:
    """An operating system's refusal as a sentence."""
    where = error.filename or "the target"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            "there is no room left for the result. What is finished is kept: free some room and run the same "
            "command again, or use --in-place-space, which gives up each source shard once its twin is verified"
        )
    if error.errno == errno.EROFS:
        return f"{where} is on a read-only file system; name a target that can be written"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"{where} may not be opened or written by this user ({error.strerror})"
    if error.errno == errno.ENOENT:
        return f"{where} is not there; put it back, or fetch the model again, then run the same command again"
    return f"{where}: {error.strerror or error}"
