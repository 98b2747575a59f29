"""Kept plans of an instance: which are kept, which one it goes back to, and which is refused.

A plan is identified by the digest of its determining files. The image, guard or weights that it starts from may change
under the same digest. So a failed plan counts as failed only while these are the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..base.documents import parse
from ..base.refusal import Refusal

SCHEMA = 1
# Plans that served, and the same number that never did.
MOST = 5
PLAN, ENVIRONMENT, EXPLANATION, MOUNTS = "plan.json", "environment", "explanation.json", "mounts"
# Without these files nothing can start. The others do not determine the plan: new explanations make no new plan.
DETERMINING = (PLAN, ENVIRONMENT)
FILES = (*DETERMINING, EXPLANATION, MOUNTS)
# Digits of a digest that people see and may type.
SHOWN = 12

_START = {"image": str, "guard": str, "weights": str, "driver?": str}
_FAILED = {"reason": str, "at": str, "by": str, "starts_from": _START}
_FORM = {"files": {str: str}, "starts_from": _START, "number": int, "served": str, "failed?": _FAILED}
_BACK = {"before": str, "after": str, "reason": str, "at": str, "by": str, "number?": int}


@dataclass(frozen=True)
class StartsFrom:
    """What a plan starts from beside its files: image id, digests of guard and weights, driver version.

    A field is "" if there is none, or if it is unknown.
    """

    image: str
    guard: str
    weights: str
    driver: str = ""


@dataclass(frozen=True)
class Failed:
    """Why and when a plan was given up. by: the person who took it back; "" for the supervisor."""

    reason: str
    at: str
    by: str
    starts_from: StartsFrom


@dataclass(frozen=True)
class StoredPlan:
    """One plan of an instance: the files that describe it, and its outcome.

    number: the instance's count of successful starts at the last one with this plan; 0 if it never served. Unlike the
    clock it never goes back. served: the time of that start.
    """

    files: Mapping[str, str]
    starts_from: StartsFrom
    number: int = 0
    served: str = ""
    failed: Failed | None = None

    @property
    def digest(self) -> str:
        """The plan's digest, 64 hexadecimal digits."""
        return digest_of(self.files)

    def document(self) -> dict[str, Any]:
        """Return the content of its file."""
        document = {**vars(self), "schema": SCHEMA, "files": dict(self.files), "starts_from": vars(self.starts_from)}
        if self.failed is None:
            del document["failed"]
        else:
            document["failed"] = {**vars(self.failed), "starts_from": vars(self.failed.starts_from)}
        return document


@dataclass(frozen=True)
class Back:
    """The decision that an instance goes back from one plan (before) to another (after): why, when and by whom.

    number: ``number`` of the plan that it goes back to, at the time of the decision; 0 if an earlier release decided.
    """

    before: str
    after: str
    reason: str
    at: str
    by: str
    number: int = 0

    def document(self) -> dict[str, Any]:
        """Return the content of back.json."""
        return {"schema": SCHEMA, **vars(self)}

    def has_served(self, kept: Iterable[StoredPlan]) -> bool:
        """Whether the plan that the instance went back to has served since then; kept: the instance's kept plans."""
        after = next((each for each in kept if each.digest == self.after), None)
        return after is not None and (after.number > self.number if self.number else after.served >= self.at)

    @property
    def text(self) -> str:
        """Why the abandoned plan does not run, as the end of a sentence."""
        if self.by:
            return f"{self.by} took the plan {self.before[:SHOWN]} back at {self.at}"
        return f"the plan {self.before[:SHOWN]} failed at {self.at}: {self.reason}"


def digest_of(files: Mapping[str, str]) -> str:
    """Return the digest of a plan's determining files, 64 hexadecimal digits."""
    return hashlib.sha256("\0".join(files[name] for name in DETERMINING).encode()).hexdigest()


def read(text: str) -> StoredPlan:
    """Parse a kept plan. Raises ValueError with the defect, in a clause that begins with "it"."""
    document = parse(text, _FORM, SCHEMA)
    files = {name: document["files"][name] for name in FILES if name in document["files"]}
    if any(name not in files for name in DETERMINING):
        raise ValueError("it lacks a file of the plan")
    failed = None
    if "failed" in document:
        said = document["failed"]
        failed = Failed(said["reason"], said["at"], said["by"], _start(said["starts_from"]))
    return StoredPlan(files, _start(document["starts_from"]), document["number"], document["served"], failed)


def read_back(text: str) -> Back:
    """Parse the decision to go back. Raises ValueError as read does."""
    document = parse(text, _BACK, SCHEMA)
    names = [name.rstrip("?") for name in _BACK]
    return Back(**{name: document[name] for name in names if name in document})


def _start(said: Mapping[str, str]) -> StartsFrom:
    return StartsFrom(said["image"], said["guard"], said["weights"], said.get("driver", ""))


def serves(kept: Iterable[StoredPlan], files: Mapping[str, str], starts_from: StartsFrom, now: str) -> StoredPlan:
    """Return the entry to keep for a plan that has just served; kept: the instance's kept plans so far."""
    return StoredPlan(dict(files), starts_from, 1 + max((each.number for each in kept), default=0), now)


def fails(kept: Iterable[StoredPlan], files: Mapping[str, str], failed: Failed) -> StoredPlan:
    """Return the entry to keep for a plan that failed, or that somebody took back."""
    before = next(
        (each for each in kept if each.digest == digest_of(files)), StoredPlan(dict(files), failed.starts_from)
    )
    return replace(before, failed=failed)


def to_forget(kept: Collection[StoredPlan], needed: Collection[str]) -> list[str]:
    """Return digests of plans to delete, beyond the limit of each kind; none that is still needed."""
    served = sorted((each for each in kept if each.number), key=lambda each: -each.number)
    others = sorted(
        (each for each in kept if not each.number), key=lambda each: each.failed.at if each.failed else "", reverse=True
    )
    return [each.digest for each in (*served[MOST:], *others[MOST:]) if each.digest not in needed]


def newest(kept: Iterable[StoredPlan]) -> StoredPlan | None:
    """Return the plan that served last; None if none did."""
    return max((each for each in kept if each.number), key=lambda each: each.number, default=None)


def ways_back(kept: Collection[StoredPlan], digest: str) -> list[StoredPlan]:
    """Return the plans that an instance may go back to from this plan, the last that served first.

    None if this plan itself was the last to serve, as then nothing changed. Plans that failed since are left out.
    """
    last = newest(kept)
    if last is None or last.digest == digest:
        return []
    others = [each for each in kept if each.number and each.digest != digest and each.failed is None]
    return sorted(others, key=lambda each: -each.number)


def ports_of(files: Mapping[str, str], kind: str) -> tuple[Any, ...]:
    """Return the ports that a failure of this kind is about, of the plan with these files.

    kind: port-taken (the server's port) or rendezvous-port-taken (those between its own processes).
    """
    plan = parse(files[PLAN], {"listen": {"port": int}, "environment": {str: str}})
    if kind == "port-taken":
        return (plan["listen"]["port"],)
    return tuple(plan["environment"].get(name) for name in ("VLLM_PORT", "MASTER_PORT"))


def goes_with(each: StoredPlan, driver: str) -> bool:
    """Whether a plan served with the present driver; driver: its version, "" if unknown."""
    return each.starts_from.driver in ("", driver) or not driver


def where(disk: Mapping[str, str | None], before: StoredPlan | None, after: StoredPlan) -> str:
    """Return the state of going back: "done", "pending" if a file is still of the old plan, or "moot".

    disk: the instance's files now. It is moot if somebody has written another plan since.
    """
    names = [name for name in (*DETERMINING, MOUNTS) if name in after.files]
    if all(disk.get(name) == after.files[name] for name in names):
        return "done"
    known = [after.files, *([] if before is None else [before.files])]
    ours = all(any(disk.get(name) == files.get(name) for files in known) for name in names)
    return "pending" if ours else "moot"


def _numbers(driver: str) -> str:
    """Return a driver's version without its build, which is a number in packages and a hash in hl-smi."""
    return driver.partition("-")[0]


def refused(kept: StoredPlan | None, starts_from: StartsFrom, instance: str, coming: str = "") -> Refusal | None:
    """Return the refusal of a plan that failed before; None if it may be tried.

    coming: version of a driver that is installed before the plan starts; "" if the present one stays.
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
        "Change the inventory, or have the plan tried again with -e retry=true. playbooks/history.yml shows the "
        "plans.",
    )


def chosen(kept: Iterable[StoredPlan], running: str, to: str, instance: str) -> StoredPlan:
    """Return the plan to go back to: the one with this beginning of a digest, or the last one that served before.

    running: the digest of the instance's plan. Raises Refusal for none, or for several.
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
