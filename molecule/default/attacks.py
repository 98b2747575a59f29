"""Attack what serves on this node: from inside its container, from a neighbouring one, and as a local user.

Prints what got through; the status is 1 where something did. Each attack is tried as well where nothing keeps it, so
that one that cannot succeed does not pass. Afterwards the instance serves again.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.append("/usr/local/lib/gaudi-serving")
from gaudi.base.paths import INSTANCE_STATES, INSTANCES
from gaudi.serving.closed_ports import table_of

INSTANCE, PORT = "simulated-tiny", 30001
NAME = f"vllm-{INSTANCE}"
UNIT = f"{NAME}.service"
CACHE = f"/data/recipe_cache/{INSTANCE}"
STATE = Path(INSTANCE_STATES, INSTANCE, "state.json")
NEIGHBOUR = "attacks-neighbour"
VISITOR = "attacks-visitor"
# Of the node, which a container of the node's IPC sees.
SHARED = Path("/dev/shm", NEIGHBOUR)  # noqa: S108 - this is about that directory
NOBODY = 65534
AS_USER = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
SECONDS = 60
START_SECONDS = 300

# What hostile code of a model tries: to write where its container has something of the node's, and to be more than it
# is. Prints what worked.
INSIDE = """
import errno, os, sys
def tries(what, act):
    try:
        act()
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EPERM, errno.EACCES):
            print(what, "ended otherwise:", error)
    else:
        print(what, "worked")
for place in sys.argv[1:]:
    if os.path.isdir(place):
        tries(f"a new file in {place}", lambda: open(os.path.join(place, "attack"), "w"))
        tries(f"a link in {place}", lambda: os.symlink("/etc/shadow", os.path.join(place, "attack-link")))
    else:
        tries(f"writing to {place}", lambda: open(place, "a"))
for place in ("/attack", "/etc/passwd", "/usr/attack", "/sys/kernel/attack", "/proc/sys/vm/nr_hugepages"):
    tries(f"writing to {place}", lambda: open(place, "a"))
tries("a device", lambda: os.mknod("/tmp/attack", 0o60600, os.makedev(8, 0)))
tries("raw packets", lambda: __import__("socket").socket(17, 3))
print("looked")
"""

# A process of the server that listens on every address, as the store of PyTorch does, until somebody sends it a word;
# and who comes to it.
OPEN = """
import socket, sys
with socket.create_server(("", int(sys.argv[1]))) as door:
    while True:
        with door.accept()[0] as visitor:
            if visitor.recv(16):
                break
"""
CONNECT = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), 5) as door:
    door.sendall(sys.argv[3].encode())
"""

# Listens over IPv6 alone, at the port of its first argument.
OVER_IPV6 = """
import socket, sys
door = socket.socket(socket.AF_INET6)
door.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
door.bind(("::", int(sys.argv[1])))
door.listen()
"""

# Answers whoever asks as a server would, and writes down what it was sent.
LISTENER = """
import json, socket, sys
with socket.socket() as door:
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    door.bind(("127.0.0.1", int(sys.argv[1])))
    door.listen(16)
    print("listens", flush=True)
    body = json.dumps({"object": "list", "data": [{"id": sys.argv[2]}]}).encode()
    while True:
        visitor, _ = door.accept()
        visitor.settimeout(2)
        try:
            print(repr(visitor.recv(4096)), flush=True)
            visitor.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(body) + body)
        except OSError as error:
            print(repr(error), flush=True)
        visitor.close()
"""


def run(*command: str, status: int | None = 0, data: str = "", errors: bool = True) -> str:
    """What a command printed. Raises RuntimeError where it ends otherwise than it should."""
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=SECONDS, input=data)
    if status is not None and done.returncode != status:
        raise RuntimeError(f"{command} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout + (done.stderr if errors else "")


def until(what: str, holds: Callable[[], bool], seconds: float = START_SECONDS) -> None:
    """Wait until something holds. Raises TimeoutError."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come within {seconds} seconds")
        time.sleep(0.2)


def inspected() -> dict[str, Any]:
    """What the engine says of the server's container; empty where there is none."""
    found: list[dict[str, Any]] = json.loads(run("docker", "container", "inspect", NAME, status=None, errors=False))
    return found[0] if found else {}


def out_of_the_container() -> Iterator[str]:
    """Write where the container has something of the node's, and gain rights."""
    # What the plan lets it write to is its own: the cache of recipes.
    theirs = [mount for mount in inspected()["Mounts"] if mount["Type"] == "bind" and mount["Destination"] != CACHE]
    places = [str(mount["Destination"]) for mount in theirs]
    if not places:
        raise RuntimeError("the container has nothing of the node's: nothing was tried")
    *worked, last = run("docker", "exec", NAME, "python3", "-c", INSIDE, *places).splitlines()
    if last != "looked":
        raise RuntimeError(f"the attack ended early: {[*worked, last]}")
    yield from worked
    # Where nothing keeps it the same works: otherwise it would prove nothing.
    image = str(inspected()["Config"]["Image"])
    with tempfile.TemporaryDirectory() as folder:
        free = ("--network", "host", "--volume", f"{folder}:/attack-here", "--entrypoint", "python3")
        said = run("docker", "run", "--rm", *free, image, "-c", INSIDE, "/attack-here")
    for what in (
        "a new file in /attack-here",
        "a link in /attack-here",
        "writing to /attack",
        "a device",
        "raw packets",
    ):
        if f"{what} worked" not in said:
            yield f"without isolation {what} does not work either, so that this attack proves nothing: {said}"


def shared_memory() -> Iterator[str]:
    """Read the memory that a neighbour and the node share, and have them read the server's."""
    see = ("test", "-e", str(SHARED))
    SHARED.write_text("somebody else's", encoding="ascii")
    run("docker", "exec", NEIGHBOUR, *see)
    if _succeeds("docker", "exec", NAME, *see):
        yield "the server sees the shared memory of the node"
    SHARED.unlink()
    run("docker", "exec", NAME, "touch", str(SHARED))
    for who, place in (("the node", ()), ("the neighbour", ("docker", "exec", NEIGHBOUR))):
        if _succeeds(*place, *see):
            yield f"{who} sees the shared memory of the server"
    run("docker", "exec", NAME, "rm", str(SHARED))


def _succeeds(*command: str) -> bool:
    return subprocess.run(command, check=False, capture_output=True, timeout=SECONDS).returncode == 0


def ports() -> Iterator[str]:
    """Reach ports of the server's processes from elsewhere than this node."""
    pids = {int(line) for line in run("docker", "top", NAME, "-eo", "pid").split()[1:]}
    listed = run("ss", "--no-header", "--listening", "--tcp", "--numeric", "--processes").splitlines()
    of_server = [line.split() for line in listed if any(f"pid={pid}," in line for pid in pids)]
    local = [words[3] for words in of_server]
    if f"127.0.0.1:{PORT}" not in local:
        raise RuntimeError(f"the server's own port is not among {local}: nothing was looked at")
    first, last = closed_ports()
    for address in local:
        closed = first <= int(address.rpartition(":")[2]) <= last
        if not (closed or address.startswith(("127.", "[::1]"))):
            yield f"the server listens at {address}, which others reach"


def closed_ports() -> tuple[int, int]:
    """The first and the last port of the server's own processes."""
    first, last = json.loads(Path(INSTANCES, INSTANCE, "plan.json").read_text(encoding="utf-8"))["listen"][
        "closed_ports"
    ]
    return first, last


def own_ports() -> Iterator[str]:
    """Reach, over the network, a port that a process of the server has opened to everybody."""
    _, port = closed_ports()

    def connects(address: str, *through: str, word: str = "") -> bool:
        return _succeeds(*through, "python3", "-c", CONNECT, address, str(port), word)

    gateway = run("ip", "-4", "-oneline", "address", "show", "docker0").split()[3].partition("/")[0]
    run("docker", "exec", "--detach", NAME, "python3", "-c", OPEN, str(port))
    until("the open port", lambda: connects("127.0.0.1"), SECONDS)
    image = str(inspected()["Config"]["Image"])
    run("docker", "run", "--detach", "--name", VISITOR, "--entrypoint=sleep", image, "infinity")

    def reached() -> bool:
        return connects(gateway, "docker", "exec", VISITOR)

    def reached_without_rules() -> bool:
        run("nft", "delete", "table", "inet", table_of(INSTANCE), status=None)
        return reached()

    try:
        if reached():
            yield f"port {port} of the server's own processes is open to others"
        # Where nothing keeps it the same works: otherwise it would prove nothing.
        until("a way in without the rules", reached_without_rules, SECONDS)
        # The supervisor sees that they are gone, and has them back.
        until("the rules", lambda: not reached(), SECONDS)
    finally:
        run("docker", "rm", "--force", VISITOR)
        connects("127.0.0.1", word="end")


def emergency() -> Iterator[str]:
    """Print a line that the journal would take for an emergency, with what a terminal acts on."""
    mark = f"attacks: on fire {os.getpid()}"
    line = f"<0>{mark} \x1b[2J\x1b]0;owned\x07 end\n"
    run("docker", "exec", "--interactive", NAME, "sh", "-c", "cat > /proc/1/fd/1", data=line)
    asked = ("journalctl", "--quiet", "--no-pager", f"--unit={UNIT}", "--output=json", f"--grep={mark}", "--lines=1")
    until("the line in the journal", lambda: run(*asked, status=None, errors=False) != "", SECONDS)
    entry = json.loads(run(*asked, errors=False))
    # journalctl gives what is no text as numbers.
    message = entry["MESSAGE"] if isinstance(entry["MESSAGE"], str) else bytes(entry["MESSAGE"]).decode()
    if entry["PRIORITY"] != "6":
        yield f"a line of the server has the priority {entry['PRIORITY']}"
    if not message.isprintable():
        yield f"a line of the server reaches terminals as {message!r}"


@contextlib.contextmanager
def listener() -> Iterator[tuple[Path, str]]:
    """A local user who listens at the server's port; gives what he was sent, and how the supervisor calls him."""
    heard = Path("/run", f"{NEIGHBOUR}.heard")
    with heard.open("w", encoding="utf-8") as out:
        command = [*AS_USER, "python3", "-c", LISTENER, str(PORT), INSTANCE]
        with subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd="/") as work:
            try:
                until("the listener", lambda: work.poll() is not None or heard.read_text() != "", SECONDS)
                yield heard, f"pid {work.pid}, uid {NOBODY}"
            finally:
                work.send_signal(signal.SIGKILL)
    heard.unlink()


def state() -> str:
    """What the supervisor says of the instance."""
    return STATE.read_text(encoding="utf-8") if STATE.exists() else ""


def active() -> str:
    """What systemd says of the instance."""
    return run("systemctl", "is-active", UNIT, status=None).strip()


def listens_over_ipv6() -> bool:
    """Whether a local user can listen at the server's port over IPv6 alone; the server uses IPv4."""
    return _succeeds(*AS_USER, "python3", "-c", OVER_IPV6, str(PORT))


def the_other_family() -> Iterator[str]:
    """Listen over IPv6 beside the server, for those who try that first, also while nobody supervises it."""
    if listens_over_ipv6():
        yield "while the server serves"
    run("systemctl", "kill", "--signal=KILL", UNIT)
    if listens_over_ipv6():
        yield "while no supervisor runs"
    until("another supervisor", lambda: active() == "active", SECONDS)
    if listens_over_ipv6():
        yield "beside a supervisor that systemd started again"
    run("systemctl", "reload", UNIT)
    until("the program on disk", lambda: '"phase": "serving"' in state(), SECONDS)
    if listens_over_ipv6():
        yield "beside a supervisor that was replaced"


def the_port_first() -> Iterator[str]:
    """Listen at the server's port before it starts, and while it loads: get what is sent there, and pass for it."""
    run("systemctl", "stop", UNIT)
    if not listens_over_ipv6():
        raise RuntimeError("nobody could listen over IPv6, also without a server")
    # systemd counts starts, those of what was tried before included.
    run("systemctl", "reset-failed", UNIT, status=None)
    with listener() as (heard, who):
        if heard.read_text() != "listens\n":
            raise RuntimeError(f"nobody could listen: {heard.read_text()}")
        run("systemctl", "start", "--no-block", UNIT)
        until("a word about the port", lambda: who in state(), SECONDS)
        yield from _fooled(heard)
    run("systemctl", "stop", UNIT)
    run("systemctl", "start", "--no-block", UNIT)
    until("the container", lambda: bool(inspected()), SECONDS)
    with listener() as (heard, who):
        if heard.read_text() != "listens\n":
            raise RuntimeError(f"the server was there before the attack: {heard.read_text()}")
        until("a word about the port", lambda: who in state())
        yield from _fooled(heard)
    # It is tried again by itself; nobody waits for that here.
    run("systemctl", "stop", UNIT)
    run("systemctl", "reset-failed", UNIT, status=None)
    subprocess.run(["systemctl", "start", UNIT], check=True, timeout=START_SECONDS)


def _fooled(heard: Path) -> Iterator[str]:
    said = heard.read_text().splitlines()[1:]
    if said:
        yield f"the listener was sent {said}"
    if active() == "active":
        yield "the instance counts as serving while somebody else listens at its port"


ATTACKS: tuple[Callable[[], Iterator[str]], ...] = (
    out_of_the_container,
    shared_memory,
    ports,
    own_ports,
    emergency,
    the_other_family,
    the_port_first,
)


def main() -> int:
    """Attack, and say what got through."""
    image = str(inspected()["Config"]["Image"])
    plain = ("--network=host", "--ipc=host", "--entrypoint=sleep", image, "infinity")
    run("docker", "run", "--detach", "--name", NEIGHBOUR, *plain)
    try:
        through = [f"{attack.__name__}: {what}" for attack in ATTACKS for what in attack()]
    finally:
        run("docker", "rm", "--force", NEIGHBOUR)
        SHARED.unlink(missing_ok=True)
    print("\n".join(through))
    return 1 if through else 0


if __name__ == "__main__":
    sys.exit(main())
