"""Collect what a log says of an end, line by line and in bounded memory: tracebacks, telling lines, last words.

Lines of several processes come in any order. They are separated by the prefix that vLLM gives to each process, and by
the source line of the logging.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache, lru_cache

from ..base.server_log import (
    ACCESS,
    ANSWERED,
    LEFT_OUT,
    LISTENS,
    NAMES_OF_REQUEST,
    TRACEBACK,
    ApiServer,
    Requests,
    ServerLine,
    read_line,
    without_bars,
)
from .entry import ERROR, KnownFault
from .known import FAULTS

# Bounds: processes times the places they log from; tracebacks of each; exceptions of each. A server of eight cards has
# 18 processes. Of a chain the middle is dropped.
STREAMS, TRACEBACKS, EXCEPTIONS = 128, 4, 8
# Lines of an exception's message beside the first, and the characters of each that are kept.
MORE, CHARACTERS = 4, 500

_DIRECT = "The above exception was the direct cause of the following exception:"
_DURING = "During handling of the above exception, another exception occurred:"
_NAME = r"(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Za-z_]\w{0,60}"
# Without a traceback above it only a name that ends so counts.
_NAMED = re.compile(r"(?:[A-Za-z_]\w{0,60}\.){0,8}\w{0,60}(?:Error|Exception)(?:: |:?$)")
_WITH_MESSAGE = re.compile(rf"{_NAME}: ")
# Below a traceback any name counts, but no other text: a page's end of a block, or what another thread prints.
_RAISED = re.compile(rf"{_NAME}(?:\([\w.]{{1,60}}\))?(?::|$)")
_MINOR = ("DEBUG", "INFO", "WARNING")
# The same without vLLM's prefix: Python's logging and warnings, uvicorn, pip and libraries.
_MINOR_TEXT = re.compile(r"(?:DEBUG|INFO|WARNING|Warning):|\S{1,200}:\d{1,7}: \w{0,60}Warning: ")

# HCL's form of a failed condition, in one line or in three.
_CONDITION = re.compile(
    r"[\w-]{1,80}\.(?:cpp|cc|h|hpp)::?\d{1,6}\(\w{1,80}\): *The condition \[ .{0,300}? \] failed\. *\S"
)
_CONDITION_BEGINS = re.compile(r"[\w-]{1,80}\.(?:cpp|cc|h|hpp)::?\d{1,6}\(\w{1,80}\): *$")
_CONDITION_LINES = 3

# vLLM's server ends with status 0 when its engine dies. These lines are a consequence.
# Texts: core_client.py, multiproc_executor.py, utils.py and exceptions.py in vllm/v1 of 0.32.0 and of earlier releases.
ENGINE_DIED = re.compile(
    r"[Ee]ngine core (?:proc(?:ess)? \S+ )?(?:died|exited) unexpectedly|Worker proc \S+ died unexpectedly"
    r"|EngineDeadError|Engine core initialization failed"
)
# Exceptions that only report that another process, or a part of this one, has failed.
# The V0 engine: vllm/entrypoints/openai/api_server.py, engine/multiprocessing, engine/async_llm_engine.py,
# executor/multiproc_worker_utils.py of the fork of 1.16 to 1.22. The V1 engine: vllm/v1/engine/core_client.py,
# exceptions.py and utils.py, v1/executor/multiproc_executor.py, v1/utils.py of 0.9 to 0.32. Ray: exceptions.py.
WRAPPER = re.compile(
    r"See (?:the )?(?:stack ?trace|root cause)|[Ss]tack trace above|Inspect the stacktrace"
    r"|Engine(?:Core)? (?:process )?failed to start"
    r"|Engine core initialization failed|WorkerProc initialization failed|Worker failed with error"
    r"|EngineDeadError|Engine loop (?:is not running|has died)|Engine process \(pid \d+\) died"
    r"|Background loop (?:has errored|is (?:not running|stopped))"
    r"|Task finished unexpectedly|EngineGenerateError|Executor failed|died with exit code|died unexpectedly"
    r"|^(?:\w+\.)*(?:SystemExit|KeyboardInterrupt|CancelledError|ProcessRaisedException|ProcessExitedException"
    r"|BrokenProcessPool|(?:Base)?ExceptionGroup|ActorDiedError|RayActorError|RayTaskError\S*|ChildFailedError)\b"
)
# Exceptions of a process whose partner has gone, or that waited for it in vain: they explain only where nothing else
# does. One that cannot listen has no partner yet.
CONSEQUENCE = re.compile(
    r"^(?:\w+\.)*(?:BrokenPipeError|ConnectionResetError|EOFError|ZMQError|DistBackendError"
    r"|DistNetworkError(?!: The server socket has failed to))\b"
    r"|Connection (?:closed|reset) by peer|Timed out waiting for (?:engine|clients)|Broken pipe"
    r"|[Gg]loo connectFullMesh|gloo/transport|client socket has|Timed out initializing process group"
)
# HTTP libraries raise the first for a status, queues the second after a timeout. The exception that follows says more.
_SAYS_LITTLE = re.compile(r"^(?:\w+\.)*(?:(?:HTTPError|HTTPStatusError): |(?:TimeoutError|Empty)$)")
# Code of an image: a prompt may hold a traceback of its own.
_INSTALLED = re.compile(
    r'File "/[\w./+-]{0,200}(?:(?:site|dist)-packages|python3\.\d{1,2}|vllm[\w-]{0,30})/[\w./+-]{1,200}\.py", '
    r"line \d{1,7}, in [\w<>]{1,80}"
)
# Functions of workers and model loaders, by what fills the device memory while they run: hpu_worker.py of the forks and
# of vllm-gaudi, vllm/model_executor/model_loader and models.
_FILLING = re.compile(
    r", in (?:(?P<weights>load_model|load_weights)|(?P<profiling>profile_run|determine_(?:num_available_blocks"
    r"|available_memory))|(?P<cache>initialize_(?:cache|from_config)|compile_or_warm_up_model|warmup_model))$"
)
# Marks below a line of code, of Python from 3.11 on.
_MARKS = re.compile(r"[\s~^]+")
# Quoted parts of a message, except single words and names of shared memory.
_QUOTED = re.compile(r"""(?<!\w)(?:(?P<mark>['"`])(?!/?[\w.-]{1,60}(?P=mark))(?:(?!(?P=mark)).)*(?:(?P=mark)|$))""")
# Lines of the vendor's libraries, and of handlers of signals.
OF_VENDOR = re.compile(
    r"^(?:!{7} Segfault encountered !{7}|Fatal Python error: Segmentation fault)$|^\[Rank:\d{1,4}\] FATAL ERROR"
    r"|\bsynStatus\b|\bMODULE:PT_|^Synapse (?:detected|is) "
    r"|^[\w./-]{1,200}\.(?:cpp|cc|h|hpp)::?\d{1,6}\(\w{1,80}\): *The condition \["
)
# Lines that the vendor's libraries print during a request. No client can write them, so they may be quoted.
_OF_DEVICE = re.compile(
    r"(?:RuntimeError: )?(?:\[Rank:\d{1,4}\] FATAL ERROR :: MODULE:|Check \$HABANA_LOGS/ for details"
    r"|Graph compile failed\. synStatus|synNodeCreate\w{0,20} failed for node)"
)
# What may stand before the sign of a fault: a label such as "ValueError: ".
_LABEL = re.compile(r"(?:[\w-]{1,30}(?: [\w-]{1,30}){0,2}: )?")
# C++ ends a process with an exception that nobody caught so, the C library with damaged memory.
_LAST_WORDS = re.compile(
    r"^(?:\S*(?:Error|Exception)\b|docker: |.*\berror: |terminate called|  what\(\): |(?:free|malloc)\(\): "
    r"|double free|corrupted |\*\*\* )"
)
# What stands before the lines of a group of exceptions.
_GROUP = re.compile(r" {0,40}(?:\| ?|\+ (?=Exception Group )|\+-(?:\+-)?-*(?: \d{1,3} -+)?$)")


@dataclass
class RaisedException:
    """One exception: its line, further lines of its message, and the last frame (place and code)."""

    text: str
    frame: tuple[str, ...] = ()
    follows: str = ""
    """How it follows from the exception before it in the chain: "direct", "during" or "" for the first."""
    more: list[str] = field(default_factory=list)
    served: bool = False
    """Whether the server listened by then: the texts may be of a request."""
    filling: str = ""
    """What was filling the device memory, as its frames show it: "weights", "profiling", "cache" or ""."""

    @property
    def texts(self) -> list[str]:
        """Its lines that may show a fault, without what may be a client's words."""
        if not self.served:
            return [self.text, *self.more]
        return [_QUOTED.sub("", self.text), *filter(OF_VENDOR.search, self.more)]

    @property
    def shown(self) -> tuple[str, ...]:
        """Its place and its line, as they may be quoted."""
        if not self.served:
            return (*self.frame, self.text)
        return (*filter(_INSTALLED.fullmatch, self.frame), without_message(self.text))

    @property
    def is_wrapper(self) -> bool:
        """Whether it reports the failure of something else."""
        return bool(WRAPPER.search(self.text))

    @property
    def is_consequence(self) -> bool:
        """Whether a failure elsewhere is its usual reason."""
        return bool(CONSEQUENCE.search(self.text))


@dataclass
class Chain:
    """The exceptions of one traceback, the earliest first.

    number: its place in the log. of_request: whether it is of code that answers a request.
    """

    process: str
    number: int
    of_request: bool = False
    raised: list[RaisedException] = field(default_factory=list)

    def explaining(self) -> RaisedException | None:
        """Return the exception that explains the others; None where all report a failure elsewhere.

        A direct cause is followed to its first exception. Of "during handling" the later one counts, because it is what
        ended the process, unless it is a wrapper.
        """
        at = len(self.raised) - 1
        while at > 0:
            raised = self.raised[at]
            if raised.follows != "direct" and not raised.is_wrapper and not raised.is_consequence:
                break
            at -= 1
        while (
            self.raised[at + 1 :]
            and self.raised[at + 1].follows == "direct"
            and _SAYS_LITTLE.match(self.raised[at].text)
        ):
            at += 1
        return None if at < 0 or self.raised[at].is_wrapper else self.raised[at]

    def add(self, raised: RaisedException) -> None:
        """Add an exception; of a long chain the middle is dropped."""
        self.raised.append(raised)
        if len(self.raised) > EXCEPTIONS:
            gone, after = self.raised.pop(EXCEPTIONS // 2), self.raised[EXCEPTIONS // 2]
            after.follows = "during" if "during" in (gone.follows, after.follows) else "direct"


@dataclass
class _TracebackReader:
    """One place from which one process prints: where in a traceback it is."""

    chains: list[Chain] = field(default_factory=list)
    frames: list[str] = field(default_factory=list)
    inside: bool = False
    """Whether the frames of a traceback are being printed."""
    flat: bool = False
    """Whether they lost their indentation, as in a report."""
    follows: str = ""
    goes_on: bool = False
    """Whether the lines that follow are of the last exception's message, and are kept."""
    grouped: bool = False
    """Whether the lines are of a group of exceptions, each behind a bar."""
    filling: str = ""
    """As in RaisedException, by the frames so far."""
    raised: bool = False
    """Whether no traceback has begun since the last exception: what follows may be of its message."""

    of_request: bool = False
    """As in Chain, for the line that is read."""

    def read(self, line: ServerLine, number: int, *, served: bool, of_request: bool) -> bool:
        """Read a line as a part of a traceback; return whether it is one. number: its place in the log."""
        self.of_request = of_request
        text = self._without_bar(line.text)
        if text.endswith(TRACEBACK):
            if not self.follows or not self.chains:
                self._begin(line.process, number)
            self.inside, self.flat, self.goes_on, self.raised, self.frames = True, False, False, False, []
            self.filling = ""
        elif text.strip() in (_DIRECT, _DURING):
            self.follows = "direct" if text.strip() == _DIRECT else "during"
            self.goes_on = False
        elif text.startswith(" ") or self._is_flat_frame(text):
            if not self._continue(text) and not _MARKS.fullmatch(text):
                self.frames = [*self.frames[-1:], text.strip()[:CHARACTERS]]
                found = _FILLING.search(text)
                self.filling = (found.lastgroup if found else None) or self.filling
        elif (_RAISED if self.inside else _NAMED).match(text):
            if not self.inside:
                self._begin(line.process, number)
            raised = RaisedException(
                text[:CHARACTERS], _place(self.frames), self.follows, served=served, filling=self.filling
            )
            self.chains[-1].add(raised)
            self.inside, self.follows, self.goes_on, self.raised, self.frames = False, "", True, True, []
        else:
            self._continue(text)
            return False
        return True

    def _without_bar(self, text: str) -> str:
        """Return a line of a group of exceptions without what stands before it."""
        found = _GROUP.match(text) if self.grouped or "+ Exception Group " in text else None
        self.grouped = found is not None
        return text[found.end() :] if found else text

    def _is_flat_frame(self, text: str) -> bool:
        """Whether a line without indentation is a frame of a traceback; the exception's line has a name of one."""
        if not self.inside:
            return False
        self.flat = self.flat or text.startswith('File "')
        return self.flat and not (_NAMED.match(text) or _WITH_MESSAGE.match(text))

    def _begin(self, process: str, number: int) -> None:
        """Begin a traceback; of many the first ones and the last one are kept."""
        self.chains[TRACEBACKS - 1 :] = [Chain(process, number, self.of_request)]

    def forget_served(self) -> None:
        """Forget the tracebacks that are complete, and that began once the server listened."""
        self.chains = [chain for chain in self.chains if not (chain.raised and chain.raised[0].served)]
        self.goes_on = False

    def _continue(self, text: str) -> bool:
        """Take a line as one of the last exception's message; return whether it is."""
        more = self.chains[-1].raised[-1].more if self.goes_on and self.chains and self.chains[-1].raised else None
        self.goes_on = more is not None and len(more) < MORE
        if more is None or not self.goes_on:
            return False
        more.append(text.strip()[:CHARACTERS])
        return True


LOG_FAULTS = tuple(each for each in FAULTS if (each.signs or each.hints) and each.severity == ERROR)
"""Faults with a sign or a hint in a line of a log."""


@cache
def _patterns() -> tuple[tuple[KnownFault, re.Pattern[str]], ...]:
    """Compile their signs once a log is read: most processes read none."""
    return tuple(
        (each, re.compile("|".join(f"(?:{part})" for part in (each.signs, each.hints) if part))) for each in LOG_FAULTS
    )


@lru_cache(maxsize=256)
def signs_in(text: str) -> tuple[tuple[KnownFault, int], ...]:
    """Return the faults that a line may show, each with the index of its sign. Cached: all workers print the same."""
    return tuple((known, found.start()) for known, pattern in _patterns() if (found := pattern.search(text)))


class ServerLog:
    """What may explain an end, collected from a log as it passes."""

    def __init__(self, *, served: bool = False) -> None:
        self.served = served
        """Whether the server listens: from then on its lines may hold requests."""
        self._number = 0
        self._streams: dict[tuple[str, str], _TracebackReader] = {}
        self._requests = Requests()
        self._api_server = ApiServer()
        self._condition: list[str] = []
        self.conditions: list[str] = []
        """Failed conditions of HCL, the first ones."""
        self.telling: dict[tuple[str, bool], tuple[int, str]] = {}
        """The first line that shows a known fault, and its place, by the fault's id and whether it is an error."""
        self.last_error = ""
        """The last error, as it may be quoted."""
        self.last_error_number = 0
        self.last_line = ""
        self.last_words = ""
        """The last line, as it may be quoted."""
        self.died = ""
        """The first line that says that the engine is gone."""
        self.vanished = False
        """Whether that line is of a process that ended without an exception."""
        self.before_death = ""
        """The last error before that line."""

    def add(self, raw: str) -> None:
        """Read one line. Lines of requests are left out."""
        for text in without_bars(raw) or [raw]:
            if not self._requests.has(text, served=self.served):
                self._read(text)
            elif ACCESS.match(text):
                # It has answered, and what follows is of something else.
                self._api_server, self.served = ApiServer(), True
                self._answer(text)

    def _answer(self, text: str) -> None:
        """Forget what a client's request raised, as the server answered after that.

        Engines and workers name themselves, and what they raised may overtake an answer that they gave before.
        """
        stream = self._streams.get(("", ""))
        if stream is not None and not self.died and ANSWERED.search(text):
            stream.forget_served()

    def chains(self) -> list[Chain]:
        """Return the tracebacks, in the order in which they began."""
        found = [chain for stream in self._streams.values() for chain in stream.chains]
        return sorted(found, key=lambda chain: chain.number)

    @property
    def failed(self) -> bool:
        """Whether it shows more than warnings: an exception, an error, or a fault in a line without a level."""
        told = any(error for _, error in self.telling)
        return bool(told or self.died or self.last_error or self.conditions or self.chains())

    def _read(self, raw: str) -> None:
        line = read_line(raw)
        if not line.text.strip():
            return
        self._number += 1
        if not self.died and ENGINE_DIED.search(line.text):
            self.died, self.before_death = line.text, self.last_error
            self.vanished = "unexpectedly" in line.text
        # An error of a request did not end the server, and it may have the client's words.
        of_api_server = self._api_server.has(line)
        if self.served and of_api_server and not _OF_DEVICE.match(line.text):
            if line.level == "INFO":
                self.last_line, self.last_words = line.text[:CHARACTERS], _quotable(line, served=True)
            return
        self.served = self.served or bool(LISTENS.search(line.text))
        self.last_line, self.last_words = line.text[:CHARACTERS], _quotable(line, served=self.served)
        self._read_condition(line)
        stream = self._stream(line)
        of_request = self._api_server.of_request
        minor = is_minor(line)
        in_traceback = line.level not in _MINOR and stream.read(
            line, self._number, served=self.served, of_request=of_request
        )
        error = not in_traceback and not minor and not line.text.startswith("    ")
        severe = not minor and (line.level in ("ERROR", "CRITICAL") or _LAST_WORDS.match(line.text))
        if severe and not line.text.startswith("   ") and not WRAPPER.search(line.text):
            self.last_error = _quotable(line, served=self.served)
            # The head of a traceback that was cut off says nothing by itself.
            if not line.text.startswith("Traceback "):
                self.last_error_number = self._number
        signs = signs_in(line.text)
        if signs and (in_traceback or not NAMES_OF_REQUEST.search(line.text)):
            for known, begin in signs:
                if (known.id, error) not in self.telling and self._tells(line.text, begin, stream):
                    self.telling[known.id, error] = (self._number, line.text.strip()[:CHARACTERS])

    def _tells(self, text: str, begin: int, stream: _TracebackReader) -> bool:
        """Whether a line shows a fault whose sign begins at this index.

        Once the server listens, a sign counts at the beginning of a line only: further on, the text may be a client's.
        """
        if not self.served or OF_VENDOR.search(text):
            return True
        return not stream.raised and bool(_LABEL.fullmatch(text[:begin].lstrip()))

    def _read_condition(self, line: ServerLine) -> None:
        if _CONDITION_BEGINS.search(line.text):
            self._condition = [line.text.strip()]
            return
        if self._condition:
            self._condition.append(line.text.strip())
        text = " ".join(self._condition) if self._condition else line.text
        if found := _CONDITION.search(text):
            if len(self.conditions) < EXCEPTIONS:
                self.conditions.append(text[found.start() :][:CHARACTERS])
            self._condition = []
        elif len(self._condition) > _CONDITION_LINES:
            self._condition = []

    def _stream(self, line: ServerLine) -> _TracebackReader:
        """Return where a line is from; beyond the bound all others are one."""
        key = (line.process, line.source)
        if key not in self._streams and len(self._streams) >= STREAMS:
            key = ("", "")
        return self._streams.setdefault(key, _TracebackReader())


def is_minor(line: ServerLine) -> bool:
    """Whether its level, or how it begins, says that it is no error."""
    return line.level in _MINOR or bool(_MINOR_TEXT.match(line.text))


def without_message(text: str) -> str:
    """Return an exception's line without its message, which may quote a request."""
    return f"{text.partition(':')[0]}: {LEFT_OUT}" if _NAMED.match(text) else LEFT_OUT


def _quotable(line: ServerLine, *, served: bool) -> str:
    """Return a line as it may be quoted: of a server that listens only where it comes from."""
    if not served:
        return line.text[:CHARACTERS]
    at = f"{line.level} [{line.source}] " if line.level and line.source else ""
    return f"{at}{without_message(line.text)}"


def _place(frames: list[str]) -> tuple[str, ...]:
    """Return the last frame: where, and the code."""
    at = next((number for number in range(len(frames) - 1, -1, -1) if frames[number].startswith("File ")), None)
    return tuple(frames[at : at + 2]) if at is not None else tuple(frames[-1:])
