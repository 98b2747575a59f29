"""Find why a server or a program ended: the cause in its log, decided by facts where one line has several causes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from signal import Signals

from ..base.server_log import LEFT_OUT
from .entry import KnownFault
from .facts import Facts
from .shared import NOT_ACQUIRED
from .tracebacks import LOG_FAULTS, OF_VENDOR, Chain, RaisedException, ServerLog, signs_in, without_message
from .words import fault, fill, groups

# Statuses of docker run itself: 125 the engine refused, 126 and 127 the command could not be run.
DOCKER_REFUSED = (125, 126, 127)
QUOTED = 300
# A check of HCL that failed, and is none of those that have an entry; and the code with which its caller ends then.
HCL_CHECK = "hcl-check-failed"
CODE = re.compile(NOT_ACQUIRED)
# Several causes print this line. A line that another cause alone prints decides between them.
AMBIGUOUS = "card-not-acquired"
# How a process ends that raises no exception. The first two are why the others happened.
ENDS = ("memory-limit", "memory-corrupted", "process-killed", "crashed", "bus-error")
_VARIES = re.compile(r"0x[0-9a-fA-F]+|\d+(?:\.\d+)?")


@dataclass(frozen=True)
class Cause:
    """Why a server or a program ended.

    id: that of the fault, "" if the cause is unknown. cause and remedy: sentences for people. retry: whether another
    attempt may help. lines: at most three lines of the log that matter, without their prefixes; the last one is the
    error itself. exception: the exception that explains the end, without numbers, for a comparison with another end; ""
    without one. end: the fault that describes an unknown end.
    """

    id: str
    cause: str
    remedy: str
    retry: bool
    lines: tuple[str, ...] = ()
    exception: str = ""
    end: str = ""


def explain(lines: Iterable[str], facts: Facts) -> Cause:
    """Return why the server or program with these lines ended."""
    log = ServerLog()
    for line in lines:
        log.add(line)
    return explain_log(log, facts)


def explain_log(log: ServerLog, facts: Facts) -> Cause:
    """Return why a server ended whose log was collected as it passed."""
    chains = log.chains()
    if facts.served:
        chains = [replace(chain, raised=[replace(each, served=True) for each in chain.raised]) for chain in chains]
    first = _first(chains)
    if first is not None and first.filling:
        facts = replace(facts, filling=first.filling)
    found = _known(log, chains, first, facts)
    if found is not None:
        return _cause(*found, facts, first, served=log.served or facts.served is True)
    end = _end(log, facts, first)
    said = _three_lines(first) if first is not None else _last_words(log, facts)
    if end in (*ENDS, "out-of-host-memory", "container-killed", "process-vanished"):
        return Cause(end, *_sentences(end, facts, said), retry=True, lines=said)
    cause = " ".join(_sentences(end, facts, said, "" if said else "silent"))
    return Cause("", cause, "", retry=True, lines=said, exception=_signature(first), end=end)


def quote(line: str, limit: int = QUOTED) -> str:
    """Quote a line of another program in a sentence."""
    text = line.strip()
    return f'"{text if len(text) <= limit else text[: limit - 1] + "…"}".'


def recognise(text: str, facts: Facts) -> KnownFault | None:
    """Return the fault that a line shows. What facts prove comes before what the line alone says."""
    matching = [known for known, _begin in signs_in(text) if _applies(known, facts)]
    proven = [known for known in matching if known.when and facts.is_so(known.when)]
    by_line = [known for known in matching if known.signs and re.search(known.signs, text)]
    # What facts exclude comes last: a line that has only this meaning keeps it.
    by_line.sort(key=lambda known: bool(known.when) and facts.is_so(known.when) is False)
    return next(iter([*proven, *by_line]), None)


def _applies(known: KnownFault, facts: Facts) -> bool:
    asked = not known.asked or any(known.asked in word for word in facts.command or ())
    return asked and (not known.served or facts.served is True)


def _known(
    log: ServerLog, chains: list[Chain], first: RaisedException | None, facts: Facts
) -> tuple[KnownFault, str] | None:
    """Return the known fault that explains the end, and the line that shows it."""
    of_conditions = [(known, text) for text in log.conditions if (known := recognise(text, facts))]
    specific = next((found for found in of_conditions if found[0].id != HCL_CHECK), None)
    if specific is not None:
        return specific
    found = _of_an_end(log, chains) or _of_chains(chains, first, facts, has_condition=bool(of_conditions))
    if found is not None and found[0].id != AMBIGUOUS:
        return found
    if of_conditions:
        return of_conditions[0]
    for error in (True, False):
        if not error and (found is not None or (first is not None and not first.is_consequence)):
            return found
        for known in LOG_FAULTS:
            number, text = log.telling.get((known.id, error), (0, ""))
            # A later error explains the end better than a warning, also where nobody knows it.
            if not error and first is None and number < log.last_error_number:
                continue
            if text and recognise(text, facts) is known and not (known.consequence and first is not None):
                return known, text
    return found


def _of_an_end(log: ServerLog, chains: list[Chain]) -> tuple[KnownFault, str] | None:
    """Return how a process ended, and the line that shows it, if no exception came before that.

    What its partners raise afterwards follows from it. What crashes after an exception does so while it ends.
    """
    roots = ((chain.number, chain.explaining()) for chain in chains)
    raised = [number for number, root in roots if root is not None and not root.is_consequence]
    told = [
        (known.id not in ENDS[:2], *log.telling[known.id, error], known)
        for known in LOG_FAULTS
        for error in (True, False)
        if known.id in ENDS and (known.id, error) in log.telling
    ]
    if not told:
        return None
    _, number, text, known = min(told, key=lambda each: each[:2])
    return None if any(each < number for each in raised) else (known, text)


def _of_chains(
    chains: list[Chain], first: RaisedException | None, facts: Facts, *, has_condition: bool
) -> tuple[KnownFault, str] | None:
    """Return the known fault that an exception shows, and its line; of consequences only where nothing else failed."""
    of_chains = [raised for chain in _requests_last(chains) for raised in _by_weight(chain)]
    for raised in [each for each in of_chains if not each.is_consequence] + of_chains:
        alone = first is None or first.is_consequence or first.text == raised.text
        for text in raised.texts:
            known = recognise(text, facts)
            # HCL's own line says more than the code that follows from it.
            if known and (alone or not known.consequence) and not (has_condition and CODE.search(text)):
                return known, text.strip()
    return None


def _requests_last(chains: list[Chain]) -> list[Chain]:
    """Return the chains, those of code that answers requests last: what fails there fails for one client."""
    return sorted(chains, key=lambda chain: chain.of_request)


def _by_weight(chain: Chain) -> list[RaisedException]:
    """Return the exceptions of a chain that are no wrappers, the explaining one first."""
    root = chain.explaining()
    if root is None:
        return []
    return [root, *(each for each in chain.raised if each is not root and not each.is_wrapper)]


def _first(chains: list[Chain]) -> RaisedException | None:
    """Return the first exception that explains the end; a consequence only where there is nothing else.

    The engine of the fork logs an exception's line before its traceback: of the same one that with its place counts.
    """
    found = [root for chain in _requests_last(chains) if (root := chain.explaining()) is not None]
    first = next((root for root in found if not root.is_consequence), found[0] if found else None)
    if first is None or first.frame:
        return first
    return next((root for root in found if root.text == first.text and root.frame), first)


def _cause(known: KnownFault, text: str, facts: Facts, first: RaisedException | None, *, served: bool) -> Cause:
    case = next((name for name in known.remedies if facts.is_so(name)), "") if known.cases else ""
    shown = re.search(known.signs, text) if known.signs else None
    it = LEFT_OUT if served else groups(shown) if shown else ""
    cause, remedy = fill(known, case, it=it, **_checks(text, facts), **facts.words())
    quoted = _telling(text) if served else text
    lines = (quoted[:QUOTED],) if quoted else ()
    retry = known.retry or facts.served is True
    exception = "" if known.retry else _signature(first)
    return Cause(known.id, cause, remedy, retry, lines, exception)


def _telling(text: str) -> str:
    """Return what may be quoted of a server that listens: a line of the vendor's, or the type of an exception."""
    masked = without_message(text)
    return text if OF_VENDOR.search(text) else "" if masked == LEFT_OUT else masked


def _checks(text: str, facts: Facts) -> dict[str, str]:
    """Return what to check, in the order of the list: each fault that the line may mean and facts do not exclude."""
    open_ = [
        known.check
        for known, _begin in signs_in(text)
        if known.check and known.when and facts.is_so(known.when) is None
    ]
    return {"checks": "; ".join(f"{number}. {check}" for number, check in enumerate(open_, 1))}


def _end(log: ServerLog, facts: Facts, first: RaisedException | None) -> str:
    """Return the fault that describes an end whose cause no line gives."""
    status = facts.status or 0
    if (facts.kernel_oom or 0) > 0 and (status != 0 or log.died):
        return "out-of-host-memory"
    unknown = first is None and facts.kernel_oom is None
    if status == 128 + Signals.SIGKILL and unknown:
        return "process-killed"
    if status in (128 + Signals.SIGKILL, 128 + Signals.SIGTERM):
        return "container-killed"
    if status == 128 + Signals.SIGSEGV:
        return "crashed"
    if status == 128 + Signals.SIGBUS:
        return "bus-error"
    if log.vanished and not log.before_death and unknown:
        return "process-vanished"
    if log.died:
        return "engine-died"
    return "container-not-started" if status in DOCKER_REFUSED else "server-ended"


def _sentences(end: str, facts: Facts, said: tuple[str, ...], case: str = "") -> tuple[str, str]:
    status = "unknown" if facts.status is None else facts.status
    signal = Signals(facts.status - 128).name if end == "container-killed" and facts.status is not None else ""
    quoted = " ".join(quote(line) for line in said)
    return fill(fault(end), case, said=quoted, status=status, signal=signal, count=facts.kernel_oom or 0)


def _three_lines(raised: RaisedException) -> tuple[str, ...]:
    return tuple(line[:QUOTED] for line in raised.shown)


def _last_words(log: ServerLog, facts: Facts) -> tuple[str, ...]:
    said = log.before_death if log.died else log.last_error or log.last_words
    if not said:
        return ()
    if facts.served and not log.served:
        said = without_message(said)
    return (said.strip()[:QUOTED],)


def _signature(raised: RaisedException | None) -> str:
    """Return an exception without what differs between two starts: addresses, process ids, sizes."""
    return "" if raised is None else _VARIES.sub("0", raised.shown[-1][:QUOTED])
