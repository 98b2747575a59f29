"""A described fault in the real server: answers that are not what the model said."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

NONSENSE = "(simulated fault: a wrong answer)"


def distort(body: bytes) -> bytes:
    """Replace what a completion says; anything else stays as it is."""
    try:
        document = json.loads(body)
    except ValueError:
        return body
    if not isinstance(document, dict) or not isinstance(document.get("choices"), list):
        return body
    for choice in document["choices"]:
        if "text" in choice:
            choice["text"] = NONSENSE
        if isinstance(choice.get("message"), dict):
            choice["message"]["content"] = NONSENSE
    return json.dumps(document).encode()


class WrongAnswer:
    """ASGI middleware for ``--middleware``: completions answer with nonsense."""

    def __init__(self, app: Callable[[Message, Receive, Send], Awaitable[None]]) -> None:
        self.app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Hold a response back until it is whole, then send it distorted."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start: Message = {}
        parts: list[bytes] = []

        async def collect(message: Message) -> None:
            if message["type"] == "http.response.start":
                start.update(message)
                return
            parts.append(message.get("body", b""))
            if message.get("more_body"):
                return
            body = distort(b"".join(parts))
            kept = [(key, value) for key, value in start["headers"] if key.lower() != b"content-length"]
            await send({**start, "headers": [*kept, (b"content-length", str(len(body)).encode())]})
            await send({"type": "http.response.body", "body": body})

        await self.app(scope, receive, collect)
