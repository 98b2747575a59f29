"""Kept plans of an instance on its node, and going back to one of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..base import paths
from ..base.documents import Damaged, parse
from ..base.refusal import Refusal
from ..serving import kept as decisions
from ..serving.kept import Back, StoredPlan
from .documents import make_room, read, read_text
from .files import sync_folder, write_json, write_text
from .reservations import reserve_again

# What the driver of the cards says of itself.
ASK_DRIVER = ("hl-smi", "-Q", "driver_version", "-f", "csv,noheader")

_CARDS = {"modules": [{"module_id": int, "serial?": (str, type(None))}]}


def weights_digest(folders: Sequence[Path]) -> str:
    """Return a digest of files in folders of weights by name, size and time; "" if one cannot be read."""
    seen = []
    try:
        for folder in folders:
            for path in sorted(folder.iterdir()):
                # Hidden entries hold records of the weights, not weights.
                if not path.name.startswith("."):
                    found = path.stat()
                    seen.append([str(path), found.st_size, found.st_mtime_ns])
    except OSError:
        return ""
    return hashlib.sha256(json.dumps(seen).encode()).hexdigest()


def driver_version(answer: str) -> str:
    """Return the version in the output of ASK_DRIVER, one line a card; "" without output."""
    return next((line.strip() for line in answer.splitlines() if line.strip()), "")


def guard_digest(guard: bytes | None) -> str:
    """A digest of the guard; empty if the instance asks for no keys."""
    return "" if guard is None else hashlib.sha256(guard).hexdigest()


@dataclass(frozen=True)
class InstancePaths:
    """The paths of an instance's files.

    state: directory of its supervisor. plans: the directory with a directory for each instance's plan. units: systemd's
    directory of units.
    """

    instance: str
    state: Path
    plans: Path = Path(paths.INSTANCES)
    units: Path = Path(paths.UNITS)

    @classmethod
    def of(cls, instance: str) -> InstancePaths:
        """Return the paths of an instance on a node."""
        return cls(instance, Path(paths.INSTANCE_STATES) / instance)

    def _target(self, name: str) -> Path:
        if name == decisions.MOUNTS:
            return self.units / f"vllm-{self.instance}.service.d" / paths.MOUNTS_OF_PLAN
        return self.plans / self.instance / name

    def _record(self, digest: str) -> Path:
        return self.state / paths.KEPT / f"{digest}.json"

    def disk(self) -> dict[str, str | None]:
        """Return the files of the plan on the node by name; None for a missing or unreadable one."""
        found: dict[str, str | None] = {}
        for name in decisions.FILES:
            try:
                found[name] = read_text(self._target(name))
            except Damaged:
                found[name] = None
        return found

    def files(self) -> dict[str, str]:
        """Return the readable files of the plan on the node."""
        return {name: text for name, text in self.disk().items() if text is not None}

    def kept(self) -> tuple[list[StoredPlan], list[str]]:
        """Return the kept plans, and for each unreadable one why, as a sentence without a full stop."""
        found, damaged = [], []
        folder = self.state / paths.KEPT
        for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
            try:
                each = read(path, decisions.read)
                if each is not None and each.digest != path.stem:
                    raise Damaged(str(path), "it holds another plan than its name says")
            except Damaged as damage:
                damaged.append(str(damage))
                continue
            if each is not None:
                found.append(each)
        return found, damaged

    def holds(self, digest: str) -> bool:
        """Whether a plan is kept, and can be read."""
        try:
            return read(self._record(digest), decisions.read) is not None
        except Damaged:
            return False

    def keep(self, each: StoredPlan, needed: Collection[str]) -> None:
        """Keep a plan, and delete the oldest beyond the limit, but none that is needed. Raises OSError."""
        path = self._record(each.digest)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        make_room(path)
        write_json(path, each.document(), mode=0o600)
        for digest in decisions.to_forget(self.kept()[0], (each.digest, *needed)):
            self._record(digest).unlink(missing_ok=True)

    def back(self) -> Back | None:
        """Return the decision to go back; None without one. Raises Damaged."""
        return read(self.state / paths.BACK, decisions.read_back)

    def go_back(self, back: Back) -> None:
        """Record the decision to go back; it is valid from then on, after any interruption. Raises OSError."""
        path = self.state / paths.BACK
        make_room(path)
        write_json(path, back.document(), mode=0o600)

    def forget_back(self) -> None:
        """Delete the decision to go back."""
        (self.state / paths.BACK).unlink(missing_ok=True)
        sync_folder(self.state)

    def finish(self, now: str) -> tuple[Back | None, bool]:
        """Finish going back to a kept plan, if that was begun; return it, and whether anything was written.

        Where systemd has files of the instance, it has to read them again. Raises Damaged, Refusal and OSError if it
        cannot be finished; the next attempt continues from what was written.
        """
        back = self.back()
        if back is None:
            return None, False
        plans = {each.digest: each for each in self.kept()[0]}
        after = plans.get(back.after)
        if after is None:
            # The plan is not kept, so the files on the node decide.
            if decisions.digest_of({**dict.fromkeys(decisions.DETERMINING, ""), **self.files()}) == back.after:
                return back, False
            raise Refusal("kept_plan_missing", f"The plan {back.after[: decisions.SHOWN]} is not kept any more")
        how_far = decisions.where(self.disk(), plans.get(back.before), after)
        if how_far == "moot":
            self.forget_back()
            return None, False
        if how_far == "done":
            return back, False
        self.reserve(after, now)
        for name, text in after.files.items():
            path = self._target(name)
            make_room(path)
            path.parent.mkdir(mode=0o755, exist_ok=True)
            write_text(path, text, mode=0o644 if name == decisions.MOUNTS else 0o600)
        return back, True

    def reserve(self, each: StoredPlan, now: str, check_mode: bool = False) -> None:
        """Reserve the cards of a plan for the instance; check mode only checks whether that is possible.

        Raises Refusal if another instance has one of them, and OSError.
        """
        cards = parse(each.files[decisions.PLAN], _CARDS)["modules"]
        reserve_again(self.state.parents[1], self.plans, self.instance, cards, now, check_mode)
