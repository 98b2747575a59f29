"""Bytes over Xet, the storage behind Hugging Face: hf_xet, its own library, where that is installed.

Xet keeps files as pieces that many files share, and its client asks for pieces from several places at once. What it
hands over comes in order and from any byte on, so that resuming and checking work as over plain HTTP. It is an
addition: wherever it is missing or fails, plain HTTP does all of it.

The library runs in a process of its own, which is given a part of a file to fetch and ends with it. Whatever a storage
answers, that can be ended (the library can wait for ever), its memory is limited, and it never sees the hub's token:
access to the storage is asked for here.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import resource
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import urllib3

from .model import SourceFailure, first_line
from .network import start_of
from .transfer import BLOCK, CONNECT_SECONDS, SILENCE_SECONDS, SourceClient, origin

# Files at once. Each holds a piece of up to 64 MB, and the library asks for the next one meanwhile.
STREAMS = 2
PART = 2_000_000_000  # bytes one process fetches; access is asked for again for each, as it lasts for some minutes only
MEMORY = 1_500_000_000  # bytes one process may take; 0.2 GB were seen with pieces of 64 MB
HEARTBEAT = 0.5  # seconds between two looks whether anybody still wants the file
ANSWER = 65536  # bytes; access takes a thousandth
OWN = "hf_xet: "
# Its own limits are for a machine that does nothing else: four files over a slow line took 3.3 GB (hf_xet 1.8.0).
SETTINGS = {
    "reconstruction.download_buffer_size": 64_000_000,  # bytes
    "reconstruction.download_buffer_perfile_size": 16_000_000,
    "reconstruction.download_buffer_limit": 128_000_000,
    "reconstruction.min_prefetch_buffer": 0,
    "client.retry_max_attempts": 1,
    "client.retry_base_delay": "1s",
    "telemetry.enabled": False,
}


def installed() -> bool:
    """Whether the library is there."""
    return importlib.util.find_spec("hf_xet") is not None


@dataclass(frozen=True)
class Access:
    """What the hub gives to read from its storage: the storage's address, a token for it, and its end (Unix time)."""

    endpoint: str
    token: str
    ends: int


class Storage:
    """Xet storage of one repository. pool: connections to the hub; scratch: a folder for what the library writes."""

    def __init__(self, pool: SourceClient, scratch: Path) -> None:
        self.pool = pool
        self.scratch = scratch
        self.streams = threading.BoundedSemaphore(STREAMS)
        self.failure = ""  # the first, for people

    def blocks(
        self, renew: str, headers: dict[str, str], xet_hash: str, size: int, start: int
    ) -> Generator[bytes, None, None]:
        """A file of size bytes from byte start on; an empty block is a sign of life.

        renew: the hub's address that gives access to the repository's files; headers are for that alone. Raises
        SourceFailure, passing: plain HTTP may serve.
        """
        while not self.streams.acquire(timeout=HEARTBEAT):
            yield b""
        try:
            if self.failure:  # while this waited: it need not wait as long again
                raise SourceFailure(self.failure, passing=True)
            for begin in range(start, size, PART):
                access = self._access(renew, headers)
                yield from self._part(access, xet_hash, size, begin, min(begin + PART, size))
        except SourceFailure as failure:
            self.failure = self.failure or str(failure)
            raise
        finally:
            self.streams.release()

    def _access(self, renew: str, headers: dict[str, str]) -> Access:
        """Ask the hub."""
        timeout = urllib3.Timeout(connect=CONNECT_SECONDS, read=CONNECT_SECONDS)
        try:
            response = self.pool.request("GET", renew, headers=headers, preload_content=False, timeout=timeout)
            try:
                said = start_of(response, ANSWER, 2 * CONNECT_SECONDS)
            finally:
                response.close()
            content = json.loads(said)
            access = Access(str(content["casUrl"]), str(content["accessToken"]), int(content["exp"]))
        except (urllib3.exceptions.HTTPError, ValueError, KeyError, TypeError) as error:
            raise SourceFailure(f"the hub gives no access to it ({type(error).__name__})", passing=True) from error
        with contextlib.suppress(SourceFailure):  # it is no address at all
            scheme, host, _ = origin(access.endpoint)
            if scheme in ("http", "https") and host:
                return access
        raise SourceFailure("the hub names a storage that is no web address", passing=True)

    def _part(self, access: Access, xet_hash: str, size: int, begin: int, end: int) -> Generator[bytes, None, None]:
        """The bytes from begin to before end, from a process of the library's own."""
        task = {**vars(access), "hash": xet_hash, "size": size, "begin": begin, "end": end, "settings": SETTINGS}
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(self.scratch)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
        with process, selectors.DefaultSelector() as selector:
            stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
            if stdin is None or stdout is None or stderr is None:
                raise RuntimeError("a process was started without pipes")
            try:
                with contextlib.suppress(BrokenPipeError):  # it ended, which is seen below
                    stdin.write(json.dumps(task).encode() + b"\n")
                selector.register(stdout, selectors.EVENT_READ)
                came, heard = begin, time.monotonic()
                while True:
                    if not selector.select(HEARTBEAT):
                        if time.monotonic() - heard > SILENCE_SECONDS:
                            raise SourceFailure(f"nothing came for {SILENCE_SECONDS:.0f} s", passing=True)
                        yield b""
                        continue
                    block = os.read(stdout.fileno(), BLOCK)
                    if not block:
                        break
                    came, heard = came + len(block), time.monotonic()
                    yield block
                if came < end:
                    os.set_blocking(stderr.fileno(), False)
                    raise SourceFailure(sentence(stderr.read() or b""), passing=True)
            finally:
                process.kill()


def sentence(said: bytes) -> str:
    """Why a process ended, of what it wrote: its own sentence, else what the library began with."""
    lines = [line for line in said.decode(errors="replace").splitlines() if line]
    own = [line for line in lines if line.startswith(OWN)]
    return (own or lines or [f"{OWN}it ended too early"])[0]


def main(scratch: str) -> int:
    """Be the process: a task as one JSON line on standard input, the bytes on standard output."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    # Read when the library is loaded; without them it writes into root's home.
    os.environ.update(HF_XET_CACHE=scratch, HF_XET_LOG_DEST=os.devnull)
    # It takes a proxy from the environment, and NO_PROXY=* does not keep it from that.
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        del os.environ[name]
    task: dict[str, Any] = json.loads(sys.stdin.readline())

    def orphaned() -> None:
        # Nothing is ever written there: it closes when the parent process ends, and then this process ends, too,
        # whatever the library is doing.
        sys.stdin.read()
        os._exit(1)

    threading.Thread(target=orphaned, daemon=True).start()
    library: Any = importlib.import_module("hf_xet")  # which states no types
    try:
        session = library.XetSession(library.XetConfig().with_config(task["settings"]))
        group = session.new_download_stream_group(
            endpoint=task["endpoint"], token=task["token"], token_expiry_unix_secs=task["ends"]
        )
        file = library.XetFileInfo(task["hash"], task["size"])
        for piece in group.download_stream(file, start=task["begin"], end=task["end"]):
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
    # Whatever the library meets is one of these two.
    except (OSError, RuntimeError) as error:
        print(OWN + first_line(error), file=sys.stderr, flush=True)
        os._exit(1)
    # Not through the library's own end, which may wait for what it has begun.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
