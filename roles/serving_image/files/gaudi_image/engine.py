"""Ask the node's Docker engine, and follow what it does for a long time."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from gaudi.base.refusal import Refusal
from gaudi.engine.packages import needs_builder
from gaudi.node import inspection
from gaudi.node.long_work import lines_of

_BLOCK = 1 << 20
_KEPT = 400  # lines of a command: its cause is among the last
# A password in an address, and what git sends.
_SECRET = re.compile(r"(?<=://)[^/@\s]+(?=@)|(?<=Authorization: )\S+ \S+")


def without_secrets(text: str) -> str:
    """A text without the passwords in its addresses."""
    return _SECRET.sub("***", text)


def last(lines: Sequence[str]) -> str:
    """The last words of a program."""
    return next((line for line in reversed(lines) if line.strip()), "nothing was said")


def _silent(said: str) -> Refusal:
    return Refusal("engine_silent", f"The Docker engine does not answer ({said.strip()}). Run systemctl status docker.")


class ImageInterrupt(Exception):
    """Somebody asked this program to end."""


class EngineClient:
    """The engine of this node; ``stop`` ends what it does at the moment."""

    def __init__(self) -> None:
        self.client = ["docker"]
        self.work: subprocess.Popen[bytes] | None = None
        self.stopped = False

    def log_in(self, config: str) -> None:
        """Use the accounts in this directory from now on; empty for none."""
        self.client = ["docker", *(["--config", config] if config else [])]

    def stop(self) -> None:
        """End; the engine keeps what it has done."""
        self.stopped = True
        if self.work is not None:
            self.work.terminate()

    def ask(self, *arguments: str, given: str = "") -> tuple[int, str, str]:
        """Run one short command: its status and what it printed. given: what it reads."""
        done = subprocess.run(
            [*self.client, *arguments], check=False, input=given, capture_output=True, text=True, errors="replace"
        )
        return done.returncode, done.stdout, done.stderr

    def run_once(self, *arguments: str, given: str = "", seconds: int = inspection.SECONDS) -> tuple[int, str, str]:
        """Run a container of an image that was never inspected, remove it, and return its status and what it printed.

        It may hang, or print without end: the last line of stderr says so then. arguments: those of docker run after
        the container's name. given: what it reads.
        """
        name = f"gaudi-image-build-{os.getpid()}"
        limit = ["timeout", f"--kill-after={inspection.KILL_AFTER}", str(seconds)]
        # Otherwise the engine would store the output on disk.
        wanted = ["--name", name, "--log-driver", "none", "--pull", "never"]
        command = [*limit, *self.client, "run", "--rm", *wanted, *arguments]
        # A container that hangs outlives its client.
        end = ("rm", "--force", "--volumes", name)
        self.ask(*end)
        begun = time.monotonic()
        try:
            status, out, err = inspection.run_limited(command, given)
        except inspection.OutputLimitExceeded as printed:
            return 1, printed.out, f"{printed.err}\nit printed more than {inspection.PRINTED >> 20} MiB"
        finally:
            self.ask(*end)
        if status and time.monotonic() - begun >= seconds:
            err += f"\nit did not end within {seconds} seconds"
        return status, out, err

    def inspect(self, image: str) -> dict[str, Any]:
        """What the engine knows of an image; nothing when it has no such image.

        Raises Refusal when it does not answer.
        """
        code, out, err = self.ask("image", "inspect", image)
        if code and "no such image" not in err.lower():
            raise _silent(err)
        known: list[dict[str, Any]] = json.loads(out)
        return known[0] if known else {}

    def untag(self, image: str) -> None:
        """Remove a name of an image, if it has that name; an image without a name left is removed. Says what stays."""
        code, _, err = self.ask("image", "rm", image)
        if code and "no such image" not in err.lower():
            print(f"{image} stays: {err.strip()}", flush=True)

    def directory(self) -> Path:
        """Where the engine keeps images."""
        code, out, err = self.ask("info", "--format", "{{.DockerRootDir}}")
        if code:
            raise _silent(err)
        return Path(out.strip())

    def check_buildkit(self) -> None:
        """Raise Refusal where nothing can build with secrets."""
        _, out, _ = self.ask("version", "--format", "{{.Client.Version}}")
        if needs_builder(out) and self.ask("buildx", "version")[0]:
            raise Refusal(
                "no_buildkit",
                f"The Docker client {out.strip()} has no BuildKit. Install its plugin: docker-buildx on Debian and "
                "Ubuntu, docker-buildx-plugin with Docker CE.",
            )

    def follow(
        self,
        hear: Callable[[str], None],
        environment: Mapping[str, str],
        *arguments: str,
        given: BinaryIO | None = None,
    ) -> int:
        """Run a long command, passing on each line without passwords. Returns its status; raises ImageInterrupt.

        given: an open file that it reads.
        """
        if self.stopped:
            raise ImageInterrupt
        work = subprocess.Popen(
            [*self.client, *arguments],
            env={**os.environ, **environment},
            stdin=given or subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self._began(work)
        for line in lines_of(work.stdout):
            hear(without_secrets(line))
        status = work.wait()
        if self.stopped:
            raise ImageInterrupt
        return status

    def run(
        self, *arguments: str, environment: Mapping[str, str] | None = None, given: BinaryIO | None = None
    ) -> tuple[int, list[str]]:
        """Run a long command, printing what it says. Returns its status and its last lines; raises ImageInterrupt.

        given: an open file that it reads.
        """
        lines: deque[str] = deque(maxlen=_KEPT)

        def hear(line: str) -> None:
            print(line, flush=True)
            lines.append(line)

        return self.follow(hear, environment or {}, *arguments, given=given), list(lines)

    def _began(self, work: subprocess.Popen[bytes]) -> None:
        """Remember what is to be ended; somebody may have asked for the end while it was started."""
        self.work = work
        if self.stopped:
            work.terminate()

    def stream(self, take: Callable[[bytes], None], *arguments: str) -> tuple[int, str]:
        """Run a long command and pass on its bytes. Returns its status and its words; raises ImageInterrupt."""
        if self.stopped:
            raise ImageInterrupt
        with tempfile.TemporaryFile() as words:
            work = subprocess.Popen(
                [*self.client, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=words
            )
            self._began(work)
            try:
                for block in iter(lambda: work.stdout.read(_BLOCK) if work.stdout else b"", b""):
                    take(block)
            except BaseException:
                work.terminate()
                raise
            finally:
                status = work.wait()
            words.seek(0)
            said = words.read().decode("utf-8", "replace").strip()
        if self.stopped:
            raise ImageInterrupt
        return status, without_secrets(said)
