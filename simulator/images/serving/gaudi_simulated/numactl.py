"""Stand-in for numactl in the serving image: the described node's CPUs are checked, the existing ones bound.

What the real numactl refuses of a machine like the described one is refused in its words, with status 1; the real
numactl then binds to those CPUs and memory nodes that this machine has too, and this program says which.
"""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

REAL = "/usr/bin/numactl"
NODE_DOCUMENT = Path("/etc/gaudi-simulator/node.json")
SYSTEM_NODES = Path("/sys/devices/system/node")
USAGE = (
    "usage: numactl [--physcpubind= | -C <cpus>] [--membind= | -m <nodes>] [--preferred= | -p <node>] command args ..."
)
_LIST = re.compile(r"[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*")
_OPTIONS = {
    "-C": "cpus",
    "--physcpubind": "cpus",
    "-m": "membind",
    "--membind": "membind",
    "-p": "preferred",
    "--preferred": "preferred",
}


class Refused(Exception):
    """The tool ends with status 1 and this message."""


@dataclass
class Binding:
    """What was asked for: CPUs and memory nodes, empty where not."""

    cpus: list[int] = field(default_factory=list)
    membind: list[int] = field(default_factory=list)
    preferred: list[int] = field(default_factory=list)
    command: list[str] = field(default_factory=list)


def numbers(text: str) -> list[int]:
    """CPU or node numbers of a list; Refused as numactl refuses what is none."""
    if not _LIST.fullmatch(text):
        raise Refused(f"<{text}> is invalid\n{USAGE}")
    found: set[int] = set()
    for part in text.split(","):
        low, _, high = part.partition("-")
        found |= set(range(int(low), int(high or low) + 1))
    if not found:
        raise Refused(f"<{text}> is invalid\n{USAGE}")
    return sorted(found)


def parse(arguments: list[str]) -> Binding:
    """Parse a command line; Refused when numactl would refuse it on any machine."""
    binding = Binding()
    position = 0
    while position < len(arguments) and arguments[position].startswith("-"):
        option, has_value, value = arguments[position].partition("=")
        if option not in _OPTIONS:
            raise Refused(f"numactl (simulated): {option!r} is not among the options this stand-in checks\n{USAGE}")
        if not has_value:
            position += 1
            if position >= len(arguments):
                raise Refused(f"numactl: option requires an argument -- '{option.lstrip('-')}'\n{USAGE}")
            value = arguments[position]
        setattr(binding, _OPTIONS[option], numbers(value))
        position += 1
    binding.command = arguments[position:]
    if not binding.command:
        raise Refused(USAGE)
    return binding


def check(binding: Binding, node: dict[str, Any]) -> None:
    """Refuse CPUs and memory nodes that the described node does not have."""
    cpus = {cpu for entry in node["numa"] for cpu in numbers(entry["cpus"])}
    nodes = {entry["node"] for entry in node["numa"]}
    if node["numa"]:
        for cpu in binding.cpus:
            if cpu not in cpus:
                raise Refused(f"libnuma: Warning: cpu argument {cpu} is out of range\n\n<{cpu}> is invalid\n{USAGE}")
    for memory in [*binding.membind, *binding.preferred]:
        if memory not in (nodes or {0}):
            raise Refused(f"libnuma: Warning: node argument {memory} is out of range\n\n<{memory}> is invalid\n{USAGE}")
    if len(binding.preferred) > 1:
        raise Refused(f"<{binding.preferred[1]}> is invalid\n{USAGE}")


def reduce(binding: Binding, cpus: set[int], nodes: set[int]) -> list[str]:
    """Return the real numactl's options for what this machine has of the request; empty when it has nothing."""
    options: list[str] = []
    if present := sorted(set(binding.cpus) & cpus):
        options.append(f"--physcpubind={','.join(map(str, present))}")
    if present := sorted(set(binding.membind) & nodes):
        options.append(f"--membind={','.join(map(str, present))}")
    if present := sorted(set(binding.preferred) & nodes):
        options.append(f"--preferred={present[0]}")
    return options


def main(arguments: list[str]) -> NoReturn:
    """Check, bind to what exists, say so, and become the command."""
    if arguments and arguments[0] in ("--hardware", "-H", "--show", "-s"):
        os.execv(REAL, [REAL, *arguments])
    try:
        binding = parse(arguments)
        check(binding, json.loads(NODE_DOCUMENT.read_text(encoding="utf-8")))
    except Refused as refusal:
        print(refusal, file=sys.stderr)
        sys.exit(1)
    nodes = {int(entry.name[4:]) for entry in SYSTEM_NODES.glob("node[0-9]*")}
    options = reduce(binding, os.sched_getaffinity(0), nodes)
    asked = arguments[: len(arguments) - len(binding.command)]
    print(
        f"numactl (simulated): asked {' '.join(asked)}; of this the machine has: {' '.join(options) or 'nothing'}",
        file=sys.stderr,
    )
    environment = {**os.environ, "GAUDI_SIMULATED_NUMACTL": json.dumps({"asked": asked, "bound": options})}
    if options:
        os.execve(REAL, [REAL, *options, *binding.command], environment)
    os.execvpe(binding.command[0], binding.command, environment)


if __name__ == "__main__":
    main(sys.argv[1:])
