"""The runtime proof: a container with the habana runtime lists its devices, which must be the node's cards.

Its image is made from files of the node, so that nothing is pulled: /bin/ls and its libraries. Listing devices acquires
no card.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ..base.printable import printable
from ..base.refusal import Refusal

PROGRAM = "/bin/ls"
FOLDER = "/dev/accel"
IMAGE = "gaudi-serving/runtime-proof:local"
_DEVICE = re.compile(r"accel[0-9]+")
# ldd: libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x...), and the loader by its path alone.
_LINKED = re.compile(r"^\s*(?:\S+ => )?(?P<path>/\S+) \(0x[0-9a-f]+\)", re.MULTILINE)


def linked(ldd: str) -> list[str]:
    """The files that a program is linked to, from what ldd prints."""
    return [match["path"] for match in _LINKED.finditer(ldd)]


def command(docker: str) -> list[str]:
    """The command that runs the container."""
    isolation = ["--network=none", "--cap-drop=ALL", "--security-opt=no-new-privileges"]
    given = ["--env=HABANA_VISIBLE_DEVICES=all"]
    return [docker, "run", "--rm", "--pull=never", "--runtime=habana", *isolation, *given, IMAGE, PROGRAM, "-1", FOLDER]


def devices(names: Iterable[str]) -> list[str]:
    """Return the card devices in a directory that also holds a control device for each card."""
    return sorted(name for name in names if _DEVICE.fullmatch(name))


def facts(engine: str, runtime: Mapping[str, Any], cards: Iterable[str]) -> dict[str, Any]:
    """Return what a proof is valid for: engine version, runtime file (size, time of change), and the node's cards."""
    return {"engine": engine.strip(), "runtime": dict(runtime), "devices": list(cards)}


def refusal(status: int, printed: str, said: str, cards: Iterable[str]) -> Refusal | None:
    """Return why containers do not get the node's cards; None if they do. said: the engine's stderr."""
    there, seen = list(cards), devices(printed.split())
    if status == 0 and seen == there:
        return None
    words = printable(" ".join(said.split())[-300:])
    return Refusal(
        "container_without_cards",
        f"A container with --runtime=habana sees {len(seen)} of the {len(there)} cards in {FOLDER}"
        + (f" ({words})" if words else "")
        + ". Look at runtimes in /etc/docker/daemon.json, at /var/log/habana-container-runtime.log, and whether "
        "habanalabs-container-runtime is of the driver's release.",
    )
