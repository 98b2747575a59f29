"""The line about a prompt that no warmed-up shape holds, in the real server that answers.

Forms are those of _check_config in each release's model runner. The real one prints it from every worker, for decoding
as well; here one process prints it for prompts, whose length it reads in the reply's usage. Streams without usage and
batches of several prompts go unseen.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from . import surface, warmup
from .faults import App, Message, Receive, Send

# The longest prepared prompt, in tokens, and the form of the line.
PREPARED = "GAUDI_SIMULATED_PREPARED"
_TOKENS = re.compile(rb'"prompt_tokens": ?(\d{1,9})\b')
# Bytes of a reply's end that are kept for the next part of it.
_KEPT = 64


def form_of(names: surface.Surface) -> str:
    """How a release prints the shape of a prompt; empty where it prints none."""
    if not names.has_buckets:
        return ""
    if names.has_plugin:
        return "('prompt', 1, {size}, 0)"
    if names.release == "1.18":
        return "(prompt, 1, {size})"
    return "(prefill, 1, {size}, 0)" if names.release.startswith("deepseek") else "('prompt', 1, {size})"


def environment(names: surface.Surface, prompts: Iterable[Sequence[int]]) -> dict[str, str]:
    """The variables for a server that has prepared these prompts: batch size, tokens, and blocks of context."""
    form = form_of(names)
    longest = max((query + sum(blocks) * warmup.BLOCK for _, query, *blocks in prompts), default=0)
    return {PREPARED: json.dumps({"longest": longest, "form": form})} if form else {}


class Unprepared:
    """ASGI middleware for ``--middleware``: prints each padded length beyond the prepared ones once."""

    def __init__(self, app: App, given: Mapping[str, str] = os.environ) -> None:
        self.app = app
        prepared = json.loads(given[PREPARED])
        self.longest, self.form = int(prepared["longest"]), str(prepared["form"])
        self.seen: set[int] = set()

    def look(self, tokens: int) -> None:
        """Print the line for a prompt of so many tokens, if nothing holds it."""
        size = -(-tokens // warmup.BLOCK) * warmup.BLOCK
        if size > self.longest and size not in self.seen:
            self.seen.add(size)
            when = datetime.now().strftime("%m-%d %H:%M:%S")
            said = f"Configuration: {self.form.format(size=size)} was not warmed-up!"
            print(f"WARNING {when} [simulated hpu_model_runner.py] {said}", flush=True)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Pass everything on, and read the usage in a reply."""
        end = b""

        async def read(message: Message) -> None:
            nonlocal end
            text = end + message.get("body", b"")
            for found in _TOKENS.finditer(text):
                self.look(int(found[1]))
            end = text[-_KEPT:]
            await send(message)

        await self.app(scope, receive, read if scope["type"] == "http" else send)
