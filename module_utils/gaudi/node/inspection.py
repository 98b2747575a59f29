"""The limits of a container that only inspects an image: rights, memory, processes, time and output.

The programs of roles import this module without Ansible.
"""

from __future__ import annotations

import os
import selectors
import subprocess
import tempfile
from collections.abc import Callable, Sequence

from ..base.printable import UNTRANSLATED

# Bytes of each stream. The longest expected output, an inspection of a serving image, takes a tenth of it.
PRINTED = 4 << 20
# Its /tmp included. A guess, far above an import of PyTorch and vLLM.
MEMORY = "16g"
# Importing PyTorch and vLLM took 20 s on two busy cores; an inspection that exceeds the limit hangs.
SECONDS = 600
# Seconds between asking a container's client to end and killing it.
KILL_AFTER = 10
# The image's own Python may run any code.
ISOLATION = (
    *("--network", "none", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--read-only"),
    *("--ulimit", "core=0:0"),
    *("--tmpfs", "/tmp", "--pids-limit", "256", "--memory", MEMORY),  # noqa: S108 - of the container
)
# Imported libraries write below /tmp, and need one thread each, as nothing is computed. No card is named explicitly,
# because the vendor's runtime passes all cards, also those of instances, by default (visible_devices_all_as_default).
ENVIRONMENT = tuple(
    word
    for variable in (
        *("HOME=/tmp", "HABANA_LOGS=/tmp", "XDG_CACHE_HOME=/tmp", "OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1"),
        "HABANA_VISIBLE_DEVICES=none",
    )
    for word in ("--env", variable)
)
_BLOCK = 65536


class OutputLimitExceeded(Exception):
    """A program printed more than the limit; holds the output of both streams so far."""

    def __init__(self, out: str, err: str) -> None:
        super().__init__(out, err)
        self.out, self.err = out, err


def run_limited(
    command: Sequence[str], data: str = "", began: Callable[[], None] | None = None
) -> tuple[int, str, str]:
    """Run a program in the locale C to its end; return its status, stdout and stderr.

    data: its standard input. began: called at its first output.

    Raises OutputLimitExceeded, and ends the program, if one stream exceeds PRINTED bytes.
    """
    with tempfile.TemporaryFile() as asked:
        asked.write(data.encode())
        asked.seek(0)
        # Output is collected as bytes, because chunks may split characters.
        with subprocess.Popen(
            command,
            env={**os.environ, **UNTRANSLATED},
            stdin=asked,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as work:
            kept = _read(work, began)
            out, err = (each.decode("utf-8", "replace") for each in kept)
            if max(map(len, kept)) > PRINTED:
                work.terminate()
                raise OutputLimitExceeded(out, err)
    # As a shell has it: what was killed itself ended like a container that was killed.
    return work.returncode if work.returncode >= 0 else 128 - work.returncode, out, err


def _read(work: subprocess.Popen[bytes], began: Callable[[], None] | None) -> tuple[bytearray, bytearray]:
    """Collect a program's output until it ends or exceeds the limit; call ``began`` at its first output."""
    kept = bytearray(), bytearray()
    with selectors.DefaultSelector() as streams:
        for stream, text in zip((work.stdout, work.stderr), kept):
            if stream is not None:
                streams.register(stream, selectors.EVENT_READ, text)
        while streams.get_map() and max(map(len, kept)) <= PRINTED:
            for key, _ in streams.select():
                block = os.read(key.fd, _BLOCK)
                key.data.extend(block)
                if block and began is not None:
                    began()
                    began = None
                if not block:
                    streams.unregister(key.fileobj)
    return kept
