"""A batch in OpenAI's format: what a line of input asks, and what a line of output says.

A line of input is {"custom_id", "method": "POST", "url", "body"}; a line of output {"id", "custom_id", "response",
"error"}. The form is OpenAI's: https://platform.openai.com/docs/guides/batch, which vLLM's own run-batch reads, too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..base.checks import shown
from ..base.documents import DEEPEST, deeper
from ..base.printable import printable
from ..base.refusal import Refusal

ENDPOINTS: Mapping[str, Sequence[str]] = {
    "generate": ("/v1/chat/completions", "/v1/completions"),
    "complete": ("/v1/completions",),
    "embed": ("/v1/embeddings",),
    "score": ("/v1/rerank", "/v1/score"),
}
"""What a server answers, by the task of its model."""
URLS = tuple(dict.fromkeys(url for urls in ENDPOINTS.values() for url in urls))
OK = 200
LONGEST_LINE = 1 << 29
"""Bytes of an output line. An answer has half of them (roles/offline_batch/files/batch.py), and escapes need some."""
# Failed or wrong lines that a sentence names.
NAMED = 5
_SHORT = 80
# Characters of a reason.
_REASON = 300


@dataclass(frozen=True)
class BatchRequest:
    """One line of input."""

    custom_id: str
    url: str
    body: Mapping[str, Any]

    @property
    def model(self) -> str:
        """The model that the request names."""
        return str(self.body["model"])

    @property
    def id(self) -> str:
        """The id of the output line; equal requests have equal ids."""
        said = json.dumps([self.custom_id, self.url, self.body], sort_keys=True)
        return f"batch_req_{hashlib.sha256(said.encode()).hexdigest()[:24]}"


def read_request(line: str) -> BatchRequest:
    """Parse one line of input. Raises ValueError with what is wrong in the line."""
    try:
        said = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is no JSON ({error})") from error
    if not isinstance(said, dict):
        raise ValueError("it is no JSON object")
    name, url, body = said.get("custom_id"), said.get("url"), said.get("body")
    if not isinstance(name, str) or not name:
        raise ValueError("custom_id is missing, which names a request in the output")
    if said.get("method") != "POST":
        raise ValueError(f"method is {_short(said.get('method'))}, not POST")
    if url not in URLS:
        raise ValueError(f"url is {_short(url)}; there are {', '.join(URLS)}")
    if not isinstance(body, dict) or not isinstance(body.get("model"), str) or not body["model"]:
        raise ValueError("body names no model")
    if body.get("stream"):
        raise ValueError("body asks for a stream; an answer in a file is one document")
    return BatchRequest(name, url, body)


def _short(value: object) -> str:
    return printable(json.dumps(value))[:_SHORT]


@dataclass
class Input:
    """Summary of an input file: the ids of its requests, their models and URLs, and its wrong lines."""

    requests: int = 0
    models: set[str] = field(default_factory=set)
    urls: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    ids: set[str] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, lines: Iterable[str]) -> Input:
        """Read all lines; empty lines are ignored."""
        found = cls()
        for number, line in enumerate(lines, 1):
            if line.strip():
                found.add(number, line)
        return found

    def add(self, number: int, line: str) -> None:
        """Add one line."""
        self.requests += 1
        try:
            request = read_request(line)
            if request.custom_id in self.names:
                raise ValueError(f"custom_id {_short(request.custom_id)} is in an earlier line, too")
        except ValueError as wrong:
            self.faults.append(f"line {number}: {wrong}")
            return
        self.names.add(request.custom_id)
        self.ids.add(request.id)
        self.models.add(request.model)
        self.urls.add(request.url)

    def check(self, file: str) -> str:
        """Return the one model of the batch. Raises Refusal for wrong lines, several models, and an empty input."""
        if not self.requests:
            raise Refusal("batch_empty", f"{file} holds no request. Each line is one, as docs/batch.md shows.")
        if self.faults:
            more = len(self.faults) - NAMED
            raise Refusal(
                "batch_lines",
                f"{len(self.faults)} of {self.requests} lines of {file} are no requests, and nothing was asked. "
                f"{'; '.join(self.faults[:NAMED])}{f'; and {more} more' if more > 0 else ''}.",
            )
        if len(self.models) > 1:
            named = ", ".join(sorted(map(printable, self.models))[:NAMED])
            raise Refusal(
                "batch_models",
                f"{file} asks {len(self.models)} models ({named}). A batch asks one: make a file for each.",
            )
        return next(iter(self.models))


def check_task(instance: str, task: str, urls: Iterable[str]) -> None:
    """Raise Refusal if the batch asks for an endpoint that the instance's task does not have."""
    known = ENDPOINTS.get(task, ())
    strange = sorted(set(urls) - set(known))
    if strange:
        raise Refusal(
            "batch_task",
            f"{instance} answers {' and '.join(known) or 'nothing of a batch'}, "
            f"and the batch asks {', '.join(strange)}. Ask an "
            "instance with a model for that.",
        )


def answered(request: BatchRequest, status: int, body: object) -> dict[str, Any]:
    """Return the output line for a server's response."""
    return {
        "id": request.id,
        "custom_id": request.custom_id,
        "response": {"status_code": status, "request_id": _given_id(body), "body": body},
        "error": None,
    }


def _given_id(body: object) -> str:
    return str(body.get("id", "")) if isinstance(body, dict) else ""


def unanswered(request: BatchRequest, code: str, message: str) -> dict[str, Any]:
    """Return the output line for a request that got no response."""
    return {
        "id": request.id,
        "custom_id": request.custom_id,
        "response": None,
        "error": {"code": code, "message": printable(message)},
    }


def failure(line: Mapping[str, Any]) -> str:
    """Return why an output line counts as failed; "" for a successful answer."""
    if line["error"] is not None:
        return _reason(line["error"]["message"])
    status, body = line["response"]["status_code"], line["response"]["body"]
    if status == OK and isinstance(body, dict):
        return ""
    told = body.get("error", body) if isinstance(body, dict) else body
    message = told.get("message", told) if isinstance(told, dict) else told
    return f"status {status}: {_reason(message)}"


def _reason(message: object) -> str:
    """Return the beginning of a message, which may be as long as an answer, and of any type."""
    return printable(message[:_REASON] if isinstance(message, str) else shown(message, _REASON))


def is_storable(body: object) -> bool:
    """Whether an answer can be written and read again: Python reads documents that it cannot write."""
    return not deeper(body, DEEPEST)


def read_line(text: str) -> dict[str, Any] | None:
    """Parse an output line; None if it is not one, such as a last line that a power cut left incomplete."""
    try:
        line = json.loads(text)
        failure(line)
        return line if isinstance(line["id"], str) and isinstance(line["custom_id"], str) else None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def kept(asked: Input, lines: Iterable[str]) -> int:
    """Count the input's requests that an earlier output answers; an answer to a changed request does not count."""
    read = (read_line(text) for text in lines)
    return len(asked.ids & {str(line["id"]) for line in read if line is not None and not failure(line)})


def told(requests: int, failures: Mapping[str, str]) -> str:
    """Summarise a batch in one or two sentences; failures: the reasons by custom_id, in order."""
    if not failures:
        return f"All {requests} requests are answered." if requests > 1 else "The request is answered."
    named = "; ".join(f"{_short(name)}: {why}" for name, why in list(failures.items())[:NAMED])
    more = len(failures) - NAMED
    return f"{len(failures)} of {requests} requests failed. {named}{f'; and {more} more' if more > 0 else ''}."
