"""How often an instance is tried, and how long before the next time. Pure: no clock, no file."""

from __future__ import annotations

from typing import Any

from .clock import LONGEST_PAUSE


def pause_before(failures: int, first: float) -> float:
    """Seconds to wait before the next try after so many failures in a row: 0, first, twice that, ... at most 300."""
    return 0.0 if failures == 0 else min(first * 2 ** (failures - 1), LONGEST_PAUSE)


def failures_so_far(earlier: dict[str, Any], digest: str, boot: str) -> int:
    """Count the failures in a row that this start continues.

    A new plan, a reboot, a stop as asked, a refusal or a surrender start the count at zero: then a person, or the boot,
    starts the instance. So does a start after the instance had been serving for a while.
    """
    if earlier.get("plan") != digest or earlier.get("boot") != boot or earlier.get("phase") == "stopped":
        return 0
    failures = int(earlier.get("failures", 0))
    if earlier.get("phase") != "failed":
        return failures + 1  # killed before it could say why
    return failures if (earlier.get("reason") or {}).get("retry") and not earlier.get("gave_up") else 0


def repeats(earlier: dict[str, Any] | None, facts: dict[str, Any], failures: int) -> bool:
    """Whether a start ended with the same exception as the one before it, so that another try would end so too.

    earlier: the reason of the last start; facts: that of this one, both with "exception", "plan" and "driver".
    failures: those in a row before this one; 0 where a new plan, a boot or a person began again. A reason without an
    exception may pass.
    """
    if not earlier or not failures or not facts.get("exception"):
        return False
    return all(earlier.get(name) == facts.get(name) for name in ("exception", "plan", "driver"))


def last_reason(earlier: dict[str, Any]) -> dict[str, Any] | None:
    """Why the last start ended; None if it served, was stopped as asked, or left no reason.

    Once a server has served, the reason of an earlier failed start no longer counts.
    """
    own: dict[str, Any] | None = earlier.get("reason")
    if own or "ready" in earlier or earlier.get("phase") == "stopped":
        return own
    return earlier.get("last_reason")
