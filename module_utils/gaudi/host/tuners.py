"""Other programs that set the processors' speed on a host, and what they would undo."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .state import GOVERNOR


@dataclass(frozen=True)
class Tuner:
    """A program that sets governors: its name, what it sets, and the key of its files that names the governor.

    ``files``: paths and patterns, of which the last assignment counts.
    """

    name: str
    sets: str
    files: Sequence[str] = ()
    key: str = ""


TUNERS: Mapping[str, Tuner] = {
    "auto-cpufreq.service": Tuner("auto-cpufreq", "governor"),
    "cpufrequtils.service": Tuner("cpufrequtils", "governor", ("/etc/default/cpufrequtils",), "GOVERNOR"),
    "cpupower.service": Tuner(
        "cpupower", "governor", ("/etc/sysconfig/cpupower", "/etc/default/cpupower"), "CPUPOWER_START_OPTS|governor"
    ),
    "laptop-mode.service": Tuner("laptop-mode-tools", "governor"),
    "ondemand.service": Tuner("ondemand", "governor"),
    "power-profiles-daemon.service": Tuner(
        "power-profiles-daemon",
        "governor and energy preference",
        ("/var/lib/power-profiles-daemon/state.ini",),
        "Profile",
    ),
    "tlp.service": Tuner(
        "TLP", "governor and energy preference", ("/etc/tlp.conf", "/etc/tlp.d/*.conf"), "CPU_SCALING_GOVERNOR_ON_AC"
    ),
}
"""By the name of their unit. thermald and irqbalance set nothing that the role host_tuning sets."""


def active(units: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return the units among TUNERS that run or start at boot. ``units``: ActiveState and UnitFileState by unit."""
    return [unit for unit in sorted(TUNERS.keys() & units.keys()) if starts(units[unit])]


def starts(unit: Mapping[str, str]) -> bool:
    """Whether a unit runs or starts at boot, by its ActiveState and UnitFileState."""
    return unit.get("ActiveState") in ("active", "activating", "reloading") or unit.get("UnitFileState") in (
        "enabled",
        "enabled-runtime",
        "generated",
    )


def findings(texts: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Say which programs would undo the governor. ``texts``: for each active unit its files, path and text."""
    sentences = []
    for unit, files in sorted(texts.items()):
        tuner = TUNERS[unit]
        path, value = _configured(tuner, files)
        if GOVERNOR in value.split():
            continue
        says = f" ({path} says {value})" if value else ""
        sentences.append(
            f"{tuner.name} ({unit}) sets the {tuner.sets}{says}, and may do so after gaudi-host-tuning.service: the "
            f"governor {GOVERNOR} is then undone. Have it set {GOVERNOR}, or disable it (systemctl disable --now "
            f"{unit})."
        )
    return sentences


def _configured(tuner: Tuner, files: Mapping[str, str]) -> tuple[str, str]:
    """Return the file that names the governor, and the value; both "" if none does."""
    found = ("", "")
    for path, text in files.items():
        for line in text.splitlines() if tuner.key else ():
            match = re.fullmatch(rf"\s*(?:{tuner.key})\s*=\s*(.*?)\s*", line)
            if match:
                found = (path, match.group(1).strip("\"'"))
    return found
