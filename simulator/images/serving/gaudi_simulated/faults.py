"""Described faults in the real server: answers that are not what the model said."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

NONSENSE = "(simulated fault: a wrong answer)"
# As a server on Gaudi 2 was reported to answer long prompts (HabanaAI/vllm-fork, issue 738).
GARBAGE = "!" * 200
# Bytes of a request from which on its answer is garbage.
GARBAGE_FROM = "GAUDI_SIMULATED_GARBAGE_FROM"


def distort(body: bytes, said: str = NONSENSE) -> bytes:
    """Replace what a completion says; anything else stays as it is."""
    try:
        document = json.loads(body)
    except ValueError:
        return body
    if not isinstance(document, dict) or not isinstance(document.get("choices"), list):
        return body
    for choice in document["choices"]:
        if "text" in choice:
            choice["text"] = said
        if isinstance(choice.get("message"), dict):
            choice["message"]["content"] = said
    return json.dumps(document).encode()


class WrongAnswer:
    """ASGI middleware for ``--middleware``: completions answer with nonsense."""

    said = NONSENSE

    def __init__(self, app: App) -> None:
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
            body = distort(b"".join(parts), self.said)
            kept = [(key, value) for key, value in start["headers"] if key.lower() != b"content-length"]
            await send({**start, "headers": [*kept, (b"content-length", str(len(body)).encode())]})
            await send({"type": "http.response.body", "body": body})

        await self.app(scope, receive, collect)


class LongPromptGarbage(WrongAnswer):
    """The same for requests of so many bytes; they answer with exclamation marks."""

    said = GARBAGE

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Read the request until its end, or until it is long, then pass it on as it came."""
        kept: list[Message] = []
        size = 0
        most = int(os.environ[GARBAGE_FROM])
        while scope["type"] == "http" and size < most:
            kept.append(await receive())
            size += len(kept[-1].get("body", b""))
            if not kept[-1].get("more_body"):
                break

        async def replay() -> Message:
            return kept.pop(0) if kept else await receive()

        if size >= most:
            await super().__call__(scope, replay, send)
        else:
            await self.app(scope, replay, send)
