"""Print what a node is made of, a line each: packages, files with their content, units, modules of the driver.

Not what any run of apt or systemd writes for itself, nor what is the simulator's own.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

PLACES = (
    "/boot",
    "/data",
    "/etc",
    "/home",
    "/lib/systemd",
    "/opt",
    "/root",
    "/usr/bin",
    "/usr/local",
    "/usr/share/keyrings",
    "/var/lib",
)
LEFT_OUT = (
    "/etc/gaudi-simulator",
    "/etc/ld.so.cache",
    # Written again, with the same lines in another order and copies of the last ones, whenever a user or group comes.
    "/etc/group-",
    "/etc/gshadow-",
    "/etc/passwd-",
    "/etc/shadow-",
    "/etc/subgid-",
    "/etc/subuid-",
    "/root/.ansible",
    "/home/gaudi/.ansible",
    "/var/lib/apt",
    # Layers of images that the simulator gave the node before it started.
    "/var/lib/docker",
    "/var/lib/dpkg",
    "/var/lib/gaudi-simulator",
    "/var/lib/systemd",
)


def files(place: Path) -> Iterator[str]:
    """What lies below a folder, with mode and content."""
    for path in sorted(place.iterdir()) if place.is_dir() else []:
        if str(path) in LEFT_OUT:
            continue
        if path.is_symlink():
            yield f"{path} -> {path.readlink()}"
        elif path.is_dir():
            yield f"{path}/ {path.stat().st_mode:o}"
            yield from files(path)
        elif path.is_file():
            yield f"{path} {path.stat().st_mode:o} {hashlib.sha256(path.read_bytes()).hexdigest()}"


def said(*command: str) -> list[str]:
    """The lines that a program prints, sorted."""
    return sorted(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines())


def main() -> None:
    """Print it."""
    lines = said("dpkg-query", "--show", "--showformat=${Package} ${Version} ${db:Status-Abbrev}\n")
    lines += [line for place in PLACES for line in files(Path(place))]
    lines += said("systemctl", "list-unit-files", "--no-legend", "--plain", "--state=enabled")
    lines += [line.split()[0] for line in said("lsmod") if line.startswith("habana")]
    lines += [str(path) for path in sorted(Path("/dev").glob("accel/*"))]
    print("\n".join(lines))


if __name__ == "__main__":
    main()
