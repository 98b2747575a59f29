"""Plans that an instance served with, and plans that failed: what is kept, what it goes back to, what is refused.

A plan is known by the digest of what determines it. What it starts from (image, guard, weights) may be another one
under the same digest, so a plan that failed counts as failed only while that is the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..base.documents import parse
from ..base.refusal import Refusal
from .signs import Reason

SCHEMA = 1
# Plans that served, and as many that never did.
MOST = 5
PLAN, ENVIRONMENT, EXPLANATION, MOUNTS = "plan.json", "environment", "explanation.json", "mounts"
# Without these there is nothing to start; better words alone make no other plan.
DETERMINING = (PLAN, ENVIRONMENT)
FILES = (*DETERMINING, EXPLANATION, MOUNTS)
# Of a digest, as people are shown it and may name it.
SHOWN = 12

# Reasons that lie with the node: another plan would fail as well.
_OF_THE_NODE = (
    *("engine-gone", "engine-missing", "engine-restarted", "runtime-missing", "driver-silent", "probe", "keys"),
    *("guard-missing", "container-name-taken", "container-killed", "port-shut"),
)
# A server that said nothing for so long, or started for so long, has had all the time there is.
_PATIENCE_SPENT = ("stalled", "over-budget")

_START = {"image": str, "guard": str, "weights": str, "driver?": str}
_FAILED = {"reason": str, "at": str, "by": str, "starts_from": _START}
_FORM = {"files": {str: str}, "starts_from": _START, "number": int, "served": str, "failed?": _FAILED}
_BACK = {"before": str, "after": str, "reason": str, "at": str, "by": str, "number?": int}


@dataclass(frozen=True)
class StartsFrom:
    """What a plan does not hold and its server depends on: the image's id, digests of guard and weights, the driver's
    version.

    Each is empty where there is none, or where it is not known.
    """

    image: str
    guard: str
    weights: str
    driver: str = ""


@dataclass(frozen=True)
class Failed:
    """Why and when a plan was given up. by: who took it back; empty for the supervisor."""

    reason: str
    at: str
    by: str
    starts_from: StartsFrom


@dataclass(frozen=True)
class Kept:
    """One plan of an instance: every file that describes it, and what became of it.

    number: counts the starts of the instance that came to serve, up to the last one with this plan; 0 where none did.
    A clock may be set back, this number is not. served: when that start was.
    """

    files: Mapping[str, str]
    starts_from: StartsFrom
    number: int = 0
    served: str = ""
    failed: Failed | None = None

    @property
    def digest(self) -> str:
        """Stand for the plan; 64 hexadecimal digits."""
        return digest_of(self.files)

    def document(self) -> dict[str, Any]:
        """What is written of it."""
        document = {**vars(self), "schema": SCHEMA, "files": dict(self.files), "starts_from": vars(self.starts_from)}
        if self.failed is None:
            del document["failed"]
        else:
            document["failed"] = {**vars(self.failed), "starts_from": vars(self.failed.starts_from)}
        return document


@dataclass(frozen=True)
class Back:
    """An instance goes, or went, back from one plan to another: their digests, and why, when and by whom.

    number: that of the plan it goes back to, as Kept has it at the time; 0 where a former release decided.
    """

    before: str
    after: str
    reason: str
    at: str
    by: str
    number: int = 0

    def document(self) -> dict[str, Any]:
        """What is written of it."""
        return {"schema": SCHEMA, **vars(self)}

    def has_served(self, kept: Iterable[Kept]) -> bool:
        """Whether the plan that the instance went back to has come to serve since; kept: of this instance."""
        after = next((each for each in kept if each.digest == self.after), None)
        return after is not None and (after.number > self.number if self.number else after.served >= self.at)

    @property
    def text(self) -> str:
        """Why the former plan is not run, as the end of a sentence."""
        if self.by:
            return f"{self.by} took the plan {self.before[:SHOWN]} back at {self.at}"
        return f"the plan {self.before[:SHOWN]} failed at {self.at}: {self.reason}"


def digest_of(files: Mapping[str, str]) -> str:
    """Stand for the files that determine a plan; 64 hexadecimal digits."""
    return hashlib.sha256("\0".join(files[name] for name in DETERMINING).encode()).hexdigest()


def read(text: str) -> Kept:
    """Read what was kept of a plan. Raises ValueError with what is wrong, in a clause that begins with "it"."""
    document = parse(text, _FORM, SCHEMA)
    files = {name: document["files"][name] for name in FILES if name in document["files"]}
    if any(name not in files for name in DETERMINING):
        raise ValueError("it lacks a file of the plan")
    failed = None
    if "failed" in document:
        said = document["failed"]
        failed = Failed(said["reason"], said["at"], said["by"], _start(said["starts_from"]))
    return Kept(files, _start(document["starts_from"]), document["number"], document["served"], failed)


def read_back(text: str) -> Back:
    """Read which way an instance goes, or went, back. Raises ValueError as read does."""
    document = parse(text, _BACK, SCHEMA)
    names = [name.rstrip("?") for name in _BACK]
    return Back(**{name: document[name] for name in names if name in document})


def _start(said: Mapping[str, str]) -> StartsFrom:
    return StartsFrom(said["image"], said["guard"], said["weights"], said.get("driver", ""))


def serves(kept: Iterable[Kept], files: Mapping[str, str], starts_from: StartsFrom, now: str) -> Kept:
    """What is to be kept of a plan that has come to serve; kept: of this instance, until now."""
    return Kept(dict(files), starts_from, 1 + max((each.number for each in kept), default=0), now)


def fails(kept: Iterable[Kept], files: Mapping[str, str], failed: Failed) -> Kept:
    """What is to be kept of a plan that has failed, or that somebody took back."""
    before = next((each for each in kept if each.digest == digest_of(files)), Kept(dict(files), failed.starts_from))
    return replace(before, failed=failed)


def to_forget(kept: Collection[Kept], needed: Collection[str]) -> list[str]:
    """Digests of plans that are kept no longer; none of those that are needed."""
    served = sorted((each for each in kept if each.number), key=lambda each: -each.number)
    others = sorted(
        (each for each in kept if not each.number), key=lambda each: each.failed.at if each.failed else "", reverse=True
    )
    return [each.digest for each in (*served[MOST:], *others[MOST:]) if each.digest not in needed]


def newest(kept: Iterable[Kept]) -> Kept | None:
    """The plan that came to serve last; None where none did."""
    return max((each for each in kept if each.number), key=lambda each: each.number, default=None)


def ways_back(kept: Collection[Kept], digest: str) -> list[Kept]:
    """The plans that an instance may go back to from the plan of a digest, the last that served first.

    A plan that was the last to serve is no change, and one that failed since is nothing to go back to.
    """
    last = newest(kept)
    if last is None or last.digest == digest:
        return []
    others = [each for each in kept if each.number and each.digest != digest and each.failed is None]
    return sorted(others, key=lambda each: -each.number)


def goes_with(each: Kept, driver: str) -> bool:
    """Whether a plan served with the driver that is there; driver: its version, empty where it is not known."""
    return each.starts_from.driver in ("", driver) or not driver


def lets_in(files: Mapping[str, str]) -> int:
    """Whom a plan lets ask: 0 those with a key, 1 whoever is on the node, 2 others as well."""
    plan = parse(files[PLAN], {"guarded?": (bool, type(None)), "listen?": dict})
    if plan.get("guarded"):
        return 0
    return 2 if plan.get("listen", {}).get("open_without_keys") else 1


def opens_no_more(each: Kept, files: Mapping[str, str]) -> bool:
    """Whether a plan lets nobody in whom the files of another one keep out."""
    return lets_in(each.files) <= lets_in(files)


def is_over(reason: Reason, tries: int, allowed: int) -> bool:
    """Whether a changed plan that does not come to serve has had its tries; what the node lacks is not its fault."""
    if reason.kind in _OF_THE_NODE:
        return False
    return not reason.retry or reason.kind in _PATIENCE_SPENT or tries >= allowed


def where(disk: Mapping[str, str | None], before: Kept | None, after: Kept) -> str:
    """How far the way back is: "done", "pending" where any file is still that of before, or "moot".

    disk: the files of the instance as they are. A way back is moot where somebody has written another plan since.
    """
    names = [name for name in (*DETERMINING, MOUNTS) if name in after.files]
    if all(disk.get(name) == after.files[name] for name in names):
        return "done"
    known = [after.files, *([] if before is None else [before.files])]
    ours = all(any(disk.get(name) == files.get(name) for files in known) for name in names)
    return "pending" if ours else "moot"


def _numbers(driver: str) -> str:
    """A driver's version without its build, for which its packages have a number and hl-smi a hash."""
    return driver.partition("-")[0]


def refused(kept: Kept | None, starts_from: StartsFrom, instance: str, coming: str = "") -> Refusal | None:
    """Why a plan is not tried again; None where it may be.

    coming: the version of the driver's packages that come before the plan starts; empty for the driver that is there.
    """
    if kept is None or kept.failed is None:
        return None
    failed, name = kept.failed, f"The plan {kept.digest[:SHOWN]} of {instance}"
    if coming:
        same = _numbers(failed.starts_from.driver) == _numbers(coming)
        starts_from = replace(starts_from, driver=failed.starts_from.driver if same else coming)
    if failed.starts_from != starts_from:
        return None
    driver = ", and so is the driver" if coming else ""
    what = f"was taken back at {failed.at} by {failed.by}" if failed.by else f"failed at {failed.at}: {failed.reason}"
    return Refusal(
        "plan_failed_before",
        f"{name} {what.rstrip('.')}. Nothing it starts from has changed since, so {instance} is left as it is{driver}. "
        "Change the inventory, or have the plan tried once more with -e retry=true. playbooks/history.yml shows the "
        "plans.",
    )


def chosen(kept: Iterable[Kept], running: str, to: str, instance: str) -> Kept:
    """The plan that a person goes back to: the one whose digest begins so, or the last that served before this one.

    running: the digest of the instance's plan. Raises Refusal.
    """
    others = sorted((each for each in kept if each.number and each.digest != running), key=lambda each: -each.number)
    if not to:
        found = [each for each in others if each.failed is None][:1]
        none = f"There is no other plan that {instance} served with"
    else:
        found = [each for each in others if each.digest.startswith(to.lower())]
        none = f"{instance} served with no other plan whose digest begins with {to}"
    if len(found) == 1:
        return found[0]
    known = ", ".join(each.digest[:SHOWN] for each in others) or "none"
    if found:
        raise Refusal("plan_ambiguous", f"{to} begins {len(found)} digests. Name more of it. There are: {known}.")
    raise Refusal("no_plan_to_go_back_to", f"{none}. There are: {known}. playbooks/history.yml shows them.")
