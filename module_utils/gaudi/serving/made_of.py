"""The label of a container: a digest of everything it was made of, to compare a running container with a plan."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True)
class MadeOf:
    """Everything that determines a container: bytes of plan.json, its environment file and the guard (or None).

    API keys are not part of it: the guard reloads them, so they change without a restart.
    """

    plan: bytes
    environment: bytes
    guard: bytes | None
    # Whether the plan comes from a release of this project whose guard may have been replaced on disk since. Then any
    # label of ours is accepted, as nothing is started from such a plan.
    former: bool = False

    @property
    def digest(self) -> str:
        """Return the digest, 64 hexadecimal digits."""
        guard = b"open" if self.guard is None else b"guarded by " + hashlib.sha256(self.guard).hexdigest().encode()
        return hashlib.sha256(b"\0".join([self.plan, self.environment, guard])).hexdigest()

    @property
    def _earlier_digest(self) -> str:
        """Return the digest of release 0.1: it contains whether there is a guard, but not which."""
        guarded = b"open" if self.guard is None else b"guarded"
        return hashlib.sha256(b"\0".join([self.plan, self.environment, guarded])).hexdigest()

    @property
    def labels(self) -> tuple[str, str]:
        """Return all labels that such a container may have; accepting that of 0.1 saves a warm-up."""
        return self.digest, self._earlier_digest

    def is_on(self, label: str | None) -> bool:
        """Whether a container with this label was made of it."""
        return label in self.labels or (self.former and label is not None)
