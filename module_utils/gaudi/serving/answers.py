"""Questions for a serving instance, by its model's task, and how to find the answer in a reply.

Pure: an exchange is a request and how its reply is read. library/vllm_service_verify.py sends it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..base.refusal import Refusal
from . import media

FINISHED = ("stop", "length")
"""How an answer may end; anything else was broken off."""
UNKNOWN = "/no-such-path"
"""Where no server answers; the guard refuses what it does not know as well."""
MODELS = "/v1/models"
"""Where a server lists what it serves, as OpenAI's does."""
OTHER = "A bicycle has two wheels."
"""The second text that embedding and rerank models are given: about something else than any question."""
CHECK_TOKENS = 256
"""The fewest that the answer to a check may have: a model that thinks aloud gets to the point after a hundred."""
# Characters of a reply that are shown; an embedding has thousands of numbers.
_SHOWN = 600
# A whole number may be too large for a float, and then cannot be shown as one.
_LARGEST = 1e300
_CAUSE = (
    "It computes wrong numbers. The usual cause is the IOMMU: from release 1.24 on, and before that on Ubuntu's kernel "
    "6.8, output is garbled, with no error, unless the kernel was started with intel_iommu=on iommu=pt; "
    "playbooks/doctor.yml checks what the kernel shows of the cards. Otherwise it is the weights, or the calibration "
    "of an FP8 model."
)


@dataclass(frozen=True)
class Exchange:
    """One question: the path and body of its request, and how its reply is checked.

    task: the model's task, which decides how the reply is read. asked: the question, for people. dimensions: length of
    an embedding; None if unknown. contains: words of which the answer must contain one; empty accepts any answer.
    """

    task: str
    path: str
    body: Mapping[str, Any]
    asked: str
    dimensions: int | None = None
    contains: Sequence[str] = ()


def asked_without_a_key(paths: Sequence[str]) -> list[str]:
    """Return paths to ask a guarded server without a key: all that it answers, its root, and an unknown one."""
    return list(dict.fromkeys([*paths, "/", UNKNOWN]))


def questions(plan: Mapping[str, Any], text: str, tokens: int) -> list[Exchange]:
    """Return all questions for a plan's instance: the text, its model's check question, one for each kind of file."""
    asked, check = plan.get("ask", {}), plan.get("ask", {}).get("check")
    about_files = _about_files(plan, asked.get("media", {}), tokens)
    if not check:
        return [question_of(plan, text, tokens), *about_files]
    checked = question_of(plan, check["question"], max(tokens, CHECK_TOKENS))
    checked = replace(checked, contains=check["contains"])
    return [*([] if text == check["question"] else [question_of(plan, text, tokens)]), checked, *about_files]


def _about_files(plan: Mapping[str, Any], limits: Mapping[str, int], tokens: int) -> list[Exchange]:
    """Return a question for each kind of file and for two pictures, in the form of the manual's client (1.22, 3.4.2).

    limits: how many files of each kind a prompt may have.
    """
    # Most models accept no files, and making them takes time.
    if not limits:
        return []
    red, blue = (_file("image_url", "image/png", media.picture(colour)) for colour in (media.RED, media.BLUE))
    tone = base64.b64encode(media.sound()).decode()
    files: list[tuple[str, int, str, list[dict[str, Any]]]] = [
        ("image", 1, "What colour is this picture?", [red]),
        ("image", 2, "What colours are these two pictures?", [red, blue]),
        ("video", 1, "What colours are in this video?", [_file("video_url", "video/x-msvideo", media.film())]),
        (
            "audio",
            1,
            "What is in this audio?",
            [{"type": "input_audio", "input_audio": {"data": tone, "format": "wav"}}],
        ),
    ]
    found = []
    for kind, needed, text, parts in files:
        if limits.get(kind, 0) >= needed:
            exchange = question_of(plan, text, tokens)
            content = [{"type": "text", "text": text}, *parts]
            body = {**exchange.body, "messages": [{"role": "user", "content": content}]}
            found.append(replace(exchange, body=body))
    return found


def _file(kind: str, form: str, content: bytes) -> dict[str, Any]:
    return {"type": kind, kind: {"url": f"data:{form};base64,{base64.b64encode(content).decode()}"}}


def question_of(plan: Mapping[str, Any], text: str, tokens: int) -> Exchange:
    """Return the question for a plan's instance; ``tokens`` limits the answer.

    The plan's ``ask`` has facts about the expected answer.
    """
    task, bounds = plan["task"], {"max_tokens": tokens, "temperature": 0}
    asks: dict[str, tuple[str, dict[str, Any]]] = {
        "generate": ("/v1/chat/completions", {"messages": [{"role": "user", "content": text}], **bounds}),
        "complete": ("/v1/completions", {"prompt": text, **bounds}),
        "embed": ("/v1/embeddings", {"input": [text, OTHER]}),
        "score": ("/v1/rerank", {"query": text, "documents": [text, OTHER]}),
    }
    path, body = asks[task]
    dimensions = plan.get("ask", {}).get("dimensions")
    return Exchange(task, path, {"model": plan["served_model_name"], **body}, text, dimensions)


def answer_of(exchange: Exchange, reply: Mapping[str, Any], instance: str) -> str:
    """Return the answer in a reply, in words.

    Raises Refusal if there is none, if it has the wrong form, or if it is known to be wrong.
    """
    try:
        answer = _READ[exchange.task](exchange, reply)
        _check(exchange, reply, answer, instance)
        return answer
    except (KeyError, IndexError, TypeError, AttributeError):
        why = "it has another form"
    except _ReplyDefect as misshapen:
        why = str(misshapen)
    raise Refusal(
        "answer_misshapen",
        f"{instance} answered {_shown(reply)} to: {exchange.asked} That is no answer of {exchange.path}: {why}.",
    )


def served_models(reply: Mapping[str, Any], instance: str) -> list[str]:
    """Return the model names in a reply of MODELS. Raises Refusal if it is not a list of models."""
    listed = reply.get("data")
    names = [each.get("id") if isinstance(each, dict) else None for each in listed] if isinstance(listed, list) else []
    if not names or not all(isinstance(name, str) for name in names):
        raise Refusal(
            "answer_misshapen",
            f"{instance} answered {_shown(reply)} to {MODELS}. That is no list of models: something else than vLLM "
            "may serve there.",
        )
    return [str(name) for name in names]


def _shown(reply: Mapping[str, Any]) -> str:
    """A reply, or the beginning of a long one."""
    shown = json.dumps(reply)
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."


def _check(exchange: Exchange, reply: Mapping[str, Any], answer: str, instance: str) -> None:
    """Raise Refusal if an answer in text has none of the expected words; reasoning before it counts too."""
    if not exchange.contains:
        return
    message = reply["choices"][0].get("message") or {}
    whole = " ".join([answer, *(str(message.get(part) or "") for part in ("reasoning_content", "reasoning"))])
    if not any(word.casefold() in whole.casefold() for word in exchange.contains):
        raise Refusal(
            "answer_wrong",
            f"{instance} was asked: {exchange.asked} It answered: {answer[:_SHOWN]} A right answer has "
            f"{' or '.join(exchange.contains)} in it. {_CAUSE}",
        )


class _ReplyDefect(ValueError):
    """A defect of a reply, as a clause."""


def _hold(holds: bool, why: str) -> None:
    if not holds:
        raise _ReplyDefect(why)


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _finite(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= _LARGEST


def _text(exchange: Exchange, reply: Mapping[str, Any]) -> str:
    """Return a completed text, and the number of its tokens."""
    choice, usage = reply["choices"][0], reply["usage"]
    ended = choice["finish_reason"]
    _hold(ended in FINISHED, f"its finish_reason is {json.dumps(ended)}, so it was broken off")
    for count in ("prompt_tokens", "completion_tokens"):
        _hold(_whole(usage[count]) and usage[count] > 0, f"its usage counts {json.dumps(usage[count])} {count}")
    said = choice["text"] if exchange.task == "complete" else _said(choice["message"])
    _hold(isinstance(said, str) and bool(said.strip()), "it has no text")
    return str(said).strip()


def _said(message: Mapping[str, Any]) -> Any:
    # A reasoning parser moves the reasoning out of the content; with few tokens that is all of it. vLLM renamed the
    # key.
    return message["content"] or message.get("reasoning_content") or message.get("reasoning")


def _embeddings(exchange: Exchange, reply: Mapping[str, Any]) -> str:
    """One embedding for each text, in their order."""
    found = [each["embedding"] for each in reply["data"]]
    _hold([each["index"] for each in reply["data"]] == [0, 1], "it has not one embedding for each of two texts")
    for numbers in found:
        _hold(isinstance(numbers, list) and all(map(_finite, numbers)), "not all of an embedding is finite numbers")
        _hold(any(numbers), "an embedding has nothing but zeros")
    sizes = sorted({len(numbers) for numbers in found})
    _hold(len(sizes) == 1, f"its embeddings have {sizes[0]} and {sizes[-1]} numbers")
    wanted = exchange.dimensions
    _hold(
        wanted in (None, sizes[0]), f"its embeddings have {sizes[0]} numbers, and the model's hidden_size is {wanted}"
    )
    _hold(found[0] != found[1], "two different texts have the same embedding")
    return f"an embedding of {sizes[0]} numbers for each of two texts"


def _scores(_exchange: Exchange, reply: Mapping[str, Any]) -> str:
    """A score for each document, the best first."""
    scores = [each["relevance_score"] for each in reply["results"]]
    places = [each["index"] for each in reply["results"]]
    _hold(sorted(places) == [0, 1], f"its results are for the documents {json.dumps(places)}, not for 0 and 1")
    _hold(all(map(_finite, scores)), f"its scores are {json.dumps(scores)}, not finite numbers")
    _hold(scores == sorted(scores, reverse=True), f"its scores are {json.dumps(scores)}, not the highest first")
    return f"a relevance of {scores[0]:.4g} for document {places[0]}, and of {scores[1]:.4g} for document {places[1]}"


_READ: Mapping[str, Callable[[Exchange, Mapping[str, Any]], str]] = {
    "generate": _text,
    "complete": _text,
    "embed": _embeddings,
    "score": _scores,
}
