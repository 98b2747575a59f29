"""Answers of hubs, git hosts and proxies: their own message, how long they ask to wait, and whether to ask again."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from email.utils import parsedate_to_datetime

MOST_SHOWN = 300  # characters of a message
MOST_READ = 65536  # bytes of an answer that may hold one
# Keys of a JSON answer that hold a message: git-lfs and GitHub (message), Hugging Face (error), GitLab (message,
# error_description), ModelScope (Message), a registry's list (errors).
_KEYS = ("message", "Message", "error_description", "error", "Error", "detail", "msg", "errors")
# What looks like a token, and the query of an address, which may be signed.
_SECRET = re.compile(
    r"\b(?:hf|gh[a-z]|glpat|github_pat|ms)[_-][A-Za-z0-9_-]{8,}|(?<=://)[^/\s@]+@|(?<=\?)[^\s'\"]{16,}"
)
_GATED = re.compile(
    r"\bgated\b|licen[cs]e|access to (?:this )?model .*restricted|awaiting|access request|agreement", re.I
)
_DENIED = re.compile(r"denied|forbidden|permission|(?:un|not )authori[sz]ed|not allowed|credentials|private", re.I)
# A number this large is a time (GitHub and GitLab state the end of a window so), not a duration.
_A_TIME = 1_000_000_000

# Client errors that may pass by themselves, and server errors that do not: an answer of the second kind is final.
_PASSING_CLIENT = {408, 421, 423, 425, 429}
_FINAL_SERVER = {501, 505, 507, 509, 511}


def message_of(headers: Mapping[str, str], body: bytes, secrets: Iterable[str | None] = ()) -> str:
    """Return the message of a refusing answer, in one printable line of bounded length; empty without one.

    ``headers``: names are compared as the mapping does it. ``secrets``: texts that must not be shown.
    """
    text = headers.get("X-Error-Message") or ""
    if not text:
        whole = body[:MOST_READ].decode("utf-8", errors="replace")
        kind = (headers.get("Content-Type") or "").partition(";")[0].strip().lower()
        if kind.endswith("html") or whole.lstrip()[:1] == "<":
            title = re.search(r"<title[^>]*>(.*?)</title>", whole, re.I | re.S)
            text = title[1] if title else ""
        else:
            try:
                text = _in_json(json.loads(whole))
            except (RecursionError, ValueError):
                text = "" if kind.endswith("json") else whole
    for secret in secrets:
        if secret:
            text = text.replace(secret, "***")
    text = " ".join("".join(c if c.isprintable() else " " for c in _SECRET.sub("***", text)).split())
    return text if len(text) <= MOST_SHOWN else text[:MOST_SHOWN].rstrip() + "…"


def _in_json(content: object) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return next((text for item in content if (text := _in_json(item))), "")
    if isinstance(content, dict):
        return next((text for key in _KEYS if (text := _in_json(content.get(key)))), "")
    return ""


def quoted(message: str) -> str:
    """Return a message as the end of a sentence; empty without one."""
    return f'. It says: "{message}"' if message else ""


def is_gated(headers: Mapping[str, str], message: str) -> bool:
    """Whether a refusal is about a licence that has to be accepted."""
    return headers.get("X-Error-Code") == "GatedRepo" or _GATED.search(message) is not None


def is_denied(message: str) -> bool:
    """Whether a 403 is about rights: it says so, or gives no reason."""
    return not message or _DENIED.search(message) is not None


def is_limited(status: int, headers: Mapping[str, str]) -> bool:
    """Whether an answer means "too many requests": 429, or a 403 that says so in its headers (GitHub)."""
    return status == 429 or (
        status == 403 and ("Retry-After" in headers or headers.get("X-RateLimit-Remaining") == "0")
    )


def is_passing(status: int) -> bool:
    """Whether the same request may succeed later."""
    return status in _PASSING_CLIENT or (status >= 500 and status not in _FINAL_SERVER)


def pause_asked(status: int, headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds that an answer asks to wait; None where it does not ask.

    Retry-After is a number or a date. Of a rate limit, RateLimit ('"api";r=0;t=170', Hugging Face) and the older
    RateLimit-Reset and X-RateLimit-Reset (seconds, or a time since 1970) say when its window ends. ``now``: the time
    since 1970.
    """
    stated = _seconds(headers.get("Retry-After"), now)
    if stated is not None or not is_limited(status, headers):
        return stated
    windows = []
    for item in (headers.get("RateLimit") or "").split(","):
        fields = dict(re.findall(r";\s*([rt])\s*=\s*(\d+)", item))
        if "t" in fields and fields.get("r", "0") == "0":
            windows.append(float(fields["t"]))
    if windows:
        return max(windows)
    resets = (_seconds(headers.get(name), now) for name in ("RateLimit-Reset", "X-RateLimit-Reset"))
    return next((seconds for seconds in resets if seconds is not None), None)


def _seconds(header: str | None, now: float) -> float | None:
    if not header:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            return max(parsedate_to_datetime(header).timestamp() - now, 0.0)
        except (ValueError, TypeError, IndexError):
            return None
    if seconds != seconds or seconds == float("inf"):
        return None
    return max(seconds - now if seconds >= _A_TIME else seconds, 0.0)
