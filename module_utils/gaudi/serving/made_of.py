"""What a container was made of, as one digest on its label: what runs is compared with what is wished."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True)
class MadeOf:
    """What determines a container: bytes of plan.json, of its environment file, and of the guard; None without keys.

    The keys themselves are not part of it: the guard reads them anew, so that they change without a restart.
    """

    plan: bytes
    environment: bytes
    guard: bytes | None
    # Whether the plan is of a release whose guard may have been replaced on the disk since: then any label will do, as
    # long as it is one of ours. Nothing is started from such a plan.
    former: bool = False

    @property
    def digest(self) -> str:
        """Stand for all of it; 64 hexadecimal digits."""
        guard = b"open" if self.guard is None else b"guarded by " + hashlib.sha256(self.guard).hexdigest().encode()
        return hashlib.sha256(b"\0".join([self.plan, self.environment, guard])).hexdigest()

    @property
    def _earlier_digest(self) -> str:
        """The digest of 0.1: whether there is a guard, and not which."""
        guarded = b"open" if self.guard is None else b"guarded"
        return hashlib.sha256(b"\0".join([self.plan, self.environment, guarded])).hexdigest()

    @property
    def labels(self) -> tuple[str, str]:
        """The labels that a container made of it may have. One of 0.1 costs no warm-up."""
        return self.digest, self._earlier_digest

    def is_on(self, label: str | None) -> bool:
        """Tell whether a container with this label was made of it."""
        return label in self.labels or (self.former and label is not None)
