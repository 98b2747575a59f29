"""What an instance is asked, and what of its reply is the answer, by the task its model is for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

FINISHED = ("stop", "length")
"""How an answer may end; anything else was broken off."""
UNKNOWN = "/no-such-path"
"""Where no server answers; the guard refuses what it does not know as well."""


def asked_without_a_key(paths: Sequence[str]) -> list[str]:
    """Where a guarded server is asked without a key: everywhere that it answers, at its root, and nowhere."""
    return list(dict.fromkeys([*paths, "/", UNKNOWN]))


def question_of(task: str, model: str, text: str, tokens: int) -> tuple[str, dict[str, Any]]:
    """The path and the body of a question. `tokens` bounds the answer."""
    bounds = {"max_tokens": tokens, "temperature": 0}
    asks: dict[str, tuple[str, dict[str, Any]]] = {
        "generate": ("/v1/chat/completions", {"messages": [{"role": "user", "content": text}], **bounds}),
        "complete": ("/v1/completions", {"prompt": text, **bounds}),
        "embed": ("/v1/embeddings", {"input": text}),
        "score": ("/v1/rerank", {"query": text, "documents": [text]}),
    }
    path, body = asks[task]
    return path, {"model": model, **body}


def answer_of(task: str, reply: Mapping[str, Any]) -> str:
    """The answer in a reply; empty where there is none, or where it was broken off.

    Raises KeyError, IndexError, TypeError: the reply has another form.
    """
    if task == "embed":
        return f"an embedding of {len(reply['data'][0]['embedding'])} numbers"
    if task == "score":
        return f"a relevance of {reply['results'][0]['relevance_score']}"
    choice = reply["choices"][0]
    if choice["finish_reason"] not in FINISHED:
        return ""
    if task == "complete":
        return str(choice["text"]).strip()
    message = choice["message"]
    # A reasoning parser moves what was thought, and with few tokens all of it, out of the content.
    return str(message["content"] or message.get("reasoning_content") or "").strip()
