"""How long to wait for an instance, and where things lie on the node."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gaudi.base.paths import KEYS_FILE, UNITS

from . import clock


@dataclass(frozen=True)
class Settings:
    """How often and how long. Seconds, unless the name says otherwise."""

    attempts: int = 5
    attempts_of_change: int = 2
    first_pause: float = 10.0
    stall: float = 1800.0
    # 0: worked out from the plan's graphs and earlier starts.
    longest_start: float = 0.0
    stop_grace: float = 120.0
    engine_wait: float = 300.0
    unhealthy: float = 180.0
    # Of recipes that no plan uses: two caches of the size that releases name by default.
    recipes_gib: int = 80
    # Whether caches are dropped before a start for whose cards low memory has too few free pieces.
    drop_caches: bool = False

    @property
    def uncounted_wait(self) -> float:
        """Seconds to wait for what no try can do without: as long as for an engine, and clear of the start limit."""
        return max(self.engine_wait, clock.CLEAR_OF_LIMIT)


@dataclass(frozen=True)
class Paths:
    """Where things lie on the node."""

    etc: Path = Path("/etc/gaudi-serving")
    state: Path = Path("/var/lib/gaudi-serving")
    programs: Path = Path("/usr/local/lib/gaudi-serving")
    proc: Path = Path("/proc")
    units: Path = Path(UNITS)
    sys: Path = Path("/sys")
    dev: Path = Path("/dev")

    def plan(self, instance: str) -> Path:
        """The plan document."""
        return self.etc / "instances" / instance / "plan.json"

    def environment(self, instance: str) -> Path:
        """docker's env-file, without secrets."""
        return self.etc / "instances" / instance / "environment"

    def keys(self, instance: str) -> Path:
        """The digests of the API keys; a guarded instance does not start without it."""
        return self.etc / "instances" / instance / KEYS_FILE

    def former_keys(self, instance: str) -> Path:
        """API keys as 0.1 kept them, there while a container of 0.1 may still read them."""
        return self.etc / "instances" / instance / "keys" / "api_keys"

    def instance_state(self, instance: str) -> Path:
        """The directory for state.json and the lock."""
        return self.state / "instances" / instance
