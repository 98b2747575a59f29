"""The form of a server's lines: who prints them, and what in them is of a client's request."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .line_prefix import LOOKED_AT, PREFIX

# A line of uvicorn's access log. It contains text from clients, even without a key, but only after the client's
# address; no message of the server itself begins like this. Format: AccessFormatter in uvicorn/logging.py.
ACCESS = re.compile(r"(?:\([^)]{0,60}\) *)?INFO: +\S{1,60}:\d{1,5} - \"[A-Za-z]{1,20} ")
ANSWERED = re.compile(r"\"POST \S{1,900} HTTP/[\d.]{1,3}\" [24]\d\d\b")
"""In such a line: an answer to a request, or that the request is wrong."""


# What vLLM prints of requests: an engine that fails prints what its scheduler had, and a server that logs requests
# prints their texts (vllm/logging_utils/dump_input.py, v1/core/sched/output.py, entrypoints/logger.py of 0.9 to 0.26).
_DUMPED = re.compile(
    r"Dumping (?:input data|scheduler)|SchedulerOutput\(|NewRequestData|CachedRequestData|scheduled_new_reqs"
    r"|SamplingParams\(|PoolingParams\(|Received request|Added request|Generated response|Request \S{1,200} details: "
)
# Those that begin with a text, which may have several lines and anything in them, and what follows that text.
_BEGINS_TEXT = re.compile(
    r"(?:Received request|Request) \S{1,200} (?:details: )?prompt: "
    r"|Generated response \S{1,200} (?:\([^)]{1,40}\): )?output: "
)
_ENDS_TEXT = re.compile(
    r", (?:(?:sampling_|pooling_)?params|(?:prompt|output)_token_ids|prompt_embeds shape|finish_reason|lora_request): "
    r"|['\"], params\b|(?:Sampling|Pooling)Params\("
)
# A message whose value stands in the lines below.
_OPEN = re.compile(r"[:{\[(,]\s{0,9}$")
_ADDED = re.compile(r"Added request \S{1,200}$")
# Lines of a text beyond which its end was lost.
_MOST_LINES = 2_000
# Names of what a request holds, which are in lines of a server's code, too.
NAMES_OF_REQUEST = re.compile(
    r"scheduler_output|num_scheduled_tokens|(?:prompt|token|input|output|block)_ids\b|(?i:\bprompts?['\"]? ?[:=])"
    r"|prompt_embeds|mm_kwargs|mm_features|\"messages\"|'messages'|\bmessages="
)
LISTENS = re.compile(
    r"Started server process|Application startup complete|Uvicorn running on|Starting vLLM API server(?: \d{1,3})? on "
)
"""A line once engines are done: of uvicorn, and of vLLM, which prints its own at any level of uvicorn's log
(entrypoints/openai/api_server.py of 0.6 to 0.26). From then on a line may have text of a client."""
LEFT_OUT = "(left out: it may quote a request)"
"""Stands for a text of a server that listens."""

# Who prints what failed for one request, with the client's or the model's words: each process of the API server by its
# name, which 0.10.2 and later releases set before a line, and its modules by theirs (vllm/entrypoints of 0.6 to 0.26).
_API_SERVER = re.compile(r"api_?server", re.IGNORECASE)
_OF_API_SERVER = re.compile(r"(?:serving(?:_\w{1,60})?|\w{0,60}_parsers?|chat_utils|protocol|run_batch)\.py\b")
# uvicorn, of an exception that no handler took. Its traceback has no prefix.
_UNHANDLED = re.compile(r"ERROR: +Exception in ASGI application")
# An engine prints this every ten seconds, as soon as it has requests (vllm/v1/metrics/loggers.py).
_THROUGHPUT = re.compile(r"Avg prompt throughput: ")
# Handlers of exceptions of an engine and its workers (vllm/v1/engine/core.py and v1/executor/multiproc_executor.py).
_ENGINE_FAILED = re.compile(r"(?:EngineCore|WorkerProc) (?:encountered a fatal error|hit an exception|failed to start)")
# The lines of a traceback, which may have lost the prefix of the message above it.
_OF_TRACEBACK = re.compile(
    r"Traceback \(most recent call last\):$|\s|File \"|The above exception was|During handling of the above"
    r"|(?:\w{1,60}\.){0,8}\w{0,60}(?:Error|Exception)\b"
)
_OF_UVICORN = re.compile(r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL): ")

# The plugin's bars: one for prompts and one for decoding, from every worker, on stderr, separated by carriage returns
# (warmup_graphs in vllm_gaudi/v1/worker/hpu_model_runner.py of 0.17.1 to 0.26.0); 0.17.1 has one for unified attention.
# Only the first drawing has the worker's name. Other text follows the last drawing in the same line. A drawing that was
# cut within its numbers is none.
BAR = re.compile(
    r"(?P<phase>Prompt|Decode|Unified Attention) warmup(?: processing)?:[^|\r\n]{0,20}\|[^|\r\n]{0,300}\| *"
    r"(?P<done>\d{1,9})/(?P<total>\d{1,9}) \[(?:[^\[\]\r\n]{0,100}\])?"
)
TRACEBACK = "Traceback (most recent call last):"
# Set before a line by PyTorch, journalctl and docker logs --timestamps.
_RANK = re.compile(r"\[rank(?P<rank>\d{1,4})\]: ?", re.IGNORECASE)
# A bar that does not end its line may stand before PyTorch's.
_RANK_LATER = re.compile(r".*\[rank(?P<rank>\d{1,4})\]: ?(?=Traceback \(most recent call last\):$)")
_JOURNAL = re.compile(
    r"^(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S{1,64} \S{1,64}\[\d{1,8}\]: |\d{4}-\d\d-\d\dT[\d:.,+Z-]{8,24}"
    r"(?: \S{1,64} \S{1,64}\[\d{1,8}\]:)? )"
)
# Ray prints a line that many workers print once, and says so behind it.
_REPEATED = re.compile(r" \[repeated \d{1,9}x across cluster\].*$")
_COLOUR = re.compile(r"\x1b\[[0-9;]{0,20}m")


@dataclass(frozen=True)
class ServerLine:
    """One line. level and source: as Python's logging prints them; "" where it did not print the line."""

    process: str
    source: str
    level: str
    text: str


def read_line(line: str) -> ServerLine:
    """Split a line into its prefixes and its text; the text keeps its indentation."""
    plain = _JOURNAL.sub("", _COLOUR.sub("", line[: 2 * LOOKED_AT]), count=1)
    found = PREFIX.match(plain)
    if found is None:  # the pattern matches the empty text as well
        raise AssertionError(plain)
    text = plain[found.end() :]
    process = found["process"] or ""
    rank = _RANK.match(text) or _RANK_LATER.match(text)
    if rank:
        text = text[rank.end() :]
        process = process or f"rank{rank['rank']}"
    source = found["source"] or found["old_source"] or ""
    return ServerLine(process, source, found["level"] or "", _REPEATED.sub("", text[:LOOKED_AT]).rstrip())


def is_of_request(line: str) -> bool:
    """Whether a line shows what a client sent, or what was made of it: it is never quoted, stored or bundled."""
    return bool(ACCESS.match(line) or _DUMPED.search(line))


class Requests:
    """Which lines of a log are of requests, with the further lines of a prompt of several lines."""

    def __init__(self) -> None:
        self._goes_on = False
        self._left = 0  # of a text whose end is known by its line

    def has(self, line: str, *, served: bool = False) -> bool:
        """Read the next line; return whether it is one. served: whether the server listens."""
        access = bool(ACCESS.match(line))
        if self._left and not access:
            self._left = 0 if _ENDS_TEXT.search(line) else self._left - 1
            self._goes_on = False
            return True
        if is_of_request(line):
            text = _BEGINS_TEXT.search(line)
            ended = bool(text and _ENDS_TEXT.search(line, text.end()))
            self._left = _MOST_LINES if text and not ended else 0
            self._goes_on = not (access or ended or _ADDED.search(line))
            return True
        self._goes_on = self._goes_on and not _begins(line)
        if served and not self._goes_on and _OPEN.search(line):
            # The line itself may say more; what stands below it is what a client sent.
            self._goes_on = read_line(line).level in ("DEBUG", "INFO", "WARNING")
            return False
        return self._goes_on


def _begins(line: str) -> bool:
    """Whether a line has its own beginning, as those of Python's logging, of uvicorn and of a traceback."""
    read = read_line(line)
    return bool(read.process or read.level or _OF_UVICORN.match(read.text) or read.text.endswith(TRACEBACK))


class ApiServer:
    """Which lines of a server that serves are of its API server: what fails there fails for one client."""

    def __init__(self) -> None:
        self._unhandled = False
        self._below = False
        self.of_request = False
        """Whether the last line that was read is of code that answers a request, or of a traceback below it."""

    def has(self, line: ServerLine) -> bool:
        """Read the next line; return whether it is one."""
        answers = bool(_OF_API_SERVER.match(line.source))
        if line.process or line.level or _OF_UVICORN.match(line.text) or _ENGINE_FAILED.match(line.text):
            self._unhandled = bool(_UNHANDLED.match(line.text))
            self._below = answers and line.level == "ERROR"
        elif self._below:
            self._below = bool(_OF_TRACEBACK.match(line.text))
        self.of_request = answers or self._unhandled or self._below
        return self.of_request or bool(_API_SERVER.match(line.process))


def serves(line: str) -> bool:
    """Whether only a server that has requests prints such a line."""
    read = read_line(line)
    failed = read.level == "ERROR" and bool(_OF_API_SERVER.match(read.source))
    return failed or is_of_request(line) or bool(_UNHANDLED.match(read.text) or _THROUGHPUT.search(line))


def without_bars(line: str) -> list[str]:
    """Return the texts between the bars in a line, which other processes printed; [] if there are bars alone."""
    return [text for text, bar in pieces(line) if bar is None]


def pieces(line: str) -> Iterator[tuple[str, re.Match[str] | None]]:
    """Return the bars in a line and the texts between them, in their order; the line itself without a bar."""
    end = 0
    for bar in BAR.finditer(line):
        if line[end : bar.start()].strip():
            yield line[end : bar.start()], None
        yield bar[0], bar
        end = bar.end()
    if not end or line[end:].strip():
        yield line[end:], None
