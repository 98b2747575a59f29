"""What is fetched: files with sizes and checksums, and the choice among them."""

from __future__ import annotations

import fnmatch
import posixpath
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from gaudi.base.checks import shown
from gaudi.base.refusal import Refusal
from gaudi.weights.record import SHOWN, unsafe

# The end of the year 9999 in seconds since 1970: a source may ask to wait for longer than gmtime() can compute.
LATEST = 253402300799.0


class SourceFailure(Exception):
    """One source cannot give the model; another one may. The text is one sentence for a person.

    passing: asking again later may help; retry_after: seconds the source asked for; waited: seconds that were spent
    waiting for it without success; limited: it had too many requests, and will answer when their time is over.
    """

    def __init__(
        self,
        text: str,
        passing: bool = False,
        retry_after: float | None = None,
        waited: float = 0.0,
        limited: bool = False,
    ) -> None:
        super().__init__(text)
        self.passing = passing
        self.retry_after = retry_after
        self.waited = waited
        self.limited = limited


def first_line(error: Exception) -> str:
    """The first line of an error, which is the sentence; the rest is for programmers."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def at(seconds: float) -> str:
    """The time of day in so many seconds, for a sentence; with the date if it is not today."""
    then = min(time.time() + seconds, LATEST)
    today = time.strftime("%Y-%m-%d", time.gmtime())
    day, clock = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(then)).split()
    return f"{clock} UTC" if day == today else f"{day} {clock} UTC"


def listed(names: Iterable[str]) -> str:
    """Names for a sentence: three of them, and how many more."""
    ordered = sorted(names)
    more = f" and {len(ordered) - 3} more" if len(ordered) > 3 else ""
    return ", ".join(ordered[:3]) + more


class TransferInterrupt(Exception):
    """Somebody asked this program to end, or another thread has failed."""


class StopSwitch(threading.Event):
    """Tells all threads to end: because of a stop request, which is final, or because one of them failed.

    Pauses and the clock go through this class, so that a test can let ten minutes pass at once.
    """

    asked = False

    def clock(self) -> float:
        """Seconds that go by while wait() waits."""
        return time.monotonic()

    def ask(self) -> None:
        """End this program."""
        self.asked = True
        self.set()

    def resume(self) -> None:
        """Let threads work again after a failure; in this order an ask at any moment is not lost."""
        self.clear()
        if self.asked:
            self.set()


@dataclass(frozen=True)
class RemoteFile:
    """A file as a hub describes it: size in bytes, and a checksum of its content when the hub has one.

    sha256 is of the bytes (the hub's LFS record); blob is git's hash of a small file (SHA-1 of "blob <size>\\0" and
    the bytes).
    """

    name: str
    size: int
    sha256: str | None = None
    blob: str | None = None


# Bytes of one file that a hub may state. No published model has a hundredth of it.
LARGEST_FILE = 1 << 50


def check_sizes(files: Iterable[RemoteFile], where: str) -> None:
    """Raise SourceFailure for a size that no file has: disk space is reserved by what a hub states.

    where: the source, for people.
    """
    wrong = next((file for file in files if type(file.size) is not int or not 0 <= file.size <= LARGEST_FILE), None)
    if wrong is not None:
        raise SourceFailure(
            f"{where} states the size {shown(wrong.size)} of {wrong.name[:SHOWN]!r}, which no file has: use another "
            "source"
        )


def check_listing(files: Sequence[RemoteFile], where: str) -> None:
    """Raise SourceFailure for sizes that no file has, and for names of which a folder cannot have all.

    Two threads would write to a file that is listed twice, and its content would have neither checksum.
    """
    check_sizes(files, where)
    names = [file.name for file in files]
    strange = next((name for name in names if unsafe(name)), None)
    if strange is not None:
        raise SourceFailure(
            f"{where} lists {strange[:SHOWN]!r}, which no folder of weights can have: use another source"
        )
    folders = {str(folder) for name in names for folder in PurePosixPath(name).parents}
    wrong = next((name for name, count in Counter(names).items() if count > 1 or name in folders), None)
    if wrong is not None:
        raise SourceFailure(f"{where} lists {wrong[:SHOWN]!r} twice, or as a file and as a folder: use another source")
    try:
        "".join(names).encode()
    except UnicodeEncodeError as error:
        raise SourceFailure(
            f"{where} lists a name that is no text ({first_line(error)}): use another source"
        ) from error


# The same weights in formats that are not served when safetensors are there.
DUPLICATES = (
    *("*.bin", "*.pth", "*.pt", "*.ckpt", "*.msgpack", "*.h5", "*.gguf", "*.onnx"),
    *("original/*", "consolidated*"),
)
# What is on a hub for its web pages, not for a server.
UNSERVED = (
    *(".gitattributes", ".gitignore", "figures/*"),
    *("*.png", "*.jpg", "*.jpeg", "*.gif", "*.svg", "*.webp", "*.pdf"),
)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, p) or fnmatch.fnmatchcase(posixpath.basename(name), p) for p in patterns)


def choose(files: list[RemoteFile], include: Iterable[str], exclude: Iterable[str]) -> list[RemoteFile]:
    """The files that are served, in name order.

    Without include, everything but pictures and, where safetensors are there, the same weights in other formats.
    Raises Refusal when nothing is left or a name is not safe.
    """
    include = tuple(include)
    for file in files:
        if unsafe(file.name):
            raise Refusal(
                "unsafe_file_name",
                f"the source lists a file named {file.name[:SHOWN]!r}, which does not stay in the model's folder",
            )
    if include:
        chosen = [file for file in files if _matches(file.name, include)]
    else:
        chosen = [file for file in files if not _matches(file.name, UNSERVED)]
        if any(file.name.endswith(".safetensors") for file in chosen):
            chosen = [file for file in chosen if not _matches(file.name, DUPLICATES)]
    chosen = [file for file in chosen if not _matches(file.name, exclude)]
    if not chosen:
        raise Refusal(
            "no_file_wanted",
            f"none of the source's {len(files)} files is wanted; look at the include and exclude patterns",
        )
    return sorted(chosen, key=lambda file: file.name)
