"""Explain a log that somebody has from anywhere: of a server, an image's build, hccl_demo, packages or the kernel.

Nothing is read from a node. Which program wrote it is seen by its lines; the part of the project that reads this
program's output says what it means.
"""

from __future__ import annotations

import itertools
import json
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from ..base import kernel_log
from ..base.printable import printable
from ..base.refusal import Refusal
from ..base.server_log import (
    ACCESS,
    LISTENS,
    NAMES_OF_REQUEST,
    TRACEBACK,
    ApiServer,
    Requests,
    read_line,
    serves,
)
from ..cards.hl_smi import parse_table
from ..driver import build_log, troubles
from ..driver.kernel_choice import listed
from ..fabric import burn_in
from ..fabric import output as hccl
from ..faults.causes import Cause, explain, explain_log, quote
from ..faults.facts import Facts
from ..faults.known import FAULTS
from ..faults.tracebacks import WRAPPER, ServerLog, is_minor
from ..faults.words import fault, fill
from ..image import pytorch
from ..image.output import failure
from ..serving.counts import PROMPT, ComputedShape, shape_of
from ..serving.progress import Progress
from .bundle import masked_lines
from .covering import DIMENSIONS
from .findings import of_kernel_log

# Bytes of a log. A start of eight cards with a warm-up of hundreds of graphs writes some 10 MB.
LARGEST = 32 * 1024 * 1024
# Lines of it: each takes some 20 microseconds, however short it is. 32 MiB of a server have 300000.
MOST_LINES = 500_000
# Lines that are quoted, and characters of each.
QUOTED, CHARACTERS = 3, 300
# Characters of a line that are searched; patterns take more than linear time.
_LONGEST = 2000
# Share of characters that are no text, above which a file is no log.
_STRANGE = 0.05

# What docker, journald, kubernetes, compose and playbooks/logs.yml put before each line. Journald's forms are those of
# journalctl --output: short, short-precise, short-iso, short-full, short-monotonic and short-unix.
_CLOCK = r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
_TIME = rf"\d{{4}}-\d\d-\d\d[T ]{_CLOCK}(?:Z|[+-]\d\d:?\d\d)?"
_JOURNAL = (
    rf"(?:{_TIME}|[A-Z][a-z]{{2}} [ \d]\d {_CLOCK}|[A-Z][a-z]{{2}} {_TIME} [A-Z]{{1,5}}"
    r"|\[ *\d{1,9}\.\d{6}\]|\d{9,11}\.\d{6})"
)
_BEFORE = re.compile(
    r"^(?:"
    rf"{_JOURNAL} \S{{1,64}} (?:kernel|[^\s:\[\]]{{1,64}}\[\d{{1,8}}\]): "
    # Not what a program says of an error, behind a time.
    rf"|(?:{_TIME}|[A-Z][a-z]{{2}} [ \d]\d {_CLOCK}) [\w.-]{{1,64}} "
    r"(?!\S{0,60}(?:[Ee]rror|Exception|Warning):)[^\s:\[\]]{1,64}: "
    rf"|(?:(?:DEFAULT|DEBUG|INFO|WARNING|ERROR|CRITICAL) )?{_TIME} (?:std(?:out|err) [FP] )?"
    # netconsole, in its extended form.
    r"|\d{1,3},\d{1,20},\d{1,20},[-c+](?:,[^;]{0,200})?; ?"
    r"|[\w.-]{1,64}(?:[-_]\d{1,3} +|  +)\| "
    r"|\[(?:[\w.-]{1,64}: |pod/[\w.-]{1,253}/)[\w.-]{1,64}\] "
    r"|> "
    r")"
)
# Colours whose escape character a page dropped, and what cat -v and the terminals of CI systems make of it and of a
# carriage return.
_LOST_COLOUR = re.compile(r"\^\[\[[\d;]{0,20}m|\[\d{1,2};\d{1,3}m|\[0m|\^M\s*$")
# The keys under which docker, journalctl --output=json and collectors of logs keep a line.
_KEPT = ("log", "MESSAGE", "message")

# How lines of a server begin, and a part that others put before each: as long as all begin alike but for numbers.
_OF_SERVER = re.compile(
    r"\([^()]{1,80}\bpid=\d|(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d |\[rank\d|Traceback \(most recent call last"
)
_NUMBERS = re.compile(r"\d+")
_LONGEST_BEFORE, _SAMPLE, _ALIKE = 100, 1000, 0.6

_BUILD = re.compile(r"^#\d{1,4} \[[^\]]{1,80}\] |gaudi-image refused |failed to solve: ", re.MULTILINE)
_STEP = re.compile(r"^#\d{1,4} \[[^\]]{1,80}\] (?P<title>[^\n]{1,200})", re.MULTILINE)
_HL_QUAL = re.compile(r"^hl_qual - |hl qual report|Test result summary|-rmod +==>", re.MULTILINE)
_HCCL = re.compile(r"HCCL[ _]demo|HCCL_RANK=|\[BENCHMARK\] +hccl|run_hccl_demo", re.IGNORECASE)
_PACKAGES = re.compile(
    r"^(?:[EW]: |Err:\d|dpkg(?:-deb)?: |Setting up |Reading package lists|Error! |Consult /|modprobe: "
    r"|modinfo: |insmod: |dkms\b|Failed to update apt cache|No package matching|DKMS tree already contains"
    r"|Sub-process |The following packages have unmet)|\bpackage [a-z-]+ script subprocess returned error"
    r"|update-initramfs: |mkinitramfs: |^ *Problem(?: \d+)?: "
    r"|Loading of (?:unsigned module|module with unavailable key) is rejected",
    re.MULTILINE,
)
_KERNEL = re.compile(
    rf"{kernel_log.WARNINGS}|{kernel_log.PAGE_TABLES}"
    r"|(?i:out of memory: killed process)|\bhabanalabs(?:_\w{2,8})?(?: [0-9a-f:.]{7,14})?(?: (?:hl"
    r"|accel)\d{1,3})?(?: hbl_\d+)?: |\baccel accel\d{1,3}: "
)
_KERNEL_ERROR = re.compile(r"(?i)\b(?:error|failed|failure|fatal|cannot|unable|not usable|timeout|timed out|stuck)\b")
_PAGE_TABLES = re.compile(kernel_log.PAGE_TABLES)
# vLLM prints what it was started with; some faults are told by it.
_ARGUMENTS = "non-default args: "
_MODEL = re.compile(r"Initializing an? (?:V\d )?LLM engine .{0,60}? with config: model='([^']{1,200})'")
# hl-smi, collect_env of the fork, and what optimum-habana warns of; names of images, and what the plugin was built for.
_RELEASE = r"(\d{1,3}\.\d{1,3}\.\d{1,3})"
_DRIVER = re.compile(rf"(?i)\bdriver[ _]ver(?:sion)?(?: is v|:)\s*{_RELEASE}")
_IMAGE = re.compile(rf"(?:gaudi-docker/|\bhabana-frameworks v|runtime\.py:\d+\] +build: ){_RELEASE}")
_OUT_OF_MEMORY = re.compile(r"(?i)out of memory: killed process")


def read(data: bytes) -> list[str]:
    """Return the lines of a log's bytes, printable and without what other programs put before each.

    Raises Refusal for what is no text, is empty, or has more than LARGEST bytes.
    """
    if len(data) > LARGEST:
        raise Refusal(
            "log_too_large",
            f"It has more than {LARGEST // 2**20} MiB. Give the part around the failure, for example what "
            f"tail -c {LARGEST // 2**20}M FILE prints.",
        )
    if data[:2] == b"\x1f\x8b" or data[:3] == b"BZh" or data[:6] == b"\xfd7zXZ\x00" or data[:4] == b"\x28\xb5\x2f\xfd":
        raise Refusal("log_compressed", "It is compressed. Unpack it, and give the text.")
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    text = data.decode(encoding, "replace")
    strange = sum(text.count(letter) for letter in map(chr, (*range(7), *range(14, 27), 0xFFFD)))
    if "\x00" in text or strange > max(8, _STRANGE * len(text)):
        raise Refusal("log_is_no_text", "It is no text. Give what the program printed, or its log.")
    if not text.strip():
        raise Refusal("log_is_empty", "It is empty. Give what the program printed, with its standard error (2>&1).")
    # A line that docker or journald keeps may hold several.
    lines = list(
        itertools.islice((line for raw in text.split("\n", MOST_LINES) for line in _lines(raw)), MOST_LINES + 1)
    )
    if len(lines) > MOST_LINES:
        raise Refusal(
            "log_too_long",
            f"It has more than {MOST_LINES} lines. Give the part around the failure, for example what "
            f"tail -n {MOST_LINES} FILE prints.",
        )
    # A log in a page of Markdown is indented as a whole.
    indent = min((len(line) - len(line.lstrip(" ")) for line in lines if line.strip()), default=0)
    before = _before_all([line[indent:] for line in lines])
    return [before.sub("", line[indent:], count=1) if before else line[indent:] for line in lines]


def _before_all(lines: Sequence[str]) -> re.Pattern[str] | None:
    """Return what an unknown program put before the lines of a server; None where they begin as a server's do."""
    if any(_OF_SERVER.match(line) for line in lines):
        return None
    server = next(
        (found for found in map(_OF_SERVER.search, lines) if found and found.start() <= _LONGEST_BEFORE), None
    )
    if server is None:
        return None
    first = server.string[: server.start()]
    before = re.compile(r"\d+".join(map(re.escape, _NUMBERS.split(first))))
    filled = [line for line in lines if line.strip()]
    alike = sum(bool(before.match(line)) for line in filled[:_SAMPLE])
    return before if alike >= _ALIKE * len(filled[:_SAMPLE]) else None


def _lines(raw: str) -> Iterator[str]:
    """Yield what a program printed in a line of a file, without the prefixes of other programs."""
    if raw.startswith("{"):
        raw = _kept(raw)
    # A bar is drawn over with a carriage return; journald and GitHub show text behind it.
    for part in raw.rstrip("\r").split("\r", MOST_LINES):
        line = printable(part)
        line = _LOST_COLOUR.sub("", line)
        for _ in range(3):
            found = _BEFORE.match(line)
            if found is None:
                break
            line = line[found.end() :]
        yield line


def _kept(raw: str) -> str:
    """Return the line that a JSON object of docker or journald keeps; the text itself where it is none."""
    try:
        kept = json.loads(raw)
    except (ValueError, RecursionError):
        return raw
    for value in (kept.get(key) for key in _KEPT):
        if isinstance(value, str):
            return value.rstrip("\n")
        # Journald writes a line with colours as numbers.
        if isinstance(value, list) and all(type(number) is int and 0 <= number < 256 for number in value):
            return bytes(value).decode("utf-8", "replace").rstrip("\n")
    return raw


def explain_file(
    lines: Sequence[str],
    release: str = "",
    status: int | None = None,
    software: Callable[[str], Mapping[str, object]] = lambda _release: {},
) -> Cause:
    """Return why the program ended that printed these lines; read() makes them. Secrets in them are masked.

    release: the release that ran, "" if it is not known. status: exit status of the program. software: returns the
    catalogue's entry for the software of a release or version, {} for an unknown one. The id of an unknown cause is
    "unknown", that of a log without a failure "no-failure".
    """
    # People give the result to others, with what apt, pip and servers print of accounts and tokens. A line is masked
    # before it is cut: no pattern finds a part of a secret.
    return _explained(list(masked_lines(lines)), Facts(release=release or None, status=status), software)


def _explained(lines: Sequence[str], facts: Facts, software: Callable[[str], Mapping[str, object]]) -> Cause:
    # A prompt may have the words of any program.
    others = list(_without_requests(lines))
    programs = list(_of_programs(others, served=_begins_late(lines)))
    text = "\n".join(line[:_LONGEST] for line in programs)
    if _BUILD.search(text):
        return _of_build(programs, text, facts)
    found = None
    if _PACKAGES.search(text) or build_log.is_make_log(text):
        found = _of_packages(text, facts.release or "", software)
    if found is None and _KERNEL.search(text):
        found = _of_kernel(programs, facts)
    if found is None and _HCCL.search(text):
        found = _of_hccl(programs, text, facts)
    if found is None and _HL_QUAL.search(text):
        found = _of_hl_qual(text)
    return found or _of_pip(programs) or _of_server(lines, others, facts)


def _of_build(lines: Sequence[str], text: str, facts: Facts) -> Cause:
    """Return why an image's build failed; what a step of it could not do may be in the list of faults."""
    steps = [printable(found["title"]) for found in _STEP.finditer(text)]
    title = f"the step {steps[-1][:CHARACTERS]}" if steps else "an unknown step"
    refusal = failure(title, lines)
    if refusal.id == "build_failed" and (known := explain(lines, facts)).id:
        return known
    if refusal.id == "build_failed" and not _BUILD_ENDED.search(text):
        return _without_failure(f"The last step that began: {steps[-1][:CHARACTERS]}." if steps else "")
    return _of_refusal(refusal, _telling(lines, refusal))


_BUILD_ENDED = re.compile(
    r"(?im)^(?:#\d+ )?ERROR|failed to solve|did not complete successfully|returned a non-zero code"
)


def _of_packages(text: str, release: str, software: Callable[[str], Mapping[str, object]]) -> Cause | None:
    """Return why packages were not installed, or the driver not built or loaded; None if no pattern matches."""
    kernel, attempt = build_log.last_attempt(text)
    failed = kernel or next((found[1] for found in _BUILT_FOR.finditer(text)), "")
    versions = _VERSION.findall(attempt)
    family = "rhel" if ".el" in failed else "ubuntu"
    newest = listed(software(release or (versions[-1] if versions else "")), "", family)
    named = kernel or "(the log does not say which)"
    built = build_log.cause(attempt, named, newest=newest) if build_log.is_make_log(text) else None
    refusal = built or troubles.recognised(text, newest=newest)
    return _of_refusal(refusal, _telling(text.split("\n"), refusal)) if refusal else None


_BUILT_FOR = re.compile(r"module build on kernel: (\w\S{0,99})")
_VERSION = re.compile(r"\bhabanalabs(?:-dkms)?[-/ (]{1,2}(\d{1,3}\.\d{1,3}\.\d{1,3})")


def _of_kernel(lines: Sequence[str], facts: Facts) -> Cause | None:
    """Return the driver's fault in the kernel's log, or that it was short of memory; None without one."""
    killed = [line for line in lines if _OUT_OF_MEMORY.search(line)]
    if killed:
        entry = fault("out-of-host-memory")
        status = "unknown" if facts.status is None else facts.status
        case = "limit" if all("cgroup" in line for line in killed) else ""
        return _cause(entry.id, *fill(entry, case, count=len(killed), status=status), killed, retry=True)
    corrupted = [line for line in lines if _PAGE_TABLES.search(line)]
    if corrupted:
        who = [found["name"].strip() for found in map(kernel_log.CORRUPTED_BY.search, corrupted) if found]
        named = ", ".join(dict.fromkeys(who)) or "an unnamed process"
        entry = fault("page-tables-corrupted")
        return _cause(entry.id, *fill(entry, count=len(who) or len(corrupted), who=named), corrupted)
    errors = [line for line in lines if _KERNEL.search(line) and _KERNEL_ERROR.search(line)]
    found = of_kernel_log(errors, [line for line in lines if _KERNEL.search(line)])
    if not found:
        return None
    if found[0].id == "driver-errors" and (known := explain(lines, facts)).id:
        return known
    remedy = fault(found[0].id).remedy
    return _cause(found[0].id, found[0].sentence.removesuffix(remedy).rstrip(), remedy, errors or list(lines))


def _of_hccl(lines: Sequence[str], text: str, facts: Facts) -> Cause | None:
    """Return why a run of hccl_demo does not count; None where the list of faults says more, or nothing failed."""
    known = explain(lines, facts)
    if known.id:
        return known
    ended = re.search(r"Exiting HCCL demo with code: (\d{1,3})|ended with exit code (\d{1,6})", text)
    status = facts.status if facts.status is not None else int(ended[1] or ended[2]) if ended else None
    run = hccl.parse_output(text, ranks=_MOST_RANKS, status=status)
    if run.figures and (status is None or run.failure is None or run.failure.id == "hccl-inconsistent"):
        return _without_failure(f"It has {len(run.figures)} figures of hccl_demo.")
    failure = run.failure
    # One that prints an error has ended.
    if failure is None or (failure.id == "hccl-hangs" and any(map(_says_failed, lines))):
        return None
    said = _telling_words(lines, _HCCL_ERROR)
    retry = failure.id not in _LISTED or fault(failure.id).retry
    return _cause(failure.id, failure.cause, failure.remedy, said, retry=retry)


_MOST_RANKS = 8
# pip prints the first before it succeeds, vllm bench serve the second at its end, Python without an exception the last.
_HARMLESS = re.compile(
    r"pip's dependency resolver does not currently take into account|^Failed requests: +0\s*$|\bNoneType: None$"
)
_HCCL_ERROR = re.compile(r"(?i)error|fail|exit code|abort|bad\b|HCCL demo")


def _of_hl_qual(text: str) -> Cause:
    """Return which card hl_qual failed, or that it failed none."""
    run = burn_in.parse_hl_qual(text, 0)
    if run.passed is not False:
        return _without_failure(run.sentence)
    said = [line for line in text.splitlines() if "FAILED" in line]
    return _cause("fabric_failed", run.sentence, "Replace the card, or ask the vendor.", said)


def _of_pip(lines: Sequence[str]) -> Cause | None:
    """Return that pip replaced Habana's PyTorch by another one, whatever its exit status."""
    replaced = pytorch.replaced_in(lines)
    if replaced is None or not pytorch.is_habanas(replaced.before):
        return None
    refusal = pytorch.refusal("This environment", "", replaced.before, replaced.after, replaced=replaced)
    return _of_refusal(refusal, [line for line in lines if f"torch-{replaced.after}" in line]) if refusal else None


def _of_server(lines: Sequence[str], others: Sequence[str], facts: Facts) -> Cause:
    """Return why a server ended, or that nothing failed. others: the lines that show nothing of a request."""
    if stopped := _of_stop(others, facts):
        return stopped
    log, progress = ServerLog(served=_begins_late(lines)), Progress()
    if facts.command is None:
        facts = replace(facts, command=tuple(line for line in others if _ARGUMENTS in line) or None)
    facts = _with_versions(facts, others)
    for line in lines:
        log.add(line)
        progress.hear(line)
    if facts.filling is None and progress.phase == "loading":
        facts = replace(facts, filling=progress.filling)
    found = explain_log(log, facts)
    # Servers that start and serve print warnings, too.
    if found.id and (log.failed or facts.status or not log.served):
        return found
    is_server = progress.phase != "starting"
    errors = [] if is_server else [line for line in others if _says_failed(line)]
    failed = log.died or log.last_error or errors or log.chains()
    if not failed and not facts.status:
        return _of_shapes(others) or _without_failure(
            *((f"As far as it goes: {progress.text()}.",) if is_server else (_of_figures(others), "figures"))
        )
    entry = fault("unknown")
    # A cause quotes no line that may hold a request.
    quotable = not log.served and not found.exception
    said = (_last(errors, QUOTED) if quotable else ()) or found.lines or (() if log.served else _last(others, QUOTED))
    cause = f"{entry.sentence} {quote(said[-1])}" if said else entry.sentence
    return _cause(entry.id, cause, entry.remedy, said, retry=found.retry)


# Ctrl-C on a terminal, Python's and vLLM's handlers of signals, and uvicorn.
_STOPPED = re.compile(
    r"^\^C|^KeyboardInterrupt\b|\b(?i:received|caught|got|due to)\b.{0,30}\bSIG(?:TERM|INT)\b"
    r"|^Shutting down FastAPI HTTP server|^INFO: +Shutting down$|\bexited with code (?:130|143)\b"
)


def _of_stop(lines: Sequence[str], facts: Facts) -> Cause | None:
    """Return that a program was stopped on purpose; None where nothing asked it to, or where it had failed before."""
    texts = [read_line(line).text for line in lines]
    at, found = next(((at, found) for at, found in enumerate(map(_STOPPED.search, texts)) if found), (0, None))
    if found is None:
        return None
    at = _begin_of_traceback(texts, at)
    if _of_server(lines[:at], lines[:at], replace(facts, status=None)).id not in ("no-failure", "not-warmed-up"):
        return None
    entry = fault("stopped-on-purpose")
    return _cause(entry.id, *fill(entry), [found[0]], retry=True)


def _begin_of_traceback(texts: Sequence[str], at: int) -> int:
    """Return where the traceback begins whose exception is at a place, with those it came from; the place without one.

    Marks of a chain of exceptions stand between blank lines.
    """

    def above(place: int, *, frames: bool) -> int:
        while place and (not texts[place - 1].strip() or (frames and texts[place - 1].startswith(" "))):
            place -= 1
        return place - 1

    while (begin := above(at, frames=True)) >= 0 and texts[begin].endswith(TRACEBACK):
        at, mark = begin, above(begin, frames=False)
        if mark < 1 or not texts[mark].startswith(("During handling of", "The above exception was")):
            break
        at = max(0, above(mark, frames=False))
    return at


def _with_versions(facts: Facts, lines: Sequence[str]) -> Facts:
    """Return the facts with the model, the driver and the release of the image, as far as one of each is named."""

    def only(pattern: re.Pattern[str]) -> str | None:
        named = {found[1] for found in map(pattern.search, lines) if found}
        return named.pop() if len(named) == 1 else None

    return replace(
        facts,
        model=facts.model or only(_MODEL),
        driver=facts.driver or only(_DRIVER),
        image=facts.image or only(_IMAGE),
    )


def _says_failed(line: str) -> bool:
    """Whether a line tells of a failure: more than a warning, and none that only reports that of another process."""
    if not _FAILED.search(line) or _HARMLESS.search(line) or WRAPPER.search(line):
        return False
    return not is_minor(read_line(line))


def _begins_late(lines: Sequence[str]) -> bool:
    """Whether a log is the end of a longer one: clients ask before the server is seen to listen."""
    first = next((line for line in lines if LISTENS.search(line) or serves(line)), "")
    return bool(first) and not LISTENS.search(first)


def _without_requests(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines that show nothing of a request, nor why one failed."""
    served, api_server, requests = _begins_late(lines), ApiServer(), Requests()
    for line in lines:
        of_request = requests.has(line, served=served) or NAMES_OF_REQUEST.search(line)
        if not of_request and not (served and api_server.has(read_line(line))):
            yield line
        served = served or bool(LISTENS.search(line[:_LONGEST]) or ACCESS.match(line))


def _of_programs(lines: Sequence[str], *, served: bool) -> Iterator[str]:
    """Yield the lines that other programs may have printed: once a server listens, no line of its own.

    What follows an exception of its own may go on with its message, which may be a client's.
    """
    inside = False
    for line in lines:
        read = read_line(line)
        raised = read.text.endswith(TRACEBACK) or bool(_RAISED.match(read.text))
        own = bool(read.process or read.level or raised)
        inside = served and ((raised or read.level in ("ERROR", "CRITICAL")) if own else inside)
        if not (served and own) and not inside:
            yield line
        served = served or bool(LISTENS.search(line[:_LONGEST]))


_RAISED = re.compile(r"(?:\w{1,60}\.){0,8}\w{0,60}(?:Error|Exception): ")
_FAILED = re.compile(
    r"(?i)\b\w*(?:error|exception)\b|traceback|\bfail(?:ed|ure)\b|\bfatal\b|\bkilled\b|\baborted\b|^E: "
    r"|\bexited with code [1-9]|blocked for more than \d+ seconds|not enough slots|attempt to run as root"
    r"|\bFailed(?:Scheduling|Mount|Create\w{0,20})\b|\bnot (?:allowed|permitted)\b|\b(?:denied|rejected|refused)\b"
    r"|\bfault (?:addr|reason)\b|command not found|segmentation fault|core dumped"
    r"|: (?:No such file or directory|Permission denied)$"
)


# A line of the plugin about a prompt (vllm_gaudi, bucketing), beside the one about each shape.
_NOT_PREPARED = re.compile(
    r"(?i)(?P<phase>prompt|decode) bucket for \((?P<numbers>\d{1,9}, \d{1,9}, \d{1,9})\) was not prepared"
)


def _of_shapes(lines: Sequence[str]) -> Cause | None:
    """Return that a server got shapes that were not warmed up, with the variables that cover them; None without one."""
    shapes, said = Counter[ComputedShape](), []
    for line in lines:
        found = _NOT_PREPARED.search(line)
        numbers = [int(number) for number in found["numbers"].split(", ")] if found else []
        shape = ComputedShape(found["phase"].lower(), *numbers) if found else shape_of(line)
        if shape is not None:
            shapes[shape] += 1
            said.append(line)
    if not shapes:
        return None
    options = []
    for phase, names in DIMENSIONS.items():
        of_phase = [shape for shape in shapes if shape.phase == phase]
        largest = (
            max((shape.batch for shape in of_phase), default=0),
            max((shape.query if phase == PROMPT else shape.blocks for shape in of_phase), default=0),
        )
        options += [f"VLLM_{name}_BUCKET_MAX of at least {number}" for name, number in zip(names, largest) if number]
    case = "log" if options else "unknown"
    facts = {"count": sum(shapes.values()), "shape": shapes.most_common(1)[0][0], "option": " and ".join(options)}
    why = "they are of unified attention"
    cause = fill(fault("not-warmed-up"), case, instance="This server", since="the log's begin", why=why, **facts)
    return _cause("not-warmed-up", *cause, said, retry=True)


def _of_table(lines: Sequence[str]) -> str:
    """Return a sentence on the cards in a table of hl-smi; "" if there is none."""
    try:
        table = parse_table("\n".join(lines))
    except ValueError:
        return ""
    names = Counter(f"{card.name} ({card.memory_total_mib} MiB)" for card in table.cards)
    cards = ", ".join(f"{count} x {name}" for name, count in names.items()) or "no card"
    return f"It is a table of hl-smi: {cards}; driver {table.driver_version or 'of an unknown version'}."


# What vllm bench serve prints at its end.
_BENCHMARK = re.compile(
    r"^(?P<name>Successful requests|Output token throughput \(tok/s\)|Median TTFT \(ms\)|Median TPOT \(ms\)): +"
    r"(?P<value>\d{1,12}(?:\.\d{1,6})?)\s*$"
)


def _of_benchmark(lines: Sequence[str]) -> str:
    """Return a sentence on the figures of vllm bench serve; "" if there are none."""
    figures = [f"{found['name']} {found['value']}" for found in map(_BENCHMARK.match, lines) if found]
    return f"It is the result of vllm bench serve: {', '.join(figures)}." if figures else ""


def _of_figures(lines: Sequence[str]) -> str:
    """Return a sentence on a table of hl-smi or the figures of a benchmark; "" if there are none."""
    return _of_table(lines) or _of_benchmark(lines)


def _without_failure(how_far: str, case: str = "") -> Cause:
    """Return that nothing failed. case: another remedy, where how_far says something."""
    entry = fault("no-failure")
    cause, remedy = fill(entry, case if how_far else "")
    return Cause(entry.id, f"{cause} {how_far}".strip(), remedy, retry=True)


def _of_refusal(refusal: Refusal, lines: Sequence[str]) -> Cause:
    retry = fault(refusal.id).retry if refusal.id in _LISTED else refusal.id in _PASSING
    return _cause(refusal.id, refusal.cause, refusal.remedy, lines, retry=retry)


# Refusals of packages whose reason may be gone at another try.
_PASSING = ("packages_locked", "repository_down")


def _cause(id: str, cause: str, remedy: str, lines: Sequence[str], *, retry: bool = False) -> Cause:
    """Return a cause with its first and last lines."""
    said = [line.strip()[:CHARACTERS] for line in lines if line.strip()]
    few = said if len(said) <= QUOTED else [*said[: QUOTED - 1], said[-1]]
    return Cause(id, cause, remedy, retry, tuple(few))


# Lines of a log that a sentence of a refusal may quote.
_TELLING = re.compile(
    r"(?i)^(?:E|W|Err:\d+|dpkg|Error!|modprobe|modinfo|fatal)\b|\b(?:(?:Pre)?Depends|Breaks|Conflicts): |\berror\b"
    r"|\bfailed\b|not found|cannot|could not|unknown symbol|no space|no such file|locked|already contains|refused"
    r"|unable|trying to overwrite"
)


def _telling(lines: Sequence[str], refusal: Refusal) -> list[str]:
    """Return the lines of errors; a value that the sentence quotes makes a line tell more than others."""
    quoted = {word for word in re.findall(r"[\w./-]{6,}", str(refusal)) if re.search(r"[\d/_]", word)}
    errors = _telling_words(lines, _TELLING)
    return [line for line in errors if any(word in line for word in quoted)] or errors


def _telling_words(lines: Sequence[str], pattern: re.Pattern[str]) -> list[str]:
    return [line for line in lines if pattern.search(line[:_LONGEST])] or list(_last(lines, 1))


def _last(lines: Sequence[str], count: int) -> tuple[str, ...]:
    return tuple(line for line in lines if line.strip())[-count:]


def page(cause: Cause) -> list[str]:
    """Return a cause as lines for people, at most WIDTH characters each but for the log's own."""
    again = "it may help." if cause.retry else "it is likely to fail in the same way until that is done."
    where = f"docs/faults.md#{cause.id}" if cause.id in _LISTED else "docs/refusals.md"
    return [
        *_wrapped(f"[{cause.id}] {cause.cause}"),
        *(_wrapped(f"What to do: {cause.remedy}") if cause.remedy else []),
        *(_wrapped(f"Trying again without a change: {again}") if cause.id not in _NO_END else []),
        *(["The lines that matter:"] if cause.lines else []),
        *(f"  | {printable(line)}" for line in cause.lines),
        f"More: {where}",
    ]


WIDTH = 110


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(printable(text), WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


_NO_END = ("no-failure", "unknown", "stopped-on-purpose")
_LISTED = frozenset(known.id for known in FAULTS)


def document(cause: Cause) -> dict[str, object]:
    """Return a cause as plain data, for programs. Its texts are printable."""
    return {
        "id": cause.id,
        "cause": printable(cause.cause),
        "remedy": printable(cause.remedy),
        "retry": cause.retry,
        "lines": [printable(line) for line in cause.lines],
    }
