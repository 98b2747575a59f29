"""Print what others own on the node, a line each: container, packages, files, and the settings of their engine."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path

# The second one was started with --rm: this engine removes it whenever it restarts. The third one is paused.
CONTAINERS = ("others", "passing", "paused")
PACKAGES = ("docker-ce", "docker-ce-cli", "containerd.io")
FILES = (
    "/etc/apt/apt.conf.d/zz-others-proxy",
    "/etc/apt/sources.list.d/others-broken.list",
    "/etc/apt/sources.list.d/zz-others-vendor.list",
    "/etc/default/locale",
    "/etc/systemd/system/docker.service.d/site.conf",
    "/usr/share/keyrings/others-vendor.asc",
)
# What a reload of the engine would be seen by, if it changed more than the runtimes.
SETTINGS = ("LoggingDriver", "NoProxy", "LiveRestoreEnabled", "DockerRootDir", "Labels")


def output(*command: str) -> str:
    """What a command prints."""
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def main() -> None:
    """Print all of it."""
    for container in CONTAINERS:
        state = output("docker", "inspect", "--format", "{{.Id}} {{.State.StartedAt}} {{.State.Status}}", container)
        print("container", container, state)
    for package in PACKAGES:
        print(
            "package", output("dpkg-query", "--show", "--showformat=${Package} ${Version} ${db:Status-Status}", package)
        )
    for file in FILES:
        print("file", file, hashlib.sha256(Path(file).read_bytes()).hexdigest())
    info = json.loads(output("docker", "info", "--format", "{{json .}}"))
    for setting in SETTINGS:
        print("engine", setting, info[setting])
    configured = Path("/etc/docker/daemon.json")
    document = json.loads(configured.read_text()) if configured.exists() else {}
    print("daemon.json without our runtime", sorted(document.keys() - {"runtimes"}))


if __name__ == "__main__":
    main()
