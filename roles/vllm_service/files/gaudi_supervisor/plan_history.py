"""The plans that an instance had: each that served is kept; if a new one does not serve, the instance goes back."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from gaudi.base.documents import Damaged, parse
from gaudi.base.refusal import Refusal
from gaudi.faults import words
from gaudi.node.kept import ASK_DRIVER, InstancePaths, driver_version, guard_digest, weights_digest
from gaudi.serving import kept as decisions
from gaudi.serving.failure import EngineGone, Failure, Reason, configuration, is_over, transient
from gaudi.serving.kept import SHOWN, Back, Failed, StartsFrom, StoredPlan
from gaudi.serving.made_of import MadeOf
from gaudi.serving.openness import opened_by
from gaudi.serving.plan import Plan

from .clock import now_text
from .engine import Docker, run_command
from .reporter import Reporter
from .settings import Paths, Settings
from .state import SupervisorState
from .systemd import say


def _driver() -> str:
    """The version of the driver; empty where it does not say."""
    try:
        done = run_command(list(ASK_DRIVER))
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return ""
    return driver_version(done.stdout) if done.returncode == 0 else ""


def _passes(stuck: Exception) -> bool:
    """Whether the obstacle may be gone at the next attempt."""
    return isinstance(stuck, OSError) or (isinstance(stuck, Refusal) and stuck.id == "lock_held")


class PlanHistory:
    """What lies on the node of earlier plans, and the files of the plan that this process has read."""

    def __init__(
        self,
        instance: str,
        settings: Settings,
        paths: Paths,
        docker: Docker,
        state: SupervisorState,
        reporter: Reporter,
    ) -> None:
        """Read nothing yet."""
        self._instance, self._settings, self._docker = instance, settings, docker
        self._state, self._reporter = state, reporter
        self.place = InstancePaths(instance, paths.instance_state(instance), paths.etc / "instances", paths.units)
        # The way back that this start is the end of; None where the instance runs the inventory's plan.
        self.back: Back | None = None
        self.files: dict[str, str] = {}
        self._starts_from: StartsFrom | None = None
        self._plan: Plan | None = None
        self._guard = ""
        self._kept = False
        self._said = False

    def take(self, plan: Plan, made_of: MadeOf) -> None:
        """Take the plan that this start is made of; another one may lie there once it serves."""
        read = {decisions.PLAN: made_of.plan.decode(), decisions.ENVIRONMENT: made_of.environment.decode()}
        self.files = {**self.place.files(), **read}
        self._plan, self._guard = plan, guard_digest(made_of.guard)

    def look(self) -> StartsFrom:
        """What the plan starts from, as it was at the first look. Raises EngineGone."""
        plan = self._plan
        if self._starts_from is None and plan is not None:
            weights = weights_digest([Path(folder) for folder in plan.weight_folders])
            self._starts_from = StartsFrom(self._docker.image_id(plan.image), self._guard, weights, _driver())
        return self._starts_from or StartsFrom("", "", "")

    def driver(self) -> str:
        """The version of the driver at the first look; empty where it did not say, or the plan is not read yet."""
        return "" if self._starts_from is None else self._starts_from.driver

    def read(self) -> list[StoredPlan]:
        """The plans that are kept; one that cannot be read is passed over."""
        found, damaged = self.place.kept()
        for damage in damaged:
            say(f"{damage}. This plan is passed over.", 4)
        return found

    def keep(self) -> None:
        """Keep the plan that serves. A failure ends nothing, and is tried again at the next look.

        A record that is damaged or deleted later is written again: without it a failing change could not go back.
        """
        digest = decisions.digest_of(self.files) if self.files else ""
        if not digest or (self._kept and self.place.holds(digest)):
            return
        try:
            found, now = self.read(), now_text()
            known = next((each for each in found if each.digest == digest), None)
            if not (
                self._state.document.get("attached") and known is not None and known.number and known.failed is None
            ):
                self.place.keep(decisions.serves(found, self.files, self.look(), now), self._needed())
        except (OSError, EngineGone, Failure) as failed:
            if not self._said:
                say(
                    f"The plan that serves cannot be kept ({failed}). The instance goes on, and this is tried again.", 4
                )
            self._said = True
            return
        self._kept = True

    def _needed(self) -> tuple[str, ...]:
        return () if self.back is None else (self.back.before, self.back.after)

    def resume(self) -> bool:
        """Finish going back to an earlier plan after an interruption; True if systemd has to restart the supervisor.

        What may pass is waited for here: systemd does not start it for ever. Raises Failure where there is no end, and
        Stopped.
        """
        deadline = time.monotonic() + self._settings.uncounted_wait
        while True:
            try:
                self._drop_opening_rollback()
                self.back, written = self.place.finish(now_text())
                break
            except Damaged as damage:
                say(f"{damage}. Nobody knows where from and where to, so it is removed.", 4)
                self.place.forget_back()
                return False
            except (Refusal, OSError) as stuck:
                failure = self._stuck(stuck)
                if not _passes(stuck) or time.monotonic() > deadline:
                    raise failure from stuck
            self._reporter.publish("going-back", f"waiting: {failure.reason.message}")
            self._reporter.extend(self._settings.uncounted_wait)
            self._reporter.wait_alive(2.0)
        if written:
            self.reload()
        return written

    def _drop_opening_rollback(self) -> None:
        """Drop a rollback to a more open plan that an earlier release has decided, unless it has been carried out.

        That release compared keys only. Raises Damaged and OSError.
        """
        back = self.place.back()
        if back is None or back.by:
            return
        found = {each.digest: each for each in self.read()}
        before, after = found.get(back.before), found.get(back.after)
        if before is None or after is None or decisions.where(self.place.disk(), before, after) != "pending":
            return
        more = opened_by(after, before.files)
        if more:
            say(f"The plan {after.digest[:SHOWN]} is not restored, because it is more open: {'; '.join(more)}.", 4)
            self.place.forget_back()

    def _stuck(self, stuck: Exception) -> Failure:
        """Why neither the new plan nor the old one can be started."""
        try:
            back = self.place.back()
        except Damaged:
            back = None
        cause = f"It was to go back because {back.text}" if back is not None else ""
        said = words.say("going-back", why=str(stuck).rstrip("."), cause=cause)
        return transient("going-back", said) if _passes(stuck) else configuration("going-back", said)

    def both(self) -> str:
        """Why the plan before this one was given up, as a sentence to end with; empty once this one has served."""
        back = self.back
        if back is None or back.has_served(self.read()):
            return ""
        return f" The instance had gone back to this plan because {back.text}"

    def give_up(self, reason: Reason, tries: int) -> tuple[bool, str]:
        """Go back where a changed plan has had its tries: whether the instance does, and a sentence about it."""
        allowed = self._settings.attempts_of_change
        if not self.files or self.back is not None or not is_over(reason, tries, allowed):
            return False, ""
        found = self.read()
        digest = decisions.digest_of(self.files)
        now = now_text()
        decided = False
        try:
            served, why_not = self._ways(found, digest)
            if reason.kind in ("port-taken", "rendezvous-port-taken"):
                # The plan before has the same port and would fail too. Otherwise any local user could undo a change.
                taken = decisions.ports_of(self.files, reason.kind)
                served = [each for each in served if decisions.ports_of(each.files, reason.kind) != taken]
            if not served:
                return False, why_not
            failed = Failed(reason.message_with_id, now, "", self.look())
            driver = failed.starts_from.driver
            ways = [each for each in served if decisions.goes_with(each, driver)]
            if not ways:
                # The run that changed the driver restores it with its plan, and asks later what became of this one.
                self.place.keep(decisions.fails(found, self.files, failed), ())
                return False, (
                    " The instance cannot go back by itself: it served with the driver "
                    f"{served[0].starts_from.driver}, and the node has {driver} now."
                )
            after = next((each for each in ways if self._has_image(each)), None)
            if after is None:
                return False, " The instance cannot go back: the image of no plan that served is on the node any more."
            # Each step counts from then on, whatever is cut off: remembered, decided, done.
            self.place.keep(decisions.fails(found, self.files, failed), [after.digest])
            self.place.go_back(Back(digest, after.digest, reason.message_with_id, now, "", after.number))
            decided = True
            self.back, written = self.place.finish(now)
        except (OSError, Damaged, Refusal, EngineGone, Failure) as stuck:
            why = str(stuck).rstrip(".")
            if decided and _passes(stuck):
                return True, f" Going back to its former plan is tried again: {why}."
            return False, f" The instance cannot go back to its former plan: {why}."
        if written:
            self.reload()
        return True, f" Going back to the plan {after.digest[:SHOWN]}, which served at {after.served}."

    def _ways(self, found: list[StoredPlan], digest: str) -> tuple[list[StoredPlan], str]:
        """Return the plans that served and open nothing that this one keeps closed, the last first.

        The second value is a sentence if there are only plans that are more open, and empty otherwise.
        """
        all_served = decisions.ways_back(found, digest)
        more_open = {each.digest: opened_by(each, self.files) for each in all_served}
        served = [each for each in all_served if not more_open[each.digest]]
        if served or not all_served:
            return served, ""
        last = all_served[0].digest
        return [], (
            f" The instance is not rolled back by itself: the plan {last[:SHOWN]} from before is more open than this "
            f"one ({'; '.join(more_open[last])}). To run it all the same: ansible-playbook playbooks/rollback.yml "
            f"-e instance={self._instance} -e to={last[:SHOWN]}"
        )

    def _has_image(self, each: StoredPlan) -> bool:
        image = parse(each.files[decisions.PLAN], {"image": str})["image"]
        if self._docker.image_id(image):
            return True
        say(f"The plan {each.digest[:SHOWN]} is passed over: its image {image} is not on the node any more.", 4)
        return False

    def reload(self) -> None:
        """Have systemd read the drop-in of the plan again."""
        try:
            done = run_command(["systemctl", "daemon-reload"])
        except (FileNotFoundError, subprocess.TimeoutExpired) as failed:
            say(f"systemctl daemon-reload: {failed}", 4)
            return
        if done.returncode != 0:
            say(f"systemctl daemon-reload fails: {done.stderr.strip()}", 4)
