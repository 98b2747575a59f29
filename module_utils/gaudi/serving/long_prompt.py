"""A question that fills the longest prompt that a plan warms up, and how its answer is judged.

A short question does not show every fault: a server was reported that answered prompts of 3,000 to 10,000 tokens with
exclamation marks, and short ones well (HabanaAI/vllm-fork, issue 738). Pure: library/vllm_service_verify.py sends it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..base.command_line import number
from ..base.refusal import Refusal
from . import answers
from .answers import CHECK_TOKENS, OTHER, Exchange

TIMEOUT = 60
"""Seconds that the answer may take."""
TOKENIZE = "/tokenize"
"""Where a server counts the tokens of a text: releases since 1.18."""
MEASURED = 20
"""Sentences whose tokens are counted at once."""
SENTENCE = "The harbour was quiet, and a small boat with a green sail came slowly home. "
# Of the tokenizers in use none takes more for such a sentence of 15 words (inferred, not measured).
_MOST_A_SENTENCE = 30
ESTIMATE = MEASURED * _MOST_A_SENTENCE
"""Tokens of MEASURED sentences, for servers that count none."""
# Tokens left for the chat template, the number and the question.
_AROUND = 128
# Tokens, where a plan does not say it (block_size in the release files).
_BLOCK = 128
_BEFORE = "The number to remember is {marker}. "
_QUESTION = "Which number was to be remembered? Answer with the number alone."
_WRITES = ("generate", "complete")
# Characters of an answer that are shown.
_SHOWN = 200

# Characters of an answer that are judged: fewer tell nothing, as an answer may be a mark alone.
_ENOUGH = 8
# A character or a word beyond this share makes an answer unreadable, and letters and digits below it. An answer of a
# model that works has none of these, also where it is wrong; the number is this project's own.
_MOST = 0.5
# Words among which a readable answer has more than two different ones.
_WORDS = 16


def longest(plan: Mapping[str, Any]) -> int:
    """Return the tokens of the longest prompt that a plan warms up, with its context; 0 if it warms up none.

    Forks say lengths and batch sizes, of which only those within the budget of tokens count. The plugin says shapes.
    """
    part = plan.get("buckets") or {}
    if not part.get("prompt_graphs"):
        return 0
    if part.get("prompt"):
        block = number(plan, "--block-size") or _BLOCK
        found = max(query + blocks * block for _, query, blocks in part["prompt"])
    else:
        budget = number(plan, "--max-num-batched-tokens")
        lengths, batch = part.get("prompt_seq") or [0], (part.get("prompt_bs") or [1])[0]
        found = max((length for length in lengths if not budget or batch * length <= budget), default=lengths[-1])
    most = number(plan, "--max-model-len")
    return min(int(found), most) if most else int(found)


def counting(plan: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the body that has a server count the tokens of MEASURED sentences; None if it cannot."""
    if TOKENIZE not in plan.get("paths", []):
        return None
    return {"model": plan["served_model_name"], "prompt": SENTENCE * MEASURED}


def counted(reply: Mapping[str, Any]) -> int:
    """Return the tokens of MEASURED sentences from a reply; the estimate if it says nothing that can be right."""
    count = reply.get("count")
    # No tokenizer makes more tokens than four a character, which are bytes.
    plausible = isinstance(count, int) and MEASURED <= count <= 4 * MEASURED * len(SENTENCE)
    return int(str(count)) if plausible else ESTIMATE


def exchange(plan: Mapping[str, Any], tokens: int, marker: str) -> Exchange | None:
    """Return the question that fills the longest prompt; None if the plan has none that is long enough.

    tokens: those of MEASURED sentences. marker: what the answer has to repeat. Embedding and rerank models get the text
    beside a short one; their answers have to be numbers as after any question.
    """
    bucket, task = longest(plan), plan["task"]
    most = number(plan, "--max-model-len") or bucket + CHECK_TOKENS
    room = min(bucket, most - CHECK_TOKENS if task in _WRITES else most) - _AROUND
    sentences = room * MEASURED // max(tokens, 1)
    if sentences < 1:
        return None
    text = _BEFORE.format(marker=marker) + SENTENCE * sentences
    if task in _WRITES:
        text += _QUESTION if task == "generate" else _BEFORE.partition("{")[0].strip()
    asked = answers.question_of(plan, text, CHECK_TOKENS)
    if task == "score":
        asked = replace(asked, body={**asked.body, "query": _QUESTION, "documents": [text, OTHER]})
    return replace(asked, asked=f"a prompt that fills its longest bucket, of {bucket} tokens")


def judge(asked: Exchange, reply: Mapping[str, Any], marker: str, instance: str) -> str:
    """Return a warning about an answer without the marker; "" if it is right, or has none to repeat.

    Raises Refusal for an answer that is none, or that nobody can read.
    """
    answer = answers.answer_of(asked, reply, instance)
    if asked.task not in _WRITES:
        return ""
    message = reply["choices"][0].get("message") or {}
    whole = " ".join([answer, *(str(message.get(part) or "") for part in ("reasoning_content", "reasoning"))])
    if marker in re.sub(r"(?<=\d)[,. ](?=\d{3})", "", whole):
        return ""
    shown = answer if len(answer) <= _SHOWN else f"{answer[:_SHOWN]}..."
    why = unreadable(answer)
    if why:
        raise Refusal(
            "answer_unreadable",
            f"{instance} was given {asked.asked}. Nobody can read its answer, in which {why}: {shown} Shorter prompts "
            "may be answered well. The cause is not known from this. Find the length from which on answers are like "
            "this, lower max_model_len below it, and try another release; playbooks/doctor.yml checks what the kernel "
            "shows of the cards.",
        )
    return (
        f"{instance} was given {asked.asked}, with the number {marker} at its beginning. Its answer does not repeat "
        f"it: {shown} A model that is good at long prompts does. See whether its answers to long prompts are right."
    )


def unreadable(text: str) -> str:
    """Return why nobody can read a text, as a clause; "" if it can be read, or is too short to tell.

    >>> unreadable("!!!!!!!!!!!!!!!!")
    'one character is more than half of it: !'
    """
    characters = [character for character in text if not character.isspace()]
    if len(characters) < _ENOUGH:
        return ""
    character, times = Counter(characters).most_common(1)[0]
    if times > _MOST * len(characters):
        return f"one character is more than half of it: {character}"
    if sum(character.isalnum() for character in characters) < _MOST * len(characters):
        return "less than half is letters and digits"
    if text.count("\N{REPLACEMENT CHARACTER}") * 10 > len(characters):
        return "many characters are broken off"
    words = text.split()
    if len(words) >= _WORDS and len(set(words)) <= 2:
        return f"the same words come again and again: {words[0][:40]}"
    return ""
