"""Why an instance does not serve, as its supervisor reports it. Why a server ended: faults/causes.py."""

from __future__ import annotations

from dataclasses import dataclass

from ..base.printable import printable
from ..faults.causes import Cause, quote
from ..faults.words import with_id

# Reasons caused by the node, with which another plan would fail as well.
_OF_THE_NODE = (
    *("engine-unreachable", "engine-missing", "engine-restarted", "runtime-missing", "cards-not-offered"),
    *("probe", "keys", "guard-missing", "container-name-taken", "container-killed", "port-blocked"),
    *("iommu-translates", "card-memory-held", "card-not-acquired", "verbs-not-passed"),
)
# After these reasons no further attempt is made: the server had all the time that it can get.
_OUT_OF_TIME = ("stalled", "start-timeout")


@dataclass(frozen=True)
class Reason:
    """Why an instance does not serve: kind for programs, message for people; retry: another attempt may help."""

    kind: str
    message: str
    retry: bool
    exception: str = ""
    """The exception that ended the server, for a comparison with its next end; "" if it may pass."""

    @property
    def message_with_id(self) -> str:
        """The message with the id of its entry in docs/faults.md."""
        return with_id(self.message, self.kind)

    def __post_init__(self) -> None:
        """Make the message printable: it may quote what a container, the engine or a tool said."""
        object.__setattr__(self, "message", printable(self.message))


class Failure(Exception):
    """The instance cannot run, or has stopped running; carries the Reason."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.message)
        self.reason = reason


class EngineGone(Exception):
    """The container engine does not answer."""


def configuration(kind: str, message: str) -> Failure:
    """Return a Failure that no retry can resolve: a person has to change something first."""
    return Failure(Reason(kind, message, retry=False))


def transient(kind: str, message: str) -> Failure:
    """Return a Failure that a retry may resolve."""
    return Failure(Reason(kind, message, retry=True))


def reason_of(cause: Cause) -> Reason:
    """Return the reason that a cause is, with the line that shows it."""
    known = f"{quote(cause.lines[-1])} " if cause.id and cause.lines else ""
    text = " ".join(part for part in (cause.cause, cause.remedy) if part)
    return Reason(cause.id or cause.end, f"{known}{text}", cause.retry, cause.exception)


def is_over(reason: Reason, tries: int, allowed: int) -> bool:
    """Whether to give up a changed plan after this failure; failures that the node causes do not count."""
    if reason.kind in _OF_THE_NODE:
        return False
    return not reason.retry or reason.kind in _OUT_OF_TIME or tries >= allowed
