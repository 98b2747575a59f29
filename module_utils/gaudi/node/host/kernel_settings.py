"""Read the settings of the running kernel."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ...base.refusal import Refusal
from ...host.sysctl import normal


def running_settings(proc_sys: Path, keys: Iterable[str]) -> dict[str, str]:
    """Return the values of settings that this kernel has. ``proc_sys``: /proc/sys.

    Raises Refusal for a name that is not a single setting, or that the kernel does not show.
    """
    found = {}
    for key in keys:
        path = proc_sys / key.replace(".", "/")
        if path.is_dir():
            raise Refusal(
                "not_a_kernel_setting", f"{key} is a group of kernel settings, not one. Name one of them, below {path}."
            )
        if path.exists():
            try:
                found[key] = normal(path.read_text())
            except OSError as error:
                raise Refusal(
                    "kernel_setting_hidden",
                    f"The kernel does not show {key} ({path}: {error.strerror}), so nobody can tell whether it holds. "
                    "Take it out of host_tuning_sysctl.",
                ) from error
    return found
