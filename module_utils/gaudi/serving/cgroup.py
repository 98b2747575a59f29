"""Decide whether a process belongs to a container, from both control groups in /proc/PID/cgroup."""

from __future__ import annotations


def is_of_container(of_process: str, of_main: str, container: str) -> bool:
    """Whether a process is in a container's control group, or below it, in every hierarchy that names the container.

    of_process, of_main: /proc/PID/cgroup of the process and of the container's main process. container: its full id.
    The name of a group alone proves nothing, as a user may name a group freely. If the groups of the main process do
    not name the container, no process counts as its own.
    """
    here = _groups(of_process)
    own = {hierarchy: path for hierarchy, path in _groups(of_main).items() if _names(path, container)}
    return bool(own) and all(f"{here.get(hierarchy, '')}/".startswith(f"{path}/") for hierarchy, path in own.items())


def _groups(text: str) -> dict[str, str]:
    """Paths by hierarchy, of cgroup v2's one line and of v1's many."""
    lines = [line.split(":", 2) for line in text.splitlines()]
    return {f"{line[0]}:{line[1]}": line[2] for line in lines if len(line) == 3}


def _names(path: str, container: str) -> bool:
    """The id itself with the cgroupfs driver, docker-ID.scope with systemd's."""
    return bool(container) and any(part in (container, f"docker-{container}.scope") for part in path.split("/"))
