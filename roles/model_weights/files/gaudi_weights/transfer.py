"""Bytes over HTTP: resumed at the byte, checked while they arrive, no faster than allowed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urljoin, urlsplit

import urllib3
from gaudi.base.units import human_bytes
from gaudi.node import beneath, folders

from .model import RemoteFile, SourceFailure, StopSwitch, TransferInterrupt, at

BLOCK = 512 * 1024  # bytes
CONNECT_SECONDS = 15.0
# Seconds without a byte after which this attempt ends; a slow stream of bytes does not count as silence.
SILENCE_SECONDS = 60.0
# How long a source may be unreachable before the first byte, and where there is another one to ask.
HASTE_SECONDS = 60.0
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 30.0
REDIRECTS = 5
OK, PARTIAL, RANGE_WRONG = 200, 206, 416


class ChecksumMismatch(Exception):
    """The bytes that arrived are not the file's."""


# Gives a file's bytes from one on, in order; closed when no more are wanted.
Way = Callable[[int], Generator[bytes, None, None]]


@dataclass(frozen=True)
class FileLocation:
    """Where a file's bytes are: an address, and headers that are for that host alone (a token).

    instead: given the headers of an answer that sends elsewhere, another way to the bytes, or None.
    """

    url: str
    headers: dict[str, str]
    instead: Callable[[Mapping[str, str]], Way | None] = lambda headers: None


class SourceClient(Protocol):
    """What asks a source: its connections, through its proxy where it has one."""

    def request(self, method: str, url: str, **more: Any) -> urllib3.BaseHTTPResponse:
        """Ask once."""

    def refusal(self, response: urllib3.BaseHTTPResponse, url: str, elsewhere: bool) -> SourceFailure:
        """What a refusing answer means."""


class RateLimit:
    """Bytes per second for all threads together; 0 is no limit."""

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self.lock = threading.Lock()
        self.free_at = time.monotonic()

    def take(self, size: int, wait: Callable[[float], object]) -> None:
        """Wait until size bytes may be used."""
        if not self.rate:
            return
        with self.lock:
            now = time.monotonic()
            self.free_at = max(self.free_at, now) + size / self.rate
            pause = self.free_at - now
        wait(pause)


class Checksums:
    """SHA-256 of what is added, and git's hash where that is what the hub states."""

    def __init__(self, file: RemoteFile) -> None:
        self.file = file
        self.sha256 = hashlib.sha256()
        self.blob = hashlib.sha1(f"blob {file.size}\0".encode(), usedforsecurity=False)

    def add(self, block: bytes) -> None:
        """Take more of the content."""
        self.sha256.update(block)
        if self.file.sha256 is None:
            self.blob.update(block)

    def check(self) -> str:
        """The SHA-256 of it all; raises ChecksumMismatch when the hub states another checksum."""
        mine, stated = self.sha256.hexdigest(), self.file.sha256
        if stated is None and self.file.blob is not None:
            mine, stated = self.blob.hexdigest(), self.file.blob
        if stated is not None and mine != stated:
            raise ChecksumMismatch(f"its checksum is {mine}, the source states {stated}")
        return self.sha256.hexdigest()


class Transfer:
    """Fetches files of one source over shared connections."""

    def __init__(
        self,
        pool: SourceClient,
        limit: RateLimit,
        stop: StopSwitch,
        patience: float,
        waits: Callable[[str], None] = lambda _why: None,
    ) -> None:
        self.pool = pool
        self.waits = waits  # hears why nothing comes, before each pause
        self.limit = limit
        self.stop = stop
        self.patience = patience  # seconds a source may be gone

    def fetch(
        self,
        file: RemoteFile,
        place: Callable[[RemoteFile], FileLocation],
        folder: Path,
        advance: Callable[[int], None],
    ) -> str:
        """Bring a file into the folder and return its SHA-256. Every try asks for its place.

        What lies there already is kept, read again for its checksum, and continued. Raises SourceFailure if the source
        stays unreachable, refuses, or keeps sending wrong bytes; OSError on a full disk; TransferInterrupt.
        """
        deadline = self.stop.clock() + self.patience
        pause, wrong = FIRST_PAUSE, 0
        while True:
            before = size(folder, file.name)
            try:
                return self._once(file, place, folder, advance)
            except ChecksumMismatch as error:
                advance(-size(folder, file.name))
                beneath.remove(folder / file.name, folder)
                wrong += 1
                if wrong > 1:
                    raise SourceFailure(f"{file.name} came twice with wrong content: {error}") from error
                continue
            except (urllib3.exceptions.HTTPError, SourceFailure) as error:
                if isinstance(error, SourceFailure) and not error.passing:
                    raise
                failure, asked = error, getattr(error, "retry_after", None)
                limited = getattr(error, "limited", False)
            if size(folder, file.name) > before:  # something came: the source lives
                deadline, pause = self.stop.clock() + self.patience, FIRST_PAUSE
            left = deadline - self.stop.clock()
            if left <= (asked or 0.0):
                gone = f"could not be fetched for {self.patience:.0f} s" if left <= 0 else "cannot be fetched now"
                raise SourceFailure(
                    f"{file.name} {gone} ({failure}); what has arrived is kept, run the same again when the source is "
                    "back",
                    passing=True,
                    retry_after=asked,
                    waited=self.patience - max(left, 0.0),
                    limited=limited,
                ) from failure
            until = f"as it asks, the next time at {at(asked)}" if asked else f"for {left:.0f} s at most"
            self.waits(f"{file.name} does not come ({failure}), asked again {until}")
            if self.stop.wait(asked or min(pause, left)):
                raise TransferInterrupt
            pause = min(pause * 2, LONGEST_PAUSE)

    def _once(
        self,
        file: RemoteFile,
        place: Callable[[RemoteFile], FileLocation],
        folder: Path,
        advance: Callable[[int], None],
    ) -> str:
        """One try, from where the last one stopped."""
        checksums = Checksums(file)
        with beneath.open_file(folder / file.name, folder, "a+b", buffering=0) as out:
            out.seek(0)
            have = 0
            while block := out.read(BLOCK):
                self._still_wanted()
                checksums.add(block)
                have += len(block)
            if have > file.size:
                raise ChecksumMismatch(f"{human_bytes(have)} are there, the source states {human_bytes(file.size)}")
            if have < file.size:
                with contextlib.closing(self._receive(file, place(file), have)) as blocks:
                    for block in blocks:
                        checksums.add(block)
                        view = memoryview(block)
                        while view:
                            view = view[out.write(view) :]
                        advance(len(block))
            # Also of what an earlier run has written and did not get to the disk: it is noted as arrived next.
            os.fsync(out.fileno())
        return checksums.check()

    def _receive(self, file: RemoteFile, place: FileLocation, have: int) -> Generator[bytes, None, None]:
        """What is missing of a file of which have bytes are there."""
        with self._open(file, place, have) as (blocks, begin):
            # A source without range requests starts from the beginning: skip the bytes that we have, which only costs
            # time.
            skip = have - begin
            for received in blocks:
                self._still_wanted()
                self.limit.take(len(received), self.stop.wait)
                block = received[skip:]
                skip -= len(received) - len(block)
                have += len(block)
                if have > file.size:
                    raise ChecksumMismatch(f"more came than the {human_bytes(file.size)} the source states")
                if block:
                    yield block
        if have < file.size:
            raise SourceFailure(
                f"the connection ended after {human_bytes(have)} of {human_bytes(file.size)}", passing=True
            )

    @contextlib.contextmanager
    def _open(self, file: RemoteFile, place: FileLocation, start: int) -> Iterator[tuple[Iterator[bytes], int]]:
        """Ask for a file from byte start on: what comes, and the byte it begins at, which is start or 0.

        Redirects are followed, and a token never follows to another host.
        """
        url, headers = place.url, dict(place.headers)
        for _ in range(REDIRECTS + 1):
            asked = {**headers, "Accept-Encoding": "identity", "User-Agent": "gaudi-serving"}
            if start:
                asked["Range"] = f"bytes={start}-"
            response = self.pool.request(
                "GET",
                url,
                headers=asked,
                preload_content=False,
                timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=SILENCE_SECONDS),
            )
            location = response.get_redirect_location()
            if not location:
                break
            # Its body may never end. The next request costs a new connection for that.
            response.close()
            if way := place.instead(response.headers):
                with contextlib.closing(way(start)) as blocks:
                    yield blocks, start
                return
            following = joined(url, location)
            if origin(following) != origin(url):
                headers = {}
            url = following
        else:
            raise SourceFailure(f"{address(place.url)} redirects more than {REDIRECTS} times")
        try:
            if response.status not in (OK, PARTIAL):
                if response.status == RANGE_WRONG:
                    raise ChecksumMismatch("the source has fewer bytes than are here already")
                raise self.pool.refusal(response, url, origin(url) != origin(place.url))
            if response.status == PARTIAL:
                check_range(response.headers.get("Content-Range"), start, file)
            yield iter(partial(response.read1, BLOCK), b""), start if response.status == PARTIAL else 0
        finally:
            # Closed, not kept, when it was not read to its end.
            response.close()

    def _still_wanted(self) -> None:
        if self.stop.is_set():
            raise TransferInterrupt


def size(folder: Path, name: str) -> int:
    """Bytes of a file in a folder, 0 without one."""
    return folders.size_of(folder / name, folder) or 0


def joined(url: str, location: str) -> str:
    """Where an answer from url sends to. Raises SourceFailure for what is no address."""
    try:
        return urljoin(url, location)
    except ValueError as error:
        raise SourceFailure(f"{address(url)} sends to {location[:200]!r}, which is no address") from error


def origin(url: str) -> tuple[str | None, str | None, int | None]:
    """Scheme, host and port, what a token belongs to, as the library that connects reads them.

    Raises SourceFailure for what is no address.
    """
    try:
        parts = urllib3.util.parse_url(url)
    except urllib3.exceptions.LocationParseError as error:
        raise SourceFailure(f"{url[:200]!r}, where it sends to, is no address") from error
    return parts.scheme, parts.host, parts.port


def address(url: str) -> str:
    """An address for messages: without a query, which may be signed, and without a user."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"


def check_range(header: str | None, start: int, file: RemoteFile) -> None:
    """Refuse a continuation from another byte, or of a file that has another size by now."""
    expected = f"bytes {start}-{file.size - 1}/{file.size}"
    if header != expected:
        raise ChecksumMismatch(f"asked for {expected!r}, got {header!r}")
