"""Let nobody past without a key: an ASGI middleware for vLLM's --middleware option.

vLLM checks its own --api-key under /v1 only, and an argument shows in the process list. This class guards every
route, /health and /metrics included, with keys from a file that is mounted into the container; a changed
file counts from the next request on. Runs inside the serving image, on whatever Python is there.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

KEYS = Path("/run/gaudi-serving/keys/api_keys")
CLOSED = Path("/run/gaudi-serving/door/closed")
# The supervisor asks here how many requests still run.
ALWAYS_OPEN = "/metrics"
CLOSING = b'{"error": {"message": "This server is stopping. Ask again later.", "type": "unavailable", "code": 503}}'
REFUSAL = b'{"error": {"message": "Missing or wrong API key.", "type": "authentication_error", "code": 401}}'


class ApiKeyGuard:
    """Wrap an application; only requests that carry one of the keys get through, and none while the server stops."""

    def __init__(self, app: Application, keys: Path = KEYS, closed: Path = CLOSED) -> None:
        self._app = app
        self._path = keys
        self._closed = closed
        self._seen: tuple[int, int, int] | None = None
        self._keys: list[bytes] = []

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
        key = given[0][len(b"bearer ") :].strip()
        # Every key is compared, and each in constant time: how long it takes tells nothing.
        return sum(hmac.compare_digest(key, known) for known in self._known()) > 0

    def _known(self) -> list[bytes]:
        """Return the keys as they are now.

        A file that goes leaves the last keys: the instance is to be open from its next start on, and until then those
        who have a key finish.
        """
        try:
            facts = self._path.stat()
            seen = (facts.st_ino, facts.st_mtime_ns, facts.st_size)
            if seen != self._seen:
                self._keys = self._path.read_bytes().split()
                self._seen = seen
        except FileNotFoundError:
            self._seen = None
        return self._keys
