"""Refuse every request without a key: an ASGI middleware for vLLM's --middleware option.

vLLM checks its own --api-key under /v1 only, and an argument shows in the process list. This class guards every
route, /health and /metrics included. What opens it is mounted into the container as SHA-256 digests: the keys of
clients (module_utils/gaudi/serving/keys.py says in which form), and the token that the supervisor asks with, another
one for each start. A changed file counts from the next request on. A file that cannot be read lets no client in.
Runs inside the serving image, on whatever Python is there.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import stat
import time
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
# A digest, and until when it opens; in UTC, as 2027-01-31T23:59:59Z, so that later is larger.
Opening = tuple[bytes, "str | None"]

KEYS = Path("/run/gaudi-serving/keys/keys.json")
DOOR = Path("/run/gaudi-serving/door")
MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
# The supervisor asks here how many requests still run.
ALWAYS_OPEN = "/metrics"
CLOSING = b'{"error": {"message": "This server is stopping. Ask again later.", "type": "unavailable", "code": 503}}'
REFUSAL = b'{"error": {"message": "Missing or wrong API key.", "type": "authentication_error", "code": 401}}'


def read_keys(text: str) -> list[Opening]:
    """The digests of clients' keys. Raises ValueError, KeyError or TypeError for what is no such document."""
    content = json.loads(text)
    if content["schema"] != 1:
        raise ValueError(content["schema"])
    return [(_digest(key["digest"]), None if key["ends"] is None else _moment(key["ends"])) for key in content["keys"]]


def read_probe(text: str) -> list[Opening]:
    """The digest of the supervisor's token. Raises ValueError for anything else."""
    return [(_digest(text.strip()), None)]


def _moment(text: str) -> str:
    if not MOMENT.fullmatch(text):
        raise ValueError(text)
    return text


def _digest(text: str) -> bytes:
    digest = bytes.fromhex(text)
    if len(digest) != hashlib.sha256().digest_size:
        raise ValueError(text)
    return digest


class Openings:
    """What a file opens for, read again whenever it changes; nothing where it is missing or damaged."""

    def __init__(self, path: Path, read: Callable[[str], list[Opening]]) -> None:
        self._path = path
        self._read = read
        self._seen: tuple[int, ...] | None = None
        self._found: list[Opening] = []

    def now(self) -> list[Opening]:
        """Read the file if it is another one than at the last request."""
        try:
            facts = self._path.stat()
            if not stat.S_ISREG(facts.st_mode):
                # Reading a pipe would block the whole server until a process writes to it.
                raise ValueError(facts.st_mode)
            seen = (facts.st_ino, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_size)
            if seen != self._seen:
                self._found = []
                self._found = self._read(self._path.read_text(encoding="utf-8"))
                self._seen = seen
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            self._seen, self._found = None, []
        return self._found


class ApiKeyGuard:
    """Wrap an application; only requests that carry one of the keys get through, and none while the server stops."""

    def __init__(self, app: Application, keys: Path = KEYS, door: Path = DOOR) -> None:
        self._app = app
        self._keys = Openings(keys, read_keys)
        self._probe = Openings(door / "probe", read_probe)
        self._closed = door / "closed"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif not self._allows(scope):
            await self._refuse(scope, receive, send, 401, 1008, (b"www-authenticate", b"Bearer"), REFUSAL)
        elif scope.get("path") != ALWAYS_OPEN and self._closed.exists():
            await self._refuse(scope, receive, send, 503, 1013, (b"retry-after", b"60"), CLOSING)
        else:
            await self._app(scope, receive, send)

    async def _refuse(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        status: int,
        code: int,
        header: tuple[bytes, bytes],
        body: bytes,
    ) -> None:
        if scope["type"] == "websocket":
            # Closing before accepting makes the server answer the handshake with 403.
            await receive()
            await send({"type": "websocket.close", "code": code})
            return
        headers = [(b"content-type", b"application/json"), header]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _allows(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name.lower() == b"authorization"]
        if len(given) != 1 or not given[0].lower().startswith(b"bearer "):
            return False
        digest = hashlib.sha256(given[0][len(b"bearer ") :].strip()).digest()
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        # Every digest is compared, and each in constant time: how long it takes tells nothing.
        opened = [
            hmac.compare_digest(digest, known) & (ends is None or now <= ends)
            for known, ends in [*self._keys.now(), *self._probe.now()]
        ]
        return any(opened)
