"""Work that tries the node's sockets, the pipe of init, devices, and folders of others. Its result says which work."""

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

SOCKETS = ("/run/systemd/private", "/run/dbus/system_bus_socket", "/run/docker.sock")
PIPE = "/run/initctl"
# What lies there, root's programs run or install: plans of instances, packages, other work, requests.
FOLDERS = ("/var/lib/gaudi-serving", "/var/lib/gaudi-serving/jobs", "/etc/gaudi-serving/weights")


def connect(path: str) -> None:
    """Connect to a listener. Raises OSError."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)


def open_pipe(path: str) -> None:
    """Open a pipe as a writer, and write nothing. Raises OSError."""
    os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))


def write(folder: str) -> None:
    """Make a folder in a folder, and remove it. Raises OSError."""
    made = Path(folder, "made-by-work")
    made.mkdir()
    made.rmdir()


def reached(attempt: Callable[[str], None], path: str) -> bool:
    """Whether an attempt succeeds."""
    try:
        attempt(path)
    except OSError as error:
        print(f"{path}: {error.strerror}")
        return False
    return True


socket.getaddrinfo("localhost", 80)
found = {path: reached(connect, path) for path in SOCKETS}
found[PIPE] = reached(open_pipe, PIPE)
found |= {folder: reached(write, folder) for folder in FOLDERS}
# Cards stand for all devices, such as disks, which nodes of the simulator do not have.
found["/dev/accel"] = Path("/dev/accel").exists()
Path(os.environ["GAUDI_JOB_RESULT"]).write_text(json.dumps(found), encoding="utf-8")
